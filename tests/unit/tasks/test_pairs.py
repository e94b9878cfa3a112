"""Pairs that differ in one bit: which bit, and what it does to the label."""

import itertools
from typing import cast

import pytest
import torch
from scipy.stats import chisquare

from tasks import (
    Conjunction,
    Junta,
    Majority,
    Or,
    Parity,
    RuleAnd,
    SparseAnd,
    TargetFunction,
    TaskError,
    draw_pairs,
    flip_bits,
)
from tasks.pairs import PairKind, Pairs

SPARSE = SparseAnd(7, (1, 4, 5))
RULE = RuleAnd(11, ((2, 7), (8, 9)))
UNEQUAL = RuleAnd(9, ((0,), (2, 3), (0, 2, 6), (3, 5, 6, 7)), rule_positions=(8, 1))
EVERY_RULE = [(task, rule) for task in (SPARSE, RULE, UNEQUAL) for rule in range(task.n_rules)]
FUNCTIONS = [
    Or(7, (1, 4, 5)),
    Majority(8, (0, 2, 3, 7), p=0.3),
    Parity(7, (6, 1)),
    Junta(9, (2, 3, 7), "00011001"),
]
N = 60


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check_one_bit(task: Conjunction, pairs: Pairs, rule: int) -> None:
    """Exactly the named bit differs; rule and labels are those of a definition independent of the code."""
    rows = zip(pairs.clean.tolist(), pairs.corrupted.tolist(), pairs.position.tolist(), strict=True)
    labels = []
    for clean, corrupted, position in rows:
        assert [i for i in range(task.n_ctx) if clean[i] != corrupted[i]] == [position]
        assert set(clean) | set(corrupted) <= {0, 1}
        in_force = [int("0" + "".join(str(x[i]) for i in task.rule_positions), 2) for x in (clean, corrupted)]
        assert in_force[0] == rule
        pair = zip((clean, corrupted), in_force, strict=True)
        labels.append([all(x[i] for i in task.targets[r]) for x, r in pair])
    assert pairs.rule.tolist() == [rule] * len(pairs.clean)
    assert torch.stack([pairs.clean_label, pairs.corrupted_label], dim=1).tolist() == labels


@pytest.mark.parametrize(("task", "rule"), EVERY_RULE, ids=str)
def test_target_pairs_turn_true_into_false(task: Conjunction, rule: int) -> None:
    pairs = draw_pairs(task, "target", N, seeded(), rule=rule)
    check_one_bit(task, pairs, rule)
    assert set(pairs.position.tolist()) == set(task.targets[rule])
    assert pairs.clean_label.tolist() == [True] * N
    assert pairs.corrupted_label.tolist() == [False] * N


@pytest.mark.parametrize(("task", "rule"), EVERY_RULE, ids=str)
def test_non_target_pairs_keep_the_label(task: Conjunction, rule: int) -> None:
    pairs = draw_pairs(task, "non-target", N, seeded(), rule=rule)
    check_one_bit(task, pairs, rule)
    assert set(pairs.position.tolist()) == set(range(task.n_ctx)) - {*task.targets[rule], *task.rule_positions}
    assert pairs.clean_label.tolist() == [True] * N
    assert pairs.corrupted_label.tolist() == [True] * N


@pytest.mark.parametrize(
    ("task", "rule", "position"),
    [
        *((RULE, 0, None), (RULE, 1, None), (RULE, 1, 10)),
        *((UNEQUAL, 0, 8), (UNEQUAL, 0, 1), (UNEQUAL, 2, None), (UNEQUAL, 1, 8), (UNEQUAL, 3, 1), (UNEQUAL, 3, -1)),
    ],
    ids=str,
)
def test_rule_pairs_turn_true_into_false(task: Conjunction, rule: int, position: int | None) -> None:
    pairs = draw_pairs(task, "rule", N, seeded(), rule=rule, position=position)
    check_one_bit(task, pairs, rule)
    expected = task.rule_positions[-1] if position is None else position % task.n_ctx
    assert pairs.position.tolist() == [expected] * N
    assert pairs.clean_label.tolist() == [True] * N
    assert pairs.corrupted_label.tolist() == [False] * N


def test_rule_pairs_clear_any_target_of_the_other_rule_that_is_not_shared() -> None:
    task = RuleAnd(7, ((0, 1), (1, 2, 3)))
    pairs = draw_pairs(task, "rule", N, seeded(), rule=0)
    cleared = {i for row in pairs.clean.tolist() for i in task.targets[1] if row[i] == 0}
    assert cleared == {2, 3}


@pytest.mark.parametrize("task", FUNCTIONS, ids=str)
def test_pairs_of_functions_of_targets(task: TargetFunction) -> None:
    targets = set(task.targets[0])
    for kind, positions in (("target", targets), ("non-target", set(range(task.n_ctx)) - targets)):
        for position in (None, *positions):
            pairs = draw_pairs(task, cast(PairKind, kind), N, seeded(), position=position)
            assert ((pairs.clean != pairs.corrupted).sum(dim=1) == 1).all()
            assert (pairs.clean != pairs.corrupted).nonzero()[:, 1].tolist() == pairs.position.tolist()
            assert set(pairs.position.tolist()) == (positions if position is None else {position})
            assert torch.equal(pairs.clean_label, task.label(pairs.clean))
            assert torch.equal(pairs.corrupted_label, task.label(pairs.corrupted))
            assert pairs.clean_label.all()
            assert bool(pairs.corrupted_label.any()) == (kind == "non-target")
            assert pairs.rule.tolist() == [0] * N


def test_the_bits_outside_the_targets_keep_their_distribution() -> None:
    task, n = Majority(5, (1, 2, 4), p=0.3), 6000
    for kind in ("target", "non-target"):
        pairs = draw_pairs(task, cast(PairKind, kind), n, seeded(4))
        others = (2 * pairs.clean[:, 0] + pairs.clean[:, 3]).bincount(minlength=4)
        assert chisquare(others, [n * 0.49, n * 0.21, n * 0.21, n * 0.09]).pvalue > 1e-3
        # two of three targets are 1 in every input in which some target decides
        assert (pairs.clean[:, [1, 2, 4]].sum(dim=1) == 2).all()
        assert (
            chisquare((4 * pairs.clean[:, 1] + 2 * pairs.clean[:, 2] + pairs.clean[:, 4]).bincount()[[3, 5, 6]]).pvalue
            > 1e-3
        )


@pytest.mark.parametrize(("kind", "position"), [("target", 4), ("non-target", 6), ("target", -3), ("non-target", -7)])
def test_a_given_position_is_the_one_that_flips(kind, position: int) -> None:
    pairs = draw_pairs(SPARSE, kind, 13, seeded(), position=position)
    assert pairs.position.tolist() == [position % 7] * 13
    check_one_bit(SPARSE, pairs, 0)


def test_positions_are_uniform_and_the_other_bits_keep_their_distribution() -> None:
    task, n = SparseAnd(5, (1, 2, 4), p=0.3), 6000
    pairs = draw_pairs(task, "target", n, seeded(3))
    assert chisquare(pairs.position.bincount(minlength=5)[[1, 2, 4]]).pvalue > 1e-3
    others = (2 * pairs.clean[:, 0] + pairs.clean[:, 3]).bincount(minlength=4)
    assert chisquare(others, [n * 0.49, n * 0.21, n * 0.21, n * 0.09]).pvalue > 1e-3


def test_the_generator_alone_decides() -> None:
    before = torch.get_rng_state()
    first, again, other = (draw_pairs(RULE, "rule", 20, seeded(s), rule=1) for s in (5, 5, 6))
    assert torch.equal(first.clean, again.clean)
    assert not torch.equal(first.clean, other.clean)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_pair_and_one_bit() -> None:
    pairs = draw_pairs(SparseAnd(1, (0,)), "target", 1, seeded())
    assert (pairs.clean.tolist(), pairs.corrupted.tolist()) == ([[1]], [[0]])


@pytest.mark.parametrize(
    ("task", "kind", "options", "message"),
    [
        (SPARSE, "target", {"position": 0}, r"position 0 is not a target position; those are \[1, 4, 5\]"),
        (SPARSE, "non-target", {"position": 4}, r"position 4 is not a non-target position; those are \[0, 2, 3, 6\]"),
        (SPARSE, "target", {"position": 7}, r"position: index 7 is outside \[0, 7\)"),
        (SPARSE, "target", {"position": -8}, r"position: index -8 is outside \[0, 7\)"),
        (RULE, "non-target", {"position": 10}, r"position 10 is not a non-target position"),
        (RULE, "target", {"rule": 1, "position": 2}, r"position 2 is not a target position; those are \[8, 9\]"),
        (UNEQUAL, "rule", {"position": 0}, r"position 0 is not a rule position; those are \[8, 1\]"),
        (SPARSE, "rule", {}, r"sparse-and has no rule bit to flip; use kind 'target' or 'non-target'"),
        (SparseAnd(3, range(3)), "non-target", {}, r"this task has no non-target position to flip"),
        (SPARSE, "target", {"rule": 1}, r"rule 1 does not exist; this task has rules 0 to 0"),
        (RULE, "rule", {"rule": -1}, r"rule -1 does not exist; this task has rules 0 to 1"),
        (FUNCTIONS[0], "rule", {}, "or has no rule bit to flip; use kind 'target' or 'non-target'"),
        (FUNCTIONS[0], "target", {"position": 0}, r"position 0 is not a target position; those are \[1, 4, 5\]"),
        (FUNCTIONS[2], "non-target", {"position": 6}, "position 6 is not a non-target position"),
        (FUNCTIONS[3], "target", {"rule": 1}, "rule 1 does not exist; this task has rules 0 to 0"),
        (Parity(2, (0, 1)), "non-target", {}, "this task has no non-target position to flip"),
        (SPARSE, "traget", {}, r"kind 'traget' is not known; choose one of \('target', 'non-target', 'rule'\)"),
        (
            RuleAnd(6, ((0, 1, 2), (0, 2))),
            "rule",
            {},
            r"every target of rule 1 \(0, 2\) is one of rule 0 \(0, 1, 2\): no input is True under rule 0 and False "
            r"under rule 1; start from rule 1",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_impossible_pairs(task: Conjunction | TargetFunction, kind, options: dict, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        draw_pairs(task, kind, 5, seeded(), **options)


def test_the_way_out_of_nested_targets_works() -> None:
    pairs = draw_pairs(RuleAnd(6, ((0, 1, 2), (0, 2))), "rule", 9, seeded(), rule=1)
    assert pairs.corrupted_label.tolist() == [False] * 9


def test_no_pairs() -> None:
    with pytest.raises(TaskError, match="n = 0 samples; ask for at least 1"):
        draw_pairs(SPARSE, "target", 0, seeded())


def test_flip_bits_on_every_input_and_position() -> None:
    x = SparseAnd(4, (0,)).enumerate()
    kept = x.clone()
    for position in range(4):
        flipped = flip_bits(x, torch.full((16,), position))
        wanted = [[b ^ (i == position) for i, b in enumerate(row)] for row in itertools.product((0, 1), repeat=4)]
        assert flipped.tolist() == wanted
    assert torch.equal(x, kept)


@pytest.mark.usefixtures("unchecked")
def test_flip_bits_needs_one_position_for_each_input() -> None:
    with pytest.raises(TaskError, match=r"\(1,\) positions for 3 inputs; give one position for each input"):
        flip_bits(torch.zeros(3, 5, dtype=torch.int64), torch.tensor([2]))
