"""Interchange interventions: a site's activation from a source run in the base run (Geiger et al. 2021).

Whoever calls says what the label should then be; interchange-intervention accuracy (IIA) is the share of pairs for
which the model's label, logit > 0, is that.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import Patch, UnchangedWarning, intervene, sweep
from interp.interventions.values import Cells
from interp.statistics import clopper_pearson


@dataclass(frozen=True)
class Share:
    """A share of n pairs in each cell, with its 95 % Clopper–Pearson interval."""

    value: Float[np.ndarray, "*cell"]
    low: Float[np.ndarray, "*cell"]
    high: Float[np.ndarray, "*cell"]
    n: int


@dataclass(frozen=True)
class Site:
    """Where a source's activation is put.

    Attributes:
        hook: the hook point.
        over: axes swept, one cell at a time, see `interp.interventions.sweep`; () patches the whole site at once.
        pos: the positions that the site has (dest in scores and patterns); all by default.
    """

    hook: str
    over: tuple[str, ...] = ()
    pos: Cells = None


def interchange_agreement(
    model: Any,
    base: Int[Tensor, "batch pos"],
    source: Int[Tensor, "batch pos"],
    expected: Bool[Tensor, " batch"],
    sites: Sequence[Site],
) -> list[Bool[np.ndarray, "*cell batch"]]:
    """For each site, whether the label is the expected one with the source run's activation at one cell at a time.

    Args:
        model: any model that `interp.interventions.sweep` takes.
        base, source: pairs of inputs, row by row; the sources are run once for all sites.
        expected: the labels that the causal model gives.
        sites: where.

    Raises:
        BoolensError: no pairs, not one label a pair, no such hook or cell, inputs that do not match row by row.
    """
    if len(base) < 1 or expected.shape != (len(base),):
        raise BoolensError(f"{len(base)} pairs, {len(expected)} expected labels; give at least one pair, a label each")
    if base.shape != source.shape:
        shapes = f"inputs of shapes {tuple(base.shape)} and {tuple(source.shape)}"
        raise BoolensError(f"{shapes}; pairs must match row by row")
    put = run(model, source, record=dict.fromkeys(site.hook for site in sites))[1]
    agreed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)  # a site that carries nothing is an answer here
        for site in sites:
            patch = Patch(site.hook, values=put[site.hook], rows="keep", pos=site.pos)
            logits = sweep(model, base, patch, site.over) if site.over else intervene(model, base, patch)[0]
            agreed.append(((logits > 0) == expected.to(logits.device)).cpu().numpy())
    return agreed


def share(agreed: Bool[np.ndarray, "*cell batch"], level: float = 0.95) -> Share:
    """The share of True over the last axis, with its interval.

    Raises:
        BoolensError: a level outside (0, 1).
    """
    n = agreed.shape[-1]
    count = np.asarray(agreed.sum(axis=-1))
    interval = cache(lambda successes: clopper_pearson(successes, n, level))
    bounds = np.array([interval(int(c)) for c in count.flat], dtype=float).reshape(*count.shape, 2)
    value = np.asarray(count / n) if n else np.full(count.shape, np.nan)
    return Share(value, bounds[..., 0], bounds[..., 1], n)
