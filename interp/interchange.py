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


def interchange_agreement(
    model: Any,
    base: Int[Tensor, "batch pos"],
    source: Int[Tensor, "batch pos"],
    expected: Bool[Tensor, " batch"],
    hook: str,
    over: Sequence[str] = (),
    *,
    pos: Cells = None,
) -> Bool[np.ndarray, "*cell batch"]:
    """Whether the label is the expected one with the source run's activation at one cell at a time.

    Args:
        model: any model that `interp.interventions.sweep` takes.
        base, source: pairs of inputs, row by row.
        expected: the labels that the causal model gives.
        hook: the hook point of the site.
        over: axes swept, see `interp.interventions.sweep`; () patches the whole site at once.
        pos: the positions that the site has (dest in scores and patterns); all by default.

    Raises:
        BoolensError: no pairs, not one label a pair, no such hook or cell, inputs that do not match row by row.
    """
    check_labels(base, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)  # a site that carries nothing is an answer here
        logits = sweep(model, base, Patch(hook, source=source, rows="keep", pos=pos), over)
    return ((logits > 0) == expected.to(logits.device)).cpu().numpy()


def whole_site_agreement(
    model: Any,
    base: Int[Tensor, "batch pos"],
    source: Int[Tensor, "batch pos"],
    expected: Bool[Tensor, " batch"],
    sites: Sequence[tuple[str, Cells]],
) -> Bool[np.ndarray, "site batch"]:
    """`interchange_agreement` of many whole sites, (hook point, positions), from one run of the sources.

    Raises:
        BoolensError: as there.
    """
    check_labels(base, expected)
    if base.shape != source.shape:
        raise BoolensError(
            f"inputs of shapes {tuple(base.shape)} and {tuple(source.shape)}; pairs must match row by row"
        )
    put = run(model, source, record=dict.fromkeys(hook for hook, _ in sites))[1]
    agreed = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)
        for hook, pos in sites:
            logits, _ = intervene(model, base, Patch(hook, values=put[hook], rows="keep", pos=pos))
            agreed.append(((logits > 0) == expected.to(logits.device)).cpu().numpy())
    return np.array(agreed)


def check_labels(base: Int[Tensor, "batch pos"], expected: Bool[Tensor, " batch"]) -> None:
    """Refuse no pairs, and not one label a pair."""
    if len(base) < 1 or expected.shape != (len(base),):
        raise BoolensError(f"{len(base)} pairs, {len(expected)} expected labels; give at least one pair, a label each")


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
