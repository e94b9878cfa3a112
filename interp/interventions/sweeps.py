"""One intervention moved over all cells: many cells in one forward pass, or all of them from one backward pass."""

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import BoolensError
from interp.hooks import LogitReader, check_read, has_hooks, resolve_hooks, run
from interp.interventions.cells import changed_cells, footprint, run_entries, swept_axes
from interp.interventions.edits import RowSumWarning, UnchangedWarning, flipped, merged, replacement, rows_off_message
from interp.interventions.linear import agrees, downstream_gradient
from interp.interventions.values import AtHook, FlipBit, Freeze, OptimalAblate, Patch, RemoveKey, ZeroAblate

Engine = Literal["auto", "exact", "general"]
PASS_BYTES = 2**25
"""Activations of one forward pass, bytes: with more, it leaves the processor's caches and is no faster."""

AFFINE_RUNS = 4
"""Runs of all inputs that it takes to see whether the logit is affine and to make use of it: no fewer than that."""


def sweep(
    model: Any,
    x: Int[Tensor, "batch pos"],
    intervention: AtHook | FlipBit,
    over: Sequence[str] = ("pos",),
    *,
    engine: Engine = "auto",
    budget: int = 2**30,
    logit: LogitReader | None = None,
) -> Float[Tensor, "*cell batch"]:
    """The logits on x with the intervention at one cell at a time, for every cell along the axes of `over`.

    Each is what `intervene` gives for that cell, but for rounding; where nothing changes, it is the unedited run's, bit
    for bit. The general engine edits many cells in one forward pass, as extra batch entries, and leaves out entries
    whose edit changes nothing; where the logit is affine in the activation, it takes all cells from one backward pass
    (see `linear`). On a model with hooks of a user's own every pass holds one cell and the whole batch.

    Args:
        model: any TransformerLens HookedRootModule or TransformerBridge whose inputs do not affect each other.
        x: the inputs.
        intervention: what is done; it may select cells along axes that are not swept.
        over: axes swept, in the result's order: ("pos",), ("head", "pos"), ("head", "dest", "src"), ... In scores and
            patterns "pos" is dest; of a RemoveKey it is src. () edits everything at once.
        engine: "exact" is the closed form of one-layer models (interp.exact), "auto" takes it wherever it applies.
        budget: bytes that activations may take, the result and the values put in not counted.
        logit: from the model's output to one number an input, see `interp.hooks.run`.

    Raises:
        BoolensError: an engine that does not apply, a budget below one input's needs, cells or values that do not fit,
            edits that the model discards.

    Warns:
        UnchangedWarning: nothing was changed in any cell.
        RowSumWarning: rows of the pattern no longer sum to 1.
    """
    if isinstance(intervention, FlipBit):
        return _sweep_flips(model, x, intervention, over, engine, budget, logit)
    hook = intervention.hook
    resolve_hooks(model.hook_dict, hook)
    check_read(model, x, hook, logit)
    exact = _exact_applies(model, intervention, engine, logit)
    size = footprint(model, x, hook, logit)
    if isinstance(intervention, OptimalAblate):
        from interp.interventions.optimal import optimal_values

        values = optimal_values(model, intervention, over, budget=budget, logit=logit)
        intervention = _putting(intervention, values)
    elif not isinstance(intervention, ZeroAblate | RemoveKey | Freeze | Patch):
        values = replacement(model, x, intervention, logit)
        assert isinstance(values, Tensor)
        intervention = _putting(intervention, values)
    parts, n_changed, n_off = [], 0, 0
    for rows in x_chunks(model, len(x), size.base, budget):
        here = _of_rows(intervention, rows, len(x))
        logits, changed, off = _sweep_rows(model, x[rows], here, over, exact, size.entry, budget // 2, logit)
        parts.append(logits)
        n_changed += changed
        n_off += off
    if not n_changed:
        message = f"the intervention at {hook} changes no activation on these {len(x)} inputs"
        warnings.warn(message, UnchangedWarning, stacklevel=2)
    if n_off:
        warnings.warn(rows_off_message(hook, n_off), RowSumWarning, stacklevel=2)
    return torch.cat(parts, dim=-1)


def x_chunks(model: Any, n: int, bytes_per_input: int, budget: int) -> list[slice]:
    """Slices of n inputs that each take at most half of a budget; one slice on a model with a user's own hooks.

    Raises:
        BoolensError: not even one input fits.
    """
    step = budget // 2 // max(bytes_per_input, 1)
    if step < 1:
        raise BoolensError(f"a budget of {budget} bytes is too small: one input takes {2 * bytes_per_input}")
    if has_hooks(model):
        step = n
    return [slice(start, start + step) for start in range(0, max(n, 1), max(step, 1))]


def _putting(intervention: AtHook, values: Tensor) -> Patch:
    cells = {axis: getattr(intervention, axis) for axis in intervention.selected}
    return Patch(intervention.hook, values=values, rows=intervention.rows, **cells)


def _of_rows(intervention: AtHook, rows: slice, n: int) -> AtHook:
    match intervention:
        case Patch(source=Tensor() as source) if source.shape[:1] == (n,):
            return replace(intervention, source=source[rows])
        case Patch(values=Tensor() as values) if values.shape[:1] == (n,):
            return replace(intervention, values=values[rows])
    return intervention


def _sweep_rows(
    model: Any,
    x: Int[Tensor, "batch pos"],
    intervention: AtHook,
    over: Sequence[str],
    exact: bool,
    entry_bytes: int,
    budget: int,
    logit: LogitReader | None,
) -> tuple[Float[Tensor, "*cell batch"], int, int]:
    """The logits, the number of (cell, input) pairs changed, the number of pattern rows that do not sum to 1."""
    hook = intervention.hook
    clean, cache = run(model, x, record=[hook], logit=logit)
    activation = cache[hook]
    if activation.ndim == 0 or len(activation) != len(x):
        got = f"{tuple(activation.shape)} for {len(x)} inputs"
        raise BoolensError(f"the activation at {hook} has shape {got}; a sweep needs a batch axis")
    put = merged(replacement(model, x, intervention, logit), activation, intervention)
    swept = swept_axes(activation, intervention, over)
    changed = changed_cells(swept, put, activation)
    n_changed, n_off = int(changed.sum()), 0
    if intervention.at_pattern and intervention.rows == "flag" and not intervention.renormalises:
        n_off = _rows_off(put - activation, src_swept=activation.ndim - 1 in swept.dims)
    result = clean.expand(changed.shape).clone()
    if not n_changed:
        return result, 0, 0
    if exact:
        return torch.where(changed, _exact(model, x, intervention, over, put, budget), result), n_changed, n_off
    if n_changed > AFFINE_RUNS * len(x) and not intervention.renormalises and put.isfinite().all():
        gradient = downstream_gradient(model, x, hook, logit)
        if gradient is not None and agrees(model, x, hook, clean, put - activation, gradient, logit):
            effects = swept.by_cell(gradient * (put - activation))
            return torch.where(changed, clean + effects, result), n_changed, n_off
    if has_hooks(model):
        everything = torch.arange(len(x), device=x.device)
        for cell in itertools.product(*map(range, swept.shape)):
            entries = [torch.full_like(everything, i) for i in cell]
            logits = run_entries(model, x, intervention, swept, put, [*entries, everything], logit)
            result[cell] = torch.where(changed[cell], logits, clean)
        return result, n_changed, n_off
    per_pass = max(1, min(budget, PASS_BYTES) // entry_bytes)
    for chosen in changed.flatten().nonzero().flatten().split(per_pass):
        entries = torch.unravel_index(chosen, changed.shape)
        result[entries] = run_entries(model, x, intervention, swept, put, entries, logit)
    return result, n_changed, n_off


def _rows_off(change: Float[Tensor, "batch head dest src"], src_swept: bool) -> int:
    by_row = change if src_swept else change.sum(dim=-1)
    return int((by_row.abs() > torch.finfo(change.dtype).eps ** 0.5).sum())


def _exact_applies(model: Any, intervention: AtHook, engine: Engine, logit: LogitReader | None) -> bool:
    """Whether the exact engine is to be used; BoolensError where it is asked for and cannot be."""
    if engine not in ("auto", "exact", "general"):
        raise BoolensError(f"engine {engine!r} is not known; choose auto, exact or general")
    if engine == "general":
        return False
    from interp.exact import covers

    applies = covers(model, intervention.hook) and not intervention.renormalises and logit is None
    applies &= not (isinstance(intervention, RemoveKey) and intervention.selected)
    if engine == "exact" and not applies:
        raise BoolensError(
            f"the exact engine does not apply to {intervention!r} on {type(model).__name__}: it takes a "
            "HookedAttention without hooks of a user's, and no renormalised rows, selected keys or logit reader; "
            "choose engine='general'"
        )
    return applies


def _exact(
    model: Any, x: Tensor, intervention: AtHook, over: Sequence[str], put: Tensor, budget: int
) -> Float[Tensor, "*cell batch"]:
    if isinstance(intervention, RemoveKey):
        from interp.exact_keys import exact_remove_key

        return exact_remove_key(model, x, over, budget=budget)
    from interp.exact import exact_sweep

    return exact_sweep(model, x, intervention.hook, put, over, budget=budget)


def _sweep_flips(
    model: Any,
    x: Int[Tensor, "batch pos"],
    flip: FlipBit,
    over: Sequence[str],
    engine: Engine,
    budget: int,
    logit: LogitReader | None,
) -> Float[Tensor, "pos batch"]:
    if tuple(over) != ("pos",) or flip.pos is not None:
        raise BoolensError(f"over = {tuple(over)} for {flip!r}: flips are swept over ('pos',), none selected")
    if engine == "exact":
        raise BoolensError("the exact engine does not flip inputs; patch hook_embed from the flipped inputs instead")
    size = footprint(model, x, None, logit)
    parts = []
    for rows in x_chunks(model, len(x), size.base, budget):
        flips = [flipped(x[rows], FlipBit(pos)) for pos in range(x.shape[1])]
        parts.append(torch.stack([run(model, each, logit=logit)[0] for each in flips]))
    return torch.cat(parts, dim=-1)
