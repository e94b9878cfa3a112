"""Labels and rules over all 2**T inputs, against a definition that shares nothing with the code."""

import itertools

import pytest
import torch

from tasks import Conjunction, RuleAnd, SparseAnd, TaskError

SPARSE = [
    SparseAnd(1, (0,)),
    SparseAnd(2, (1,)),
    SparseAnd(5, (1, 3)),
    SparseAnd(7, (6, 0, 2)),
    SparseAnd(10, range(10)),
]
RULE = [
    RuleAnd(2, ((0,), (0,))),
    RuleAnd(3, ((0,), (2,)), rule_positions=(1,)),
    RuleAnd(5, ((0, 1), (1, 2, 3))),
    RuleAnd(6, ((5,), (1, 2, 3, 4)), rule_positions=(0,)),
    RuleAnd(8, ((0,), (2, 3), (2, 4, 6), (0, 3, 4, 7)), rule_positions=(5, 1)),
    RuleAnd(9, ((0, 1), (2, 3), (4, 5), (6,))),
    RuleAnd(10, ((1,), (2, 3), (5, 6, 7), (8,), (1, 8), (2,), (3, 5), (1, 2, 3, 5, 6, 7, 8)), rule_positions=(9, 0, 4)),
    RuleAnd(4, ((0,),) * 8, rule_positions=(3, 1, 2)),
]


def ids(task: Conjunction) -> str:
    return f"T{task.n_ctx}-{task.targets}-{task.rule_positions}"


def rule_of(bits: tuple[int, ...], positions: tuple[int, ...]) -> int:
    return int("0" + "".join(str(bits[i]) for i in positions), base=2)


@pytest.mark.parametrize("task", SPARSE + RULE, ids=ids)
def test_labels_and_rules_are_the_definition_on_every_input(task: Conjunction) -> None:
    inputs = list(itertools.product((0, 1), repeat=task.n_ctx))
    rules = [rule_of(bits, task.rule_positions) for bits in inputs]
    labels = [all(bits[i] == 1 for i in task.targets[rule]) for bits, rule in zip(inputs, rules, strict=True)]
    x = torch.tensor(inputs)
    assert task.rule(x).tolist() == rules
    assert task.label(x).tolist() == labels
    assert task.label(x).dtype == torch.bool
    assert task.enumerate().tolist() == [list(bits) for bits in inputs]  # same order: position 0 most significant


def test_a_selector_bit_by_hand() -> None:
    task = RuleAnd(3, ((0,), (2,)), rule_positions=(1,))  # bit 1 = 0 selects bit 0, bit 1 = 1 selects bit 2
    truth = {"000": 0, "001": 0, "010": 0, "011": 1, "100": 1, "101": 1, "110": 0, "111": 1}
    for text, label in truth.items():
        assert task.label(torch.tensor([[int(bit) for bit in text]])).tolist() == [bool(label)], text


def test_rule_bits_are_read_most_significant_first() -> None:
    task = RuleAnd(6, ((0,), (1,), (2,), (3,)), rule_positions=(5, 4))
    x = torch.tensor([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1]])
    assert task.rule(x).tolist() == [0, 1, 2, 3]
    assert [task.rule_bits(rule) for rule in range(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_rule_bits_come_last_by_default() -> None:
    assert RuleAnd(5, ((0,), (1,))).rule_positions == (4,)
    assert RuleAnd(5, ((0,),) * 4).rule_positions == (3, 4)
    assert RuleAnd(5, ((0,),) * 8).rule_positions == (2, 3, 4)


def test_negative_indices_count_from_the_end() -> None:
    assert SparseAnd(7, (-1, 2, -7)) == SparseAnd(7, (0, 2, 6))
    assert RuleAnd(5, ((-2,), (0, -3)), rule_positions=(-1,)) == RuleAnd(5, ((3,), (0, 2)), rule_positions=(4,))


def test_target_order_does_not_matter_but_rule_order_does() -> None:
    assert SparseAnd(7, (4, 1)).targets == ((1, 4),)
    assert SparseAnd(7, (4, 1)) == SparseAnd(7, (1, 4))
    sets = ((0,), (1,), (2,), (3,))
    assert RuleAnd(6, sets, rule_positions=(4, 5)) != RuleAnd(6, sets, rule_positions=(5, 4))


def test_what_a_task_says_of_itself() -> None:
    sparse, rule = SparseAnd(4, (1,), p=0.25), RuleAnd(4, ((0,), (3,)), p=0.25, rule_positions=(2,))
    assert (sparse.n_rules, rule.n_rules) == (1, 2)
    assert (sparse.candidates, rule.candidates) == ((0, 1, 2, 3), (0, 1, 3))
    assert (sparse.bit_probability, rule.bit_probability) == ((0.25,) * 4, (0.25, 0.25, 0.5, 0.25))
    assert sparse.variables == ("inputs", "and", "label")
    assert rule.variables == ("inputs", "rule", "selected", "and", "label")
    assert sparse.rule(torch.ones(3, 4, dtype=torch.int64)).tolist() == [0, 0, 0]
    assert sparse.rule_bits(0) == ()


def test_no_inputs_give_no_labels_and_one_gives_one() -> None:
    task = RuleAnd(5, ((0, 1), (2,)))
    assert task.label(torch.zeros(0, 5, dtype=torch.int64)).shape == (0,)
    assert task.label(torch.ones(1, 5, dtype=torch.int64)).shape == (1,)


@pytest.mark.usefixtures("unchecked")
def test_bits_may_be_any_integer_type() -> None:
    task = RuleAnd(6, ((0, 1), (2,)))
    x = task.enumerate()
    for dtype in (torch.uint8, torch.int32):
        assert torch.equal(task.label(x.to(dtype)), task.label(x))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 4, dtype=torch.int64), r"shape \(2, 4\).*takes integers \[batch, pos\] with pos = 3"),
        (torch.zeros(3, dtype=torch.int64), r"shape \(3,\)"),
        (torch.zeros(2, 3), r"type torch.float32; this task takes integers"),
        (torch.tensor([[0, 2, 1]]), r"range from 0 to 2; every bit must be 0 or 1"),
        (torch.tensor([[0, -1, 1]]), r"range from -1 to 1; every bit must be 0 or 1"),
    ],
)
@pytest.mark.parametrize("method", ["label", "rule", "log_probability"])
@pytest.mark.usefixtures("unchecked")
def test_inputs_that_are_not_bits_are_refused(method: str, x: torch.Tensor, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        getattr(RuleAnd(3, ((0,), (1,))), method)(x)


def test_too_many_inputs_to_list() -> None:
    with pytest.raises(TaskError, match=r"2\*\*21 inputs are too many to list \(limit n_ctx = 20\); use sample\(\)"):
        SparseAnd(21, (0,)).enumerate()
