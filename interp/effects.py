"""Effects of interventions in four metrics, and fractions of a difference, with bootstrap intervals over inputs.

===========  =====================================================================================
logit        the logit towards the right label: logit where the label is True, -logit where False
probability  of the right label, sigmoid of that; 0 to 1
loss         binary cross-entropy, nats; the one metric that a harmful ablation raises
accuracy     1 where the logit is above 0 exactly if the label is True, else 0
===========  =====================================================================================
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from interp.errors import BoolensError
from interp.patching import recovered
from interp.statistics import bootstrap_mean

Metric = Literal["logit", "probability", "loss", "accuracy"]
METRICS: tuple[Metric, ...] = get_args(Metric)
Mode = Literal["denoise", "noise"]


@dataclass(frozen=True)
class Estimate:
    """A value for each cell, with the bounds of its percentile bootstrap interval over inputs."""

    value: Float[np.ndarray, "*cell"]
    low: Float[np.ndarray, "*cell"]
    high: Float[np.ndarray, "*cell"]


def score(
    logits: Float[Tensor, "*cell batch"], labels: Bool[Tensor, " batch"], metric: Metric
) -> Float[np.ndarray, "*cell batch"]:
    """The metric of every input, in double precision.

    Raises:
        BoolensError: an unknown metric, or not one label an input.
    """
    if logits.shape[-1:] != labels.shape:
        raise BoolensError(f"{logits.shape[-1]} logits a cell and {len(labels)} labels; give one label an input")
    signed = (2.0 * labels.to(logits.device) - 1) * logits.detach().double()
    match metric:
        case "logit":
            return signed.cpu().numpy()
        case "probability":
            return signed.sigmoid().cpu().numpy()
        case "loss":
            return softplus(-signed).cpu().numpy()
        case "accuracy":
            return ((logits > 0) == labels.to(logits.device)).double().cpu().numpy()
    raise BoolensError(f"metric {metric!r} is not known; choose one of {METRICS}")


def effects(
    clean: Float[Tensor, " batch"],
    ablated: Float[Tensor, "*cell batch"],
    labels: Bool[Tensor, " batch"],
    metric: Metric,
    generator: np.random.Generator,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
) -> Estimate:
    """metric(clean) − metric(ablated), averaged over inputs: positive where the ablation lowers the metric.

    Raises:
        BoolensError: an unknown metric, no inputs, not one label an input, a level outside (0, 1).
    """
    lost = score(clean, labels, metric) - score(ablated, labels, metric)
    low, high = bootstrap_mean(np.moveaxis(lost, -1, 0), generator, n_resamples=n_resamples, level=level)
    return Estimate(np.asarray(lost.mean(axis=-1)), low, high)


def fractions(
    patched: Float[Tensor, "*cell batch"],
    clean: Float[Tensor, " batch"],
    corrupted: Float[Tensor, " batch"],
    labels: Bool[Tensor, " batch"],
    metric: Metric,
    mode: Mode,
    generator: np.random.Generator,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
) -> Estimate:
    """How much of the difference between clean and corrupted a patch makes, as a ratio of means over pairs.

    Args:
        patched: denoise: the corrupted run with clean activations; noise: the clean run with corrupted ones.
        clean, corrupted: the two runs.
        labels: of the clean inputs; the corrupted run is measured against them too.
        metric: the metric.
        mode: denoise gives the fraction recovered, (patched − corrupted) / (clean − corrupted); noise the fraction
            lost, (clean − patched) / (clean − corrupted).
        generator: draws the resamples of pairs, the same for the three runs and for every cell.

    Raises:
        BoolensError: an unknown metric or mode, no inputs, not one label an input, a level outside (0, 1).

    Warns:
        UndefinedWarning: clean and corrupted do not differ, over all pairs or over those of a resample; the fraction,
            or its interval, is NaN.
    """
    if mode not in get_args(Mode):
        raise BoolensError(f"mode {mode!r} is not known; choose one of {get_args(Mode)}")
    n = clean.shape[-1]
    if n < 1 or n_resamples < 1 or not 0 < level < 1:
        raise BoolensError(
            f"{n} inputs, {n_resamples} resamples, level {level}; need at least one of each and a level in (0, 1)"
        )
    runs = [np.moveaxis(score(logits, labels, metric), -1, 0) for logits in (patched, clean, corrupted)]

    def ratio(mean: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        put, whole, none = (mean(run) for run in runs)
        extra = (1,) * (put.ndim - whole.ndim)
        whole, none = (end.reshape(*end.shape, *extra) for end in (whole, none))
        return recovered(put, none, whole) if mode == "denoise" else recovered(put, whole, none)

    value = np.asarray(ratio(lambda run: run.mean(axis=0)))
    if np.isnan(value).all():
        return Estimate(value, value, value)
    share = generator.multinomial(n, np.full(n, 1 / n), size=n_resamples) / n
    resampled = ratio(lambda run: (share @ run.reshape(n, -1)).reshape(n_resamples, *run.shape[1:]))
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return Estimate(value, np.asarray(low), np.asarray(high))
