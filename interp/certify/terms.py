"""A model's logit as a constant plus ratios of sums over keys, and how far rounding can move it.

    logit(x) = bias + sum over positions of additive[pos, x_pos] + sum over terms of N / D
    D = sum over keys of a[x_own, key, x_key],  N = sum over keys of a[x_own, key, x_key] * value[key, x_key]

with a = exp(score): one term for each query and head, `own` its query's position, value the key's value vector times
the query's readout. Numerators and denominators are additive over positions.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.attention import attention_scores
from interp.tables import attention_tables

if TYPE_CHECKING:
    from interp.models import HookedAttention, HookedLinear

UNIT = 2.0**-53
"""Largest relative error of one rounded operation in float64."""


@dataclass(frozen=True)
class Terms:
    """The ratios that add up to the logit, in float64.

    Attributes:
        score: log of a key's weight, for each value of the query's own bit.
        value: what a key writes to the logit if it has all the attention.
        own: position of each term's query; -1 for a query that no bit enters, whose own_vocab is 0.
        additive: what a bit adds to the logit by itself.
        bias: constant added to the logit.
        margin: a bound on the difference between the logit in real arithmetic (of the weights as stored) and any
            evaluation in float64 of the terms, by sums in any order.
    """

    score: Float[np.ndarray, "term own_vocab pos vocab"]
    value: Float[np.ndarray, "term pos vocab"]
    own: Int[np.ndarray, " term"]
    additive: Float[np.ndarray, "pos vocab"]
    bias: float
    margin: float

    @property
    def n_ctx(self) -> int:
        return len(self.additive)

    @property
    def size(self) -> Float[np.ndarray, " term"]:
        """Largest absolute value of each term."""
        return np.abs(self.value).max(axis=(1, 2), initial=0.0)


def attention_terms(model: "HookedAttention") -> Terms:
    """The terms of an attention model read out at its positions; queries whose readout is 0 are left out."""
    with torch.no_grad():
        tables = attention_tables(model, torch.float64)
        n_ctx = tables.n_ctx
        score = tables.scores.unflatten(2, (n_ctx, 2)).unflatten(1, (n_ctx, 2)).numpy()
        value = torch.einsum("phw,hcw->hpc", tables.readout, tables.value).unflatten(2, (n_ctx, 2)).numpy()
        largest_score, largest_value = _magnitudes(model)
        bias = float(tables.bias)
    n_heads, widths = len(score), (model.cfg.d_model, model.cfg.d_head, model.cfg.d_value)
    own = np.tile(np.arange(n_ctx), n_heads)
    terms = (score.reshape(-1, 2, n_ctx, 2), value.reshape(-1, n_ctx, 2))
    used = np.abs(terms[1]).max(axis=(1, 2)) > 0
    size = np.abs(terms[1]).max(axis=(1, 2))[used]
    rounded = (3 * sum(widths) + 20) * UNIT  # of every product of weights, relative to the sum of absolute values
    on_score = rounded * largest_score + 2 * np.abs(score).max() * UNIT + 8 * UNIT
    on_ratio = 2.1 * on_score + (2 * n_ctx + 8) * UNIT
    on_sum = (used.sum() + 4) * UNIT
    margin = 2 * (size.sum() * (on_ratio + on_sum) + used.sum() * rounded * largest_value + abs(bias) * on_sum)
    additive = np.zeros((n_ctx, 2))
    return Terms(
        terms[0][used], terms[1][used], own[used], additive, bias, float(margin) if on_score < 1e-3 else np.inf
    )


def linear_terms(model: "HookedLinear") -> Terms:
    """A linear model's terms: nothing but the additive part."""
    weight, bias = model.W.detach().double().numpy(), float(model.b.detach())
    additive = np.stack([np.zeros_like(weight), weight], axis=-1)
    margin = 2 * (len(weight) + 4) * UNIT * (np.abs(weight).sum() + abs(bias))
    none = (np.zeros((0, 2, len(weight), 2)), np.zeros((0, len(weight), 2)), np.zeros(0, dtype=np.int64))
    return Terms(*none, additive, bias, float(margin))


def _magnitudes(model: "HookedAttention") -> tuple[float, float]:
    """The largest score and value with every weight replaced by its absolute value: what rounding is relative to."""
    attn = model.attn

    def size(weight: torch.Tensor) -> torch.Tensor:
        return weight.double().abs()

    resid = size(model.W_E)[None] + size(model.W_pos)[:, None]

    def project(name: str) -> torch.Tensor:
        out = torch.einsum("pvm,hmw->pvhw", resid, size(getattr(attn, f"W_{name}"))).flatten(0, 1)
        bias = getattr(attn, f"b_{name}")
        return (out if bias is None else out + size(bias))[None]

    scores = attention_scores(project("Q"), project("K"))
    value = torch.einsum("phw,chw->phc", size(model.W_readout), project("V")[0])
    return float(scores.max()), float(value.max())
