"""Removing keys in closed form: on given inputs, and in expectation over the input distribution from the tables."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import BoolensError
from interp.exact import PATTERN, SCORES, V, cell_axes, chunks, require, slices
from interp.exact_terms import reads, removed
from interp.hooks import run
from interp.tables import Tables, columns, shares

if TYPE_CHECKING:
    from interp.models import HookedAttention


def exact_remove_key(
    model: "HookedAttention", x: Int[Tensor, "batch pos"], over: Sequence[str] = ("pos",), *, budget: int = 2**30
) -> Float[Tensor, "*cell batch"]:
    """The logits when one key at a time is removed: its score becomes -inf, and the softmax renormalises the rest.

    Computed in the model's own precision, from one run.

    Args:
        model: a HookedAttention without hooks of its own.
        x: inputs.
        over: ("pos",) removes a src from every head and dest, ("head", "pos") from one head, ("head", "dest", "src")
            from one head and dest; any order of axes with src, here also called pos, among them.
        budget: bytes that the result and the work on it may take together.

    Raises:
        BoolensError: what `exact_sweep` raises; `over` without src; n_ctx = 1, where no key would be left.
    """
    require(model, SCORES)
    x = model.check(x)
    axes = _key_axes(over, model.cfg.n_ctx)
    cells = _sizes(axes, model.cfg.n_heads, model.cfg.n_ctx)
    parts = chunks(model, len(x), len(x) * math.prod(cells) * model.W_readout.element_size(), budget)
    result = model.W_readout.new_empty(len(x), *cells)
    for rows in parts:
        logit, cache = run(model, x[rows], record=[SCORES, PATTERN, V])
        with torch.no_grad():
            change = removed(cache[SCORES], cache[PATTERN], reads(model.W_readout, cache[V]))
            result[rows] = logit.view(-1, *[1] * len(axes)) + _summed(change, axes)
    return result.movedim(0, -1)


def expected_removal_effect(
    tables: Tables,
    x: Int[Tensor, "batch pos"],
    probability: Float[Tensor, " batch"] | None = None,
    over: Sequence[str] = ("pos",),
    *,
    budget: int = 2**30,
) -> Float[Tensor, "*cell"]:
    """Expected absolute change of the logit when each key is removed, over the given inputs, without gradient.

    With all 2**T inputs and their probabilities this is the exact expectation; with a sample (probability None) its
    estimate. Cost: O(batch · head · T²), and no model is run.

    Args:
        tables: of `interp.tables.attention_tables`; in float64 for analyses.
        x: inputs.
        probability: of each input.
        over: as in `exact_remove_key`.
        budget: bytes that the work may take.

    Raises:
        BoolensError: no inputs, not one probability for each, or what `exact_remove_key` raises.
    """
    axes = _key_axes(over, tables.n_ctx)
    share = shares(x, probability, tables.scores)
    n_ctx, n_heads, d_value = tables.readout.shape
    square, linear = (tables.scores.element_size() * n * n_ctx * n_heads for n in (n_ctx, 4 * d_value))
    result = tables.scores.new_zeros(_sizes(axes, n_heads, n_ctx))
    with torch.no_grad():
        for rows in slices(len(x), 16 * square + linear, square, result.nbytes, budget):
            column = columns(x[rows].long())
            scores = tables.scores[:, column[:, :, None], column[:, None, :]].transpose(0, 1)
            value = tables.value[:, column].permute(1, 2, 0, 3)
            change = removed(scores, scores.softmax(dim=-1), reads(tables.readout, value))
            result += einsum(_summed(change, axes).abs(), share[rows], "batch ..., batch -> ...")
    return result


def _key_axes(over: Sequence[str], n_ctx: int) -> tuple[str, ...]:
    axes = cell_axes(SCORES, tuple("src" if axis == "pos" else axis for axis in over))
    if "src" not in axes:
        raise BoolensError(f"over = {tuple(over)} names no key to remove; add 'pos' or 'src', the key's position")
    if n_ctx == 1:
        raise BoolensError("removing the only key leaves nothing to attend to; n_ctx must be at least 2")
    return axes


def _sizes(axes: tuple[str, ...], n_heads: int, n_ctx: int) -> list[int]:
    return [n_heads if axis == "head" else n_ctx for axis in axes]


def _summed(change: Float[Tensor, "batch head dest src"], axes: tuple[str, ...]) -> Tensor:
    return einsum(change, f"batch head dest src -> batch {' '.join(axes)}")
