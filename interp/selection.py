"""How well scores of positions pick out a set of indices."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

from interp.errors import BoolensError


def auroc(scores: Float[np.ndarray, " pos"], chosen: Sequence[int], candidates: Sequence[int]) -> float:
    """Probability that a chosen index has a larger score than another candidate, ties counting half.

    1 where every chosen index is above every other, 0.5 by chance. NaN where a score is, or where nothing is left
    beside the chosen ones.

    Raises:
        BoolensError: chosen indices that are not among the candidates, none, or an index given twice.
    """
    values, inside = _split(scores, chosen, candidates)
    return auroc_of_labels(values, inside) if np.isfinite(values).all() else math.nan


def shuffled_auroc(
    scores: Float[np.ndarray, " pos"], s: int, candidates: Sequence[int], generator: np.random.Generator, n: int
) -> Float[np.ndarray, " n"]:
    """The AUROC of n sets of s candidates, drawn at random in the targets' place; their expectation is 0.5.

    NaN where a score is, or where nothing is left beside a set.

    Raises:
        BoolensError: s outside [1, number of candidates].
    """
    if not 1 <= s <= len(candidates):
        raise BoolensError(f"sets of {s} among {len(candidates)} candidates; s must be from 1 to their number")
    values = np.asarray(scores, dtype=np.float64)[list(candidates)]
    pairs = s * (len(values) - s)
    if not pairs or not np.isfinite(values).all():
        return np.full(n, math.nan)
    chosen = np.argpartition(generator.random((n, len(values))), s - 1, axis=1)[:, :s]
    return (rankdata(values)[chosen].sum(axis=1) - s * (s + 1) / 2) / pairs


def auroc_of_labels(scores: Float[np.ndarray, " sample"], y: Bool[np.ndarray, " sample"]) -> float:
    """Area under the ROC curve, the Mann–Whitney U over its largest value; NaN where all labels are the same."""
    n_true = int(y.sum())
    pairs = n_true * (len(y) - n_true)
    if not pairs:
        return math.nan
    return (float(rankdata(scores)[y].sum()) - n_true * (n_true + 1) / 2) / pairs


def precision_at(scores: Float[np.ndarray, " pos"], chosen: Sequence[int], candidates: Sequence[int]) -> float:
    """Share of the chosen indices among as many with the largest scores; of a tie at the border the expected share.

    NaN where a score is.

    Raises:
        BoolensError: as `auroc`.
    """
    values, inside = _split(scores, chosen, candidates)
    if not np.isfinite(values).all():
        return math.nan
    s = int(inside.sum())
    border = np.sort(values)[-s]
    above, tied = values > border, values == border
    places = s - int(above.sum())
    return float((inside[above].sum() + places * inside[tied].mean()) / s)


def _split(
    scores: Float[np.ndarray, " pos"], chosen: Sequence[int], candidates: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The candidates' scores, and which of them are chosen."""
    if not chosen or not set(chosen) <= set(candidates):
        raise BoolensError(f"indices {list(chosen)} must be a non-empty subset of the candidates {list(candidates)}")
    if len(set(chosen)) < len(chosen) or len(set(candidates)) < len(candidates):
        raise BoolensError(f"indices {list(chosen)}, candidates {list(candidates)}: name each once")
    values = np.asarray(scores, dtype=np.float64)[list(candidates)]
    return values, np.isin(candidates, chosen)
