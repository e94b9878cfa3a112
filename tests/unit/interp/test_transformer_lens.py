"""HookedAttention as TransformerLens' own code uses it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens import patching

from interp.axes import HOOK_AXES
from interp.config import AttentionConfig
from interp.errors import BoolensError
from interp.models import HookedAttention

# annotated for TransformerLens' own models and caches
generic_activation_patch: Any = patching.generic_activation_patch
Z, PATTERN = "blocks.0.attn.hook_z", "blocks.0.attn.hook_pattern"
CLEAN = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
CORRUPTED = torch.tensor([[1, 1, 0, 0, 1], [1, 0, 0, 1, 1]])


class Boom(Exception):
    pass


def boom(activation: Tensor, hook: Any) -> Tensor:
    raise Boom


def zero(tensor: Tensor, hook: Any) -> Tensor:
    return torch.zeros_like(tensor)


@pytest.fixture
def model(random_attention: Callable[..., Any]) -> HookedAttention:
    return random_attention(5, d_model=11, n_heads=3, d_head=7, d_value=4, bias=True, dtype=torch.float32)


def n_hooks(model: HookedAttention) -> int:
    return sum(len(point.fwd_hooks) + len(point.bwd_hooks) for point in model.hook_points())


class TestRunWithCache:
    def test_caches_every_point(self, model: HookedAttention) -> None:
        logits, cache = model.run_with_cache(CLEAN)
        assert torch.equal(logits, model(CLEAN))
        assert set(cache) == set(model.hook_names)
        assert all(activation.ndim == len(HOOK_AXES[name]) for name, activation in cache.items())
        assert torch.equal(cache["hook_logit"], logits)
        assert n_hooks(model) == 0

    @pytest.mark.parametrize(
        "names_filter",
        [Z, [Z], (Z,), lambda name: name.endswith("hook_z"), [lambda name: name == Z, Z]],
        ids=["str", "list", "tuple", "filter", "list of both"],
    )
    def test_caches_what_the_filter_names(self, model: HookedAttention, names_filter: Any) -> None:
        _, cache = model.run_with_cache(CLEAN, names_filter=names_filter)
        assert list(cache) == [Z]

    @pytest.mark.parametrize(
        "names_filter",
        ["blocks.0.attn.hook_patern", [Z, "blocks.0.attn.hook_patern"], ("blocks.0.attn.hook_patern",)],
    )
    def test_unknown_names_raise(self, model: HookedAttention, names_filter: Any) -> None:
        with pytest.raises(
            BoolensError, match=r"no hook point 'blocks\.0\.attn\.hook_patern'; near names: .*hook_pattern"
        ):
            model.run_with_cache(CLEAN, names_filter=names_filter)
        with pytest.raises(BoolensError, match=r"near names: .*hook_pattern"):
            model.add_caching_hooks(names_filter)
        assert n_hooks(model) == 0

    def test_a_filter_without_a_match_raises(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match="the filter matches no hook point"):
            model.run_with_cache(CLEAN, names_filter=lambda name: "mlp" in name)

    def test_the_cache_is_a_snapshot(self, model: HookedAttention) -> None:
        with torch.no_grad():
            logits, cache = model.run_with_cache(CLEAN)
            before = {name: activation.clone() for name, activation in cache.items()}
            logits.zero_()
            for parameter in model.parameters():
                parameter.zero_()
        assert all(torch.equal(activation, before[name]) for name, activation in cache.items())

    def test_one_input_without_its_batch_axis(self, model: HookedAttention) -> None:
        _, cache = model.run_with_cache(CLEAN[:1], remove_batch_dim=True)
        assert cache[PATTERN].shape == (3, 5, 5)

    def test_gradients_too(self, model: HookedAttention) -> None:
        _, cache = model.run_with_cache(CLEAN[:1], incl_bwd=True)
        torch.testing.assert_close(cache[f"{Z}_grad"][0], model.W_readout.detach())
        assert n_hooks(model) == 0

    def test_add_caching_hooks_stay_until_reset(self, model: HookedAttention) -> None:
        cache = model.add_caching_hooks([Z])
        model(CLEAN)
        assert list(cache) == [Z]
        model.reset_hooks()
        assert n_hooks(model) == 0


class TestRunWithHooks:
    def test_the_edit_holds_for_this_run_alone(self, model: HookedAttention) -> None:
        edited = model.run_with_hooks(CLEAN, fwd_hooks=[(Z, zero)])
        assert model.b_readout is not None
        torch.testing.assert_close(edited, model.b_readout.repeat(2))
        assert not torch.allclose(model(CLEAN), edited)
        assert n_hooks(model) == 0

    def test_hooks_may_be_a_generator(self, model: HookedAttention) -> None:
        with model.hooks(fwd_hooks=(pair for pair in [("hook_logit", zero)])):
            assert model(CLEAN).tolist() == [0, 0]
        with model.hooks(bwd_hooks=(pair for pair in [("hook_logit", lambda grad, hook: None)])):
            assert n_hooks(model) == 1

    def test_nested_contexts_come_off_one_by_one(self, model: HookedAttention) -> None:
        clean = model(CLEAN)
        with model.hooks(fwd_hooks=[("hook_logit", lambda activation, hook: activation + 1)]):
            with model.hooks(fwd_hooks=[("hook_logit", lambda activation, hook: 2 * activation)]):
                torch.testing.assert_close(model(CLEAN), 2 * (clean + 1))
                assert n_hooks(model) == 2
            torch.testing.assert_close(model(CLEAN), clean + 1)
            assert n_hooks(model) == 1
        assert torch.equal(model(CLEAN), clean)
        assert n_hooks(model) == 0

    def test_hooks_are_gone_after_an_exception_inside_one(self, model: HookedAttention) -> None:
        clean = model(CLEAN)
        for name in model.hook_names:
            with pytest.raises(Boom):
                model.run_with_hooks(CLEAN, fwd_hooks=[("hook_embed", lambda activation, hook: None), (name, boom)])
            assert n_hooks(model) == 0
        with pytest.raises(Boom), model.hooks(fwd_hooks=[(Z, zero)]):
            model.run_with_hooks(CLEAN, fwd_hooks=[(PATTERN, boom)])
        assert n_hooks(model) == 0
        assert model.context_level == 0
        assert torch.equal(model(CLEAN), clean)

    @pytest.mark.parametrize("permanent", [False, True])
    def test_a_user_s_own_hooks_stay(self, model: HookedAttention, permanent: bool) -> None:
        (model.add_perma_hook if permanent else model.add_hook)("hook_logit", zero)
        model.run_with_hooks(CLEAN, fwd_hooks=[(Z, zero)])
        model.run_with_cache(CLEAN)
        with pytest.raises(Boom):
            model.run_with_hooks(CLEAN, fwd_hooks=[(Z, boom)])
        with pytest.raises(BoolensError):
            model.run_with_hooks(CLEAN, fwd_hooks=[("hook_y", zero)])
        assert n_hooks(model) == 1
        assert model(CLEAN).tolist() == [0, 0]

    def test_unknown_names_raise_before_any_hook_is_added(self, model: HookedAttention) -> None:
        near = "no hook point 'blocks.0.attn.hook_patern'; near names: blocks.0.attn.hook_pattern"
        wrong: Any = [(Z, zero), ("blocks.0.attn.hook_patern", zero)]
        with pytest.raises(BoolensError, match=near):
            model.run_with_hooks(CLEAN, fwd_hooks=wrong)
        for direction in ("fwd_hooks", "bwd_hooks"):
            with pytest.raises(BoolensError, match=near), model.hooks(**{direction: wrong}):
                pass
        for add in (model.add_hook, model.add_perma_hook):
            with pytest.raises(BoolensError, match=near):
                add(wrong[1][0], zero)
            with pytest.raises(BoolensError, match="the filter matches no hook point"):
                add(lambda name: "mlp" in name, zero)
        with pytest.raises(BoolensError, match=r"no hook point 'blocks\.0\.attn'"):
            model.run_with_hooks(CLEAN, fwd_hooks=[("blocks.0.attn", zero)])
        assert n_hooks(model) == 0

    def test_filters_select_points(self, model: HookedAttention) -> None:
        seen: list[str] = []
        every = (lambda name: ".attn." in name, lambda activation, hook: seen.append(hook.name))
        model.run_with_hooks(CLEAN, fwd_hooks=[every])
        assert seen == [name for name in model.hook_names if ".attn." in name]


class TestGenericActivationPatch:
    """TransformerLens' own patching loop, against loops of run_with_hooks written out here."""

    def test_z_by_position(self, model: HookedAttention) -> None:
        def put(corrupted: Tensor, index: Any, clean: Any) -> Tensor:
            corrupted[:, index[1]] = clean[:, index[1]]
            return corrupted

        _, cache = model.run_with_cache(CLEAN)
        result = generic_activation_patch(
            model, CORRUPTED, cache, lambda logits: logits.sum(), put, "z", index_axis_names=["layer", "pos"]
        )
        expected = torch.zeros(1, 5)
        for pos in range(5):

            def swap(activation: Tensor, hook: Any, pos: int = pos) -> Tensor:
                activation = activation.clone()
                activation[:, pos] = cache[Z][:, pos]
                return activation

            expected[0, pos] = model.run_with_hooks(CORRUPTED, fwd_hooks=[(Z, swap)]).sum()
        torch.testing.assert_close(result, expected)
        # The readout is linear in z: what each position changes adds up to the whole change.
        corrupted, clean = model(CORRUPTED).sum(), model(CLEAN).sum()
        torch.testing.assert_close((result - corrupted).sum(), clean - corrupted)
        assert len(set(result.flatten().tolist())) == 5
        assert n_hooks(model) == 0

    def test_pattern_by_head_and_cell(self, model: HookedAttention) -> None:
        def put(corrupted: Tensor, index: Any, clean: Any) -> Tensor:
            _, head, dest, src = index
            corrupted[:, head, dest, src] = clean[:, head, dest, src]
            return corrupted

        _, cache = model.run_with_cache(CLEAN)
        axes = ["layer", "head", "dest_pos", "src_pos"]
        result = generic_activation_patch(
            model, CORRUPTED, cache, lambda logits: logits.sum(), put, "pattern", index_axis_names=axes
        )
        assert result.shape == (1, 3, 5, 5)
        expected = torch.zeros(1, 3, 5, 5)
        for head, dest, src in torch.cartesian_prod(torch.arange(3), torch.arange(5), torch.arange(5)).tolist():

            def swap(activation: Tensor, hook: Any, cell: tuple[int, int, int] = (head, dest, src)) -> Tensor:
                activation = activation.clone()
                activation[(slice(None), *cell)] = cache[PATTERN][(slice(None), *cell)]
                return activation

            expected[0, head, dest, src] = model.run_with_hooks(CORRUPTED, fwd_hooks=[(PATTERN, swap)]).sum()
        torch.testing.assert_close(result, expected)
        # By hand: the cell's change times what the value of src adds to the readout at dest.
        change = (cache[PATTERN] - model.run_with_cache(CORRUPTED)[1][PATTERN])[:, 2, 3, 4]
        value = model.run_with_cache(CORRUPTED)[1]["blocks.0.attn.hook_v"][:, 4, 2]
        effect = (change * (value @ model.W_readout[3, 2])).sum()
        torch.testing.assert_close(result[0, 2, 3, 4] - model(CORRUPTED).sum(), effect, rtol=1e-4, atol=1e-5)

    def test_needs_evaluation_mode(self, model: HookedAttention) -> None:
        _, cache = model.run_with_cache(CLEAN)
        with pytest.raises(ValueError, match="requires the model and all submodules to be in evaluation"):
            generic_activation_patch(
                model.train(), CORRUPTED, cache, torch.sum, boom, "z", index_axis_names=["layer", "pos"]
            )

    def test_the_configuration_has_what_it_reads(self) -> None:
        cfg = HookedAttention(AttentionConfig(n_ctx=5, n_heads=3)).cfg
        assert (cfg.n_layers, cfg.n_heads, cfg.n_key_value_heads, cfg.device) == (1, 3, None, "cpu")
