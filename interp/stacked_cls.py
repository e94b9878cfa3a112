"""The forward pass of a stack of [CLS] transformers from tables, differentiable, on any device and in any precision.

There is one query, that of the [CLS] token, whose residual stream is the same for all inputs; so a head's scores and
values are one number and one vector a (pos, vocab), and the softmax's numerators and denominators are products of the
one-hot inputs with them, as in `interp.tables`. The cost is linear in n_ctx: no input goes through keys and values.
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, one_hot

from interp.config import NORM_EPS, ClsConfig

LARGEST_SCORE = {torch.float32: 80.0, torch.float64: 700.0}
"""Largest difference of a present key's score and the shift, so that exp and its gradient are in range."""


def cls_logits(
    cfg: ClsConfig,
    parameters: dict[str, Tensor],
    x: Int[Tensor, "model batch pos"],
    keep: Float[Tensor, "model 2 batch d_model"] | None = None,
) -> tuple[Float[Tensor, "model batch"], Bool[Tensor, " model"]]:
    """The logits of each HookedCls on its own inputs, and for which models they are right.

    Args:
        cfg: the models' configuration.
        parameters: by name, with a leading model axis.
        x: one batch a model.
        keep: dropout's masks, 1 where an entry of attention's (0) and of the MLP's output (1) is kept; None for none.
    """
    p = {name.removeprefix("blocks.0.").replace("attn.", ""): tensor for name, tensor in parameters.items()}
    bits = p["W_E"][:, None, :2] + p["W_pos"][:, :-1, None]  # model src vocab d_model
    cls = p["W_E"][:, 2] + p["W_pos"][:, -1]
    tokens = torch.cat([bits.flatten(1, 2), cls[:, None]], dim=1)
    seen = _norm(p, "ln1", tokens)

    def project(resid: Float[Tensor, "model column d_model"], name: str) -> Float[Tensor, "model head column d_head"]:
        out = resid[:, None] @ p[f"W_{name}"]
        return out + p[f"b_{name}"][:, :, None] if cfg.bias else out

    q = project(seen[:, -1:], "Q") * cfg.d_head**-0.5
    scores = (project(seen, "K") @ q.mT)[..., 0]
    by_bit = rearrange(scores[..., :-1].detach(), "model head (src vocab) -> model head src vocab", vocab=2)
    low = by_bit.amin(dim=-1).amax(dim=-1).maximum(scores[..., -1].detach())
    fits = (scores.detach() - low[..., None]).flatten(1).amax(dim=1) < LARGEST_SCORE[scores.dtype]
    weight = (scores - low[..., None]).exp()
    terms = torch.cat([weight[..., None], weight[..., None] * project(seen, "V")], dim=-1)
    sums = torch.bmm(
        one_hot(x, 2).to(scores.dtype).flatten(2),
        rearrange(terms[:, :, :-1], "model head column c -> model column (head c)"),
    )
    sums = rearrange(sums, "model batch (head c) -> model batch head c", head=cfg.n_heads) + terms[:, None, :, -1]
    z = sums[..., 1:] / sums[..., :1]
    attn_out = einsum(z, p["W_O"], "model batch head d_head, model head d_head d_model -> model batch d_model")
    attn_out = _with_bias(p, "b_O", attn_out)
    resid = cls[:, None] + (attn_out if keep is None else attn_out * keep[:, 0] / (1 - cfg.dropout))
    if cfg.d_mlp:
        post = gelu(_with_bias(p, "mlp.b_in", _norm(p, "ln2", resid) @ p["mlp.W_in"]))
        mlp_out = _with_bias(p, "mlp.b_out", post @ p["mlp.W_out"])
        resid = resid + (mlp_out if keep is None else mlp_out * keep[:, 1] / (1 - cfg.dropout))
    logits = (_norm(p, "ln_final", resid) @ p["W_readout"][:, :, None])[..., 0]
    return _with_bias(p, "b_readout", logits[..., None])[..., 0], fits


def _norm(
    p: dict[str, Tensor], name: str, resid: Float[Tensor, "model row d_model"]
) -> Float[Tensor, "model row d_model"]:
    if f"{name}.w" not in p:
        return resid
    out = layer_norm(resid, resid.shape[-1:], eps=NORM_EPS) * p[f"{name}.w"][:, None]
    return _with_bias(p, f"{name}.b", out)


def _with_bias(
    p: dict[str, Tensor], name: str, out: Float[Tensor, "model row width"]
) -> Float[Tensor, "model row width"]:
    return out + p[name][:, None] if name in p else out
