"""The exact engine: every cell of a one-layer attention model's patch or ablation from one run, in closed form.

`exact_sweep` gives what running the model once a cell would give, at a cost of about three forward passes whatever the
number of cells. It computes in the model's own precision; `model.double()` first where float64 is wanted.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention import attention_scores, effective_attention
from interp.axes import HOOK_AXES, axis_of
from interp.config import AttentionConfig
from interp.errors import BoolensError
from interp.exact_terms import reads, row_outputs, swapped
from interp.hooks import resolve_hooks, run
from interp.interventions.edits import UnchangedWarning, check_fits

if TYPE_CHECKING:
    from interp.models import HookedAttention

EMBED, POS_EMBED, RESID = "hook_embed", "hook_pos_embed", "blocks.0.hook_resid_pre"
Q, K, V, SCORES, PATTERN, Z = (f"blocks.0.attn.hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern", "z"))

RECORDED: dict[str, tuple[str, ...]] = {
    EMBED: (EMBED, POS_EMBED, Q, K, V, SCORES, PATTERN),
    POS_EMBED: (EMBED, POS_EMBED, Q, K, V, SCORES, PATTERN),
    RESID: (RESID, Q, K, V, SCORES, PATTERN),
    Q: (Q, K, V, PATTERN),
    K: (Q, K, V, SCORES, PATTERN),
    V: (V, PATTERN),
    SCORES: (V, SCORES, PATTERN),
    PATTERN: (V, PATTERN),
    Z: (Z,),
}
"""The hook points that the exact engine covers, and which activations it needs for each."""

CACHED_BYTES = 2**20
"""Inputs are taken a few at a time, so that each array stays within a processor core's cache."""


def covers(model: Any, hook: str) -> bool:
    """Whether the exact engine can answer for this hook point: a HookedAttention, no hooks of others' on it."""
    return hook in RECORDED and isinstance(getattr(model, "cfg", None), AttentionConfig) and not hooked_modules(model)


def exact_sweep(
    model: "HookedAttention",
    x: Int[Tensor, "batch pos"],
    hook: str,
    values: Float[Tensor, "..."],
    over: Sequence[str],
    *,
    budget: int = 2**30,
) -> Float[Tensor, "*cell batch"]:
    """The logits when `values` replaces the activation at `hook` in one cell at a time.

    Where a cell's values are those that were there, its logit is the unedited run's, bit for bit.

    Args:
        model: a HookedAttention without hooks of its own.
        x: inputs.
        hook: one of `RECORDED`: embed, pos_embed, resid_pre, q, k, v, attn_scores, pattern, z.
        values: [batch or 1, *the activation's other axes]; taken to the model's precision and device.
        over: the axes whose cells are replaced, in the order that they have in the result: ("pos",), ("head", "pos"),
            ("head", "dest", "src"). In scores and patterns "pos" is dest. () replaces everything at once.
        budget: bytes that the result and the work on it may take together.

    Raises:
        BoolensError: another model or hook point, hooks on the model, an axis that the activation does not have or that
            is named twice, values that do not fit, a budget that is too small.

    Warns:
        UnchangedWarning: the values are those that were there, in every cell.
    """
    require(model, hook)
    x = model.check(x)
    axes = cell_axes(hook, over)
    shape = _shape(model, len(x), hook)
    put = _fitted(values, shape, hook, model)
    cells = [shape[HOOK_AXES[hook].index(axis)] for axis in axes]
    parts = chunks(model, len(x), len(x) * math.prod(cells) * put.element_size(), budget)
    result = put.new_empty(len(x), *cells)
    changed = not len(x)
    for rows in parts:
        logit, cache = run(model, x[rows], record=RECORDED[hook])
        new = (put if len(put) == 1 else put[rows]).expand_as(cache[hook])
        same = _in_cells(cache[hook] == new, hook, axes)
        changed = changed or not bool(same.all())
        with torch.no_grad():
            change = _sum_to(*_change(model, cache, hook, new, axes), axes)
            base = logit.view(-1, *[1] * len(axes))
            result[rows] = torch.where(same, base, base + change)
    if not changed:
        message = f"the intervention at {hook} changes no activation on these {len(x)} inputs"
        warnings.warn(message, UnchangedWarning, stacklevel=2)
    return result.movedim(0, -1)


def require(model: Any, hook: str) -> None:
    """Raise BoolensError unless `covers(model, hook)`."""
    if not isinstance(getattr(model, "cfg", None), AttentionConfig):
        raise BoolensError(
            f"the exact engine needs a HookedAttention, not {type(model).__name__}; use the general engine"
        )
    resolve_hooks(model.hook_dict, hook)
    if hook not in RECORDED:
        raise BoolensError(f"the exact engine does not cover {hook}; it covers {', '.join(RECORDED)}")
    if hooked := hooked_modules(model):
        raise BoolensError(
            f"the model has hooks at {', '.join(hooked)}, which the exact engine would not run; "
            "remove them (model.reset_hooks()), or use the general engine"
        )


def hooked_modules(model: torch.nn.Module) -> list[str]:
    """The parts of a model that someone has put a forward hook on."""
    return [name for name, module in model.named_modules() if module._forward_hooks or module._forward_pre_hooks]


def cell_axes(hook: str, over: Sequence[str]) -> tuple[str, ...]:
    """`over` in the activation's own names ('pos' in scores and patterns is 'dest').

    Raises:
        BoolensError: an axis that the activation does not have, that holds no cells, or that is named twice.
    """
    axes = tuple(HOOK_AXES[hook][axis_of(hook, axis)] for axis in over)
    sweepable = ("pos", "head", "dest", "src")
    for axis in axes:
        if axis not in sweepable:
            raise BoolensError(f"{hook}: cells cannot run over {axis!r}; choose from {sweepable}")
        if axes.count(axis) > 1:
            raise BoolensError(f"{hook}: over = {tuple(over)} names {axis!r} twice; name each axis once")
    return axes


def chunks(model: "HookedAttention", batch: int, result_bytes: int, budget: int) -> Iterator[slice]:
    """`slices` for a run of the model and closed forms on [head, dest, src], of which 16 arrays are alive at most."""
    cfg, size = model.cfg, model.W_readout.element_size()
    square = cfg.n_heads * cfg.n_ctx**2 * size
    linear = cfg.n_ctx * (4 * cfg.d_model + 3 * cfg.n_heads * (2 * cfg.d_head + cfg.d_value)) * size
    return slices(batch, 16 * square + linear, square, result_bytes, budget)


def slices(batch: int, one: int, array: int, result_bytes: int, budget: int) -> Iterator[slice]:
    """Slices of the inputs, each small enough for the work on it to fit the budget beside the result.

    Args:
        batch: number of inputs.
        one: bytes of work on one input.
        array: bytes of the largest array of one input.
        result_bytes: bytes of the result.
        budget: bytes that result and work may take together.

    Raises:
        BoolensError: not even one input at a time fits.
    """
    if result_bytes + one > budget:
        raise BoolensError(
            f"the budget of {budget} bytes is too small: the result takes {result_bytes} and the work on one input "
            f"{one} more; raise it, or pass fewer inputs at a time"
        )
    step = max(1, min((budget - result_bytes) // one, CACHED_BYTES // array))
    return (slice(start, start + step) for start in range(0, batch, step))


def _shape(model: "HookedAttention", batch: int, hook: str) -> tuple[int, ...]:
    cfg = model.cfg
    sizes = {"batch": batch, "pos": cfg.n_ctx, "dest": cfg.n_ctx, "src": cfg.n_ctx, "head": cfg.n_heads}
    sizes |= {"d_model": cfg.d_model, "d_head": cfg.d_head, "d_value": cfg.d_value}
    return tuple(sizes[axis] for axis in HOOK_AXES[hook])


def _fitted(values: Tensor, shape: tuple[int, ...], hook: str, model: "HookedAttention") -> Tensor:
    check_fits(values, shape, hook)
    return values.detach().to(model.W_readout)


def _in_cells(same: Tensor, hook: str, axes: tuple[str, ...]) -> Tensor:
    """Whether all of each cell is the same, [batch, *axes]."""
    names = HOOK_AXES[hook]
    other = [i for i, name in enumerate(names) if name not in ("batch", *axes)]
    if other:
        same = same.all(dim=tuple(other)) if len(other) > 1 else same.all(dim=other[0])
    left = [name for name in names if name in axes]
    return same.permute(0, *(1 + left.index(axis) for axis in axes))


def _sum_to(change: Tensor, names: tuple[str, ...], axes: tuple[str, ...]) -> Tensor:
    """Changes that add up, [batch, *names], as [batch, *axes]."""
    other = [1 + i for i, name in enumerate(names) if name not in axes]
    if other:
        change = change.sum(dim=other)
    left = [name for name in names if name in axes]
    return change.permute(0, *(1 + left.index(axis) for axis in axes))


CELLS, ROWS, POSITIONS = ("head", "dest", "src"), ("head", "dest"), ("pos", "head")


def _change(
    model: "HookedAttention", cache: dict[str, Tensor], hook: str, new: Tensor, axes: tuple[str, ...]
) -> tuple[Tensor, tuple[str, ...]]:
    """Changes of the logit, [batch, *names], whose sum over names beside `axes` is each cell's; and the names."""
    readout = model.W_readout
    if hook == Z:
        return einsum(new - cache[Z], readout, "batch pos head d, pos head d -> batch pos head"), POSITIONS
    pattern, value = cache[PATTERN], cache[V]
    if hook == V:
        effective = effective_attention(pattern, readout)
        return einsum(new - value, effective, "batch src head d, batch head src d -> batch src head"), POSITIONS
    read = reads(readout, value)
    if hook == PATTERN:
        return (new - pattern).mul_(read), CELLS
    if hook in (EMBED, POS_EMBED, RESID):
        return _resid_change(model, cache, hook, new, read, axes)
    if hook == Q:
        rows = row_outputs(attention_scores(new, cache[K]), read) - (pattern * read).sum(dim=-1)
        return rows, ("head", "pos")
    scores = new if hook == SCORES else attention_scores(cache[Q], new)
    if "src" in axes or (hook == K and "pos" in axes):
        return swapped(cache[SCORES], pattern, read, scores), CELLS if hook == SCORES else ("head", "dest", "pos")
    return row_outputs(scores, read) - (pattern * read).sum(dim=-1), ROWS


def _resid_change(
    model: "HookedAttention", cache: dict[str, Tensor], hook: str, new: Tensor, read: Tensor, axes: tuple[str, ...]
) -> tuple[Tensor, tuple[str, ...]]:
    """Replacing a position's residual stream replaces its row of scores, and its column of scores and of reads."""
    addend = {EMBED: POS_EMBED, POS_EMBED: EMBED}.get(hook)
    resid = new if addend is None else new + cache[addend]
    q, k, v = (model.attn.project(resid, name) for name in "QKV")
    pattern, new_read = cache[PATTERN], reads(model.W_readout, v)
    before = (pattern * read).sum(dim=-1)
    if "pos" not in axes:
        return row_outputs(attention_scores(q, k), new_read) - before, ROWS
    column = swapped(cache[SCORES], pattern, read, attention_scores(cache[Q], k), new_read)
    column.diagonal(dim1=-2, dim2=-1).zero_()  # where the column crosses the row is the row's
    scores = attention_scores(q, cache[K])
    corner = einsum(q, k, "batch pos head d_head, batch pos head d_head -> batch head pos") / math.sqrt(q.shape[-1])
    scores.diagonal(dim1=-2, dim2=-1).copy_(corner)
    row_read = read
    row_read.diagonal(dim1=-2, dim2=-1).copy_(new_read.diagonal(dim1=-2, dim2=-1))
    return column.sum(dim=-2).add_(row_outputs(scores, row_read) - before), ("head", "pos")
