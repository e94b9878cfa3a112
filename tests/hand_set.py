"""Attention models whose weights are set by hand."""

from typing import Any

import torch

from interp.config import AttentionConfig
from interp.models import HookedAttention


def hand_set(cfg: AttentionConfig, **weights: Any) -> HookedAttention:
    """A float64 model with these weights, named by their last part (W_Q, b_K); all others are zero."""
    model = HookedAttention(cfg).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = torch.tensor(weights.pop(name.rsplit(".", 1)[-1], 0), dtype=torch.float64)
            parameter.copy_(value if value.ndim == parameter.ndim else value.expand_as(parameter))
    assert not weights
    return model
