"""Rounding margins against the same logits in 60 digits."""

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from interp.certify.gelu import gelu, slope
from interp.certify.mlp_count import add_gelu
from interp.models import AnyModel, HookedAttention, HookedLinear, HookedMLP
from tests.unit.interp.certify.certify_cases import KINDS, all_inputs, random_model, side_maker

mp = mpmath.mp.clone()
mp.dps = 60


def exact(weight: torch.Tensor) -> np.ndarray:
    """The weights as they are stored, as numbers of 60 digits."""
    return np.vectorize(mp.mpf, otypes=[object])(weight.detach().double().numpy())


def exact_logit(model: AnyModel) -> Callable[[np.ndarray], Any]:
    if isinstance(model, HookedLinear):
        linear, bias = exact(model.W), exact(model.b)
        return lambda x: linear @ x + bias.item()
    if isinstance(model, HookedMLP):
        W_in, b_in, out, bias = (exact(w) for w in (model.mlp.W_in, model.mlp.b_in, model.mlp.W_out, model.mlp.b_out))
        return lambda x: out @ np.array([z * mp.ncdf(z) for z in x @ W_in + b_in]) + bias.item()
    assert isinstance(model, HookedAttention)
    return attention_logit(model)


def attention_logit(model: HookedAttention) -> Callable[[np.ndarray], Any]:
    attn, embed, positions, readout = model.attn, exact(model.W_E), exact(model.W_pos), exact(model.W_readout)
    weights = {name: exact(getattr(attn, f"W_{name}")) for name in "QKV"}
    biases = {name: exact(getattr(attn, f"b_{name}")) for name in "QKV" if model.cfg.bias}

    def logit(x: np.ndarray) -> Any:
        resid = embed[x] + positions
        total = mp.mpf(0) if model.b_readout is None else exact(model.b_readout).item()
        for head in range(model.cfg.n_heads):
            q, k, v = (resid @ weights[name][head] + (biases[name][head] if model.cfg.bias else 0) for name in "QKV")
            weight = np.vectorize(mp.exp, otypes=[object])(q @ k.T / mp.sqrt(model.cfg.d_head))
            z = (weight @ v) / weight.sum(axis=1)[:, None]
            total += (z * readout[:, head]).sum()
        return total

    return logit


@pytest.mark.parametrize("kind", KINDS)
def test_no_logit_in_float64_is_off_by_more_than_the_margin(kind: str) -> None:
    n_ctx, generator = 4, np.random.default_rng(0)
    off = []
    for seed in range(25):
        model = random_model(kind, n_ctx, seed, (0.1, 1.0, 2.0)[seed % 3])
        if seed % 2:
            model.float()
        side, logit = side_maker(model)(False, np.full(n_ctx, -1)), exact_logit(model)
        x = generator.permutation(all_inputs(n_ctx))[:3]
        for bits, value in zip(x, side.logits(x.astype(np.int8)), strict=True):
            off.append(abs(float(logit(bits) - mp.mpf(float(value)))) / side.margin)
            assert off[-1] <= 1
    assert max(off) > 1e-3  # and the margin is not absurdly wide


def test_gelu_and_its_slope() -> None:
    """Within the errors that margins assume: 5 U |z|, and 10 U (1 + |z|) for the slope."""
    generator, unit = np.random.default_rng(1), 2.0**-53
    for z in np.concatenate([generator.normal(0, 3, 400), generator.normal(0, 1e-3, 40), [0.0, -30.0, 9.0, 1e6]]):
        t = mp.mpf(float(z))
        assert abs(float(mp.mpf(gelu(z)) - t * mp.ncdf(t))) <= 5 * unit * abs(z)
        assert abs(float(mp.mpf(slope(z)) - mp.ncdf(t) - t * mp.npdf(t))) <= 10 * unit * (1 + abs(z))


def test_erf_is_as_good_as_assumed() -> None:
    for y in np.random.default_rng(2).normal(0, 1.5, 1000):
        z = float(y) * 2
        computed = gelu(z) / z * 2 - 1 if z else 0.0  # erf(z / √2) from the compiled function
        assert abs(float(mp.mpf(computed) - mp.erf(mp.mpf(z) / mp.sqrt(2)))) <= 8 * 2.0**-53


def test_gelu_in_float32() -> None:
    """Within what `single_error` says of one neuron."""
    z = np.linspace(-40, 40, 200_001).astype(np.float32)
    total = np.zeros_like(z)
    add_gelu(total, z, np.float32(0), np.float32(1))
    truth = np.array([gelu(float(each)) for each in z])
    assert (np.abs(total - truth) <= 3e-7 + 2 * 2.0**-24 * np.abs(z)).all()
