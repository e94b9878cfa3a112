"""The cells that a sweep goes over, and forward passes in which each batch entry has a cell of its own edited."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from interp.axes import axis_of
from interp.errors import BoolensError
from interp.hooks import LogitReader, hooked, run, without_hooks
from interp.interventions.edits import finished
from interp.interventions.values import AtHook, RemoveKey


@dataclass(frozen=True)
class Swept:
    """The axes of an activation that a sweep goes over.

    Attributes:
        dims: their places among the activation's axes, in the sweep's order.
        shape: number of cells along each.
    """

    dims: tuple[int, ...]
    shape: tuple[int, ...]

    def first(self, activation: Shaped[Tensor, "batch *axes"]) -> Shaped[Tensor, "batch ..."]:
        """A view [batch, *cell, *rest] with the swept axes first."""
        rest = (d for d in range(1, activation.ndim) if d not in self.dims)
        return activation.permute(0, *self.dims, *rest)

    def by_cell(self, terms: Shaped[Tensor, "batch *axes"]) -> Shaped[Tensor, "*cell batch"]:
        """The sum over all that belongs to a cell; of flags, their number."""
        return self.first(terms).unsqueeze(-1).flatten(1 + len(self.dims)).sum(dim=-1).movedim(0, -1)

    def spread(self, by_cell: Shaped[Tensor, "*cell"], n_axes: int) -> Shaped[Tensor, "1 *axes"]:
        """One number a cell, as a view that broadcasts to the activation's axes [1, *axes]."""
        shape = [1] * n_axes
        for dim, size in zip(self.dims, self.shape, strict=True):
            shape[dim] = size
        order = sorted(range(len(self.dims)), key=lambda i: self.dims[i])
        return by_cell.permute(order).reshape(shape)


def swept_axes(activation: Float[Tensor, "batch *axes"], intervention: AtHook, over: Sequence[str]) -> Swept:
    """Where the axes of `over` are; for keys that are removed, 'pos' is src.

    Raises:
        BoolensError: an axis that is not there, is named twice, or is selected by the intervention already.
    """
    hook, n_axes = intervention.hook, activation.ndim
    names = ["src" if axis == "pos" and isinstance(intervention, RemoveKey) else axis for axis in over]
    dims = tuple(axis_of(hook, axis, n_axes) for axis in names)
    taken = {axis_of(hook, axis, n_axes) for axis in intervention.selected}
    if len(set(dims)) < len(dims) or taken & set(dims):
        raise BoolensError(f"over = {tuple(over)} for {intervention!r}: sweep over an axis once, or select its cells")
    return Swept(dims, tuple(activation.shape[d] for d in dims))


def run_entries(
    model: Any,
    x: Int[Tensor, "batch pos"],
    intervention: AtHook,
    swept: Swept,
    put: Float[Tensor, "batch *axes"],
    entries: Sequence[Tensor],
    logit: LogitReader | None = None,
) -> Float[Tensor, " entry"]:
    """The logits of entries (*cell, input), each with its cell's values put in; differentiable in `put`."""
    *cell, row = entries

    def edit(activation: Tensor, hook: Any) -> Tensor:
        torch.set_grad_enabled(put.requires_grad)  # `run` puts the mode back
        edited = activation.clone()
        entry = torch.arange(len(row), device=row.device)
        swept.first(edited)[(entry, *cell)] = swept.first(put)[(row, *cell)]
        return finished(edited, activation, intervention)

    return run(model, x[row], [(intervention.hook, edit)], logit=logit)[0]


@dataclass(frozen=True)
class Footprint:
    """Upper estimates of the memory that forward passes take, bytes an input.

    Attributes:
        points: the activations at all hook points together.
        at_hook: the activation at the one that is edited.
    """

    points: int
    at_hook: int

    @property
    def entry(self) -> int:
        """Of an edited pass. Every activation is counted as if it were kept, most are not; at the hook also its copy,
        what is put there and where.
        """
        return self.points + 4 * self.at_hook

    @property
    def base(self) -> int:
        """Of the runs that a sweep is prepared with: gradients, values, changes, and a few copies on the way."""
        return 2 * self.points + 8 * self.at_hook


def footprint(model: Any, x: Int[Tensor, "batch pos"], hook: str | None, logit: LogitReader | None = None) -> Footprint:
    """Measured on the first input, without a user's own hooks."""
    sizes: dict[str, int] = {}

    def measure(activation: Any, hook: Any) -> None:
        if isinstance(activation, Tensor):
            sizes[hook.name] = activation.numel() * activation.element_size()

    points = {id(point): name for name, point in model.hook_dict.items()}
    with without_hooks(model), hooked(model.hook_dict, [(name, measure) for name in points.values()]):
        _, cache = run(model, x[:1], record=[] if hook is None else [hook], logit=logit)
    at_hook = 0 if hook is None else cache[hook].numel() * cache[hook].element_size()
    return Footprint(sum(sizes.values()), at_hook)


def changed_cells(
    swept: Swept, put: Float[Tensor, "batch *axes"], activation: Float[Tensor, "batch *axes"]
) -> Bool[Tensor, "*cell batch"]:
    """Whether putting the values into a cell changes anything for an input."""
    return swept.by_cell(put != activation) > 0
