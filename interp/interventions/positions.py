"""Shorthands: single edits for `hooks.run`, and sweeps over positions."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from interp.axes import HOOK_AXES
from interp.interventions.edits import Edit, edit_of
from interp.interventions.sweeps import sweep
from interp.interventions.values import SCORES, Patch, RemoveKey

SAID_ELSEWHERE = ("hook_scale", "hook_normalized", "hook_result", "attn_out", "resid_mid", "resid_post")


def patch(hook: str, values: Tensor, *, pos: int | None = None, head: int | None = None) -> Edit:
    """Replace the activation at `hook` by `values`, everywhere or at one position and/or head.

    In scores and patterns `pos` is dest, the query's row.

    Args:
        values: as large as the activation; the batch axis may be 1.

    Raises (when run):
        BoolensError: shapes that differ, an axis that the activation does not have, an index out of range.
    """
    put = Patch(hook, values=values, pos=pos, head=head)
    return edit_of(put, values)


def remove_key(pos: int, *, head: int | None = None) -> Edit:
    """Take a src position away from every query: its score becomes -inf, so the softmax renormalises the rest.

    Raises (when run):
        BoolensError: no such position or head, or no key would be left.
    """
    return edit_of(RemoveKey(pos, head=head), -float("inf"))


def patch_each_position(
    model: Any, x: Int[Tensor, "batch pos"], hook: str, values: Tensor
) -> Float[Tensor, "cell batch"]:
    """The logits on x when `values` replace the activation at `hook`, one position at a time.

    Warns:
        UnchangedWarning: the values are those that were there, so nothing was changed anywhere.
    """
    return sweep(model, x, Patch(hook, values=values, rows="keep"), ("pos",))


def remove_each_key(model: Any, x: Int[Tensor, "batch pos"]) -> Float[Tensor, "cell batch"]:
    """The logits on x when each key is removed from every head, one at a time."""
    return sweep(model, x, RemoveKey(), ("pos",))


def positional_hooks(names: Sequence[str]) -> list[str]:
    """Those hook points whose activations have a position axis and that say something of their own.

    Scores are left out (a score of 0 is not an absence), and in a [CLS] transformer what its other points say: a norm's
    scale and output, a head's result, which is z through W_O, and the residual stream after attention.
    """
    return [n for n in names if {"pos", "dest"} & set(HOOK_AXES[n]) and n != SCORES and not n.endswith(SAID_ELSEWHERE)]
