"""Statistics of target selection: permutation tests over index sets, Holm, exact and bootstrap intervals."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import beta, rankdata

from interp.errors import BoolensError

ENUMERATE_UP_TO = 200_000
"""Index sets are enumerated up to this number; above it they are sampled."""
N_SAMPLED = 50_000


@dataclass(frozen=True)
class PermutationTest:
    """Do the target indices have larger scores than an index set of the same size drawn at random?

    Attributes:
        p_value: one-sided; exact: share of all sets with a sum of scores at least the targets'; sampled:
            (1 + number at least as large) / (1 + number sampled). NaN where a score is.
        exact: whether all sets were enumerated.
        n_sets: number of sets enumerated or sampled.
        null: the p-value that each of these sets would have had, [n_sets].
    """

    p_value: float
    exact: bool
    n_sets: int
    null: Float[np.ndarray, " n_sets"]


def permutation_test(
    scores: Float[np.ndarray, " pos"], targets: Sequence[int], candidates: Sequence[int], generator: np.random.Generator
) -> PermutationTest:
    """Test by the sum of scores over all index sets of the targets' size among the candidates.

    Ties count against the targets (sums within rounding of theirs count as at least as large).

    Raises:
        BoolensError: targets that are not among the candidates, no targets, or an index given twice.
    """
    if not targets or not set(targets) <= set(candidates):
        raise BoolensError(f"targets {list(targets)} must be a non-empty subset of the candidates {list(candidates)}")
    if len(set(targets)) < len(targets) or len(set(candidates)) < len(candidates):
        raise BoolensError(f"targets {list(targets)}, candidates {list(candidates)}: name each index once")
    scores = np.asarray(scores, dtype=np.float64)
    values = scores[list(candidates)]
    n, s = len(candidates), len(targets)
    exact = math.comb(n, s) <= ENUMERATE_UP_TO
    if exact:
        sets = np.array(list(itertools.combinations(range(n), s)))
    else:
        sets = np.argpartition(generator.random((N_SAMPLED, n)), s - 1, axis=1)[:, :s]
    if not np.isfinite(values).all():
        return PermutationTest(math.nan, exact, len(sets), np.full(len(sets), math.nan))
    tolerance = 1e-9 * np.abs(values).sum()
    sums = np.round(values[sets].sum(axis=1) / tolerance) if tolerance else np.zeros(len(sets))
    observed = float(np.round(scores[list(targets)].sum() / tolerance)) if tolerance else 0.0
    at_least = int(np.count_nonzero(sums >= observed - 1))
    p_value = at_least / len(sets) if exact else (1 + at_least) / (1 + len(sets))
    null = rankdata(-sums, method="max") / len(sets)
    return PermutationTest(p_value, exact, len(sets), null)


def joint_p_value(tests: Sequence[PermutationTest], generator: np.random.Generator) -> tuple[float, bool]:
    """One p-value for independent tests, by the product of theirs (Fisher's statistic) over tuples of index sets.

    Exact where every test is and the tuples can be enumerated, otherwise (1 + # at most) / (1 + n) over sampled
    tuples. A single test keeps its p-value; NaN where one of them is.
    """
    if len(tests) == 1:
        return tests[0].p_value, tests[0].exact
    observed = sum(math.log(t.p_value) for t in tests)
    if math.isnan(observed):
        return math.nan, all(t.exact for t in tests)
    exact = all(t.exact for t in tests) and math.prod(t.n_sets for t in tests) <= 20 * ENUMERATE_UP_TO
    if exact:
        total = np.zeros(1)
        for test in tests:
            total = np.add.outer(total, np.log(test.null)).ravel()
        return float((total <= observed + 1e-9).mean()), True
    total = np.sum([np.log(generator.choice(t.null, N_SAMPLED)) for t in tests], axis=0)
    return (1 + int((total <= observed + 1e-9).sum())) / (1 + N_SAMPLED), False


def holm(p_values: Float[np.ndarray, "*tests"]) -> Float[np.ndarray, "*tests"]:
    """Holm's step-down adjusted p-values over all finite entries; NaN stays NaN and does not count as a test."""
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, math.nan)
    finite = np.flatnonzero(np.isfinite(p))
    order = finite[np.argsort(p.flat[finite], kind="stable")]
    steps = p.flat[order] * np.arange(len(order), 0, -1)
    adjusted.flat[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval for a proportion (Clopper and Pearson 1934); (0, 1) without data.

    Raises:
        BoolensError: a count outside [0, n] or a level outside (0, 1).
    """
    if not 0 <= successes <= n or not 0 < level < 1:
        raise BoolensError(f"{successes} of {n} at level {level}: need 0 <= successes <= n and a level in (0, 1)")
    if n == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, successes, n - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - tail, successes + 1, n - successes)) if successes < n else 1.0
    return low, high


def bootstrap_mean(
    values: Float[np.ndarray, "sample *cell"],
    generator: np.random.Generator,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """Percentile bootstrap interval of the mean over samples, the same resamples for every cell.

    Raises:
        BoolensError: no samples, no resamples, or a level outside (0, 1).
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    if n < 1 or n_resamples < 1 or not 0 < level < 1:
        raise BoolensError(
            f"{n} samples, {n_resamples} resamples, level {level}; need at least one of each and a level in (0, 1)"
        )
    counts = generator.multinomial(n, np.full(n, 1 / n), size=n_resamples)
    means = (counts @ values.reshape(n, -1) / n).reshape(n_resamples, *values.shape[1:])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(low), np.asarray(high)
