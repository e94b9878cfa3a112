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
