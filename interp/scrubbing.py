"""Causal scrubbing (Chan et al. 2022, "Causal Scrubbing: a method for rigorously testing interpretability hypotheses").

A one-layer attention model's input reaches the logit by two paths: through the pattern (which positions are attended
to) and through the values (what is read there). A hypothesis says which bits each path needs. Scrubbing runs each path
on an input of its own, which has these bits and is otherwise drawn anew, and asks how much of the loss is left:

    recovered = (base rate − scrubbed) / (base rate − intact)

in mean binary cross-entropies (nats), where `base rate` is the entropy of the labels, the loss of always giving their
frequency. 1: nothing that the hypothesis leaves out was needed; 0: no better than the base rate; it may be negative.
One input for both paths would not do: for a hypothesis that fixes the label it only replaces one input by another with
the same label, so that the mean loss is the intact one whatever the model does. For the same reason bits that only add
to the logit, whatever the other path sees, cost no more scrubbed than intact.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from interp.attention import effective_attention
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import patch
from interp.patching import UndefinedWarning
from interp.tables import attention_tables, columns

if TYPE_CHECKING:
    from interp.models import HookedAttention

PATTERN = "blocks.0.attn.hook_pattern"


@dataclass(frozen=True)
class Scrubbed:
    """What is left under a hypothesis.

    Attributes:
        loss, intact_loss: mean binary cross-entropy of the scrubbed and of the intact model, nats.
        accuracy: share of right labels.
        recovered: fraction of the loss, see the module's docstring; NaN where the intact model is no better than the
            base rate.
        low, high: its 95 % percentile bootstrap interval over inputs; both `recovered` itself where `exact`.
        exact: whether all inputs and all draws were enumerated.
        n: number of inputs, enumerated or drawn.
    """

    loss: float
    intact_loss: float
    accuracy: float
    recovered: float
    low: float
    high: float
    exact: bool
    n: int


def entropy(p_true: float) -> float:
    """The loss, nats, of always giving the labels' frequency.

    Raises:
        BoolensError: p_true outside [0, 1].
    """
    if not 0 <= p_true <= 1:
        raise BoolensError(f"p_true = {p_true} is no probability; it must be in [0, 1]")
    return -math.fsum(p * math.log(p) for p in (p_true, 1 - p_true) if p > 0)


def path_logits(
    model: "HookedAttention", pattern: Int[Tensor, "pattern pos"], value: Int[Tensor, "value pos"]
) -> Float[Tensor, "pattern value"]:
    """The logit for every combination of an input for the pattern and an input for the values: one matrix product."""
    weights, values, bias = _paths(model, pattern, value)
    return einsum(weights, values, "pattern head src d_value, head value src d_value -> pattern value") + bias


def paired_path_logits(
    model: "HookedAttention", pattern: Int[Tensor, "batch pos"], value: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """The logit for each input for the pattern with the input for the values in the same row.

    Of a model with an MLP or norm behind attention, by its own forward pass with the pattern of the one input.
    """
    if model.cfg.architecture != "attention":
        return run(model, value, [patch(PATTERN, run(model, pattern, record=[PATTERN])[1][PATTERN])])[0]
    weights, values, bias = _paths(model, pattern, value)
    return einsum(weights, values, "batch head src d_value, head batch src d_value -> batch") + bias


def _paths(
    model: "HookedAttention", pattern: Int[Tensor, "pattern pos"], value: Int[Tensor, "value pos"]
) -> tuple[Float[Tensor, "pattern head src d_value"], Float[Tensor, "head value src d_value"], Float[Tensor, ""]]:
    """Effective attention on the one, values of the other (which depend on a bit alone: from the tables), the bias."""
    patterns = run(model, pattern, record=[PATTERN])[1][PATTERN]
    with torch.no_grad():
        tables = attention_tables(model)
        return effective_attention(patterns, tables.readout), tables.value[:, columns(value)], tables.bias.detach()


def scrub_exactly(
    model: "HookedAttention",
    x: Int[Tensor, "input pos"],
    labels: Bool[Tensor, " input"],
    bit_probability: Sequence[float],
    needed: Sequence[tuple[Bool[Tensor, "input pos"], Bool[Tensor, "input pos"]]],
    p_true: float,
) -> list[Scrubbed]:
    """Every hypothesis, with each of all 2**T inputs and all that its two paths may be given, by their probabilities.

    Memory: three arrays of 4**T numbers, 96 MiB at T = 11.

    Args:
        model: a one-layer attention model.
        x: all 2**T inputs.
        labels: the function's values.
        bit_probability: P(bit = 1) at each position; bits are independent.
        needed: for each hypothesis, which bits of each input the pattern and the values need.
        p_true: P(label = True).

    Raises:
        BoolensError: not all 2**T inputs.

    Warns:
        UndefinedWarning: the intact model is no better than the base rate.
    """
    n, n_ctx = x.shape
    if n != 2**n_ctx or len(x.unique(dim=0)) != n:
        raise BoolensError(f"{n} inputs of {n_ctx} bits are not all 2**{n_ctx} of them; give every input once")
    p = torch.tensor(bit_probability, dtype=torch.float64)
    bit = torch.where(x == 1, p, 1 - p)
    probability = bit.prod(dim=1)
    logits = path_logits(model, x, x).double()
    sign = 1 - 2 * labels.double()
    intact = float((softplus(sign * logits.diagonal()) * probability).sum())
    asked = [_kinds(masks, x, labels, probability, bit) for masks in needed]
    loss, accuracy = (torch.zeros(len(asked), dtype=torch.float64) for _ in range(2))
    for label in (False, True):
        losses, right = softplus(-logits if label else logits), ((logits > 0) == label).double()
        for i, (of_label, for_pattern, for_value) in enumerate(asked):
            of = of_label == label
            loss[i] += ((for_pattern[of] @ losses) * for_value[of]).sum()
            accuracy[i] += ((for_pattern[of] @ right) * for_value[of]).sum()
    recovered = _recovered(loss.numpy(), np.array(intact), p_true)
    return [
        Scrubbed(of_loss, intact, of_accuracy, value, value, value, True, n)
        for of_loss, of_accuracy, value in zip(loss.tolist(), accuracy.tolist(), recovered.tolist(), strict=True)
    ]


def _kinds(
    masks: tuple[Bool[Tensor, "input pos"], Bool[Tensor, "input pos"]],
    x: Int[Tensor, "input pos"],
    labels: Bool[Tensor, " input"],
    probability: Float[Tensor, " input"],
    bit: Float[Tensor, "input pos"],
) -> tuple[Int[Tensor, " kind"], Float[Tensor, "kind input"], Float[Tensor, "kind input"]]:
    """Inputs with one label that ask for the same bits are one kind: its label; what its pattern may be given, by
    probability; and what its values may be, by that times the probability of the kind.
    """
    n_ctx = x.shape[1]
    keys = torch.cat([labels[:, None].long(), *(torch.where(mask, x, 2) for mask in masks)], dim=1)
    kinds, kind = keys.unique(dim=0, return_inverse=True)
    share = torch.zeros(len(kinds), dtype=torch.float64).index_add_(0, kind, probability)
    for_pattern, for_value = (_given(part, x, bit) for part in (kinds[:, 1 : n_ctx + 1], kinds[:, n_ctx + 1 :]))
    return kinds[:, 0], for_pattern, for_value * share[:, None]


def _given(
    wanted: Int[Tensor, "kind pos"], x: Int[Tensor, "input pos"], bit: Float[Tensor, "input pos"]
) -> Float[Tensor, "kind input"]:
    """The probability of each input given the wanted bits; 2 stands for a bit that is drawn."""
    result = torch.ones(len(wanted), len(x), dtype=torch.float64)
    for pos in range(x.shape[1]):
        want, have = wanted[:, pos, None], x[:, pos]
        result *= torch.where(want == 2, bit[:, pos], (want == have).double())
    return result


def scrub_sampled(
    model: "HookedAttention",
    x: Int[Tensor, "batch pos"],
    labels: Bool[Tensor, " batch"],
    fresh: tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]],
    needed: Sequence[tuple[Bool[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]],
    p_true: float,
    generator: np.random.Generator,
    *,
    n_resamples: int = 1000,
) -> list[Scrubbed]:
    """Every hypothesis, on the same inputs drawn from the task's distribution.

    Args:
        model: a one-layer attention model.
        x, labels: the inputs, and the function's values.
        fresh: for the pattern and for the values, independent draws that the bits which are not needed come from.
        needed: for each hypothesis, which bits of each input the pattern and the values need.
        p_true: P(label = True).
        generator: of the bootstrap; every hypothesis is given the same resamples of the inputs.
        n_resamples: of the bootstrap.

    Raises:
        BoolensError: no inputs, or not one label an input.

    Warns:
        UndefinedWarning: the intact model is no better than the base rate, here or in a resample.
    """
    n = len(x)
    if n < 1 or labels.shape != (n,):
        raise BoolensError(f"{n} inputs and {len(labels)} labels; give at least one input, and a label for each")
    sign = 1 - 2 * labels.double()
    intact = softplus(sign * run(model, x)[0].double()).numpy()
    logits = torch.stack(
        [
            paired_path_logits(model, *(torch.where(mask, x, other) for mask, other in zip(masks, fresh, strict=True)))
            for masks in needed
        ]
    )
    losses = softplus(sign * logits.double()).numpy().T
    accuracy = ((logits > 0) == labels).double().mean(dim=1)
    drawn = generator.integers(n, size=(n_resamples, n)) + n * np.arange(n_resamples)[:, None]
    share = np.bincount(drawn.ravel(), minlength=n_resamples * n).reshape(n_resamples, n) / n
    value = _recovered(losses.mean(axis=0), intact.mean(), p_true)
    low, high = np.quantile(_recovered(share @ losses, (share @ intact)[:, None], p_true), [0.025, 0.975], axis=0)
    columns = (each.tolist() for each in (losses.mean(axis=0), accuracy, value, low, high))
    return [
        Scrubbed(loss, float(intact.mean()), right, *interval, exact=False, n=n)
        for loss, right, *interval in zip(*columns, strict=True)
    ]


def _recovered(scrubbed: np.ndarray, intact: np.ndarray, p_true: float) -> np.ndarray:
    base = entropy(p_true)
    better = np.asarray(intact) < base
    if not better.all():
        warnings.warn(
            f"the intact model's loss, {np.max(intact):.3g} nats, is not below the base rate's, {base:.3g}: the "
            "fraction recovered is undefined",
            UndefinedWarning,
            stacklevel=3,
        )
    return np.where(better, (base - scrubbed) / np.where(better, base - intact, 1), np.nan)
