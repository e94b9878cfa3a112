"""Index sets that a sample leaves possible, against a look at every set."""

import math
import time
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import Junta, Majority, Or, Parity, SparseAnd, TaskError
from tasks.identify import KINDS, consistent_sets, minimal_and_sets, smallest_identifying_sample

TASKS = {"sparse-and": SparseAnd, "or": Or, "majority": Majority, "parity": Parity}


def label(kind, x, chosen):
    return TASKS[kind](x.shape[1], chosen, 0.5).label(x)


def every_consistent_set(x, y, kind, s):
    return {c for c in combinations(range(x.shape[1]), s) if torch.equal(label(kind, x, c), y)}


samples = st.integers(0, 2**32).map(lambda seed: torch.Generator().manual_seed(seed))


@settings(max_examples=150, deadline=None)
@given(samples, st.sampled_from(KINDS), st.integers(1, 4), st.integers(0, 9), st.integers(4, 8), st.booleans())
def test_every_consistent_set_is_found_once(generator, kind, s, n_rows, n_ctx, from_a_set):
    x = torch.randint(0, 2, (n_rows, n_ctx), generator=generator)
    chosen = torch.randperm(n_ctx, generator=generator)[:s].tolist()
    y = label(kind, x, chosen) if from_a_set else torch.randint(0, 2, (n_rows,), generator=generator) == 1
    sets, more = consistent_sets(x, y, kind, s, 1000)
    assert len(sets) == len(set(sets))
    assert set(sets) == every_consistent_set(x, y, kind, s)
    assert not more


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_64_rows_too(kind):
    task = TASKS[kind].draw(9, 3, torch.Generator().manual_seed(1))
    x = task.sample(150, torch.Generator().manual_seed(2))
    x[:, 7] = x[:, task.targets[0][0]]  # the same bits twice: two sets for parity, AND, ... unless 7 is a target
    y = task.label(x)
    assert set(consistent_sets(x, y, kind, 3, 99).sets) == every_consistent_set(x, y, kind, 3)


def test_the_limit_cuts_and_says_so():
    x, y = torch.zeros(0, 6, dtype=torch.int64), torch.zeros(0, dtype=torch.bool)
    for kind in KINDS:
        assert len(consistent_sets(x, y, kind, 3, 20).sets) == 20 == math.comb(6, 3)
        assert not consistent_sets(x, y, kind, 3, 20).more
        assert consistent_sets(x, y, kind, 3, 19).more


@settings(max_examples=100, deadline=None)
@given(samples, st.integers(0, 12), st.integers(1, 7))
def test_minimal_and_sets(generator, n_rows, n_ctx):
    x = (torch.rand(n_rows, n_ctx, generator=generator) < 0.7).long()
    chosen = torch.randperm(n_ctx, generator=generator)[: 1 + n_ctx // 3].tolist()
    y = x[:, chosen].all(dim=1)
    explain = [
        set(c) for s in range(n_ctx + 1) for c in combinations(range(n_ctx), s) if torch.equal(x[:, c].all(dim=1), y)
    ]
    minimal = {tuple(sorted(c)) for c in explain if not any(other < c for other in explain)}
    sets, more = minimal_and_sets(x, y, 1000)
    assert set(sets) == minimal
    assert len(sets) == len(minimal)
    assert not more


def test_contradictory_labels_have_no_and():
    x, y = torch.tensor([[1, 0, 1], [1, 0, 1]]), torch.tensor([True, False])
    assert minimal_and_sets(x, y, 9).sets == ()


@settings(max_examples=80, deadline=None)
@given(samples, st.sampled_from(KINDS), st.integers(1, 3), st.integers(4, 9))
def test_the_floor_is_where_one_set_is_left(generator, kind, s, n_ctx):
    task = TASKS[kind].draw(n_ctx, s, generator)
    x = task.sample(25, generator)
    y = task.label(x)
    left = [len(every_consistent_set(x[:m], y[:m], kind, s)) for m in range(26)]
    assert smallest_identifying_sample(task, x, y) == (left.index(1) if 1 in left else math.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_1600_positions_are_quick(kind):
    task = TASKS[kind].draw(1600, 3, torch.Generator().manual_seed(3))
    x = task.sample(200, torch.Generator().manual_seed(4))
    y = task.label(x)
    start = time.monotonic()
    floor = smallest_identifying_sample(task, x, y)
    assert time.monotonic() - start < 10
    assert 20 < floor < 120
    m = int(floor)
    assert consistent_sets(x[:m], y[:m], kind, 3, 2) == (task.targets, False)
    assert len(consistent_sets(x[: m - 1], y[: m - 1], kind, 3, 2).sets) == 2


def test_what_cannot_be_asked():
    x, y = torch.zeros(3, 5, dtype=torch.int64), torch.zeros(3, dtype=torch.bool)
    with pytest.raises(TaskError, match="'junta' are not searched for; choose from sparse-and, or"):
        smallest_identifying_sample(Junta(5, (1,), "01", 0.5), x, y)
    with pytest.raises(TaskError, match=r"n_targets = 6; .* out of 5 has 1 to 5"):
        consistent_sets(x, y, "or", 6, 1)
    with pytest.raises(TaskError, match="limit = 0"):
        minimal_and_sets(x, y, 0)
    with pytest.raises(TaskError, match="half sums, above"):
        consistent_sets(torch.zeros(1, 1600, dtype=torch.int64), y[:1], "parity", 6, 1)
    with pytest.raises(TaskError, match="no sparse-and of 2 indices has the labels"):
        smallest_identifying_sample(SparseAnd(5, (0, 1)), x, ~y)
