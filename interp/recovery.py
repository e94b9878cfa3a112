"""Target recovery: one score a position and method, and whether exactly the targets are on top.

The methods, averaged over the inputs given:

=====================  ==============================================================================
attention              mean pattern onto src, over dest and heads
effective-attention    absolute readout-weighted pattern, summed over heads and d_value; the readout of a
                       [CLS] transformer is each input's own (`interp.readout.direct_readout`)
contribution           variance over inputs of effective attention × value (heads added first)
ablation               mean absolute change of the logit when the key is removed
patching               mean absolute change of the logit when the bit's embedding is patched from the
                       input with that one bit flipped
weights                expectation of the same change over the input distribution, from the tables
=====================  ==============================================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention import contributions, effective_attention
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import remove_each_key
from interp.patching import patch_positions_from
from interp.readout import direct_readout

if TYPE_CHECKING:
    from interp.models import AnyModel, HookedAttention, HookedCls

METHODS = ("attention", "effective-attention", "contribution", "ablation", "patching", "weights")
PATTERN, VALUE, Z = "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_v", "blocks.0.attn.hook_z"


@dataclass(frozen=True)
class Ranking:
    """Attributes: top: the s positions of largest score, best first; tie: the s-th and the next score are equal."""

    top: tuple[int, ...]
    tie: bool


def rank(scores: Float[np.ndarray, " pos"], candidates: Sequence[int], s: int) -> Ranking:
    """The s candidates with the largest scores; equal scores (to 1e-9 of the largest) at the border are a tie.

    Raises:
        BoolensError: s outside [1, number of candidates].
    """
    if not 1 <= s <= len(candidates):
        raise BoolensError(f"{s} positions asked for among {len(candidates)} candidates")
    values = np.asarray(scores, dtype=np.float64)[list(candidates)]
    order = np.argsort(-values, kind="stable")
    top = tuple(int(candidates[i]) for i in order[:s])
    if not np.isfinite(values).all():
        return Ranking(top, tie=True)
    tie = s < len(order) and values[order[s - 1]] - values[order[s]] <= 1e-9 * np.abs(values).max()
    return Ranking(top, bool(tie))


def flip_scores(model: "AnyModel", x: Int[Tensor, "batch pos"]) -> Float[Tensor, " pos"]:
    """The 'patching' scores: each bit's embedding is patched from the input in which that bit is flipped.

    An embedding depends on its own bit alone, so one run on 1 - x holds the flipped embedding of every position.
    """
    clean, _ = run(model, x)
    patched = patch_positions_from(model, x, 1 - x, "hook_embed")[: x.shape[1]]
    return (patched - clean).abs().mean(dim=1)


def head_scores(
    model: "HookedAttention | HookedCls", x: Int[Tensor, "batch pos"]
) -> dict[str, Float[Tensor, "head pos"]]:
    """The scores 'attention', 'effective-attention' and 'contribution' of each head by itself."""
    pattern, effective, contribution, _ = _read(model, x)
    return {
        "attention": pattern.mean(dim=(0, 2)),
        "effective-attention": effective.abs().sum(dim=3).mean(dim=0),
        "contribution": contribution.var(dim=0, correction=0),
    }


def attention_method_scores(
    model: "HookedAttention | HookedCls", x: Int[Tensor, "batch pos"]
) -> dict[str, Float[Tensor, " pos"]]:
    """The scores 'attention', 'effective-attention', 'contribution' and, with two keys or more, 'ablation'."""
    pattern, effective, contribution, clean = _read(model, x)
    scores = {
        "attention": pattern.mean(dim=(0, 1, 2)),
        "effective-attention": effective.abs().sum(dim=(1, 3)).mean(dim=0),
        "contribution": contribution.sum(dim=1).var(dim=0, correction=0),
    }
    if x.shape[1] > 1:
        removed = remove_each_key(model, x)[: x.shape[1]]
        scores["ablation"] = (removed - clean).abs().mean(dim=1)
    return scores


def _read(model: "HookedAttention | HookedCls", x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pattern, effective attention and contributions onto the bits (a [CLS] token's own key left out); the logits."""
    clean, cache = run(model, x, record=[PATTERN, VALUE])
    pattern = cache[PATTERN][..., : x.shape[1]]
    effective = effective_attention(pattern, direct_readout(model, x))
    return pattern, effective, contributions(effective, cache[VALUE][:, : x.shape[1]]), clean
