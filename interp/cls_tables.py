"""A [CLS] model as tables: one score and one value vector for each (pos, vocab), and what comes after attention.

There is one query, whose residual stream no bit enters, so a head's output is a ratio of two sums over the keys that
are present: z(x) = sum of exp(score) · value / sum of exp(score).
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from interp.attention import attention_scores

if TYPE_CHECKING:
    from interp.models import HookedCls


@dataclass(frozen=True)
class ClsTables:
    """Columns are the keys: 2 · pos + bit for the bits, then the [CLS] token's own, which every input has.

    Attributes:
        scores: scaled scores of the query with each key.
        value: value vectors (after W_V and b_V, before W_O).
        resid: the [CLS] token's residual stream before the block.
        model: a copy of the model in the tables' precision and in evaluation mode.
    """

    scores: Float[Tensor, "head column"]
    value: Float[Tensor, "head column d_head"]
    resid: Float[Tensor, " d_model"]
    model: "HookedCls"

    @property
    def n_ctx(self) -> int:
        return self.scores.shape[1] // 2

    def z(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch head d_head"]:
        """The heads' outputs before W_O; a softmax over the keys that are present, so no scores are too far apart."""
        present = torch.nn.functional.pad(one_hot(x.long(), 2).flatten(1).bool(), (0, 1), value=True)
        pattern = self.scores.masked_fill(~present[:, None], -torch.inf).softmax(dim=-1)
        return torch.einsum("bhc,hcd->bhd", pattern, self.value)

    def resid_mid(self, z: Float[Tensor, "batch head d_head"]) -> Float[Tensor, "batch d_model"]:
        """The residual stream after attention."""
        attn = self.model.attn
        out = self.resid + torch.einsum("bhd,hdm->bm", z, attn.W_O)
        return out if attn.b_O is None else out + attn.b_O

    def logits_of_z(self, z: Float[Tensor, "batch head d_head"]) -> Float[Tensor, " batch"]:
        """MLP, norms and readout after the heads' outputs; no hooks run but the copy's own."""
        block: Any = self.model.blocks[0]
        model = self.model
        resid = self.resid_mid(z)[:, None]
        if block.mlp is not None:
            resid = resid + block.mlp(_normed(block.ln2, resid))
        logit = _normed(model.ln_final, resid)[:, 0] @ model.W_readout
        return logit if model.b_readout is None else logit + model.b_readout

    def logits(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        return self.logits_of_z(self.z(x))


@torch.no_grad()
def cls_tables(model: "HookedCls", dtype: torch.dtype = torch.float64) -> ClsTables:
    """The tables of a [CLS] model, without gradients."""
    own = copy.deepcopy(model).to(dtype).eval().requires_grad_(False)
    own.reset_hooks(including_permanent=True)
    bits = own.W_E[None, :2] + own.W_pos[:-1, None]
    resid = own.W_E[2] + own.W_pos[-1]
    tokens = torch.cat([bits.flatten(0, 1), resid[None]])[None]
    block: Any = own.blocks[0]
    seen = _normed(block.ln1, tokens)
    query, key = own.attn.project(seen[:, -1:], "Q"), own.attn.project(seen, "K")
    scores = attention_scores(query, key)[0, :, 0]
    return ClsTables(scores, own.attn.project(seen, "V")[0].transpose(0, 1), resid, own)


def _normed(norm: Any, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
    return resid if norm is None else norm(resid)
