"""or, majority, parity: every input against a definition that shares nothing with the code."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
import torch
from scipy.stats import binom, chisquare

from tasks import Junta, Majority, Or, Parity, TargetFunction, TaskError, draw_dataset

DEFINITION = {
    "or": lambda bits: any(bits),
    "majority": lambda bits: bits.count(1) > bits.count(0),
    "parity": lambda bits: bits.count(1) % 2 == 1,
    "junta": lambda bits: bits in {(0, 1, 1), (1, 0, 0), (1, 1, 1)},
}
TABLE = "00011001"
"""Entries 3 (011), 4 (100) and 7 (111) are True."""
TASKS = [
    *(kind(1, (0,)) for kind in (Or, Majority, Parity)),
    *(kind(7, (6, 0, 2)) for kind in (Or, Majority, Parity)),
    *(kind(6, (1, 2, 4, 5), p=0.3) for kind in (Or, Majority, Parity)),
    *(kind(9, range(9)) for kind in (Or, Majority, Parity)),
    Junta(1, (0,), "10"),
    Junta(7, (0, 2, 6), TABLE),
    Junta(8, (1, 4, 5), TABLE, p=0.7),
]


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def truth(task: TargetFunction, bits: tuple[int, ...]) -> bool:
    if task.n_ctx == 1:
        return (bits == (0,)) if task.NAME == "junta" else (bits == (1,))
    return DEFINITION[task.NAME](tuple(bits[i] for i in task.targets[0]))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_labels_are_the_definition_on_every_input(task: TargetFunction) -> None:
    inputs = list(itertools.product((0, 1), repeat=task.n_ctx))
    labels = task.label(torch.tensor(inputs))
    assert labels.tolist() == [truth(task, bits) for bits in inputs]
    assert labels.dtype == torch.bool
    assert task.rule(torch.tensor(inputs)).tolist() == [0] * len(inputs)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_p_true_is_the_exact_sum_over_all_inputs(task: TargetFunction) -> None:
    p = Fraction(task.p)
    inputs = itertools.product((0, 1), repeat=task.n_ctx)
    exact = sum(math.prod(p if b else 1 - p for b in bits) for bits in inputs if truth(task, bits))
    assert task.p_true == float(exact)  # rounded once


def test_p_true_of_many_targets_is_scipy_s() -> None:
    for s, p in itertools.product((30, 1200), (0.01, 0.47, 0.5)):
        assert Or(s, range(s), p).p_true == pytest.approx(1 - (1 - p) ** s, rel=1e-12)
        assert Majority(s, range(s), p).p_true == pytest.approx(binom.sf(s // 2, s, p), rel=1e-9)
        assert Parity(s, range(s), p).p_true == pytest.approx((1 - (1 - 2 * p) ** s) / 2, rel=1e-12)


@pytest.mark.parametrize("s", [1, 2, 3, 4, 7, 18, 200])
def test_balanced_makes_both_labels_equally_likely(s: int) -> None:
    assert Or(200, range(s)).p == 1 - 0.5 ** (1 / s)
    assert Parity(200, range(s)).p == 0.5
    assert s % 2 == 0 or Majority(200, range(s)).p == 0.5
    for kind in (Or, Majority, Parity):
        assert kind(200, range(s)).p_true == pytest.approx(0.5, abs=1e-12)


def test_a_tie_is_false() -> None:
    task = Majority(5, (0, 2))  # both must be 1, as in an AND, whose balanced p is sqrt(1/2)
    assert task.label(torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 0, 0]])).tolist() == [False, True]
    assert task.p == pytest.approx(math.sqrt(0.5), abs=1e-15)


def test_what_they_say_of_themselves() -> None:
    for kind, name in ((Or, "or"), (Majority, "majority"), (Parity, "parity")):
        task = kind(5, (-1, 2), p=0.25)
        assert task == kind(5, (2, 4), p=0.25)
        assert task.variables == ("inputs", name, "label")
        assert (task.candidates, task.bit_probability, task.rule_positions) == ((0, 1, 2, 3, 4), (0.25,) * 5, ())
    assert Or(5, (1, 2), p=0.5) != Parity(5, (1, 2), p=0.5)


@pytest.mark.usefixtures("unchecked")
def test_bits_may_be_any_integer_type() -> None:
    for task in TASKS:
        x = task.enumerate()
        for dtype in (torch.uint8, torch.int32):
            assert torch.equal(task.label(x.to(dtype)), task.label(x))


@pytest.mark.parametrize("kind", [Or, Majority, Parity])
def test_drawn_targets_are_uniform_and_the_seed_s(kind: type[TargetFunction]) -> None:
    generator = seeded(3)
    counts = Counter(kind.draw(5, 2, generator).targets[0] for _ in range(2000))
    assert counts.keys() == set(itertools.combinations(range(5), 2))
    assert chisquare(list(counts.values())).pvalue > 1e-3
    assert kind.draw(20, 4, seeded(4), p=0.2) == kind.draw(20, 4, seeded(4), p=0.2) != kind.draw(20, 4, seeded(5), 0.2)


def test_a_data_set_holds_both_labels_in_their_shares() -> None:
    for kind in (Or, Majority, Parity):
        x, y = draw_dataset(kind(11, (1, 4, 7, 8)), 4000, seeded(6))
        assert torch.equal(y, kind(11, (1, 4, 7, 8)).label(x))
        assert abs(float(y.double().mean()) - 0.5) < 0.03


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_sensitive_patterns_have_the_task_s_distribution(task: TargetFunction) -> None:
    s, n = len(task.targets[0]), 3000
    for which in range(s):
        weights = {}
        for bits in itertools.product((0, 1), repeat=s):
            full, flipped = ([0] * task.n_ctx for _ in range(2))
            for i, position in enumerate(task.targets[0]):
                full[position], flipped[position] = bits[i], bits[i] ^ (i == which)
            if truth(task, tuple(full)) and not truth(task, tuple(flipped)):
                weights[bits] = math.prod(task.p if b else 1 - task.p for b in bits)
        drawn = Counter(map(tuple, task.draw_sensitive(which, n, seeded(7 + which)).tolist()))
        assert drawn.keys() <= weights.keys()
        expected = [n * w / sum(weights.values()) for w in weights.values()]
        if len(weights) == 1:
            assert drawn == {next(iter(weights)): n}
        else:
            assert chisquare([drawn[bits] for bits in weights], expected).pvalue > 1e-3


def test_sensitive_patterns_that_hardly_ever_occur() -> None:
    for task in (Or(40, range(40), p=0.9), Majority(40, range(40), p=1e-9), Parity(40, range(40), p=1e-9)):
        bits = task.draw_sensitive(17, 50, seeded())
        assert task.of_targets(bits).all()
        bits[:, 17] = 1 - bits[:, 17]
        assert not task.of_targets(bits).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Or(5, ()), "the target set of rule 0 is empty; give at least one index"),
        (lambda: Majority(5, (5,)), r"targets of rule 0: index 5 is outside \[0, 5\)"),
        (lambda: Parity(5, (1, -4)), "index 1 is given twice; name each index once"),
        (lambda: Or(0, (0,)), "n_ctx is 0; a task needs a whole number of input bits, at least 1"),
        (lambda: Or(5, (0,), p=1.0), r"p = 1.0 is outside \(0, 1\)"),
        (lambda: Parity(5, (0,), "tutorial"), r"p = 'tutorial' is not a probability"),  # pyright: ignore[reportArgumentType]
        (lambda: Majority.draw(5, 6, seeded()), "6 target indices asked for, but only 5 positions are free"),
        (lambda: Or.draw(5, 0, seeded()), r"target sets of sizes \[0\]; each needs at least 1 index"),
        (lambda: Or.draw(0, 1, seeded()), "n_ctx is 0; a task needs"),
        (lambda: Parity(4, (1, 2)).label(torch.zeros(2, 3, dtype=torch.int64)), r"inputs have shape \(2, 3\)"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_impossible_tasks(make, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        make()
