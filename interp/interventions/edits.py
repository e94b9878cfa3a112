"""From an intervention to the function that edits the activation at its hook point."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.axes import axis_of
from interp.errors import BoolensError
from interp.hooks import HookFunction, LogitReader, run
from interp.interventions.values import (
    AtHook,
    FlipBit,
    Freeze,
    MeanAblate,
    Patch,
    RemoveKey,
    ResampleAblate,
    ZeroAblate,
)

Edit = tuple[str, HookFunction]


class UnchangedWarning(UserWarning):
    """An intervention put back exactly what was there."""


class RowSumWarning(UserWarning):
    """Rows of an edited pattern no longer sum to 1."""


def index_in(value: int, size: int, what: str) -> int:
    """A position or head as an index in [0, size); negative ones count from the end.

    Raises:
        BoolensError: out of range.
    """
    if not -size <= value < size:
        raise BoolensError(f"{what} {value} is out of range; there are {size}, 0 to {size - 1} (or -{size} to -1)")
    return value % size


def fitted(values: Tensor, activation: Tensor, hook: str) -> Tensor:
    """The values in the activation's type and shape; only their batch axis may be 1.

    Raises:
        BoolensError: shapes that differ otherwise.
    """
    check_fits(values, activation.shape, hook)
    return values.to(activation).expand_as(activation)


def check_fits(values: Tensor, shape: tuple[int, ...], hook: str) -> None:
    """BoolensError unless values are as large as an activation of that shape; only their batch axis may be 1."""
    if values.shape[1:] != shape[1:] or values.shape[:1] not in ((1,), shape[:1]):
        raise BoolensError(
            f"{hook}: values of shape {tuple(values.shape)} do not fit the activation's {tuple(shape)}; "
            "only the batch axis may be 1"
        )


def cell_mask(activation: Tensor, hook: str, selected: Mapping[str, tuple[int, ...]]) -> Bool[Tensor, "1 *axes"]:
    """Where all selections meet; every axis without one has length 1.

    Raises:
        BoolensError: an axis that the activation does not have, or that is named twice; an index out of range.
    """
    mask = torch.ones((1,) * activation.ndim, dtype=torch.bool, device=activation.device)
    dims = [axis_of(hook, axis, activation.ndim) for axis in selected]
    if len(set(dims)) < len(dims):
        raise BoolensError(f"{tuple(selected)} at {hook}: pos and dest are the same axis there; give one of them")
    for dim, (axis, indices) in zip(dims, selected.items(), strict=True):
        size = activation.shape[dim]
        along = torch.zeros(size, dtype=torch.bool, device=activation.device)
        along[[index_in(i, size, axis) for i in indices]] = True
        mask = mask & along.view([size if d == dim else 1 for d in range(activation.ndim)])
    return mask


def replacement(
    model: Any, x: Int[Tensor, "batch pos"], intervention: AtHook, logit: LogitReader | None = None
) -> Tensor | float:
    """What an intervention puts into its cells on x, [batch or 1, *axes] or one number, from unedited runs.

    Raises:
        BoolensError: an empty reference set, pairs that do not match row by row, fewer than two inputs to resample.
    """
    hook = intervention.hook

    def activation(inputs: Tensor) -> Tensor:
        return run(model, inputs, record=[hook], logit=logit)[1][hook]

    match intervention:
        case ZeroAblate():
            return 0.0
        case RemoveKey():
            return 0.0 if intervention.at_pattern else -torch.inf
        case Freeze():
            return activation(x)
        case MeanAblate():
            reference = x if intervention.reference is None else intervention.reference
            if len(reference) == 0:
                raise BoolensError("mean ablation needs a reference set, and this one is empty")
            return activation(reference).mean(dim=0, keepdim=True)
        case ResampleAblate():
            source = derangement(len(x), torch.Generator().manual_seed(intervention.seed))
            return activation(x)[source.to(x.device)]
        case Patch(values=Tensor() as values):
            return values
        case Patch(source=Tensor() as source):
            if source.shape != x.shape:
                raise BoolensError(
                    f"inputs of shapes {tuple(x.shape)} and {tuple(source.shape)}; pairs must match row by row"
                )
            return activation(source)
    raise BoolensError(f"{intervention!r} cannot be run; the kinds are those of interp.interventions")


def derangement(n: int, generator: torch.Generator) -> Int[Tensor, " batch"]:
    """A random permutation that leaves nothing in its place: one cycle through a random order.

    Raises:
        BoolensError: n < 2.
    """
    if n < 2:
        raise BoolensError(f"resample ablation needs at least 2 inputs, got {n}; there is nothing else to take from")
    order = torch.randperm(n, generator=generator)
    source = torch.empty_like(order)
    source[order] = order.roll(-1)
    return source


def merged(values: Tensor | float, activation: Tensor, intervention: AtHook) -> Tensor:
    """The activation with the values in the intervention's cells.

    Raises:
        BoolensError: what does not fit the activation, see `fitted` and `cell_mask`.
    """
    put = fitted(values, activation, intervention.hook) if isinstance(values, Tensor) else values
    return torch.where(cell_mask(activation, intervention.hook, intervention.selected), put, activation)


def finished(edited: Tensor, activation: Tensor, intervention: AtHook) -> Tensor:
    """An edited activation with its rows renormalised, where the intervention says so, and every query with a key left.

    Raises:
        BoolensError: no key is left, or nothing to divide by.
    """
    if isinstance(intervention, RemoveKey) and not intervention.at_pattern:
        emptied = edited.isneginf().all(dim=-1)
        if emptied.any():
            raise no_key_left(~activation[emptied][0].isneginf())
    if intervention.renormalises:
        touched = (edited != activation).any(dim=-1, keepdim=True)
        total = edited.sum(dim=-1, keepdim=True)
        emptied = (touched & (total == 0)).squeeze(-1)
        if emptied.any():
            if isinstance(intervention, RemoveKey):
                raise no_key_left(activation[emptied][0] != 0)
            raise BoolensError(f"rows of {intervention.hook} that sum to 0 cannot be renormalised; choose rows='keep'")
        return torch.where(touched, edited / total, edited)
    return edited


def no_key_left(attended: Bool[Tensor, " src"]) -> BoolensError:
    """The error of a row from which every key that it attended to was taken."""
    keys = attended.nonzero().flatten().tolist()
    named = f"key{'s' * (len(keys) > 1)} {', '.join(map(str, keys))}"
    return BoolensError(f"removing {named} leaves nothing to attend to; keep at least one of the keys")


def edit_of(intervention: AtHook, values: Tensor | float, changed: Callable[[], None] = lambda: None) -> Edit:
    """The intervention, with the values that it puts, as a (hook name, function) pair; `changed` hears of a change."""

    def edit(activation: Tensor, hook: Any) -> Tensor:
        edited = finished(merged(values, activation, intervention), activation, intervention)
        if not torch.equal(edited, activation):
            changed()
        return edited

    return intervention.hook, edit


def flipped(x: Int[Tensor, "batch pos"], flip: FlipBit) -> Int[Tensor, "batch pos"]:
    """x with the chosen bits flipped.

    Raises:
        BoolensError: a position out of range, inputs that are not bits.
    """
    if x.numel() and not 0 <= int(x.min()) <= int(x.max()) <= 1:
        raise BoolensError(f"inputs range from {int(x.min())} to {int(x.max())}; only bits, 0 or 1, can be flipped")
    flips = cell_mask(x, "the input", flip.selected)
    return torch.where(flips, (x == 0).to(x.dtype), x)


def rows_off(pattern: Float[Tensor, "batch head dest src"]) -> int:
    """Number of rows that do not sum to 1, to the square root of the type's precision."""
    return int(((pattern.sum(dim=-1) - 1).abs() <= torch.finfo(pattern.dtype).eps ** 0.5).logical_not().sum())


def rows_off_message(hook: str, n: int) -> str:
    return (
        f"{n} rows of {hook} no longer sum to 1 after the edits; choose rows='renormalise' to divide them by "
        "their sum, or rows='keep' if it is meant"
    )
