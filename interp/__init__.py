"""The instrument: models, tables, interventions, statistics, plots. Knows no task.

Names are imported on first use, so that plotting or statistics do not pay for torch or transformer_lens.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.checkpoint import load_model
    from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, TrainConfig
    from interp.errors import BoolensError
    from interp.models import HookedAttention, HookedCls, HookedLinear, HookedMLP, build_model
    from interp.tables import Tables, attention_tables

__all__ = [
    "AttentionConfig",
    "BoolensError",
    "ClsConfig",
    "HookedAttention",
    "HookedCls",
    "HookedLinear",
    "HookedMLP",
    "LinearConfig",
    "MLPConfig",
    "Tables",
    "TrainConfig",
    "attention_tables",
    "build_model",
    "load_model",
]

_HOMES = {
    "checkpoint": ("load_model",),
    "config": ("AttentionConfig", "ClsConfig", "LinearConfig", "MLPConfig", "TrainConfig"),
    "errors": ("BoolensError",),
    "models": ("HookedAttention", "HookedCls", "HookedLinear", "HookedMLP", "build_model"),
    "tables": ("Tables", "attention_tables"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    return getattr(import_module(f"interp.{_HOME[name]}"), name)
