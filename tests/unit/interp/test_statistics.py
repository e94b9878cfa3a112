"""Permutation tests against brute force over all sets, corrections and intervals against known numbers."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from interp.errors import BoolensError
from interp.statistics import (
    N_SAMPLED,
    PermutationTest,
    bootstrap_mean,
    clopper_pearson,
    holm,
    joint_p_value,
    permutation_test,
)

NAN = math.nan


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def permuted(
    scores: Any, targets: Sequence[int], candidates: Sequence[int] | None = None, seed: int = 0
) -> PermutationTest:
    candidates = range(len(scores)) if candidates is None else candidates
    return permutation_test(np.array(scores, dtype=float), targets, candidates, generator(seed))


def brute_force_p(scores: Sequence[int], targets: Sequence[int], candidates: Sequence[int]) -> float:
    """The share of sets whose sum is at least the targets'; scores are whole numbers, so sums are exact."""
    sets = list(itertools.combinations(candidates, len(targets)))
    observed = sum(scores[i] for i in targets)
    return sum(sum(scores[i] for i in chosen) >= observed for chosen in sets) / len(sets)


class TestPermutationTest:
    @pytest.mark.parametrize("n", [1, 2, 5, 7])
    def test_is_the_share_of_sets_with_at_least_the_targets_sum(self, n: int) -> None:
        for seed in range(6):
            rng = generator(seed)
            scores = rng.integers(0, 5, n).tolist()  # few values, so many ties
            for size in range(1, n + 1):
                for targets in itertools.combinations(range(n), size):
                    test = permuted(scores, targets)
                    assert test.exact
                    assert test.n_sets == math.comb(n, size)
                    assert test.p_value == brute_force_p(scores, targets, range(n))

    def test_targets_on_top_have_the_smallest_p(self) -> None:
        assert permuted([1, 9, 2, 8, 3, 7, 4], (1, 3, 5)).p_value == 1 / math.comb(7, 3)

    def test_targets_at_the_bottom_have_p_1(self) -> None:
        assert permuted([1, 9, 2, 8, 3, 7, 4], (0, 2, 4)).p_value == 1

    @pytest.mark.parametrize("value", [0.0, 0.1, 1e-300, -3.7, 1e12])
    def test_equal_scores_have_p_1(self, value: float) -> None:
        assert permuted([value] * 7, (1, 4)).p_value == 1

    def test_a_tie_counts_against_the_targets(self) -> None:
        # sums: {0, 1} is 2, so are {0, 2} and {1, 2}; the sets with 3 have 1
        assert permuted([1, 1, 1, 0], (0, 1)).p_value == 3 / 6

    def test_rounding_makes_no_difference_of_a_tie(self) -> None:
        assert 0.1 + 0.2 != 0.3
        # {0, 1} sums to 0.1 + 0.2, {2, 3} to 0.3 + 0: equal but for rounding. {1, 2} has 0.5, {0, 2} 0.4
        assert permuted([0.1, 0.2, 0.3, 0], (2, 3)).p_value == 4 / 6
        assert permuted([0.1, 0.2, 0.3, 0], (0, 1)).p_value == 4 / 6

    def test_a_difference_far_above_rounding_counts(self) -> None:
        assert permuted([1 + 1e-6, 1, 1, 1, 1], (0,)).p_value == 1 / 5

    def test_single_precision_scores_lose_nothing(self) -> None:
        for seed in range(50):
            scores = generator(seed).random(9).astype(np.float32)
            targets = np.argsort(-scores)[:3].tolist()
            assert permutation_test(scores, targets, range(9), generator()).p_value == 1 / math.comb(9, 3)

    def test_only_candidates_take_part(self) -> None:
        scores = [5, NAN, 4, 1, 2, 100]
        candidates = (0, 2, 3, 4)
        test = permuted(scores, (0, 4), candidates)
        assert test.n_sets == 6
        assert test.p_value == 2 / 6  # 7 and, above it, 9
        assert test.p_value == brute_force_p([5, 0, 4, 1, 2, 100], (0, 4), candidates)

    def test_the_order_of_targets_and_candidates_does_not_matter(self) -> None:
        scores = [3, 1, 4, 1, 5, 9, 2]
        p = permuted(scores, (4, 2)).p_value
        assert p == permuted(scores, (2, 4), (6, 5, 4, 3, 2, 1, 0)).p_value == brute_force_p(scores, (2, 4), range(7))

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_undefined_scores_have_an_undefined_p(self, bad: float) -> None:
        for targets in ((0, 1), (1, 2)):
            test = permuted([bad, 1, 2, 3], targets)
            assert math.isnan(test.p_value)
            assert test.null.shape == (6,)
            assert np.isnan(test.null).all()

    @pytest.mark.parametrize(("targets", "candidates"), [((), (0, 1)), ((2,), (0, 1)), ((0, 2), (0, 1)), ((0,), ())])
    def test_targets_must_be_candidates(self, targets: tuple[int, ...], candidates: tuple[int, ...]) -> None:
        with pytest.raises(BoolensError, match="must be a non-empty subset of the candidates"):
            permuted([1, 2, 3], targets, candidates)

    @pytest.mark.parametrize(("targets", "candidates"), [((1, 1), (0, 1, 2)), ((1,), (0, 1, 1))])
    def test_an_index_given_twice(self, targets: tuple[int, ...], candidates: tuple[int, ...]) -> None:
        with pytest.raises(BoolensError, match="name each index once"):
            permuted([1, 2, 3], targets, candidates)

    def test_null_is_every_set_s_own_p_value(self) -> None:
        scores = [3, 1, 4, 1, 5, 0]
        sets = list(itertools.combinations(range(6), 2))
        assert permuted(scores, (0, 1)).null.tolist() == [permuted(scores, chosen).p_value for chosen in sets]

    def test_is_exact_up_to_200_000_sets(self) -> None:
        most = permuted(np.arange(107.0), (3, 1, 2))
        assert (most.exact, most.n_sets) == (True, 198_485)
        sampled = permuted(np.arange(108.0), (3, 1, 2))  # of 204,156
        assert (sampled.exact, sampled.n_sets) == (False, N_SAMPLED)


class TestSampled:
    """C(30, 15) is 155,117,520."""

    def test_the_smallest_p_is_one_in_one_more_than_the_sample(self) -> None:
        scores = np.arange(30.0) ** 4
        test = permuted(scores, range(15, 30))
        assert (test.exact, test.n_sets) == (False, N_SAMPLED)
        assert test.p_value == 1 / (1 + N_SAMPLED)

    def test_the_largest_p_is_1(self) -> None:
        assert permuted(np.arange(30.0), range(15)).p_value == 1
        assert permuted([2.0] * 30, range(15)).p_value == 1

    def test_is_close_to_the_normal_approximation(self) -> None:
        scores = generator(5).random(30)
        for seed, targets in enumerate([range(0, 30, 2), range(1, 30, 2), (*range(12), 13, 17, 29)]):
            # a sum of s of n numbers drawn without replacement: variance s · (n - s) / (n - 1) · population variance
            mean, sd = 15 * scores.mean(), math.sqrt(15 * 15 / 29 * scores.var())
            expected = norm.sf(scores[list(targets)].sum(), mean, sd)
            assert permuted(scores, targets, seed=seed).p_value == pytest.approx(expected, abs=0.015)

    def test_every_position_is_drawn_equally_often(self) -> None:
        """With one large score, the sets at least as large are those that hold it: half of all."""
        for hot in (0, 13, 29):
            scores = np.zeros(30)
            scores[hot] = 1
            targets = [hot, *[i for i in range(30) if i != hot][:14]]
            assert permuted(scores, targets).p_value == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(N_SAMPLED))

    def test_the_same_generator_gives_the_same_p(self) -> None:
        scores = generator(7).random(30)
        p = [permuted(scores, range(15), seed=seed).p_value for seed in (3, 3, 4)]
        assert p[0] == p[1] != p[2]


def test_p_is_super_uniform_under_random_scores() -> None:
    """P(p <= a) is at most a, and for untied scores k / C(6, 2) exactly at a = k / 15."""
    rng = generator(11)
    p = np.array([permutation_test(rng.random(6), (1, 4), range(6), rng).p_value for _ in range(3000)])
    for k in range(1, 16):
        share = (p <= k / 15 + 1e-12).mean()
        assert abs(share - k / 15) < 4 * math.sqrt(k / 15 * (1 - k / 15) / 3000) + 1e-12, k
    tied = np.array([permutation_test(rng.integers(0, 3, 6) * 1.0, (1, 4), range(6), rng).p_value for _ in range(3000)])
    for a in (0.05, 0.1, 0.2, 0.5):
        assert (tied <= a).mean() < a + 4 * math.sqrt(a * (1 - a) / 3000)


class TestJointPValue:
    def test_two_smallest_p_values(self) -> None:
        test = permuted(np.arange(10.0), (8, 9))
        assert test.p_value == 1 / 45
        assert joint_p_value([test, test], generator()) == (1 / 2025, True)

    def test_is_the_share_of_tuples_with_a_product_at_most_the_observed(self) -> None:
        scores = [[3, 1, 4, 1, 5], [2, 7, 1, 8, 2, 8], [1, 2, 3]]
        targets = [(2, 4), (1, 2), (0,)]
        for k in (2, 3):
            tests = [permuted(s, t) for s, t in zip(scores[:k], targets[:k], strict=True)]
            per_set = [
                [brute_force_p(s, chosen, range(len(s))) for chosen in itertools.combinations(range(len(s)), len(t))]
                for s, t in zip(scores[:k], targets[:k], strict=True)
            ]
            products = np.array([math.prod(ps) for ps in itertools.product(*per_set)])
            observed = math.prod(t.p_value for t in tests)
            p, exact = joint_p_value(tests, generator())
            assert exact
            assert p == (products <= observed * (1 + 1e-9)).mean()

    @pytest.mark.parametrize("p", [1 / 45, 0.4, 1.0, NAN])
    def test_a_single_test_keeps_its_p_value(self, p: float) -> None:
        for exact in (True, False):
            test = PermutationTest(p, exact, 45, np.full(45, p))
            np.testing.assert_equal(joint_p_value([test], generator()), (p, exact))

    def test_undefined_stays_undefined(self) -> None:
        fine, undefined = permuted([1, 2, 3], (2,)), permuted([1, NAN, 3], (2,))
        assert math.isnan(joint_p_value([fine, undefined], generator())[0])

    def test_tied_tests_have_p_1(self) -> None:
        test = permuted([1.0] * 10, (8, 9))
        assert joint_p_value([test, test], generator()) == (1.0, True)

    def test_too_many_tuples_are_sampled(self) -> None:
        test = permuted(np.arange(15.0) ** 2, (12, 13, 14))  # 455 sets: 455**3 tuples are 94 million
        p, exact = joint_p_value([test] * 3, generator())
        assert not exact
        assert p == 1 / (1 + N_SAMPLED)
        middling = PermutationTest(0.5, True, 1000, np.arange(1, 1001) / 1000)
        p, exact = joint_p_value([middling] * 3, generator())
        # P(product of three uniforms <= 1/8) = 1/8 · (1 + log 8 + (log 8)² / 2)
        assert (p, exact) == (pytest.approx((1 + math.log(8) + math.log(8) ** 2 / 2) / 8, abs=0.01), False)

    def test_sampled_tests_make_a_sampled_p_value(self) -> None:
        test = permuted(np.arange(30.0) ** 4, range(15, 30))
        assert joint_p_value([test, test], generator()) == (1 / (1 + N_SAMPLED), False)


class TestHolm:
    @pytest.mark.parametrize(
        ("p", "adjusted"),
        [
            # sorted: 0.005 · 4, 0.01 · 3, 0.03 · 2, 0.04 · 1, each at least the one before
            ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
            ([0.04], [0.04]),
            ([0.5, 0.9, 0.4], [1.0, 1.0, 1.0]),
            ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
            ([], []),
            ([NAN, 0.01, 0.04], [NAN, 0.02, 0.04]),
            ([NAN, NAN], [NAN, NAN]),
            ([[0.01, NAN], [0.04, 0.03]], [[0.03, NAN], [0.06, 0.06]]),
        ],
    )
    def test_hand_worked(self, p: list, adjusted: list) -> None:
        np.testing.assert_allclose(holm(np.array(p, dtype=float)), adjusted, rtol=1e-12)

    def test_the_argument_is_not_changed(self) -> None:
        p = np.array([0.03, 0.01])
        holm(p)
        assert p.tolist() == [0.03, 0.01]


class TestClopperPearson:
    @pytest.mark.parametrize("n", [1, 10, 32])
    @pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
    def test_none_and_all(self, n: int, level: float) -> None:
        alpha = 1 - level
        assert clopper_pearson(0, n, level) == pytest.approx((0, 1 - (alpha / 2) ** (1 / n)))
        assert clopper_pearson(n, n, level) == pytest.approx(((alpha / 2) ** (1 / n), 1))

    @pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
    def test_is_scipy_s(self, level: float) -> None:
        for n in (1, 4, 23, 1000):
            for k in {0, 1, n // 3, n - 1, n}:
                expected = binomtest(k, n).proportion_ci(level, "exact")
                assert clopper_pearson(k, n, level) == pytest.approx((expected.low, expected.high), rel=1e-8, abs=1e-12)

    def test_ends_are_where_the_tails_are_a_fortieth(self) -> None:
        low, high = clopper_pearson(7, 24)
        assert binom.sf(6, 24, low) == pytest.approx(0.025)
        assert binom.cdf(7, 24, high) == pytest.approx(0.025)

    @pytest.mark.parametrize("n", [1, 4, 9])
    def test_covers_at_least_at_its_level(self, n: int) -> None:
        intervals = [clopper_pearson(k, n, 0.9) for k in range(n + 1)]
        for p in np.linspace(0, 1, 101):
            covered = sum(binom.pmf(k, n, p) for k, (low, high) in enumerate(intervals) if low <= p <= high)
            assert covered >= 0.9 - 1e-12, p

    def test_no_data_leaves_everything_possible(self) -> None:
        assert clopper_pearson(0, 0) == (0.0, 1.0)

    @pytest.mark.parametrize(("k", "n", "level"), [(-1, 3, 0.95), (4, 3, 0.95), (1, 3, 0), (1, 3, 1), (1, 3, NAN)])
    def test_impossible_counts_and_levels(self, k: int, n: int, level: float) -> None:
        with pytest.raises(BoolensError, match=f"{k} of {n} at level {level}: need 0 <= successes <= n"):
            clopper_pearson(k, n, level)


class TestBootstrapMean:
    def test_constant_data_have_no_width(self) -> None:
        low, high = bootstrap_mean(np.full((7, 3), 2.5), generator())
        np.testing.assert_allclose(low, 2.5, rtol=1e-12)
        np.testing.assert_allclose(high, 2.5, rtol=1e-12)

    def test_one_sample(self) -> None:
        low, high = bootstrap_mean(np.array([[1.0, 2.0]]), generator())
        assert (low.tolist(), high.tolist()) == ([1, 2], [1, 2])

    @pytest.mark.parametrize("cell", [(), (5,), (3, 5), (0,)])
    def test_keeps_the_cells_shape(self, cell: tuple[int, ...]) -> None:
        values = generator(1).random((11, *cell))
        low, high = bootstrap_mean(values, generator())
        assert low.shape == high.shape == cell
        assert (low <= values.mean(axis=0)).all()
        assert (values.mean(axis=0) <= high).all()

    def test_cells_share_their_resamples(self) -> None:
        values = generator(1).random(11)
        low, high = bootstrap_mean(np.stack([values, 3 * values, -values], axis=1), generator())
        np.testing.assert_allclose(low, [low[0], 3 * low[0], -high[0]], rtol=1e-12)
        alone = bootstrap_mean(values, generator())
        np.testing.assert_allclose(alone, (low[0], high[0]), rtol=1e-12)

    def test_covers_at_about_its_level(self) -> None:
        """One cell a data set, of 60 normal samples each; 95 % nominal, and a percentile bootstrap is a bit narrow."""
        values = generator(2).normal(3.0, 2.0, (60, 800))
        for level, least, most in ((0.95, 0.92, 0.965), (0.5, 0.43, 0.55)):
            low, high = bootstrap_mean(values, generator(3), level=level)
            assert least < ((low <= 3) & (high >= 3)).mean() < most

    def test_width_is_that_of_the_mean(self) -> None:
        values = generator(4).normal(0.0, 2.0, 400)
        low, high = bootstrap_mean(values, generator(5), n_resamples=4000)
        assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.06)

    def test_undefined_stays_undefined(self) -> None:
        low, high = bootstrap_mean(np.array([[1.0, NAN], [2.0, 1.0]]), generator())
        assert np.isnan([low[1], high[1]]).all()
        assert np.isfinite([low[0], high[0]]).all()

    @pytest.mark.parametrize(("n", "n_resamples", "level"), [(0, 10, 0.9), (3, 0, 0.9), (3, 10, 0.0), (3, 10, 1.0)])
    def test_impossible_requests(self, n: int, n_resamples: int, level: float) -> None:
        message = f"{n} samples, {n_resamples} resamples, level {level}; need at least one of each"
        with pytest.raises(BoolensError, match=message):
            bootstrap_mean(np.zeros((n, 2)), generator(), n_resamples=n_resamples, level=level)
