"""Kinds of ablation by name.

Ablation replaces activations, not parameters: biases that enter after the hook point (of the logit, for instance)
stay, and biases that entered before it are part of what is replaced.
"""

from typing import Literal, get_args

from jaxtyping import Int
from torch import Tensor

from interp.errors import BoolensError
from interp.interventions.edits import derangement
from interp.interventions.values import AtHook, Cells, MeanAblate, ResampleAblate, Rows, ZeroAblate

__all__ = ["ABLATION_KINDS", "AblationKind", "ablation", "derangement"]

AblationKind = Literal["zero", "mean", "resample"]
ABLATION_KINDS: tuple[AblationKind, ...] = get_args(AblationKind)


def ablation(
    kind: AblationKind,
    hook: str,
    *,
    reference: Int[Tensor, "reference pos"] | None = None,
    seed: int = 0,
    rows: Rows = "flag",
    **cells: Cells,
) -> AtHook:
    """The ablation of a kind, as a value.

    Args:
        kind: what replaces the activation: zeros; the mean over the whole reference set, per position and head; the
            activations of x under a `derangement` of its rows, the same for every position.
        hook: name of the hook point.
        reference: for the mean; None takes the inputs that the model is run on.
        seed: for the derangement.
        rows: what to do with rows of a pattern that no longer sum to 1, see `interp.interventions.values`.
        cells: pos, head, dest, src.

    Raises:
        BoolensError: an unknown kind.
    """
    match kind:
        case "zero":
            return ZeroAblate(hook, rows=rows, **cells)
        case "mean":
            return MeanAblate(hook, reference, rows=rows, **cells)
        case "resample":
            return ResampleAblate(hook, seed, rows=rows, **cells)
    raise BoolensError(f"ablation {kind!r} is not known; choose one of {ABLATION_KINDS}")
