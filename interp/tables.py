"""The exact tables of a one-layer attention model, and its forward pass from them.

A token's residual stream before attention depends only on its (pos, vocab), so a whole data set has 2T different
ones. Column 2 * pos + vocab stands for the bit `vocab` at `pos`; a head's scores are one [2T, 2T] table (row: query,
column: key), its values one [2T, d_value] table. With inputs as one-hot rows H [batch, 2T] the numerators and
denominators of every softmax are two products, N = H (exp(S) * v)ᵀ and D = H exp(S)ᵀ.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention import attention_scores
from interp.errors import BoolensError

if TYPE_CHECKING:
    from interp.models import HookedAttention


@dataclass(frozen=True)
class Tables:
    """All that a HookedAttention computes with, by (pos, vocab) column.

    Attributes:
        scores: attention scores of query column on key column.
        value: value vector of each column.
        readout: the readout's weights.
        bias: constant added to the logit.
    """

    scores: Float[Tensor, "head query_column key_column"]
    value: Float[Tensor, "head key_column d_value"]
    readout: Float[Tensor, "pos head d_value"]
    bias: Float[Tensor, ""]

    @property
    def n_ctx(self) -> int:
        return self.readout.shape[0]


def attention_tables(model: "HookedAttention", dtype: torch.dtype | None = None) -> Tables:
    """The tables of a model, from its weights alone; differentiable in them.

    Args:
        model: the model.
        dtype: precision to compute in (float64 for analyses); the weights' own by default.
    """
    attn = model.attn

    def cast(weight: Tensor) -> Tensor:
        return weight if dtype is None else weight.to(dtype)

    resid = rearrange(cast(model.W_pos)[:, None] + cast(model.W_E)[None], "pos vocab d_model -> (pos vocab) d_model")

    def project(name: str) -> Float[Tensor, "1 column head width"]:
        out = einsum(resid, cast(getattr(attn, f"W_{name}")), "column d_model, head d_model width -> column head width")
        bias = getattr(attn, f"b_{name}")
        return (out if bias is None else out + cast(bias))[None]

    readout = cast(model.W_readout)
    return Tables(
        scores=attention_scores(project("Q"), project("K"))[0],
        value=rearrange(project("V")[0], "column head d_value -> head column d_value"),
        readout=readout,
        bias=readout.new_zeros(()) if model.b_readout is None else cast(model.b_readout),
    )


def columns(x: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
    """The table column of each bit, 2 * pos + vocab."""
    return 2 * torch.arange(x.shape[1], device=x.device) + x


def safe_shift(
    scores: Float[Tensor, "head query_column key_column"],
) -> tuple[Float[Tensor, "head query_column 1"], bool]:
    """What to subtract from each row of scores before exp, and whether that is safe for every input.

    One of the two bits is present at every position, so the largest present score is at least
    low = max over pos of min over vocab. After subtracting low every denominator is at least 1, whatever the
    input; it overflows only where an absent or present key lies too far above low. (Subtracting the row's overall
    maximum instead can underflow every present key.)
    """
    by_pos = rearrange(scores, "head query (pos vocab) -> head query pos vocab", vocab=2)
    low = by_pos.amin(dim=-1).amax(dim=-1, keepdim=True)
    headroom = torch.log(torch.tensor(torch.finfo(scores.dtype).max, dtype=torch.float64)).item() / 2
    return low, bool((scores - low).amax() < headroom)


def table_logits(tables: Tables, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
    """The model's logits from its tables: two matrix products, cost O(batch · head · T² · d_value).

    Where scores lie too far apart for one shift to serve every input (`safe_shift`), each input's own scores are
    gathered and put through a softmax instead, which is right for any finite scores.
    """
    shift, safe = safe_shift(tables.scores)
    if not safe:
        return _gathered_logits(tables, x)
    one_hot = torch.nn.functional.one_hot(x.long(), 2).to(tables.scores.dtype).flatten(1)
    weight = (tables.scores - shift).exp()
    denominator = einsum(one_hot, weight, "batch key, head query key -> batch head query")
    weighted = weight[..., None] * tables.value[:, None]
    numerator = einsum(one_hot, weighted, "batch key, head query key d_value -> batch head query d_value")
    z = numerator / denominator[..., None]
    readout = tables.readout.repeat_interleave(2, dim=0)
    return (
        einsum(one_hot, z, readout, "batch query, batch head query d_value, query head d_value -> batch") + tables.bias
    )


def _gathered_logits(tables: Tables, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
    column = columns(x)
    scores = tables.scores[:, column[:, :, None], column[:, None, :]]
    z = einsum(
        scores.softmax(dim=-1),
        tables.value[:, column],
        "head batch dest src, head batch src d_value -> batch dest head d_value",
    )
    return einsum(z, tables.readout, "batch dest head d_value, dest head d_value -> batch") + tables.bias


def shares(
    x: Int[Tensor, "batch pos"], probability: Float[Tensor, " batch"] | None, like: Tensor
) -> Float[Tensor, " batch"]:
    """Each input's share in an expectation, in the type of `like`: its probability, or else the same for all.

    Raises:
        BoolensError: no inputs, or not one probability for each.
    """
    n_probabilities = len(x) if probability is None else len(probability)
    if not 0 < len(x) == n_probabilities:
        raise BoolensError(f"{len(x)} inputs, {n_probabilities} probabilities; give at least one input, one for each")
    return like.new_full((len(x),), 1 / len(x)) if probability is None else probability.to(like)


def expected_flip_effect(
    tables: Tables, x: Int[Tensor, "batch pos"], probability: Float[Tensor, " batch"] | None = None
) -> Float[Tensor, " pos"]:
    """Expected absolute change of the logit when the bit at each position flips, over the given inputs.

    With all 2**T inputs and their probabilities this is the exact expectation; with a sample (probability None) its
    estimate. Cost: T + 1 forward passes.

    Raises:
        BoolensError: no inputs, or not one probability for each.
    """
    before = table_logits(tables, x)
    share = shares(x, probability, before)
    effects = []
    for position in range(x.shape[1]):
        flipped = x.long().clone()
        flipped[:, position] = 1 - flipped[:, position]
        effects.append(((table_logits(tables, flipped) - before).abs() * share).sum())
    return torch.stack(effects)
