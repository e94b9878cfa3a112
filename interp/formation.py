"""Formation: what a model in training is like at one step, when a measure locks on, and which event comes first.

========================  ==========================================================================================
valid-accuracy            share of validation inputs answered right
valid-loss                mean binary cross-entropy on them; nats
logit-auroc               probability that a True input has a larger z · readout than a False one (ties count half):
                          whether z already carries the label along the readout, whatever threshold and scale are
attention-entropy         entropy of a row of the pattern over log T, mean over inputs, heads and dest: 1 is uniform
attention-on-targets      pattern mass on the targets (src), mean over inputs, heads and dest; uniform gives s / T
effective-on-targets      share of absolute effective attention on the targets, summed over heads and d_value, mean
                          over inputs
patching-precision        share of the s positions with the largest patching score that are targets
distance                  Euclidean distance of all parameters from their initial values
========================  ==========================================================================================
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import effective_attention
from interp.errors import BoolensError
from interp.selection import auroc_of_labels
from interp.stack import mean_loss
from interp.statistics import clopper_pearson
from interp.tables import Tables, columns

MEASURES = (
    *("valid-accuracy", "valid-loss", "logit-auroc", "attention-entropy", "attention-on-targets"),
    *("effective-on-targets", "patching-precision", "distance"),
)
BAND = 0.1
"""Half the width of the band about the final value, as a share of the measure's range over the run."""


TIE = 1e-4
"""Patching scores closer than this share of the largest are tied."""


def label_measures(logit: Float[Tensor, " batch"], y: Bool[Tensor, " batch"]) -> dict[str, float]:
    """valid-accuracy, valid-loss and logit-auroc (NaN where all labels are the same)."""
    return {
        "valid-accuracy": float(((logit > 0) == y).double().mean()),
        "valid-loss": float(mean_loss(logit.double()[None], y.double()[None])),
        "logit-auroc": auroc_of_labels(logit.double().numpy(), y.numpy()),
    }


def attention_measures(
    tables: Tables, x: Int[Tensor, "batch pos"], is_target: Bool[Tensor, "batch pos"]
) -> dict[str, float]:
    """attention-entropy, attention-on-targets and effective-on-targets.

    Args:
        tables: the model's.
        x: inputs.
        is_target: which positions are the targets of each input (they may differ with its rule).
    """
    column = columns(x)
    pattern = rearrange(
        tables.scores[:, column[:, :, None], column[:, None, :]].softmax(dim=-1),
        "head batch dest src -> batch head dest src",
    )
    return pattern_measures(pattern, tables.readout, is_target)


def pattern_measures(
    pattern: Float[Tensor, "batch head dest src"],
    readout: Float[Tensor, "*batch dest head d_value"],
    is_target: Bool[Tensor, "batch pos"],
) -> dict[str, float]:
    """The same from a pattern, whose src may go on after the inputs' positions, as with a [CLS] token's own key.

    The entropy is over all keys; the readout is one for all inputs or one an input.
    """
    n_keys = pattern.shape[-1]
    onto_bits = pattern[..., : is_target.shape[1]]
    effective = effective_attention(onto_bits, readout).abs().sum(dim=(1, 3))
    total = effective.sum(dim=1)
    return {
        "attention-entropy": float(torch.special.entr(pattern).sum(dim=-1).mean()) / math.log(n_keys)
        if n_keys > 1
        else math.nan,
        "attention-on-targets": float((onto_bits * is_target[:, None, None]).sum(dim=-1).mean()),
        "effective-on-targets": float(((effective * is_target).sum(dim=1) / total).mean()),
    }


def with_flips(x: Int[Tensor, "batch pos"]) -> Int[Tensor, "flips_and_batch pos"]:
    """The inputs, then those with the bit at position 0 flipped, then at position 1 and so on: (T + 1) · batch rows."""
    flip = torch.cat([x.new_zeros(1, x.shape[1]), torch.eye(x.shape[1], dtype=x.dtype, device=x.device)])
    return rearrange(x[None] ^ flip[:, None], "flips batch pos -> (flips batch) pos")


def flip_scores_of(logit: Float[Tensor, " flips_and_batch"], n_ctx: int) -> Float[Tensor, " pos"]:
    """Mean absolute change of the logit by each flip, from the logits on `with_flips(x)`.

    This is `interp.recovery.flip_scores`: an embedding depends on its own bit alone, so that patching it from the input
    in which the bit is flipped is to flip the bit.
    """
    clean, *flipped = logit.unflatten(0, (n_ctx + 1, -1))
    return (torch.stack(flipped) - clean).abs().mean(dim=1)


def precision(scores: Float[np.ndarray, " pos"], targets: Sequence[int], candidates: Sequence[int]) -> float:
    """Share of the s candidates with the largest scores that are targets; scores are not below 0.

    Ties count against the targets: a target must be above by more than TIE of the largest score. (At a small
    initialisation a flip changes the logit alike at every position, to rounding.)
    """
    values = np.asarray(scores, dtype=np.float64)[list(candidates)]
    hit = np.isin(candidates, targets)
    order = np.lexsort((hit, -np.where(hit, values, values + TIE * values.max(initial=0))))
    return float(hit[order[: len(targets)]].mean())


def lock_on(steps: Sequence[int], values: Float[np.ndarray, " step"], band: float = BAND) -> float:
    """The first logged step from which on a measure stays within a band about its final value.

    The band is ± band · (max − min) over the run. NaN where the measure never changes, where a value is not finite, and
    where it comes into the band only at the last step, so that it was not seen to stay.

    Raises:
        BoolensError: numbers of steps and values that differ, or a band outside (0, 1).
    """
    values = np.asarray(values, dtype=np.float64)
    if len(steps) != len(values) or not 0 < band < 1:
        raise BoolensError(
            f"{len(steps)} steps, {len(values)} values, band {band}; give one value a step and a band in (0, 1)"
        )
    if not len(values) or not np.isfinite(values).all() or values.max() == values.min():
        return math.nan
    outside = np.flatnonzero(np.abs(values - values[-1]) > band * (values.max() - values.min()))
    first = int(outside[-1]) + 1 if len(outside) else 0
    return math.nan if first == len(values) - 1 else float(steps[first])


@dataclass(frozen=True)
class Order:
    """For each pair of events (row, column), over the seeds in which both happened.

    Attributes:
        before: seeds in which the row's event came at an earlier logged step than the column's.
        tied: seeds in which both came at the same logged step.
        of: seeds in which both happened.
        low, high: 95 % Clopper–Pearson interval of before / of; (0, 1) without seeds.
    """

    before: Int[np.ndarray, "event event"]
    tied: Int[np.ndarray, "event event"]
    of: Int[np.ndarray, "event event"]
    low: Float[np.ndarray, "event event"]
    high: Float[np.ndarray, "event event"]


def order_of_events(at: Float[np.ndarray, "seed event"]) -> Order:
    """Which event precedes which, from the step at which each happened in each seed (NaN: it did not)."""
    row, column = at[:, :, None], at[:, None, :]
    before, tied = (row < column).sum(axis=0), (row == column).sum(axis=0)
    of = (np.isfinite(row) & np.isfinite(column)).sum(axis=0)
    ends = np.array([clopper_pearson(int(k), int(n)) for k, n in zip(before.flat, of.flat, strict=True)])
    return Order(before, tied, of, ends[:, 0].reshape(of.shape), ends[:, 1].reshape(of.shape))
