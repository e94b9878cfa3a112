"""The AND of a few features that is wrong on the fewest rows, by looking at every index set."""

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from tasks.errors import TaskError

MAX_SETS = 5 * 10**7
"""Index sets that are looked at: three of 600 features, in some seconds."""


class BestAnd(NamedTuple):
    """Attributes: targets: sorted; errors: on the rows; ties: how many other sets of that size have as few."""

    targets: tuple[int, ...]
    errors: int
    ties: int


def best_and(x: Bool[np.ndarray, "row pos"], y: Bool[np.ndarray, " row"], most: int) -> BestAnd:
    """The AND of 1 to `most` features with the fewest errors; of equals the smallest, and then the first by index.

    Cost: for sets of size s two features come by a matrix product of [pos, row] and [row, pos], for each of the
    binomial(T, s - 2) choices of the others.

    >>> x = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]], bool)
    >>> best_and(x, x[:, 0] & x[:, 1], 2)
    BestAnd(targets=(0, 1), errors=0, ties=0)

    Raises:
        TaskError: most outside [1, T], or more than MAX_SETS sets.
    """
    n_ctx = x.shape[1]
    if not 1 <= most <= n_ctx:
        raise TaskError(f"{most} targets of a table with {n_ctx} features; ask for 1 to {n_ctx}")
    n_sets = sum(math.comb(n_ctx, s) for s in range(1, most + 1))
    if n_sets > MAX_SETS:
        raise TaskError(
            f"{n_sets} index sets of up to {most} of {n_ctx} features are too many to try (limit {MAX_SETS}); "
            "lower --n-targets, or name the hypothesis with --targets"
        )
    bits = x.astype(np.float64)
    sign = np.where(y, -1.0, 1.0)  # an AND that holds is right on a True row, wrong on a False one
    best = BestAnd((), len(y) + 1, 0)
    for size in range(1, most + 1):
        for errors, sets in _of_size(bits, sign, size):
            found = errors + y.sum()
            least = int(found.min())
            if least < best.errors:
                best = BestAnd(sets(int(found.argmin())), least, int((found == least).sum()) - 1)
            elif least == best.errors and len(best.targets) == size:
                best = best._replace(ties=best.ties + int((found == least).sum()))
    return best


def _of_size(bits: Float[np.ndarray, "row pos"], sign: Float[np.ndarray, " row"], size: int):
    """Blocks of index sets in order: wrong minus right where the AND holds, and from a place to its index set."""
    n_ctx = bits.shape[1]
    if size == 1:
        yield sign @ bits, lambda place: (place,)
        return
    for first in combinations(range(n_ctx), size - 2):
        start = first[-1] + 1 if first else 0
        if n_ctx - start < 2:
            continue
        rest = bits[:, start:]
        holds = sign * bits[:, list(first)].prod(axis=1)
        i, j = np.triu_indices(n_ctx - start, 1)
        counts = ((rest * holds[:, None]).T @ rest)[i, j]
        yield counts, lambda place, first=first, i=i + start, j=j + start: (*first, int(i[place]), int(j[place]))
