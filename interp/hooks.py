"""Naming hook points, and running a model with hooks without leaving a trace."""

import difflib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import BoolensError

HookFunction = Callable[..., Tensor | None]
LogitReader = Callable[[Any], Tensor]
"""From a model's output for n inputs to n numbers."""


@dataclass(frozen=True)
class LogitDifference:
    """Reads one logit an input, output[true] − output[false] at one position, from a model with a vocabulary.

    Attributes:
        true, false: tokens that stand for the labels True and False.
        pos: the position read, of outputs [batch, pos, d_vocab]; it does not matter for outputs [batch, d_vocab].
    """

    true: int = 1
    false: int = 0
    pos: int = -1

    def __call__(self, output: Tensor) -> Float[Tensor, " batch"]:
        if output.ndim not in (2, 3):
            raise BoolensError(f"LogitDifference reads [batch, pos, d_vocab] or [batch, d_vocab], not {output.shape}")
        if output.ndim == 3:
            output = output[:, self.pos]
        return output[:, self.true] - output[:, self.false]


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
    if any(training for _, training in modes):  # setting a module's attribute is slow, and most are in this mode
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training


@contextmanager
def hooked(points: Mapping[str, Any], pairs: Iterable[tuple[str, HookFunction]]) -> Iterator[None]:
    """Forward hooks at resolved names, which go on last and in order; exactly these come off again.

    TransformerLens' own context manager takes off all hooks of its nesting level, also a user's that were left there.
    """
    added = []
    try:
        for name, function in pairs:
            added.append((points[name], points[name].add_hook(function)))
        yield
    finally:
        for point, handle in added:
            handle.hook.remove()
            point.fwd_hooks = [kept for kept in point.fwd_hooks if kept is not handle]


def has_hooks(model: Any) -> bool:
    """Whether someone has put hooks of their own on the model's hook points."""
    return any(point._forward_hooks for point in model.hook_dict.values())


@contextmanager
def without_hooks(model: Any) -> Iterator[None]:
    """The model as if it had no hooks; those it has are back afterwards."""
    kept = [(point, point._forward_hooks) for point in set(model.hook_dict.values())]
    for point, _ in kept:
        point._forward_hooks = OrderedDict()
    try:
        yield
    finally:
        for point, hooks in kept:
            point._forward_hooks = hooks


def run(
    model: Any,
    x: Int[Tensor, "batch pos"],
    edits: Iterable[tuple[str | Callable[[str], bool], HookFunction]] = (),
    record: Iterable[str | Callable[[str], bool]] = (),
    logit: LogitReader | None = None,
) -> tuple[Float[Tensor, " batch"], dict[str, Tensor]]:
    """Run in evaluation mode with edits in place; return the logits and snapshots of the named activations.

    Edits at one hook point run in the given order, after a user's own hooks there. Snapshots are clones of what the
    forward pass used, edits included: later in-place changes do not reach them. Hooks, modes and gradients are as
    before when this returns or raises.

    Args:
        model: any TransformerLens HookedRootModule or TransformerBridge.
        x: its inputs.
        edits: (name or filter, function of (activation, hook)) pairs; a function that returns None changes nothing.
        record: names or filters of the activations to return.
        logit: from the model's output to one number an input, for models whose output is not [batch].

    Raises:
        BoolensError: a name that matches no hook point, a point that the forward pass does not reach, inputs on
            another device than the model, an output that is not one number an input.
    """
    parameter = next(iter(model.parameters()), x)
    if parameter.device != x.device:
        raise BoolensError(f"inputs are on {x.device}, the model on {parameter.device}; move them there with x.to(...)")
    points, cache, reached = model.hook_dict, {}, set()

    def watched(name: str, function: HookFunction) -> HookFunction:
        def call(activation: Any, hook: Any) -> Tensor | None:
            reached.add(name)
            return function(activation, hook=hook)

        return call

    def snapshot(name: str) -> HookFunction:
        def save(activation: Tensor, hook: Any) -> None:
            cache[name] = activation.detach().clone()

        return save

    names = [point for selector in record for point in resolve_hooks(points, selector)]
    pairs = [(point, function) for selector, function in edits for point in resolve_hooks(points, selector)]
    pairs += [(name, snapshot(name)) for name in names]
    with quietly(model), hooked(points, [(name, watched(name, function)) for name, function in pairs]):
        logits = read_logit(model(x), len(x), logit)
    for name, _ in pairs:
        if name not in reached:
            raise BoolensError(
                f"the forward pass does not reach {name}, or a hook has reset the others; switch the point on in the "
                "model, or choose another"
            )
    return logits, cache


def read_logit(output: Any, n: int, logit: LogitReader | None) -> Float[Tensor, " batch"]:
    """One number an input from a model's output for n inputs; BoolensError where it is none."""
    read = output if logit is None else logit(output)
    if not isinstance(read, Tensor) or read.shape != (n,):
        got = tuple(read.shape) if isinstance(read, Tensor) else type(read).__name__
        way = "pass logit=LogitDifference(...) or another function" if logit is None else "change the function logit"
        raise BoolensError(f"the output for {n} inputs must be one logit an input, shape ({n},), not {got}; {way}")
    return read


def check_read(model: Any, x: Int[Tensor, "batch pos"], name: str, logit: LogitReader | None = None) -> None:
    """Whether what a hook puts at `name` reaches the logit: NaN everywhere there must make the logit NaN.

    Some points are only shown: a TransformerBridge fires hook_attn_scores after the attention has been computed, and
    discards what is put there. The one run that this takes is made without a user's own hooks.

    Raises:
        BoolensError: the logit stays as it is, so results of edits there would be a no-op's.
    """

    def spoil(activation: Tensor, hook: Any) -> Tensor:
        if not activation.is_floating_point():
            raise BoolensError(f"{name} holds {activation.dtype}, not numbers to edit; flip bits with FlipBit instead")
        return torch.full_like(activation, torch.nan)

    with without_hooks(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spoiled, _ = run(model, x[:1], [(name, spoil)], logit=logit)
    if not spoiled.isnan().all():
        raise BoolensError(
            f"edits at {name} are discarded: the logit does not depend on what is put there; choose another hook, "
            "for attention scores hook_pattern (a key is removed there with RemoveKey(..., hook=...hook_pattern))"
        )
