"""Flips split by query, key and value: against path patching one position at a time, and worked out on paper."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.config import AttentionConfig
from interp.errors import BoolensError
from interp.flip_routes import SIDES, FlipRoutes, flip_routes
from interp.hooks import run
from interp.models import HookedAttention
from interp.paths import ROUTES, path_effects
from interp.recovery import flip_scores
from tests.hand_set import hand_set
from tests.unit.interp.exact_cases import CONFIGS, SIZES, Build, bits, extreme_scores, with_scores


def flipped(x: Tensor, pos: int) -> Tensor:
    other = x.clone()
    other[:, pos] = 1 - other[:, pos]
    return other


@pytest.mark.parametrize(SIZES, CONFIGS)
def test_is_path_patching_one_position_at_a_time(n_ctx: int, batch: int, fields: Any, random_attention: Build) -> None:
    model, x = random_attention(n_ctx, **fields), bits(batch, n_ctx, 3)
    routes = flip_routes(model, x)
    assert routes.effects.shape == (len(ROUTES), n_ctx, batch)
    for pos in range(n_ctx):
        paths = path_effects(model, x, flipped(x, pos), pos=pos)
        torch.testing.assert_close(routes.effects[:, pos], paths.effects.sum(dim=(1, 2)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_extreme_scores(seed: int, random_attention: Build) -> None:
    model, x = with_scores(random_attention, extreme_scores(seed)), bits(3, 6, seed)
    routes = flip_routes(model, x)
    for pos in range(6):
        paths = path_effects(model, x, flipped(x, pos), pos=pos)
        scale = max(1.0, paths.effects.abs().max().item())
        torch.testing.assert_close(routes.effects[:, pos], paths.effects.sum(dim=(1, 2)), rtol=0, atol=1e-10 * scale)


@pytest.fixture
def model(random_attention: Build) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


def test_routes_and_sides_add_up_to_the_flip(model: HookedAttention, all_inputs: Callable[[int], Tensor]) -> None:
    x = all_inputs(5)
    routes = flip_routes(model, x)
    clean = run(model, x)[0]
    for pos in range(5):
        torch.testing.assert_close(routes.total[pos], run(model, flipped(x, pos))[0] - clean)
    torch.testing.assert_close(routes.shares().sum(dim=0), flip_scores(model, x))
    by_side = routes.by_side()
    assert sorted(route for side in SIDES.values() for route in side) == sorted(ROUTES)
    torch.testing.assert_close(sum(by_side.values()), flip_scores(model, x))


def test_shares_are_signed_by_the_whole() -> None:
    """Two inputs: the flip changes the logit by 3 - 1 = 2 and by -4 + 1 = -3, so by 2.5 in the mean."""
    effects = torch.zeros(len(ROUTES), 1, 2)
    effects[ROUTES.index("q"), 0] = torch.tensor([3.0, -4])
    effects[ROUTES.index("kv"), 0] = torch.tensor([-1.0, 1])
    by_side = FlipRoutes(effects, effects.sum(dim=0)).by_side()
    assert {side: share.tolist() for side, share in by_side.items()} == {"query": [3.5], "key": [-1], "together": [0]}


def test_on_paper() -> None:
    """A set bit raises its key by log 3 and its value by 4, from 1 at src 0 and 5 at src 1; queries are 1, on 00.

    Each row reads 3. Flip 0: by values 5, by keys 3/4 · 1 + 1/4 · 5 = 2, by both 3/4 · 5 + 1/4 · 5 = 5. Flip 1: by
    values 7, by keys 1/4 · 1 + 3/4 · 5 = 4, by both 1/4 · 1 + 3/4 · 9 = 7. The readout takes 2 + 3 of it.
    """
    model = hand_set(
        AttentionConfig(n_ctx=2, d_model=2, d_head=1, bias=True),
        W_E=[[0, 0], [0, 1]],
        W_pos=[[1, 0], [5, 0]],
        b_Q=[[1]],
        W_K=[[[0], [math.log(3)]]],
        W_V=[[[1], [4]]],
        W_readout=[[[2]], [[3]]],
        b_readout=-7,
    )
    routes = flip_routes(model, torch.zeros(1, 2, dtype=torch.int64))
    expected = {"k": [5 * (2 - 3), 5 * (4 - 3)], "v": [5 * (5 - 3), 5 * (5 - 3)], "kv": [5 * (5 - 4), 5 * (7 - 6)]}
    for route, effects in zip(ROUTES, routes.effects[..., 0].tolist(), strict=True):
        assert effects == pytest.approx(expected.get(route, [0, 0])), route


def test_small_budgets_change_nothing_and_hooks_are_refused(model: HookedAttention, random_attention: Build) -> None:
    x = bits(9, 5, 1)
    whole = flip_routes(model, x)
    torch.testing.assert_close(flip_routes(model, x, budget=21_000).effects, whole.effects, rtol=0, atol=1e-12)
    with pytest.raises(BoolensError, match="the budget of 3000 bytes is too small"):
        flip_routes(model, x, budget=3000)
    with pytest.raises(BoolensError, match="needs a HookedAttention, not Linear"):
        flip_routes(torch.nn.Linear(5, 1), x)  # pyright: ignore[reportArgumentType]
    handle = model.register_forward_hook(lambda *_: None)
    with pytest.raises(BoolensError, match="the model has hooks"):
        flip_routes(model, x)
    handle.remove()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not whole.effects.requires_grad
