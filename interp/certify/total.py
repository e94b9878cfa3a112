"""The probability and number of wrong inputs: boxes all right or all wrong by their bounds, the rest counted."""

import heapq
import math
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from interp.certify.count import Counted
from interp.certify.side import MOST, Side

BATCH = 64


class Part(NamedTuple):
    """A box of inputs that have one label; `fixed` is the bit where it is fixed, else -1."""

    fixed: Int[np.ndarray, " pos"]
    side: Side
    other: Side
    """Against the label that the inputs do not have: its bounds show that all are wrong."""


@dataclass
class Total:
    """Attributes:
    n_wrong, n_unresolved: numbers of inputs; unresolved ones have a logit within rounding of 0.
    wrong, unresolved: their probability.
    open: probability of what was not reached.
    fewest: the wrong input with the fewest changes, of which it has n_changes; None without one.
    fewest_unresolved: fewest changes of an unresolved input.
    by_changes: number of wrong inputs with so many changes.
    worst: the wrong input whose logit is furthest from 0.
    largest: absolute value of its logit.
    n_boxes, n_counted: boxes bounded, inputs evaluated.
    """

    n_wrong: int = 0
    n_unresolved: int = 0
    wrong: float = 0.0
    unresolved: float = 0.0
    open: float = 0.0
    fewest: Int[np.ndarray, " pos"] | None = None
    n_changes: int | None = None
    fewest_unresolved: int | None = None
    by_changes: Counter[int] = field(default_factory=Counter)
    worst: Int[np.ndarray, " pos"] | None = None
    largest: float = -math.inf
    n_boxes: int = 0
    n_counted: int = 0


def count_wrong(
    parts: Iterable[Part], bit_probability: Float[np.ndarray, " pos"], *, until: float = math.inf, threads: int = 1
) -> Total:
    """The wrong inputs among those of some boxes, the most probable boxes first.

    Args:
        parts: boxes that share no input.
        bit_probability: P(bit = 1) of each position; the same for all that are free in a part.
        until: `time.monotonic()` at which to stop; what is left is `open`.
        threads: boxes counted at once.
    """
    total = Total()
    log_p = np.log(np.stack([1 - bit_probability, bit_probability], axis=-1))
    no_limit = np.array([MOST])

    def log_mass(part: Part) -> float:
        held = np.flatnonzero(part.fixed >= 0)
        return float(log_p[held, part.fixed[held]].sum())

    heap: list[tuple[float, int, Part, int]] = []
    order = 0
    fresh = [part._replace(fixed=np.asarray(part.fixed, dtype=np.int8)) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        while fresh or heap:
            if time.monotonic() > until:
                total.open = math.fsum(math.exp(log_mass(part)) for part in [*fresh, *(entry[2] for entry in heap)])
                break
            leaves: list[Part] = []
            for part in fresh:
                (upper,), _, (effect,) = part.side.bound(part.fixed[None], no_limit)
                total.n_boxes += 1
                if upper < -part.side.slack:
                    continue
                free = np.flatnonzero(part.fixed < 0)
                if len(free) <= part.side.leaf:
                    leaves.append(part)
                elif part.other.bound(part.fixed[None], no_limit)[0][0] < -part.other.slack:
                    _all_wrong(total, part, math.exp(log_mass(part)))
                else:
                    heapq.heappush(heap, (-log_mass(part), order, part, int(free[effect[free].argmax()])))
                    order += 1
            fresh = []
            for part, counted in zip(leaves, pool.map(lambda part: part.side.count(part.fixed), leaves), strict=True):
                if isinstance(counted, int):
                    fresh += halves(part, counted)
                else:
                    _add(total, part, counted, log_mass(part), log_p)
            for _ in range(min(BATCH, len(heap))):
                _, _, part, split = heapq.heappop(heap)
                fresh += halves(part, split)
    return total


def halves(part: Part, split: int) -> list[Part]:
    """A box split in two at a position."""
    result = []
    for bit in (0, 1):
        fixed = part.fixed.copy()
        fixed[split] = bit
        result.append(part._replace(fixed=fixed))
    return result


def _add(total: Total, part: Part, found: Counted, log_mass: float, log_p: np.ndarray) -> None:
    free = np.flatnonzero(part.fixed < 0)
    total.n_counted += 2 ** len(free)
    zero, one = log_p[free[0]] if len(free) else (0.0, 0.0)
    ones = np.arange(len(free) + 1)
    each = np.exp(log_mass + ones * one + (len(free) - ones) * zero)
    already = changes(part.fixed, part.side.counted)
    total.n_wrong += int(found.wrong.sum())
    total.n_unresolved += int(found.unresolved.sum())
    total.wrong += float(found.wrong.sum(axis=1) @ each)
    total.unresolved += float(found.unresolved.sum(axis=1) @ each)
    for more in np.flatnonzero(found.wrong.any(axis=0)):
        total.by_changes[already + int(more)] += int(found.wrong[:, more].sum())
    if found.unresolved.any():
        least = already + int(np.flatnonzero(found.unresolved.any(axis=0))[0])
        total.fewest_unresolved = least if total.fewest_unresolved is None else min(least, total.fewest_unresolved)
    if found.fewest is not None:
        _fewest(total, found.fewest, changes(found.fewest, part.side.counted))
    if found.largest > total.largest:
        total.worst, total.largest = found.worst, found.largest


def _all_wrong(total: Total, part: Part, mass: float) -> None:
    free = part.fixed < 0
    already, n_free = changes(part.fixed, part.side.counted), int(free.sum())
    n_counted = int((free & (part.side.counted >= 0)).sum())
    for more in range(n_counted + 1):
        total.by_changes[already + more] += math.comb(n_counted, more) * 2 ** (n_free - n_counted)
    total.n_wrong += 2**n_free
    total.wrong += mass
    typical = np.where(free, np.where(part.side.counted == 1, 0, 1), part.fixed).astype(np.int64)
    _fewest(total, typical, already)


def _fewest(total: Total, x: np.ndarray, n_changes: int) -> None:
    if total.n_changes is None or n_changes < total.n_changes:
        total.fewest, total.n_changes = x, n_changes


def changes(x: Int[np.ndarray, " pos"], counted: Int[np.ndarray, " pos"]) -> int:
    """Number of positions with their counted bit."""
    return int(((x == counted) & (counted >= 0)).sum())
