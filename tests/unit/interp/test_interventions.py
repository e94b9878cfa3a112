"""Patches and removed keys against weights and patterns worked out here, and the errors of impossible ones."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.attention import attention_scores
from interp.config import AttentionConfig, LinearConfig, MLPConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import (
    SCORES,
    RemoveKey,
    UnchangedWarning,
    index_in,
    patch,
    patch_each_position,
    positional_hooks,
    remove_each_key,
    remove_key,
    sweep,
)
from interp.models import AnyModel, HookedAttention, HookedMLP, build_model

PATTERN, Q, K, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("pattern", "q", "k", "v", "z"))
X = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
"""Batch 2; the model has head 3, pos 5, d_head 7, d_model 11, d_value 4."""


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


def n_hooks(model: AnyModel) -> int:
    return sum(len(point.fwd_hooks) + len(point.bwd_hooks) for point in model.hook_points())


class TestIndexIn:
    @pytest.mark.parametrize(("value", "index"), [(0, 0), (4, 4), (-1, 4), (-5, 0)])
    def test_negative_indices_count_from_the_end(self, value: int, index: int) -> None:
        assert index_in(value, 5, "pos") == index

    @pytest.mark.parametrize("value", [5, -6, 100])
    def test_out_of_range(self, value: int) -> None:
        message = f"head {value} is out of range; there are 5, 0 to 4 (or -5 to -1)"
        with pytest.raises(BoolensError, match=re.escape(message)):
            index_in(value, 5, "head")


class TestPatch:
    @pytest.mark.parametrize("n", [1, 2])
    def test_replaces_everything(self, n: int, model: HookedAttention) -> None:
        values = torch.arange(n * 5 * 3 * 4, dtype=torch.float64).reshape(n, 5, 3, 4)
        logits, cache = run(model, X, [patch(Z, values)], record=[Z])
        assert torch.equal(cache[Z], values.expand(2, 5, 3, 4))
        expected = (values * model.W_readout).sum(dim=(1, 2, 3)) + model.get_parameter("b_readout")
        torch.testing.assert_close(logits, expected.expand(2).detach())

    @pytest.mark.parametrize("pos", [3, -2])
    def test_at_one_position(self, pos: int, model: HookedAttention) -> None:
        clean = run(model, X, record=[Z])[1][Z]
        patched = run(model, X, [patch(Z, torch.full_like(clean, 9), pos=pos)], record=[Z])[1][Z]
        assert (patched[:, 3] == 9).all()
        rest = [0, 1, 2, 4]
        assert torch.equal(patched[:, rest], clean[:, rest])

    @pytest.mark.parametrize("head", [1, -2])
    def test_at_one_head(self, head: int, model: HookedAttention) -> None:
        for hook, dim in ((Z, 2), (PATTERN, 1)):
            clean = run(model, X, record=[hook])[1][hook]
            patched = run(model, X, [patch(hook, torch.full_like(clean, 9), head=head)], record=[hook])[1][hook]
            assert (patched.select(dim, 1) == 9).all()
            for other in (0, 2):
                assert torch.equal(patched.select(dim, other), clean.select(dim, other))

    def test_at_one_position_of_one_head(self, model: HookedAttention) -> None:
        clean = run(model, X, record=[V])[1][V]
        patched = run(model, X, [patch(V, torch.full_like(clean, 9), pos=2, head=-1)], record=[V])[1][V]
        expected = clean.clone()
        expected[:, 2, 2] = 9
        assert torch.equal(patched, expected)

    @pytest.mark.parametrize("hook", [SCORES, PATTERN])
    def test_pos_is_the_query_s_in_scores_and_patterns(self, hook: str, model: HookedAttention) -> None:
        clean = run(model, X, record=[hook])[1][hook]
        patched = run(model, X, [patch(hook, torch.full_like(clean, 9), pos=3)], record=[hook])[1][hook]
        expected = clean.clone()
        expected[:, :, 3, :] = 9
        assert torch.equal(patched, expected)

    def test_takes_each_input_s_own_values(self, model: HookedAttention) -> None:
        logits, cache = run(model, X, record=[Z])
        swapped, _ = run(model, X, [patch(Z, cache[Z].flip(0))])
        assert torch.equal(swapped, logits.flip(0))

    def test_values_take_on_the_activation_s_type(self, model: HookedAttention) -> None:
        cache = run(model, X, [patch(Z, torch.ones(1, 5, 3, 4, dtype=torch.float32))], record=[Z])[1]
        assert cache[Z].dtype == torch.float64

    def test_the_values_are_not_changed(self, model: HookedAttention) -> None:
        values = torch.zeros(2, 5, 3, 4, dtype=torch.float64)
        run(model, X, [patch(Z, values), (Z, lambda activation, hook: activation.add_(1))])
        assert not values.any()

    @pytest.mark.parametrize(
        ("hook", "shape", "activation"),
        [
            (Z, (3, 5, 3, 4), (2, 5, 3, 4)),
            (Z, (2, 1, 3, 4), (2, 5, 3, 4)),
            (Z, (5, 3, 4), (2, 5, 3, 4)),
            (Z, (2, 5, 4, 3), (2, 5, 3, 4)),
            (Z, (1,), (2, 5, 3, 4)),
            (Z, (), (2, 5, 3, 4)),
            (PATTERN, (2, 5, 5, 3), (2, 3, 5, 5)),
            ("hook_logit", (3,), (2,)),
            ("hook_logit", (), (2,)),
        ],
    )
    def test_wrong_shapes(
        self, hook: str, shape: tuple[int, ...], activation: tuple[int, ...], model: HookedAttention
    ) -> None:
        message = f"{hook}: values of shape {shape} do not fit the activation's {activation}; only the batch axis"
        with pytest.raises(BoolensError, match=re.escape(message)):
            run(model, X, [patch(hook, torch.ones(shape))])
        with pytest.raises(BoolensError, match=re.escape(message)):
            patch_each_position(model, X, hook, torch.ones(shape))
        assert n_hooks(model) == 0

    @pytest.mark.parametrize(
        ("where", "message"),
        [
            ({"pos": 5}, "pos 5 is out of range; there are 5, 0 to 4"),
            ({"pos": -6}, "pos -6 is out of range"),
            ({"head": 3}, "head 3 is out of range; there are 3, 0 to 2"),
            ({"pos": 0, "head": -4}, "head -4 is out of range"),
        ],
    )
    def test_out_of_range(self, where: dict[str, int], message: str, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match=re.escape(message)):
            run(model, X, [patch(Z, torch.ones(1, 5, 3, 4), **where)])
        assert n_hooks(model) == 0

    @pytest.mark.parametrize(
        ("hook", "shape", "where", "message"),
        [
            ("hook_embed", (1, 5, 11), {"head": 0}, "has axes ('batch', 'pos', 'd_model'), so no 'head' axis"),
            ("hook_logit", (1,), {"pos": 0}, "hook_logit has axes ('batch',), so no 'pos' axis; leave pos out"),
            ("hook_logit", (1,), {"head": 0}, "so no 'head' axis; leave head out, or choose another hook"),
        ],
    )  # fmt: skip
    def test_an_axis_that_is_not_there(
        self, hook: str, shape: tuple[int, ...], where: dict[str, int], message: str, model: HookedAttention
    ) -> None:
        with pytest.raises(BoolensError, match=re.escape(message)):
            run(model, X, [patch(hook, torch.ones(shape), **where)])

    def test_the_mlp_s_hidden_units_have_no_position(self) -> None:
        mlp = HookedMLP(MLPConfig(n_ctx=5, d_mlp=13))
        with pytest.raises(BoolensError, match="no 'pos' axis"):
            run(mlp, X, [patch("blocks.0.mlp.hook_post", torch.ones(1, 13), pos=0)])
        cache = run(mlp, X, [patch("hook_embed", torch.full((1, 5), 7.0), pos=-1)], record=["hook_embed"])[1]
        assert torch.equal(cache["hook_embed"], torch.tensor([[0.0, 1, 1, 0, 7], [1, 1, 0, 0, 7]]))

    def test_a_hook_that_is_not_there(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match=r"no hook point 'blocks.0.attn.hook_Z'; near names: .*hook_z"):
            run(model, X, [patch("blocks.0.attn.hook_Z", torch.ones(1))])


class TestRemoveKey:
    def test_the_rest_is_the_softmax_over_the_remaining_keys(self, model: HookedAttention) -> None:
        clean = run(model, X, record=[SCORES])[1][SCORES]
        for pos in range(5):
            rest = [src for src in range(5) if src != pos]
            pattern = run(model, X, [remove_key(pos)], record=[PATTERN])[1][PATTERN]
            assert (pattern[..., pos] == 0).all()
            torch.testing.assert_close(pattern[..., rest], clean[..., rest].softmax(dim=-1), rtol=1e-12, atol=0)
            torch.testing.assert_close(pattern.sum(dim=-1), torch.ones(2, 3, 5, dtype=torch.float64))

    def test_of_one_head(self, model: HookedAttention) -> None:
        clean = run(model, X, record=[PATTERN])[1][PATTERN]
        pattern = run(model, X, [remove_key(-1, head=-2)], record=[PATTERN])[1][PATTERN]
        assert torch.equal(pattern[:, [0, 2]], clean[:, [0, 2]])
        assert (pattern[:, 1, :, 4] == 0).all()
        assert (pattern[:, 1, :, :4] > clean[:, 1, :, :4]).all()

    def test_the_removed_bit_matters_to_no_other_query(self, model: HookedAttention) -> None:
        flipped = X.clone()
        flipped[:, 2] = 1 - flipped[:, 2]
        others = [0, 1, 3, 4]
        z, z_flipped = (run(model, x, [remove_key(2)], record=[Z])[1][Z] for x in (X, flipped))
        assert torch.equal(z[:, others], z_flipped[:, others])
        assert not torch.equal(z[:, 2], z_flipped[:, 2])  # as a query it still counts
        untouched, untouched_flipped = (run(model, x, record=[Z])[1][Z] for x in (X, flipped))
        assert not torch.isclose(untouched[:, others], untouched_flipped[:, others]).any()

    def test_a_removed_key_and_value_may_be_anything(self, model: HookedAttention) -> None:
        expected, _ = run(model, X, [remove_key(2)])
        edits = [patch(hook, torch.full((1, 5, 3, width), 1e6), pos=2) for hook, width in ((K, 7), (V, 4))]
        assert torch.equal(run(model, X, [*edits, remove_key(2)])[0], expected)

    def test_removing_two_keys(self, model: HookedAttention) -> None:
        clean = run(model, X, record=[SCORES])[1][SCORES]
        pattern = run(model, X, [remove_key(0), remove_key(3)], record=[PATTERN])[1][PATTERN]
        rest = [1, 2, 4]
        torch.testing.assert_close(pattern[..., rest], clean[..., rest].softmax(dim=-1), rtol=1e-12, atol=0)

    def test_the_only_key_cannot_be_removed(self, random_attention: Callable[..., HookedAttention]) -> None:
        with pytest.raises(BoolensError, match="removing key 0 leaves nothing to attend to; keep at least one"):
            run(random_attention(1), torch.tensor([[1]]), [remove_key(0)])

    @pytest.mark.parametrize("head", [None, 2])
    def test_nor_the_last_of_several(self, head: int | None, model: HookedAttention) -> None:
        edits = [remove_key(pos, head=head) for pos in range(5)]
        run(model, X, edits[:4])
        with pytest.raises(BoolensError, match="removing key 4 leaves nothing to attend to"):
            run(model, X, edits)
        assert n_hooks(model) == 0

    @pytest.mark.parametrize(
        ("pos", "head", "message"),
        [(5, None, "src 5 is out of range; there are 5"), (-6, None, "src -6"), (0, 3, "head 3 is out of range")],
    )
    def test_out_of_range(self, pos: int, head: int | None, message: str, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match=message):
            run(model, X, [remove_key(pos, head=head)])

    @pytest.mark.parametrize("cfg", [MLPConfig(n_ctx=5), LinearConfig(n_ctx=5)], ids=["mlp", "linear"])
    def test_a_model_without_attention(self, cfg: Any) -> None:
        with pytest.raises(BoolensError, match=r"no hook point 'blocks.0.attn.hook_attn_scores'"):
            remove_each_key(build_model(cfg), X)

    def test_each_key(self, model: HookedAttention) -> None:
        rows = remove_each_key(model, X)
        assert rows.shape == (5, 2)
        for pos in range(5):
            torch.testing.assert_close(rows[pos], run(model, X, [remove_key(pos)])[0], rtol=1e-12, atol=1e-12)


class TestEachPosition:
    def test_each_position(self, model: HookedAttention) -> None:
        for hook in positional_hooks(model.hook_names):
            values = torch.rand(run(model, X, record=[hook])[1][hook].shape, dtype=torch.float64)
            rows = patch_each_position(model, X, hook, values)
            assert rows.shape == (5, 2)
            for pos in range(5):
                expected, _ = run(model, X, [patch(hook, values, pos=pos)])
                torch.testing.assert_close(rows[pos], expected, rtol=1e-12, atol=1e-12)

    def test_positions_together_are_the_whole(self, model: HookedAttention) -> None:
        """The logit is a sum over queries, so the effects of single z patches add up."""
        clean, _ = run(model, X)
        values = torch.rand(2, 5, 3, 4, dtype=torch.float64)
        whole, _ = run(model, X, [patch(Z, values)])
        single = patch_each_position(model, X, Z, values)
        torch.testing.assert_close((single - clean).sum(dim=0), whole - clean)

    def test_one_position_and_one_input_keep_their_axes(self, random_attention: Callable[..., HookedAttention]) -> None:
        rows = patch_each_position(random_attention(1), torch.tensor([[1]]), Z, torch.full((1, 1, 1, 1), 9.0))
        assert rows.shape == (1, 1)

    @pytest.mark.parametrize("hook", [Q, K, V, SCORES, PATTERN, Z, "hook_embed", "blocks.0.hook_resid_pre"])
    def test_the_identity_changes_no_bit_and_says_so(self, hook: str, model: HookedAttention) -> None:
        logits, cache = run(model, X, record=[hook])
        message = f"the intervention at {hook} changes no activation on these 2 inputs"
        with pytest.warns(UnchangedWarning, match=re.escape(message)):
            rows = patch_each_position(model, X, hook, cache[hook])
        assert torch.equal(rows, logits.expand(5, 2))
        assert torch.equal(run(model, X, [patch(hook, cache[hook])])[0], logits)

    def test_a_change_of_one_element_is_no_identity(self, model: HookedAttention) -> None:
        clean, cache = run(model, X, record=[Z])
        values = cache[Z].clone()
        values[1, 3, 2, 0] += 1
        rows = patch_each_position(model, X, Z, values)
        assert torch.equal(rows != clean, torch.tensor([[False, pos == 3] for pos in range(5)]))


class TestPositionalHooks:
    def test_of_every_architecture(self) -> None:
        attention = build_model(AttentionConfig(n_ctx=5))
        left_out = {SCORES, "hook_logit"}
        assert positional_hooks(attention.hook_names) == [n for n in attention.hook_names if n not in left_out]
        for cfg in (MLPConfig(n_ctx=5), LinearConfig(n_ctx=5)):
            assert positional_hooks(build_model(cfg).hook_names) == ["hook_embed"]


def test_a_failed_sweep_leaves_no_trace(model: HookedAttention) -> None:
    model.train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    random = torch.get_rng_state()
    with pytest.raises(BoolensError, match="head 9"):
        sweep(model, X, RemoveKey(head=9))
    assert n_hooks(model) == 0
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_whoever_kept_the_activation_from_before_still_has_it(model: HookedAttention) -> None:
    for hook, edit in ((Z, patch(Z, torch.zeros(1, 5, 3, 4), pos=1)), (SCORES, remove_key(1))):
        clean = run(model, X, record=[hook])[1][hook]
        kept: list[Tensor] = []
        run(model, X, [(hook, lambda activation, hook, kept=kept: kept.append(activation)), edit])
        assert torch.equal(kept[0], clean)


def test_edits_compose_in_the_given_order(model: HookedAttention) -> None:
    """A key removed before its scores are patched comes back; after, it stays away."""
    scores = torch.zeros(1, 3, 5, 5)
    uniform = run(model, X, [remove_key(0), patch(SCORES, scores)], record=[PATTERN])[1][PATTERN]
    removed = run(model, X, [patch(SCORES, scores), remove_key(0)], record=[PATTERN])[1][PATTERN]
    torch.testing.assert_close(uniform, torch.full((2, 3, 5, 5), 1 / 5, dtype=torch.float64))
    torch.testing.assert_close(removed[..., 1:], torch.full((2, 3, 5, 4), 1 / 4, dtype=torch.float64))


def test_scores_recorded_after_a_removal_are_those_of_the_rest(model: HookedAttention) -> None:
    q, k = (run(model, X, record=[hook])[1][hook] for hook in (Q, K))
    scores: Tensor = run(model, X, [remove_key(3)], record=[SCORES])[1][SCORES]
    assert torch.isneginf(scores[..., 3]).all()
    torch.testing.assert_close(scores[..., :3], attention_scores(q, k)[..., :3])
