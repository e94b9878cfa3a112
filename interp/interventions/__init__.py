"""Interventions: values that say what is done where (`values`), lists of them run together, one swept over all cells.

intervene(model, x, [FlipBit(3), Freeze("blocks.0.attn.hook_pattern")])
sweep(model, x, Patch("blocks.0.attn.hook_v", source=clean), over=("head", "pos"))
"""

from interp.interventions.composition import intervene
from interp.interventions.edits import (
    Edit,
    RowSumWarning,
    UnchangedWarning,
    index_in,
)
from interp.interventions.optimal import ConvergenceWarning
from interp.interventions.positions import (
    patch,
    patch_each_position,
    positional_hooks,
    remove_each_key,
    remove_key,
)
from interp.interventions.sweeps import Engine, sweep
from interp.interventions.values import (
    SCORES,
    AtHook,
    FlipBit,
    Freeze,
    Intervention,
    MeanAblate,
    OptimalAblate,
    Patch,
    RemoveKey,
    ResampleAblate,
    ZeroAblate,
)

__all__ = [
    "SCORES",
    "AtHook",
    "ConvergenceWarning",
    "Edit",
    "Engine",
    "FlipBit",
    "Freeze",
    "Intervention",
    "MeanAblate",
    "OptimalAblate",
    "Patch",
    "RemoveKey",
    "ResampleAblate",
    "RowSumWarning",
    "UnchangedWarning",
    "ZeroAblate",
    "index_in",
    "intervene",
    "patch",
    "patch_each_position",
    "positional_hooks",
    "remove_each_key",
    "remove_key",
    "sweep",
]
