"""The tables of a stack of attention models and their forward pass, differentiable, on any device and in any precision.

`interp.tables` says why tables, `interp.kernel` how they are kept finite; this is the same for K models at once, as
matrix products that torch makes and differentiates. On a CPU in float32 the kernel takes its place.
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import sinusoidal_encoding
from interp.config import AttentionConfig

LARGEST_GAP = {torch.float32: 60.0, torch.float64: 600.0}
"""Largest difference of a query's scores on the two bits of a position, so that exp and its gradient are in range."""


def stacked_logits(
    cfg: AttentionConfig, parameters: dict[str, Tensor], x: Int[Tensor, "model batch pos"]
) -> tuple[Float[Tensor, "model batch"], Bool[Tensor, " model"]]:
    """The logits of each HookedAttention on its own inputs, and for which models they are right.

    Args:
        cfg: the models' configuration.
        parameters: by name, with a leading model axis.
        x: one batch a model.

    The score of query (u, dest) on key (v, src) is q[u, dest] · (k_pos[src] + k_vocab[v]), and values split likewise.
    """
    p = {name.rsplit(".", 1)[-1]: tensor for name, tensor in parameters.items()}
    W_E, n_models = p["W_E"], len(p["W_E"])
    if cfg.positions == "learned":
        W_pos = p["W_pos"]
    else:
        W_pos = sinusoidal_encoding(cfg.n_ctx, cfg.d_model).to(W_E).expand(n_models, -1, -1)

    def project(resid: Tensor, name: str, *, bias: bool = True) -> Float[Tensor, "model head column width"]:
        out = resid[:, None] @ p[f"W_{name}"]
        return out + p[f"b_{name}"][:, :, None] if cfg.bias and bias else out

    queries = project((W_E[:, :, None] + W_pos[:, None]).flatten(1, 2), "Q") * cfg.d_head**-0.5
    on_pos = queries @ project(W_pos, "K").mT
    on_vocab = queries @ project(W_E, "K", bias=False).mT
    gap = (on_vocab[..., 1] - on_vocab[..., 0]).detach().abs().flatten(1).amax(dim=1)
    a = (on_pos - on_pos.detach().amax(dim=-1, keepdim=True)).exp()
    w = (on_vocab - on_vocab.detach().amin(dim=-1, keepdim=True)).exp()
    weight = a[..., None] * w[..., None, :]
    value = project(W_pos, "V")[:, :, :, None] + project(W_E, "V", bias=False)[:, :, None]
    numerators = einsum(
        weight, value, "model head query src vocab, model head src vocab d -> model head query src vocab d"
    )
    terms = torch.cat([weight[..., None], numerators], dim=-1)
    one_hot = torch.nn.functional.one_hot(x.long(), 2).to(W_E.dtype)
    sums = torch.bmm(
        rearrange(one_hot, "model batch src vocab -> model batch (src vocab)"),
        rearrange(terms, "model head query src vocab c -> model (src vocab) (head query c)"),
    )
    both = rearrange(sums, "m batch (h u dest c) -> u m batch h dest c", h=cfg.n_heads, u=2, dest=cfg.n_ctx)
    of_query = torch.where(x[:, :, None, :, None] == 1, both[1], both[0])
    z = of_query[..., 1:] / of_query[..., :1]
    logits = einsum(z, p["W_readout"], "model batch head dest d, model dest head d -> model batch")
    return logits + p["b_readout"] if cfg.bias else logits, gap <= LARGEST_GAP[W_E.dtype]
