"""How well scores of positions pick out a set of indices."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from interp.errors import BoolensError


def auroc(scores: Float[np.ndarray, " pos"], chosen: Sequence[int], candidates: Sequence[int]) -> float:
    """Probability that a chosen index has a larger score than another candidate, ties counting half.

    It is the Mann–Whitney U statistic of the two groups over its largest value: 1 where every chosen index is above
    every other, 0.5 by chance. NaN where a score is, or where nothing is left beside the chosen ones.

    Raises:
        BoolensError: chosen indices that are not among the candidates, none, or an index given twice.
    """
    values, inside = _split(scores, chosen, candidates)
    n_in, n_out = int(inside.sum()), int((~inside).sum())
    if n_out == 0 or not np.isfinite(values).all():
        return float("nan")
    ranks = rankdata(values)
    return float((ranks[inside].sum() - n_in * (n_in + 1) / 2) / (n_in * n_out))


def precision_at(scores: Float[np.ndarray, " pos"], chosen: Sequence[int], candidates: Sequence[int]) -> float:
    """Share of the chosen indices among as many with the largest scores; of a tie at the border the expected share.

    NaN where a score is.

    Raises:
        BoolensError: as `auroc`.
    """
    values, inside = _split(scores, chosen, candidates)
    if not np.isfinite(values).all():
        return float("nan")
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
