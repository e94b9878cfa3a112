"""Models, inputs and the plain answer, one hooked run a cell, for the tests of the exact engine and of attribution."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.axes import HOOK_AXES
from interp.errors import BoolensError
from interp.exact import exact_sweep
from interp.hooks import run
from interp.models import HookedAttention

Build = Callable[..., HookedAttention]
EMBED, POS_EMBED, RESID = "hook_embed", "hook_pos_embed", "blocks.0.hook_resid_pre"
Q, K, V, SCORES, PATTERN, Z = (f"blocks.0.attn.hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern", "z"))
HOOKS = (EMBED, POS_EMBED, RESID, Q, K, V, SCORES, PATTERN, Z)

# n_ctx, batch, then fields of AttentionConfig: every option, a batch of one, T = 1; sizes of axes differ
CONFIGS: list[tuple[int, int, dict[str, Any]]] = [
    (5, 2, {"n_heads": 3, "d_head": 7, "d_model": 11, "d_value": 4, "bias": True}),
    (5, 2, {"n_heads": 3, "d_head": 7, "d_model": 11, "positions": "sinusoidal"}),
    (6, 1, {"n_heads": 2, "d_head": 4, "d_model": 5, "d_value": 3, "positions": "sinusoidal", "bias": True}),
    (4, 3, {}),
    (2, 4, {"bias": True}),
    (1, 2, {"n_heads": 3, "d_value": 4, "bias": True}),
]
SIZES = ("n_ctx", "batch", "fields")


def bits(batch: int, n_ctx: int, seed: int) -> Tensor:
    return torch.randint(2, (batch, n_ctx), generator=torch.Generator().manual_seed(seed))


def other_values(model: HookedAttention, x: Tensor, hook: str, seed: int = 5) -> Tensor:
    """Values for the activation at `hook` on x that no run has; rows of a pattern do not sum to 1."""
    activation = run(model, x, record=[hook])[1][hook]
    noise = torch.randn(activation.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return activation.flip(0) + noise.to(activation)


def overs(hook: str) -> list[tuple[str, ...]]:
    """Every choice of the axes that have cells, none of them first, all last."""
    names = [axis for axis in HOOK_AXES[hook] if axis in ("pos", "head", "dest", "src")]
    return [axes for n in range(len(names) + 1) for axes in itertools.combinations(names, n)]


def put_in_cell(hook: str, values: Tensor, over: Sequence[str], cell: Sequence[int]) -> tuple[str, Any]:
    """An edit that puts the values into one cell."""

    def edit(activation: Tensor, hook: Any) -> Tensor:
        where: list[Any] = [slice(None)] * activation.ndim
        for axis, index in zip(over, cell, strict=True):
            where[HOOK_AXES[hook.name].index(axis)] = index
        edited = activation.clone()
        edited[tuple(where)] = values.expand_as(activation)[tuple(where)]
        return edited

    return hook, edit


def hooked_sweep(model: HookedAttention, x: Tensor, hook: str, values: Tensor, over: Sequence[str]) -> Tensor:
    """[*cell, batch]: one run a cell."""
    sizes = [values.shape[HOOK_AXES[hook].index(axis)] for axis in over]
    cells = itertools.product(*map(range, sizes))
    rows = [run(model, x, [put_in_cell(hook, values, over, cell)])[0] for cell in cells]
    return torch.stack(rows).reshape(*sizes, len(x))


def hooked_removal(model: HookedAttention, x: Tensor, over: Sequence[str]) -> Tensor:
    """[*cell, batch]: one run a cell with its scores at minus infinity."""
    scores = run(model, x, record=[SCORES])[1][SCORES]
    return hooked_sweep(model, x, SCORES, torch.full_like(scores, -torch.inf), over)


def extreme_scores(seed: int, n_ctx: int = 6) -> Tensor:
    """[3, n_ctx, n_ctx] between -200 and 200: rows with one, with two equal, or with only large terms, and others."""
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.rand(3, n_ctx, n_ctx, generator=generator, dtype=torch.float64) * 2 - 1) * 200
    scores[:, 0] = -200
    scores[:, 0, 2] = 200
    scores[:, 1] = -200
    scores[:, 1, 1:3] = 200
    scores[:, 2] = 200
    scores[:, 3] = -200 + scores[:, 3] / 200
    scores[:, 3, 4] = 40
    return scores


def with_scores(build: Build, scores: Tensor) -> HookedAttention:
    """A float64 model whose scores are about those given [3, 6, 6]: queries are one-hot, keys columns of scores.

    Bits move the values (d_value 4) and, by tenths, scores.
    """
    n_heads, n_ctx, _ = scores.shape
    model = build(n_ctx, n_heads=n_heads, d_head=n_ctx, d_model=n_ctx + 1, d_value=4)
    with torch.no_grad():
        model.W_E.mul_(1e-4)[:, -1] = torch.tensor([-1.0, 2.0])
        model.W_pos.copy_(torch.eye(n_ctx, n_ctx + 1))
        model.attn.get_parameter("W_Q").copy_(torch.eye(n_ctx + 1, n_ctx))
        model.attn.get_parameter("W_K")[:, :-1] = scores.transpose(1, 2) * n_ctx**0.5
        model.attn.get_parameter("W_K")[:, -1] = 0
    return model


def smallest_budget(model: HookedAttention, x: Tensor, hook: str, values: Tensor, over: Sequence[str]) -> int:
    """The budget that the error for one that is too small asks for."""
    with pytest.raises(BoolensError, match="is too small") as raised:
        exact_sweep(model, x, hook, values, over, budget=1)
    _, result, work = (int(number) for number in re.findall(r"\b\d+\b", str(raised.value)))
    return result + work
