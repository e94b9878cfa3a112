"""AUROC and precision at s, against counting and scipy."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from interp.errors import BoolensError
from interp.selection import auroc, precision_at, shuffled_auroc

DRAW = np.random.default_rng(0)


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_counts_pairs(ties: bool) -> None:
    for _ in range(20):
        scores = DRAW.integers(0, 4, 9).astype(float) if ties else DRAW.normal(size=9)
        candidates = [0, 1, 2, 4, 5, 7, 8]
        chosen = DRAW.choice(candidates, 3, replace=False).tolist()
        others = [i for i in candidates if i not in chosen]
        pairs = [(scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j]) for i in chosen for j in others]
        assert auroc(scores, chosen, candidates) == pytest.approx(np.mean(pairs))
        u = mannwhitneyu(scores[chosen], scores[others]).statistic
        assert auroc(scores, chosen, candidates) == pytest.approx(u / 12)


def test_precision_counts_the_top() -> None:
    scores = np.array([5.0, 1, 4, 3, 2, 9])
    candidates = [0, 1, 2, 3, 4]
    assert precision_at(scores, [0, 2], candidates) == 1
    assert precision_at(scores, [0, 1], candidates) == 0.5
    assert precision_at(scores, [1, 4], candidates) == 0


def test_precision_of_a_tie_is_what_random_order_would_give() -> None:
    scores, candidates, chosen = np.array([3.0, 1, 1, 1, 0]), [0, 1, 2, 3, 4], [0, 1, 4]
    shares = []
    for order in itertools.permutations(range(5)):
        top = sorted(order, key=lambda i: -scores[i])[:3]
        shares.append(len(set(top) & set(chosen)) / 3)
    assert precision_at(scores, chosen, candidates) == pytest.approx(np.mean(shares))


def test_undefined() -> None:
    scores = np.array([1.0, math.nan, 2])
    assert math.isnan(auroc(scores, [0], [0, 1, 2]))
    assert math.isnan(precision_at(scores, [0], [0, 1, 2]))
    assert auroc(scores, [2], [0, 2]) == precision_at(scores, [2], [0, 2]) == 1
    assert math.isnan(auroc(scores, [0, 2], [0, 2]))


@pytest.mark.parametrize("chosen", [[], [3], [0, 0]])
def test_what_cannot_be(chosen: list[int]) -> None:
    for statistic in (auroc, precision_at):
        with pytest.raises(BoolensError, match="indices"):
            statistic(np.arange(3.0), chosen, [0, 1, 2])


@pytest.mark.parametrize("ties", [False, True])
def test_shuffled_aurocs_are_those_of_all_index_sets(ties: bool) -> None:
    """35 sets of 3 of 7: each is drawn, about as often as any other, and the mean over all of them is a half."""
    scores = np.array([0.5, 2, 9, 3, 3, 1, 7, 5]) if ties else np.array([0.5, 2, 9, 3, 4, 1, 7, 5])
    candidates = [0, 1, 2, 3, 4, 6, 7]
    every = [auroc(scores, chosen, candidates) for chosen in itertools.combinations(candidates, 3)]
    assert np.mean(every) == pytest.approx(0.5)
    drawn = shuffled_auroc(scores, 3, candidates, np.random.default_rng(1), 20_000)
    assert set(drawn.round(9)) == set(np.round(every, 9))
    for value in set(np.round(every, 9)):
        share = np.mean(np.round(every, 9) == value)
        assert np.mean(drawn.round(9) == value) == pytest.approx(share, abs=4 * math.sqrt(share / 20_000))


def test_shuffled_aurocs_undefined_or_refused() -> None:
    rng = np.random.default_rng(0)
    assert np.isnan(shuffled_auroc(np.array([1.0, math.nan]), 1, [0, 1], rng, 3)).tolist() == [True] * 3
    assert np.isnan(shuffled_auroc(np.array([1.0, 2.0]), 2, [0, 1], rng, 2)).tolist() == [True] * 2
    with pytest.raises(BoolensError, match="sets of 3 among 2 candidates; s must be from 1"):
        shuffled_auroc(np.array([1.0, 2.0]), 3, [0, 1], rng, 2)
