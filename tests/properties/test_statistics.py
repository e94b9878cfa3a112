"""Properties of tests and rankings that hold for any scores."""

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.recovery import rank
from interp.statistics import clopper_pearson, holm, joint_p_value, permutation_test

few = settings(max_examples=60, deadline=None)
whole_scores = st.lists(st.integers(-9, 9), min_size=2, max_size=7)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Scores and a target set."""
    scores = draw(whole_scores)
    size = draw(st.integers(1, len(scores)))
    return scores, draw(st.permutations(range(len(scores))))[:size]


def p_of(scores, targets) -> float:
    rng = np.random.default_rng(0)
    return permutation_test(np.array(scores, dtype=float), targets, range(len(scores)), rng).p_value


@few
@given(cases())
def test_p_is_a_share_of_all_sets_and_never_0(case: tuple[list[int], list[int]]) -> None:
    scores, targets = case
    sums = [sum(scores[i] for i in s) for s in itertools.combinations(range(len(scores)), len(targets))]
    assert p_of(scores, targets) == sum(total >= sum(scores[i] for i in targets) for total in sums) / len(sums) > 0


@few
@given(cases(), st.floats(1e-6, 1e6), st.integers(-5, 5))
def test_scale_and_shift_do_not_matter(case: tuple[list[int], list[int]], scale: float, shift: int) -> None:
    scores, targets = case
    assert p_of([scale * (s + shift) for s in scores], targets) == p_of(scores, targets)


@few
@given(cases(), st.randoms(use_true_random=False))
def test_relabelling_positions_does_not_matter(case: tuple[list[int], list[int]], random) -> None:
    scores, targets = case
    order = random.sample(range(len(scores)), len(scores))
    assert p_of([scores[i] for i in order], [order.index(t) for t in targets]) == p_of(scores, targets)


@few
@given(cases())
def test_the_targets_alone_on_top_are_ranked_and_have_the_smallest_p(case: tuple[list[int], list[int]]) -> None:
    scores, targets = case
    lifted = [s + 100 * (i in targets) for i, s in enumerate(scores)]
    ranking = rank(np.array(lifted, dtype=float), range(len(lifted)), len(targets))
    assert set(ranking.top) == set(targets)
    assert not ranking.tie
    assert p_of(lifted, targets) == 1 / math.comb(len(scores), len(targets))


@few
@given(cases(), cases())
def test_a_joint_p_is_super_uniform(one: tuple[list[int], list[int]], two: tuple[list[int], list[int]]) -> None:
    """Over all pairs of target sets, the share with a joint p-value of at most a is at most a."""
    rng = np.random.default_rng(0)
    tests = [
        [
            permutation_test(np.array(scores, dtype=float), chosen, range(len(scores)), rng)
            for chosen in itertools.combinations(range(len(scores)), len(targets))
        ]
        for scores, targets in ((one[0][:5], one[1][:1]), (two[0][:4], two[1][:2]))
    ]
    p = np.array([joint_p_value(pair, rng)[0] for pair in itertools.product(*tests)])
    for a in p:
        assert (p <= a).mean() <= a + 1e-12


@few
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_only_raises_and_keeps_the_order(p: list[float]) -> None:
    adjusted = holm(np.array(p))
    assert (adjusted >= p).all()
    assert (adjusted <= 1).all()
    assert (adjusted[np.argsort(p, kind="stable")] == np.sort(adjusted)).all()
    assert (adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-15).all()  # no worse than Bonferroni


@few
@given(st.integers(0, 40), st.integers(0, 40), st.floats(0.5, 0.999))
def test_clopper_pearson_holds_the_proportion_and_its_mirror(right: int, wrong: int, level: float) -> None:
    n = right + wrong
    low, high = clopper_pearson(right, n, level)
    assert 0 <= low <= high <= 1
    if n:
        assert low <= right / n <= high
    mirrored = clopper_pearson(wrong, n, level)
    np.testing.assert_allclose(mirrored, (1 - high, 1 - low), atol=1e-9)
