"""Models of every architecture, and the truth about them by enumeration through the hooked model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from interp.certify.mlp import MLPSide
from interp.certify.side import RatioSide, Side
from interp.certify.terms import attention_terms, linear_terms
from interp.config import AttentionConfig, LinearConfig, MLPConfig
from interp.models import AnyModel, HookedAttention, HookedLinear, build_model

KINDS: dict[str, dict[str, Any]] = {
    "attention": {},
    "sinusoidal": {"d_model": 5, "d_head": 2, "positions": "sinusoidal"},
    "heads": {"d_model": 4, "n_heads": 3, "d_head": 2, "d_value": 2, "bias": True},
    "mlp": {"d_mlp": 13},
    "linear": {},
}
MakeSide = Callable[[bool, np.ndarray], Side]


def random_model(kind: str, n_ctx: int, seed: int, std: float = 1.0) -> AnyModel:
    """In float64, all weights and biases normal."""
    config = {"mlp": MLPConfig, "linear": LinearConfig}.get(kind, AttentionConfig)
    model = build_model(config(n_ctx, **KINDS[kind])).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, std, generator=generator)
    return model


def output_bias(model: AnyModel) -> torch.Tensor:
    """The constant that is added to the logit."""
    bias = model.b if isinstance(model, HookedLinear) else getattr(model, "b_readout", None)
    bias = model.mlp.b_out if hasattr(model, "mlp") else bias
    assert isinstance(bias, torch.Tensor)
    return bias


def side_maker(model: AnyModel) -> MakeSide:
    if isinstance(model, HookedAttention | HookedLinear):
        terms = attention_terms(model) if isinstance(model, HookedAttention) else linear_terms(model)
        return lambda label, counted: RatioSide(terms, label, counted)
    return lambda label, counted: MLPSide(model, label, counted)


def all_inputs(n_ctx: int) -> np.ndarray:
    return (np.arange(2**n_ctx)[:, None] >> np.arange(n_ctx - 1, -1, -1)) & 1


def all_logits(model: AnyModel) -> np.ndarray:
    """Of every input, by the hooked model's own forward pass."""
    with torch.no_grad():
        return model(torch.as_tensor(all_inputs(model.cfg.n_ctx))).double().numpy()


def random_box(n_ctx: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """A box of any size, a counted bit or none for each position, a limit on counted bits at free ones."""
    free = generator.random(n_ctx) < generator.random()
    fixed = np.where(free, -1, generator.integers(2, size=n_ctx)).astype(np.int8)
    counted = generator.integers(-1, 2, size=n_ctx) if generator.random() < 0.5 else generator.integers(2, size=n_ctx)
    limit = int(generator.integers(n_ctx + 1)) if generator.random() < 0.7 else 10**6
    return fixed, counted.astype(np.int8), limit


def inside(x: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Which inputs lie in a box."""
    return ((fixed < 0) | (x == fixed)).all(axis=1)


def n_counted(x: np.ndarray, counted: np.ndarray, where: np.ndarray | bool = True) -> np.ndarray:
    """Counted bits of every input, at some of the positions."""
    return ((x == counted) & (counted >= 0) & where).sum(axis=1)
