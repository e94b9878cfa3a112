"""The input distribution: balance, the tutorial's p, P(label = True), all against enumeration."""

import math

import pytest
import torch

from tasks import Conjunction, RuleAnd, SparseAnd

TASKS = [
    SparseAnd(1, (0,)),
    SparseAnd(6, (1, 4, 5)),
    SparseAnd(10, range(10)),
    RuleAnd(7, ((0, 1), (2, 3))),
    RuleAnd(7, ((0,), (1, 2, 3)), rule_positions=(4,)),
    RuleAnd(8, ((0,), (0, 2), (3, 4, 5), (0, 2, 3, 4)), rule_positions=(7, 1)),
    RuleAnd(9, ((0,), (1,), (1, 2), (5,), (0, 5), (2,), (0, 1, 2, 3, 4, 5), (3,))),
]


def enumerated_p_true(task: Conjunction) -> float:
    x = task.enumerate()
    return float(task.log_probability(x).exp()[task.label(x)].sum())


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_balanced_makes_both_labels_equally_likely(task: Conjunction) -> None:
    assert enumerated_p_true(task) == pytest.approx(0.5, abs=1e-14)
    assert task.p_true == pytest.approx(0.5, abs=1e-14)


@pytest.mark.parametrize("s", [1, 2, 3, 7, 18, 200])
def test_balanced_p_of_equal_sizes(s: int) -> None:
    assert SparseAnd(200, range(s)).p == 0.5 ** (1 / s)
    if 2 * s < 200:
        assert RuleAnd(200, (range(s), range(s, 2 * s))).p == 0.5 ** (1 / s)


def test_balanced_p_of_sizes_1_and_2_is_the_golden_ratio() -> None:
    # (p + p**2) / 2 = 1/2
    assert RuleAnd(4, ((0,), (1, 2))).p == pytest.approx((math.sqrt(5) - 1) / 2, abs=1e-15)


def test_tutorial_p_ignores_the_size() -> None:
    for s in (1, 3, 18):
        assert SparseAnd(30, range(s), p="tutorial").p == 0.5 ** (1 / 3)
        assert RuleAnd(40, (range(s), range(s, 2 * s)), p="tutorial").p == 0.5**0.5
    # The tutorial's dense task is empty: 0.5**(18/3) = 1/64 of labels are True.
    assert SparseAnd(30, range(18), p="tutorial").p_true == pytest.approx(1 / 64, rel=1e-14)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.93])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_p_true_is_the_enumerated_probability(task: Conjunction, p: float) -> None:
    kind = SparseAnd(task.n_ctx, task.targets[0], p)
    if task.rule_positions:
        kind = RuleAnd(task.n_ctx, task.targets, p, task.rule_positions)
    assert kind.p_true == pytest.approx(enumerated_p_true(kind), rel=1e-12)


def test_p_true_by_hand() -> None:
    assert SparseAnd(5, (0, 1, 2), p=0.5).p_true == 1 / 8
    assert RuleAnd(5, ((0,), (1, 2)), p=0.25).p_true == (1 / 4 + 1 / 16) / 2


def test_input_probabilities_by_hand() -> None:
    x = SparseAnd(2, (0,)).enumerate()
    probability = SparseAnd(2, (0,), p=0.25).log_probability(x).exp()
    torch.testing.assert_close(probability, torch.tensor([9, 3, 3, 1], dtype=torch.float64) / 16)
    ruled = RuleAnd(2, ((0,), (0,)), p=0.25).log_probability(x).exp()  # bit 1 is fair
    torch.testing.assert_close(ruled, torch.tensor([3, 3, 1, 1], dtype=torch.float64) / 8)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_input_probabilities_sum_to_one(task: Conjunction) -> None:
    log_probability = task.log_probability(task.enumerate())
    assert log_probability.dtype == torch.float64
    assert float(log_probability.exp().sum()) == pytest.approx(1, abs=1e-13)
