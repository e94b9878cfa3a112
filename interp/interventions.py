"""Edits of activations, as (hook name, function) pairs for `hooks.run`, and sweeps of one edit over positions."""

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.axes import axis_of
from interp.errors import BoolensError
from interp.hooks import HookFunction, run

if TYPE_CHECKING:
    from interp.models import AnyModel

Edit = tuple[str, HookFunction]
SCORES = "blocks.0.attn.hook_attn_scores"


class UnchangedWarning(UserWarning):
    """An intervention put back exactly what was there."""


def index_in(value: int, size: int, what: str) -> int:
    """A position or head as an index in [0, size); negative ones count from the end.

    Raises:
        BoolensError: out of range.
    """
    if not -size <= value < size:
        raise BoolensError(f"{what} {value} is out of range; there are {size}, 0 to {size - 1} (or -{size} to -1)")
    return value % size


def patch(hook: str, values: Tensor, *, pos: int | None = None, head: int | None = None) -> Edit:
    """Replace the activation at `hook` by `values`, everywhere or at one position and/or head.

    In scores and patterns `pos` is dest, the query's row.

    Args:
        values: as large as the activation; the batch axis may be 1.

    Raises (when run):
        BoolensError: shapes that differ, an axis that the activation does not have, an index out of range.
    """

    def edit(activation: Tensor, hook: Any) -> Tensor:
        put = fitted(values, activation, hook.name)
        where: list[Any] = [slice(None)] * activation.ndim
        for axis, index in (("pos", pos), ("head", head)):
            if index is not None:
                dim = axis_of(hook.name, axis)
                where[dim] = index_in(index, activation.shape[dim], axis)
        edited = activation.clone()
        edited[tuple(where)] = put[tuple(where)]
        return edited

    return hook, edit


def fitted(values: Tensor, activation: Tensor, hook: str) -> Tensor:
    """The values in the activation's type and shape; only their batch axis may be 1.

    Raises:
        BoolensError: shapes that differ otherwise.
    """
    if values.shape[1:] != activation.shape[1:] or values.shape[:1] not in ((1,), activation.shape[:1]):
        raise BoolensError(
            f"{hook}: values of shape {tuple(values.shape)} do not fit the activation's "
            f"{tuple(activation.shape)}; only the batch axis may be 1"
        )
    return values.to(activation).expand_as(activation)


def remove_key(pos: int, *, head: int | None = None) -> Edit:
    """Take a src position away from every query: its score becomes -inf, so the softmax renormalises the rest.

    Raises (when run):
        BoolensError: no such position or head, or no key would be left.
    """

    def edit(scores: Tensor, hook: Any) -> Tensor:
        heads = slice(None) if head is None else index_in(head, scores.shape[1], "head")
        edited = scores.clone()
        edited[:, heads, :, index_in(pos, scores.shape[-1], "pos")] = -torch.inf
        if edited.isneginf().all(dim=-1).any():
            raise BoolensError(f"removing key {pos} leaves nothing to attend to; keep at least one of the keys")
        return edited

    return SCORES, edit


def sweep(model: "AnyModel", x: Int[Tensor, "batch pos"], edits: Iterable[Edit]) -> Float[Tensor, "edit batch"]:
    """The logits under each edit alone."""
    return torch.stack([run(model, x, [edit])[0] for edit in edits])


def patch_each_position(
    model: "AnyModel", x: Int[Tensor, "batch pos"], hook: str, values: Tensor
) -> Float[Tensor, "pos batch"]:
    """The logits on x when `values` replace the activation at `hook`, one position at a time.

    Warns:
        UnchangedWarning: the values are those that were there, so nothing was changed anywhere.
    """
    _, cache = run(model, x, record=[hook])
    if torch.equal(cache[hook], fitted(values, cache[hook], hook)):
        warnings.warn(
            f"the intervention at {hook} changes no activation on these {len(x)} inputs", UnchangedWarning, stacklevel=2
        )
    n_pos = cache[hook].shape[axis_of(hook, "pos")]
    return sweep(model, x, [patch(hook, values, pos=pos) for pos in range(n_pos)])


def remove_each_key(model: "AnyModel", x: Int[Tensor, "batch pos"]) -> Float[Tensor, "pos batch"]:
    """The logits on x when each key is removed from every head, one at a time."""
    return sweep(model, x, [remove_key(pos) for pos in range(x.shape[1])])


def positional_hooks(names: Sequence[str]) -> list[str]:
    """Those hook points whose activations have a position axis, scores left out (a score of 0 is not an absence)."""
    from interp.axes import HOOK_AXES

    return [n for n in names if {"pos", "dest"} & set(HOOK_AXES[n]) and n != SCORES]
