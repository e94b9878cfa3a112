"""How far rounding in float64 can move what a [CLS] model computes: norms of vectors and of their errors, step by step.

Every step takes a bound on a vector's Euclidean norm and on that of its error, and gives the same of its result:
matrices by their Frobenius norms, a sum of n products by n + 2 roundings of the sum of absolute values, GELU by its
steepest slope. A LayerNorm's Jacobian is at most |w| / scale: tokens are few, so the first norm's least scale is known;
for the others it is assumed, and inputs of a smaller one have no logit (`interp.certify.cls.Values`).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from interp.certify.gelu import STEEPEST
from interp.certify.terms import UNIT
from interp.config import NORM_EPS

if TYPE_CHECKING:
    from interp.cls_tables import ClsTables


class Sized(NamedTuple):
    """Bounds on Euclidean norms: of a vector in real arithmetic, and of the difference that rounding makes."""

    size: float
    error: float


def length(weight: Tensor | None) -> float:
    return 0.0 if weight is None else float(torch.linalg.vector_norm(weight.double()))


def linear(x: Sized, weight: Tensor, bias: Tensor | None, width: int) -> Sized:
    """x · weight + bias with sums of `width` products."""
    by, more = length(weight), length(bias)
    size = by * x.size + more
    return Sized(size, by * x.error + (width + 3) * UNIT * (size + by * x.error))


def add(x: Sized, y: Sized) -> Sized:
    return Sized(x.size + y.size, x.error + y.error + 2 * UNIT * (x.size + y.size))


def normed(x: Sized, norm: Any, scale: float) -> Sized:
    """A LayerNorm of at least this scale; None changes nothing."""
    if norm is None:
        return x
    width, steepest = len(norm.w), float(norm.w.abs().max())
    size = steepest * width**0.5 + length(norm.b)
    moved = steepest / scale * (x.error + 2 * (width + 4) * UNIT * x.size)
    return Sized(size, moved + (2 * width + 20) * UNIT * size)


def gelu(x: Sized) -> Sized:
    return Sized(STEEPEST * x.size, STEEPEST * x.error + 8 * UNIT * x.size)


def least_scale(resid: Tensor) -> float:
    """Of the rows [row, d_model], less a little."""
    return 0.99 * float((resid.var(dim=1, unbiased=False) + NORM_EPS).min().sqrt())


class Attended(NamedTuple):
    """Attributes: score: error of a score; value: of a head's value vector; resid: of the [CLS] token's stream."""

    score: float
    value: Sized
    resid: Sized


def attended(tables: "ClsTables") -> Attended:
    """Errors of the tables."""
    model = tables.model
    attn, block = model.attn, model.blocks[0]
    bits = model.W_E[None, :2] + model.W_pos[:-1, None]
    largest = max(float(torch.linalg.vector_norm(bits, dim=-1).max()), length(tables.resid))
    parts = float(torch.linalg.vector_norm(model.W_E, dim=1).max() + torch.linalg.vector_norm(model.W_pos, dim=1).max())
    token = Sized(largest * (1 + 4 * UNIT), 2 * UNIT * parts)
    seen = normed(token, block.ln1, least_scale(torch.cat([bits.flatten(0, 1), tables.resid[None]])))
    width, d_head = model.cfg.d_model, model.cfg.d_head
    score, value = 0.0, Sized(0.0, 0.0)
    for head in range(model.cfg.n_heads):
        weights = [(getattr(attn, f"W_{n}")[head], getattr(attn, f"b_{n}")) for n in "QKV"]
        q, k, v = (linear(seen, weight, None if bias is None else bias[head], width) for weight, bias in weights)
        on = q.error * k.size + q.size * k.error + q.error * k.error + (d_head + 6) * UNIT * q.size * k.size
        score, value = max(score, on * d_head**-0.5), Sized(max(value.size, v.size), max(value.error, v.error))
    value = Sized(min(value.size, 1.001 * float(torch.linalg.vector_norm(tables.value, dim=-1).max())), value.error)
    return Attended(score, value, token)


def on_ratio(attended: Attended, tables: "ClsTables") -> float:
    """Error of a ratio of sums over the keys, relative to the largest value; above 1 where nothing can be said."""
    on_score = attended.score + (6 * float(tables.scores.abs().max()) + 16) * UNIT
    return 7 * on_score + (2 * tables.n_ctx + 20) * UNIT if on_score < 1e-3 else float("inf")


def logit_margin(tables: "ClsTables", scales: dict[str, float]) -> float:
    """A bound on the difference between the logit in real arithmetic, of the weights as stored, and in float64.

    Args:
        tables: in float64.
        scales: the least of ln2 and of ln_final that an input may have, by the hook's name.
    """
    model, found = tables.model, attended(tables)
    attn, n_heads = model.attn, model.cfg.n_heads
    block: Any = model.blocks[0]
    value = found.value
    z = Sized(n_heads**0.5 * value.size, n_heads**0.5 * (value.error + on_ratio(found, tables) * value.size))
    out = linear(z, attn.W_O, attn.b_O, n_heads * model.cfg.d_head)
    resid = add(found.resid, out)
    if block.mlp is not None:
        mlp = block.mlp
        seen = normed(resid, block.ln2, scales.get("blocks.0.ln2.hook_scale", 1.0))
        post = gelu(linear(seen, mlp.W_in, mlp.b_in, model.cfg.d_model))
        resid = add(resid, linear(post, mlp.W_out, mlp.b_out, model.cfg.d_mlp))
    last = normed(resid, model.ln_final, scales.get("ln_final.hook_scale", 1.0))
    return 2 * linear(last, model.W_readout, model.b_readout, model.cfg.d_model).error
