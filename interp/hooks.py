"""Naming hook points, and running a model with hooks without leaving a trace."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import BoolensError

if TYPE_CHECKING:
    from transformer_lens import HookedRootModule

HookFunction = Callable[..., Tensor | None]


def resolve_hooks(points: Mapping[str, Any] | Sequence[str], name: str | Callable[[str], bool]) -> list[str]:
    """The hook points that a name or a filter on names selects.

    Raises:
        BoolensError: it selects none; the message lists the nearest names.
    """
    if callable(name):
        matched = [point for point in points if name(point)]
        if not matched:
            raise BoolensError(f"the filter matches no hook point; the points are {', '.join(points)}")
        return matched
    if name in points:
        return [name]
    tails = {point.rsplit(".", 1)[-1]: point for point in points}
    tail = name.rsplit(".", 1)[-1]
    near = difflib.get_close_matches(name, list(points), n=3, cutoff=0.5)
    near += [tails[t] for t in difflib.get_close_matches(tail, list(tails), n=3, cutoff=0.6) if tails[t] not in near]
    listed = ", ".join(near) if near else ", ".join(points)
    raise BoolensError(f"this model has no hook point {name!r}; {'near names' if near else 'its points'}: {listed}")


@contextmanager
def quietly(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the modes from before are restored, also after an exception."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


def run(
    model: "HookedRootModule",
    x: Int[Tensor, "batch pos"],
    edits: Iterable[tuple[str, HookFunction]] = (),
    record: Iterable[str] = (),
) -> tuple[Float[Tensor, " batch"], dict[str, Tensor]]:
    """Run in evaluation mode with edits in place; return the logits and snapshots of the named activations.

    Edits run in the given order. Snapshots are clones of what the forward pass used, edits included: later
    in-place changes do not reach them. Hooks, modes and gradients are as before when this returns or raises.

    Raises:
        BoolensError: a name that matches no hook point.
    """
    cache: dict[str, Tensor] = {}

    def snapshot(activation: Tensor, hook: Any) -> None:
        cache[hook.name] = activation.detach().clone()

    names = [point for name in record for point in resolve_hooks(model.hook_dict, name)]
    fwd_hooks = [*edits, *((name, snapshot) for name in names)]
    for name, _ in fwd_hooks:
        resolve_hooks(model.hook_dict, name)
    with quietly(model), model.hooks(fwd_hooks=fwd_hooks):
        return model(x), cache
