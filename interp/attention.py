"""Attention as pure functions: gains, scores, patterns, encodings, effective attention."""

import math

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from interp.errors import BoolensError


def gain_attention(
    x: Float[Tensor, "*batch pos"], q: Float[Tensor, "gain pos"], z: Float[Tensor, "*batch gain"]
) -> tuple[Float[Tensor, "*batch pos"], Float[Tensor, "*batch"]]:
    """Multiplicative gains (the tutorial's Exercise 1): w = softmax(sum over gains of z * q), y = w . x.

    Args:
        x: the signal.
        q: one spatial pattern a gain.
        z: the gains; small ones spread attention evenly, large ones make it sparse.

    Returns:
        The weights w, which sum to 1 over pos, and the weighted output y.
    """
    if q.shape[0] != z.shape[-1] or q.shape[1] != x.shape[-1]:
        raise BoolensError(f"shapes do not fit: x {tuple(x.shape)}, q {tuple(q.shape)} [gain, pos], z {tuple(z.shape)}")
    weights = (z @ q).softmax(dim=-1)
    return weights, (weights * x).sum(dim=-1)


def attention_scores(
    q: Float[Tensor, "batch dest head d_head"], k: Float[Tensor, "batch src head d_head"]
) -> Float[Tensor, "batch head dest src"]:
    """q . k / sqrt(d_head) for every pair of positions (Vaswani et al. 2017, eq. 1)."""
    products = einsum(q, k, "batch dest head d_head, batch src head d_head -> batch head dest src")
    return products * q.shape[-1] ** -0.5


def scaled_dot_product_attention(
    q: Float[Tensor, "*batch dest d_head"],
    k: Float[Tensor, "*batch src d_head"],
    v: Float[Tensor, "*batch src d_value"],
) -> Float[Tensor, "*batch dest d_value"]:
    """softmax(q kᵀ / sqrt(d_head)) v without a mask (the tutorial's Bonus 2); d_head and d_value may differ."""
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise BoolensError(f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v


def self_attention(
    x: Float[Tensor, "*batch pos d_model"],
    W_Q: Float[Tensor, "d_model d_head"],
    W_K: Float[Tensor, "d_model d_head"],
    W_V: Float[Tensor, "d_model d_value"],
) -> Float[Tensor, "*batch pos d_value"]:
    """Attention of x to itself; with d_value = d_model the shape of x is kept, whatever d_head is."""
    return scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V)


def sinusoidal_encoding(n_ctx: int, d_model: int) -> Float[Tensor, "pos d_model"]:
    """The fixed positional encoding of Vaswani et al. 2017, section 3.5, also for odd d_model.

    Dimension 2i is sin(pos / 10000**(2i / d_model)), dimension 2i + 1 the cosine of the same angle.
    """
    if n_ctx < 1 or d_model < 1:
        raise BoolensError(f"n_ctx = {n_ctx}, d_model = {d_model}; both must be at least 1")
    dimension = torch.arange(d_model, dtype=torch.float64)
    angle = torch.arange(n_ctx, dtype=torch.float64)[:, None] * 10000.0 ** (-2 * (dimension // 2) / d_model)
    return torch.where(dimension % 2 == 0, angle.sin(), angle.cos()).to(torch.get_default_dtype())


def effective_attention(
    pattern: Float[Tensor, "batch head dest src"], readout: Float[Tensor, "*batch dest head d_value"]
) -> Float[Tensor, "batch head src d_value"]:
    """Sum over dest of readout[dest] * pattern[dest, src]: the weight with which each value enters the logit.

    The orientation matters: it is readoutᵀ · pattern, not pattern · readout. The readout is one for all inputs, or one
    an input (`interp.readout.direct_readout`).
    """
    batch = "batch " if readout.ndim == 4 else ""
    return einsum(pattern, readout, f"batch head dest src, {batch}dest head d_value -> batch head src d_value")


def contributions(
    effective: Float[Tensor, "batch head src d_value"], value: Float[Tensor, "batch src head d_value"]
) -> Float[Tensor, "batch head src"]:
    """Effective attention × value, summed over d_value; the sum over (head, src) is the logit less its bias."""
    return einsum(effective, value, "batch head src d_value, batch src head d_value -> batch head src")


def dest_contributions(
    z: Float[Tensor, "batch dest head d_value"], readout: Float[Tensor, "dest head d_value"]
) -> Float[Tensor, "batch dest"]:
    """What each query adds to the logit, readout[dest] · z[dest]; the sum over dest is the logit less its bias."""
    return einsum(z, readout, "batch dest head d_value, dest head d_value -> batch dest")
