"""The hooked models. Importing this package imports transformer_lens (about 2 s)."""

import torch

from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig
from interp.models.attention import HookedAttention
from interp.models.cls import HookedCls
from interp.models.linear import HookedLinear
from interp.models.mlp import HookedMLP

AnyModel = HookedAttention | HookedCls | HookedMLP | HookedLinear

__all__ = ["AnyModel", "HookedAttention", "HookedCls", "HookedLinear", "HookedMLP", "build_model"]


def build_model(cfg: ModelConfig, generator: torch.Generator | None = None) -> AnyModel:
    """A freshly initialised model of the configuration's architecture, in training mode."""
    match cfg:
        case AttentionConfig():
            return HookedAttention(cfg, generator)
        case ClsConfig():
            return HookedCls(cfg, generator)
        case MLPConfig():
            return HookedMLP(cfg, generator)
        case LinearConfig():
            return HookedLinear(cfg, generator)
