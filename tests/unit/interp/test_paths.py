"""Path patching against runs in which everything off the path is held, and inclusion–exclusion by hand."""

import itertools
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.errors import BoolensError
from interp.hooks import run
from interp.models import HookedAttention
from interp.paths import ROUTES, Path, patch_path, path_effects
from tests.unit.interp.exact_cases import (
    CONFIGS,
    EMBED,
    PATTERN,
    POS_EMBED,
    RESID,
    SCORES,
    SIZES,
    Build,
    K,
    Q,
    V,
    Z,
    bits,
    put_in_cell,
)

INTO = ("q", "k", "v", "qk", "qv", "kv", "qkv")
HOOK = {"q": Q, "k": K, "v": V}
CLEAN, CORRUPTED = bits(2, 5, 1), bits(2, 5, 2)


@pytest.fixture
def model(random_attention: Build) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


def held(model: HookedAttention, x: Tensor, values: Tensor, path: Path) -> Tensor:
    """Patch the embedding itself, then put back everything that is off the path, point by point."""
    everything = [EMBED, POS_EMBED, RESID, Q, K, V, Z]
    _, cache = run(model, x, record=everything)
    n_ctx, n_heads = model.cfg.n_ctx, model.cfg.n_heads

    def chosen(given: Any, size: int) -> list[int]:
        return (
            list(range(size)) if given is None else [i % size for i in ([given] if isinstance(given, int) else given)]
        )

    pos, head, dest = chosen(path.pos, n_ctx), chosen(path.head, n_heads), chosen(path.dest, n_ctx)
    edits = [put_in_cell(path.start, values, ("pos",), (p,)) for p in pos]
    for name, hook in HOOK.items():
        off = range(n_heads) if name not in path.into else [h for h in range(n_heads) if h not in head]
        edits += [put_in_cell(hook, cache[hook], ("head",), (h,)) for h in off]
    edits += [put_in_cell(Z, cache[Z], ("pos",), (d,)) for d in range(n_ctx) if d not in dest]
    return run(model, x, edits)[0]


@pytest.mark.parametrize(SIZES, CONFIGS)
@pytest.mark.parametrize("into", INTO)
def test_only_the_path_sees_the_source(into: str, n_ctx: int, batch: int, fields: Any, random_attention: Build) -> None:
    model = random_attention(n_ctx, **{**fields, "init_std": 0.5})
    x, source = bits(batch, n_ctx, 1), bits(batch, n_ctx, 2)
    for pos, head, dest, start in (
        (None, None, None, EMBED),
        (0, -1, [0, -1], EMBED),
        ([-1, 0], None, -1, RESID),
        ([0], 0, None, POS_EMBED),
    ):
        path = Path(into, pos, head, dest, start)
        expected = held(model, x, run(model, source, record=[start])[1][start], path)
        torch.testing.assert_close(patch_path(model, x, source, path), expected, rtol=1e-9, atol=1e-9)


def test_values_of_one_s_own(model: HookedAttention) -> None:
    """Where the source is an embedding itself: the positions' means, say."""
    mean = run(model, CLEAN, record=[POS_EMBED])[1][POS_EMBED].mean(dim=(0, 1), keepdim=True).expand(1, 5, 11)
    path = Path("kv", [1, 3], [0, 2], [4, 2], POS_EMBED)
    expected = held(model, CORRUPTED, mean.expand(2, 5, 11), path)
    patched = patch_path(model, CORRUPTED, mean, path)
    torch.testing.assert_close(patched, expected)
    assert not torch.isclose(patched, model(CORRUPTED)).any()


def test_routes_differ_and_are_not_nothing(model: HookedAttention) -> None:
    before = model(CORRUPTED).detach()
    patched = [patch_path(model, CORRUPTED, CLEAN, Path(into)) for into in INTO]
    for one, other in itertools.combinations([before, *patched], 2):
        assert not torch.isclose(one, other).any()


def test_into_everything_is_the_embedding_s_own_patch(model: HookedAttention) -> None:
    torch.testing.assert_close(patch_path(model, CORRUPTED, CLEAN, Path("qkv")), model(CLEAN).detach())
    scores = run(model, CLEAN, record=[SCORES])[1][SCORES]
    through_scores = run(model, CORRUPTED, [put_in_cell(SCORES, scores, (), ())])[0]
    torch.testing.assert_close(patch_path(model, CORRUPTED, CLEAN, Path("qk")), through_scores)


class TestPathEffects:
    @pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
    @pytest.mark.parametrize(SIZES, CONFIGS)
    def test_add_up_to_the_total(
        self, n_ctx: int, batch: int, fields: Any, dtype: torch.dtype, atol: float, random_attention: Build
    ) -> None:
        model = random_attention(n_ctx, dtype=dtype, **{**fields, "init_std": 0.4})
        x, source = bits(batch, n_ctx, 1), bits(batch, n_ctx, 2)
        for start, pos in itertools.product((EMBED, RESID), (None, 0, [-1])):
            paths = path_effects(model, x, source, pos=pos, start=start)
            assert paths.effects.shape == (7, model.cfg.n_heads, n_ctx, batch)
            assert paths.effects.dtype == dtype
            expected = x.clone()
            expected[:, slice(None) if pos is None else pos] = source[:, slice(None) if pos is None else pos]
            total = (model(expected) - model(x)).detach()
            torch.testing.assert_close(paths.total, total, rtol=0, atol=atol)
            torch.testing.assert_close(paths.effects.sum(dim=(0, 1, 2)), total, rtol=0, atol=atol)
            assert paths.gap.abs().max() <= atol

    def test_are_differences_of_patched_paths(self, model: HookedAttention) -> None:
        """Inclusion–exclusion by hand from `patch_path`, head by head and dest by dest."""
        before = run(model, CORRUPTED)[0]
        for pos in ([2], [0, 3], None):
            effects = path_effects(model, CORRUPTED, CLEAN, pos=pos).effects
            for head, dest in itertools.product(range(3), range(5)):
                change = {
                    into: patch_path(model, CORRUPTED, CLEAN, Path(into, pos, head, dest)) - before for into in INTO
                }
                expected = [
                    change["q"],
                    change["k"],
                    change["v"],
                    change["qk"] - change["q"] - change["k"],
                    change["qv"] - change["q"] - change["v"],
                    change["kv"] - change["k"] - change["v"],
                    change["qkv"]
                    - change["qk"]
                    - change["qv"]
                    - change["kv"]
                    + change["q"]
                    + change["k"]
                    + change["v"],
                ]
                torch.testing.assert_close(effects[:, head, dest], torch.stack(expected), rtol=1e-9, atol=1e-11)
        assert ROUTES == INTO

    def test_a_query_off_the_patched_positions_is_not_changed(self, model: HookedAttention) -> None:
        effects = path_effects(model, CORRUPTED, 1 - CORRUPTED, pos=2).effects
        q = effects[[i for i, route in enumerate(ROUTES) if "q" in route]]
        assert q[:, :, [0, 1, 3, 4]].abs().max() < 1e-12
        assert q[:, :, 2].abs().min() > 1e-6
        assert effects[1:3].abs().min() > 1e-6

    def test_a_linear_route_alone_where_patterns_are_even(self, model: HookedAttention) -> None:
        """Without queries and keys every pattern is 1/5: values are the only route, and have no interactions."""
        with torch.no_grad():
            for name in ("W_Q", "W_K", "b_Q", "b_K"):
                model.attn.get_parameter(name).zero_()
        assert (run(model, CLEAN, record=[PATTERN])[1][PATTERN] == 0.2).all()
        effects = path_effects(model, CORRUPTED, 1 - CORRUPTED).effects
        assert effects[2].abs().min() > 1e-6
        assert effects[[0, 1, 3, 4, 5, 6]].abs().max() < 1e-12

    def test_a_small_budget_gives_the_same(self, model: HookedAttention) -> None:
        x, source = bits(7, 5, 3), bits(7, 5, 4)
        whole = path_effects(model, x, source).effects
        with pytest.raises(BoolensError, match="is too small") as raised:
            path_effects(model, x, source, budget=1)
        _, result, work = (int(number) for number in re.findall(r"\b\d+\b", str(raised.value)))
        assert result == whole.numel() * 8
        torch.testing.assert_close(path_effects(model, x, source, budget=result + work).effects, whole)

    def test_hooks_of_others_are_refused(self, model: HookedAttention) -> None:
        model.add_hook(Z, lambda activation, hook: activation * 2)
        with pytest.raises(BoolensError, match="which the exact engine would not run"):
            path_effects(model, CORRUPTED, CLEAN)
        with pytest.raises(BoolensError, match="which the exact engine would not run"):
            patch_path(model, CORRUPTED, CLEAN, Path("q"))


class TestErrors:
    @pytest.mark.parametrize("into", ["", "x", "qq", "qz"])
    def test_routes(self, into: str, model: HookedAttention) -> None:
        message = f"a path goes into ('q', 'k', 'v'), or several as in 'qk', not into {into!r}"
        with pytest.raises(BoolensError, match=re.escape(message)):
            patch_path(model, CORRUPTED, CLEAN, Path(into))

    def test_indices(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match="pos 5 is out of range; there are 5"):
            patch_path(model, CORRUPTED, CLEAN, Path("q", pos=5))
        with pytest.raises(BoolensError, match="pos -6 is out of range; there are 5"):
            patch_path(model, CORRUPTED, CLEAN, Path("q", dest=[0, -6]))
        with pytest.raises(BoolensError, match="head 3 is out of range; there are 3"):
            patch_path(model, CORRUPTED, CLEAN, Path("q", head=3))
        with pytest.raises(BoolensError, match="pos 9 is out of range"):
            path_effects(model, CORRUPTED, CLEAN, pos=[9])

    def test_starts(self, model: HookedAttention) -> None:
        message = (
            "a path starts at one of hook_embed, hook_pos_embed and blocks.0.hook_resid_pre, not at 'blocks.0.attn"
        )
        for call in (
            lambda: patch_path(model, CORRUPTED, CLEAN, Path("q", start=Z)),
            lambda: path_effects(model, CORRUPTED, CLEAN, start=Z),
        ):
            with pytest.raises(BoolensError, match=message):
                call()

    def test_sources_that_do_not_fit(self, model: HookedAttention) -> None:
        with pytest.raises(
            BoolensError, match=re.escape("a source of shape (3, 5) does not fit; give inputs (2, 5) or")
        ):
            patch_path(model, CORRUPTED, bits(3, 5, 0), Path("q"))
        with pytest.raises(BoolensError, match=re.escape("a source of shape (2, 11, 5) does not fit")):
            path_effects(model, CORRUPTED, torch.zeros(2, 11, 5))


def test_leaves_no_trace(model: HookedAttention) -> None:
    model.train()
    before = run(model, CORRUPTED)[0]
    source = run(model, CLEAN, record=[EMBED])[1][EMBED]
    kept = source.clone()
    patch_path(model, CORRUPTED, source, Path("qk", 2))
    path_effects(model, CORRUPTED, source, pos=2)
    assert torch.equal(source, kept)
    assert torch.equal(run(model, CORRUPTED)[0], before)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert not any(point.fwd_hooks or point._forward_hooks for point in model.hook_points())
