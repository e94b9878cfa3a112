"""Running a list of interventions together."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import BoolensError
from interp.hooks import HookFunction, LogitReader, check_read, resolve_hooks, run
from interp.interventions.edits import (
    Edit,
    RowSumWarning,
    UnchangedWarning,
    edit_of,
    flipped,
    replacement,
    rows_off,
    rows_off_message,
)
from interp.interventions.values import AtHook, FlipBit, Intervention, OptimalAblate


def intervene(
    model: Any,
    x: Int[Tensor, "batch pos"],
    interventions: Intervention | Iterable[Intervention | Edit],
    record: Iterable[str] = (),
    *,
    logit: LogitReader | None = None,
) -> tuple[Float[Tensor, " batch"], dict[str, Tensor]]:
    """Run with all interventions in place; return the logits and snapshots of the named activations.

    Order: bits are flipped first; then the activations are edited as the forward pass reaches their hook points; at
    one hook point in the list's order, each seeing what those before it left. The values put in (means, other
    inputs' or frozen activations) come from runs on the inputs as given, without any of the list's interventions.

    Args:
        model: any TransformerLens HookedRootModule or TransformerBridge.
        x: the inputs.
        interventions: one or several; (hook name, function) pairs may stand among them.
        record: names or filters of the activations to return, edits included.
        logit: from the model's output to one number an input, see `interp.hooks.run`.

    Raises:
        BoolensError: names, cells or values that do not fit, edits that the model discards.

    Warns:
        UnchangedWarning: an intervention that put back exactly what was there.
        RowSumWarning: rows of a pattern no longer sum to 1, and no intervention there says what to do with them.
    """
    steps = [interventions] if isinstance(interventions, Intervention) else list(interventions)
    given, changed, edited, pairs, flagged = x, set(), set(), [], []
    for i, step in enumerate(steps):
        match step:
            case FlipBit():
                x = flipped(x, step)
                changed.add(i)
            case AtHook():
                resolve_hooks(model.hook_dict, step.hook)
                check_read(model, given, step.hook, logit)
                pairs.append(edit_of(step, _values(model, given, step, logit), changed=lambda i=i: changed.add(i)))
            case (str(name), function) if callable(function):
                pairs.append((name, _watched(function, lambda name=name: edited.add(name))))
            case _:
                raise BoolensError(
                    f"{step!r} is no intervention; give those of interp.interventions or (hook, function)"
                )

    def count(activation: Tensor, hook: Any) -> None:
        if n := rows_off(activation):
            flagged.append(rows_off_message(hook.name, n))

    at_patterns = {name for name, _ in pairs if name.endswith("hook_pattern")}
    kept = {step.hook for step in steps if isinstance(step, AtHook) and step.rows == "keep"}
    result = run(model, x, [*pairs, *((name, count) for name in sorted(at_patterns - kept))], record, logit)
    for name in sorted(edited):
        check_read(model, given, name, logit)
    for i, step in enumerate(steps):
        if isinstance(step, AtHook) and i not in changed:
            message = f"the intervention at {step.hook} changes no activation on these {len(x)} inputs: {step!r}"
            warnings.warn(message, UnchangedWarning, stacklevel=2)
    for message in flagged:
        warnings.warn(message, RowSumWarning, stacklevel=2)
    return result


def _watched(function: HookFunction, changed: Callable[[], None]) -> HookFunction:
    """A user's hook function; `changed` hears of every activation that it returns."""

    def call(activation: Tensor, hook: Any) -> Tensor | None:
        result = function(activation, hook=hook)
        if result is not None:
            changed()
        return result

    return call


def _values(model: Any, x: Tensor, step: AtHook, logit: LogitReader | None) -> Tensor | float:
    if isinstance(step, OptimalAblate):
        from interp.interventions.optimal import optimal_values

        return optimal_values(model, step, logit=logit)
    return replacement(model, x, step, logit)
