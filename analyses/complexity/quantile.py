"""The smallest training set with which a share of trials succeeds, and its interval, from counts at few sizes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

LEVEL = 0.95


def size_grid(largest: int, ratio: float = 1.07) -> tuple[int, ...]:
    """Whole numbers from 2 to `largest`, about a factor of `ratio` apart (one apart while they are small)."""
    sizes = [2]
    while sizes[-1] < largest:
        sizes.append(min(largest, max(sizes[-1] + 1, round(sizes[-1] * ratio))))
    return tuple(sizes)


@dataclass(frozen=True)
class Levels:
    """Numbers of successful trials that decide: `low` and more do not speak against the share being reached, `need`
    and more reach it, `high` and more say that it is exceeded. Two-sided exact binomial test at 1 - LEVEL."""

    low: int
    need: int
    high: int

    @classmethod
    def of(cls, trials: int, share: float) -> "Levels":
        """For few trials low is 0 or high is trials + 1: no bound on that side."""
        tail = (1 - LEVEL) / 2
        low = next(k for k in range(trials + 1) if binom.cdf(k, trials, share) > tail)
        high = next((k for k in range(trials + 1) if binom.sf(k - 1, trials, share) <= tail), trials + 1)
        return cls(low, max(1, math.ceil(share * trials - 1e-9)), high)

    def order_statistics(self, values: list[float]) -> tuple[float, float, float]:
        """The share's quantile of one value a trial, with the interval that the same test gives: (0, inf) unbounded."""
        ordered = sorted(values)
        low = ordered[self.low - 1] if self.low else 0.0
        return ordered[self.need - 1], low, ordered[self.high - 1] if self.high <= len(ordered) else math.inf


@dataclass(frozen=True)
class Count:
    """Successes of one size: at least `reached`, at most `trials - failed` (a probe ends once all is decided)."""

    reached: int
    failed: int
    trials: int

    def says(self, level: int) -> bool | None:
        """Whether `level` trials succeed; None if the probe ended before that was known."""
        if self.reached >= level:
            return True
        return False if self.trials - self.failed < level else None


def find_quantile(
    probe: Callable[[int], Count], sizes: tuple[int, ...], levels: Levels, start: int
) -> tuple[float, float, float]:
    """m*, low, high: the smallest of `sizes` with which `need` trials succeed, and its 95 % interval.

    The interval holds the sizes at which the two-sided exact binomial test does not reject that the chance of success
    is the share (Clopper and Pearson 1934, inverted in m; for thresholds of each trial it is the order-statistics
    interval of a quantile: David and Nagaraja 2003, section 7.1). It is the largest size below that is rejected to the
    smallest above that is. It supposes only that the chance grows with the size; each end is bisected. m* is known to
    one step of `sizes`. inf is beyond the largest size, 0 below the smallest.

    Args:
        probe: trains the trials with so many samples; asked once a size.
        sizes: increasing.
        levels: of the trials and the share.
        start: where m* is looked for first.
    """
    known: dict[int, Count] = {}

    def reached(i: int, level: int) -> bool:
        if i not in known:
            known[i] = probe(sizes[i])
        said = known[i].says(level)
        assert said is not None, f"the probe of {sizes[i]} samples ended before {level} successes were decided"
        return said

    def smallest(level: int, at: int) -> int:
        """Index of the smallest size that reaches the level, len(sizes) if none; gallops, then bisects."""
        failing, passing, step = -1, len(sizes), 2
        for i, count in known.items():
            if count.says(level):
                passing = min(passing, i)
        for i, count in known.items():
            if count.says(level) is False and i < passing:
                failing = max(failing, i)
        while passing - failing > 1:
            if passing < len(sizes) and failing >= 0:
                middle = (failing + passing) // 2
            elif passing < len(sizes):
                middle, step = max(0, passing - step), 2 * step
            elif failing >= 0:
                middle, step = min(len(sizes) - 1, failing + step), 2 * step
            else:
                middle = at
            if reached(middle, level):
                passing = middle
            else:
                failing = middle
        return passing

    first = int(np.searchsorted(sizes[:-1], start))
    star = smallest(levels.need, first)
    above = smallest(levels.high, min(star, len(sizes) - 1)) if levels.high <= levels_trials(known) else len(sizes)
    below = smallest(levels.low, min(star, len(sizes) - 1)) - 1 if levels.low else -1
    m_star, high = (float(sizes[i]) if i < len(sizes) else math.inf for i in (star, above))
    return m_star, float(sizes[below]) if below >= 0 else 0.0, high


def levels_trials(known: dict[int, Count]) -> int:
    """The trials of the probes made."""
    return next(iter(known.values())).trials
