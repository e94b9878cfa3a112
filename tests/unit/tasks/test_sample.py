"""Samples: their distribution, conditioned and distinct ones, and their randomness."""

import itertools
import math
import time
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import tasks.draws
from tasks import RuleAnd, SparseAnd, TaskError

P_LIMIT = 1e-3
"""Seeds are fixed, so a chi-square below this does not come and go: it means another distribution."""


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def index(x: torch.Tensor) -> torch.Tensor:
    """Each row's number, position 0 most significant."""
    return x @ (2 ** torch.arange(x.shape[1] - 1, -1, -1))


def test_samples_have_the_task_s_distribution() -> None:
    task = RuleAnd(4, ((0,), (1, 3)), p=0.7, rule_positions=(2,))
    n = 40_000
    x = task.sample(n, generator(1))
    assert x.shape == (n, 4)
    assert x.dtype == torch.int64
    expected = task.log_probability(task.enumerate()).exp() * n
    assert chisquare(index(x).bincount(minlength=16), expected).pvalue > P_LIMIT


def test_samples_under_a_rule_keep_the_other_bits_distribution() -> None:
    task = RuleAnd(5, ((0,), (2,), (3,), (0, 2)), p=0.3, rule_positions=(4, 1))
    x = task.sample(20_000, generator(2), rule=2)
    assert x[:, 4].unique().tolist() == [1]
    assert x[:, 1].unique().tolist() == [0]
    others = [math.prod(0.3 if bit else 0.7 for bit in bits) for bits in itertools.product((0, 1), repeat=3)]
    counts = index(x[:, [0, 2, 3]]).bincount(minlength=8)
    assert chisquare(counts, np.array(others) * len(x)).pvalue > P_LIMIT


def test_every_rule_can_be_asked_for() -> None:
    task = RuleAnd(6, ((0,), (1,), (2,), (3,)), rule_positions=(5, 4))
    for rule in range(4):
        assert task.rule(task.sample(13, generator(rule), rule=rule)).tolist() == [rule] * 13


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("n_ctx", [9, 23])
def test_the_generator_alone_decides(n_ctx: int, distinct: bool) -> None:
    task = SparseAnd(n_ctx, (1, 5))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    source = generator(7)
    first, second = task.sample(50, source, distinct=distinct), task.sample(50, source, distinct=distinct)
    torch.manual_seed(3)
    again = task.sample(50, generator(7), distinct=distinct)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture(params=["list", "rejection"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of drawing distinct rows on the same small problem."""
    if request.param == "rejection":
        monkeypatch.setattr(tasks.draws, "LIST_ALL_UP_TO", 0)
    return request.param


@pytest.mark.usefixtures("way")
def test_distinct_draws_are_successive_draws_without_replacement() -> None:
    task = SparseAnd(2, (0,), p=0.6)
    p = {(0, 0): 0.16, (0, 1): 0.24, (1, 0): 0.24, (1, 1): 0.36}
    source, n = generator(4), 6000
    pairs = Counter(tuple(map(tuple, task.sample(2, source, distinct=True).tolist())) for _ in range(n))
    expected = {(a, b): p[a] * p[b] / (1 - p[a]) for a, b in itertools.permutations(p, 2)}
    assert pairs.keys() == expected.keys()
    counts = [pairs[pair] for pair in expected]
    assert chisquare(counts, [n * share for share in expected.values()]).pvalue > P_LIMIT


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("n_ctx", [1, 3, 6])
def test_all_distinct_inputs_at_once(n_ctx: int) -> None:
    task = SparseAnd(n_ctx, (0,))
    x = task.sample(2**n_ctx, generator(5), distinct=True)
    assert sorted(x.tolist()) == task.enumerate().tolist()
    assert x.dtype == torch.int64


@pytest.mark.usefixtures("way")
def test_distinct_under_a_rule_fixes_the_rule_bits() -> None:
    task = RuleAnd(5, ((0,), (1,), (3,), (0, 1)), rule_positions=(4, 2))
    x = task.sample(8, generator(6), rule=1, distinct=True)
    assert task.rule(x).tolist() == [1] * 8
    assert len(x.unique(dim=0)) == 8
    with pytest.raises(TaskError, match=r"9 distinct samples asked for, but only 2\*\*3 = 8 inputs exist; ask for few"):
        task.sample(9, generator(6), rule=1, distinct=True)


@pytest.mark.parametrize("n_ctx", [16, 17, 40])
def test_distinct_samples_do_not_repeat(n_ctx: int) -> None:
    x = SparseAnd(n_ctx, (3, 8, 11)).sample(1500, generator(8), distinct=True)
    assert len(x.unique(dim=0)) == len(x) == 1500


def test_independent_samples_do_repeat() -> None:
    assert len(SparseAnd(3, (0,)).sample(100, generator(9)).unique(dim=0)) <= 8


def test_too_many_distinct_samples_are_refused_at_once() -> None:
    start = time.perf_counter()
    with pytest.raises(TaskError, match=r"1073741825 distinct.* only 2\*\*30 = 1073741824 inputs exist; ask for fewer"):
        SparseAnd(30, (0,)).sample(2**30 + 1, generator(10), distinct=True)
    assert time.perf_counter() - start < 1


def test_a_hopeless_search_for_distinct_samples_ends() -> None:
    start = time.perf_counter()
    with pytest.raises(TaskError, match=r"only 1 of 50 distinct samples turned up in 5000 draws; ask for fewer, or "):
        SparseAnd(17, (0,), p=1e-9).sample(50, generator(11), distinct=True)
    assert time.perf_counter() - start < 5


def test_extreme_p_with_few_bits_still_lists_every_input() -> None:
    for p in (5e-324, 1e-300, 1 - 2**-53):
        x = SparseAnd(7, (0,), p=p).sample(128, generator(12), distinct=True)
        assert len(x.unique(dim=0)) == 128


@pytest.mark.parametrize("n", [0, -3])
def test_no_samples(n: int) -> None:
    with pytest.raises(TaskError, match=rf"n = {n} samples; ask for at least 1"):
        SparseAnd(5, (0,)).sample(n, generator(0))


@pytest.mark.parametrize("rule", [2, -1])
def test_unknown_rule(rule: int) -> None:
    with pytest.raises(TaskError, match=rf"rule {rule} does not exist; this task has rules 0 to 1"):
        RuleAnd(5, ((0,), (1,))).sample(3, generator(0), rule=rule)


def test_a_task_without_rule_bits_has_rule_0_only() -> None:
    task = SparseAnd(5, (0,))
    assert torch.equal(task.sample(3, generator(0), rule=0), task.sample(3, generator(0)))
    with pytest.raises(TaskError, match="rule 1 does not exist; this task has rules 0 to 0"):
        task.sample(3, generator(0), rule=1)


def test_numpy_integers_are_indices_and_sizes() -> None:
    task = SparseAnd(np.int64(9), targets=tuple(np.array([8, 2])))  # pyright: ignore[reportArgumentType]
    assert task == SparseAnd(9, targets=(2, 8))
    assert type(task.targets[0][0]) is int
