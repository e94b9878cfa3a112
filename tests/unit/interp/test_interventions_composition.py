"""Lists of interventions: what each does, in which order, and what they say about it."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ablation import derangement
from interp.attention import attention_scores
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import (
    SCORES,
    FlipBit,
    Freeze,
    MeanAblate,
    OptimalAblate,
    Patch,
    RemoveKey,
    ResampleAblate,
    RowSumWarning,
    UnchangedWarning,
    ZeroAblate,
    intervene,
    sweep,
)
from interp.models import HookedAttention

EMBED, RESID = "hook_embed", "blocks.0.hook_resid_pre"
PATTERN, Q, K, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("pattern", "q", "k", "v", "z"))
X = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
OTHER = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 0, 1, 1]])


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    """Batch 2, head 3, pos 5, d_head 7, d_model 11, d_value 4."""
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


def at(model: Any, x: Tensor, hook: str, steps: Any = ()) -> Tensor:
    return intervene(model, x, steps, record=[hook])[1][hook]


class TestKinds:
    def test_each_puts_its_values_into_its_cells(self, model: HookedAttention) -> None:
        clean, other = at(model, X, V), at(model, OTHER, V)
        values = torch.rand(2, 5, 3, 4, dtype=torch.float64)
        swapped = clean[derangement(2, torch.Generator().manual_seed(4))]
        reference = torch.cat([X, OTHER, 1 - X])
        mean = at(model, reference, V).mean(dim=0, keepdim=True).expand(2, -1, -1, -1)
        for step, put in (
            (ZeroAblate(V, pos=(1, -1), head=2), torch.zeros_like(clean)),
            (MeanAblate(V, reference, pos=(1, -1), head=2), mean),
            (ResampleAblate(V, 4, pos=(1, -1), head=2), swapped),
            (Patch(V, source=OTHER, pos=(1, -1), head=2), other),
            (Patch(V, values=values, pos=(1, -1), head=2), values),
            (Patch(V, values=values[:1], pos=(1, -1), head=2), values[:1].expand_as(values)),
        ):
            expected = clean.clone()
            expected[:, [1, 4], 2] = put[:, [1, 4], 2]
            torch.testing.assert_close(at(model, X, V, step), expected, rtol=1e-12, atol=0)

    def test_mean_without_a_reference_is_over_the_inputs(self, model: HookedAttention) -> None:
        assert intervene(model, X, MeanAblate(Z))[0].equal(intervene(model, X, MeanAblate(Z, X))[0])

    def test_keys_are_removed_where_all_selections_meet(self, model: HookedAttention) -> None:
        scores = at(model, X, SCORES)
        expected = scores.clone()
        expected[:, 1, [0, 3], 2] = -torch.inf
        expected = expected.softmax(dim=-1)
        for hook in (SCORES, PATTERN):
            pattern = at(model, X, PATTERN, RemoveKey(2, head=1, dest=(0, 3), hook=hook))
            torch.testing.assert_close(pattern, expected, rtol=1e-12, atol=0)

    def test_flipped_bits(self, model: HookedAttention) -> None:
        flipped = X.clone()
        flipped[:, [0, 4]] = 1 - flipped[:, [0, 4]]
        assert intervene(model, X, FlipBit((0, -1)))[0].equal(run(model, flipped)[0])
        assert intervene(model, X, FlipBit())[0].equal(run(model, 1 - X)[0])
        assert intervene(model, X, [FlipBit(1), FlipBit(1)])[0].equal(run(model, X)[0])
        bits = intervene(model, X.int(), FlipBit(0), record=[EMBED])[1][EMBED]
        assert bits.equal(at(model, X, EMBED, FlipBit(0)))

    def test_a_frozen_pattern_lets_a_flip_through_the_values_only(self, model: HookedAttention) -> None:
        flipped = intervene(model, X, FlipBit(3))[0]
        pattern, value = at(model, X, PATTERN), at(model, X, V, FlipBit(3))
        frozen, cache = intervene(model, X, [FlipBit(3), Freeze(PATTERN)], record=[PATTERN, Z])
        assert cache[PATTERN].equal(pattern)
        torch.testing.assert_close(cache[Z], torch.einsum("bhij,bjhd->bihd", pattern, value))
        assert not torch.isclose(frozen, flipped).any()
        rest = intervene(model, X, [FlipBit(3), Freeze(PATTERN), Freeze(V)])[0]
        assert rest.equal(run(model, X)[0])

    def test_some_frozen_heads(self, model: HookedAttention) -> None:
        clean, flipped = at(model, X, PATTERN), at(model, X, PATTERN, FlipBit(3))
        pattern = at(model, X, PATTERN, [FlipBit(3), Freeze(PATTERN, head=(0, 2))])
        assert pattern[:, [0, 2]].equal(clean[:, [0, 2]])
        assert pattern[:, 1].equal(flipped[:, 1])


class TestOrder:
    def test_bits_are_flipped_first_wherever_they_stand(self, model: HookedAttention) -> None:
        steps = [ZeroAblate(Z, head=0), FlipBit(2), RemoveKey(1)]
        expected, _ = intervene(model, X, steps)
        for order in ([1, 0, 2], [2, 1, 0], [0, 2, 1]):
            assert intervene(model, X, [steps[i] for i in order])[0].equal(expected)

    def test_hook_points_go_forward_whatever_the_list_s_order(self, model: HookedAttention) -> None:
        seen: list[str] = []
        steps = [(hook, lambda activation, hook: seen.append(hook.name)) for hook in (Z, EMBED, PATTERN, Q)]
        intervene(model, X, steps)
        assert seen == [EMBED, Q, PATTERN, Z]

    def test_at_one_hook_point_the_list_s(self, model: HookedAttention) -> None:
        double = (Z, lambda activation, hook: 2 * activation)
        values = torch.rand(1, 5, 3, 4, dtype=torch.float64)
        assert at(model, X, Z, [Patch(Z, values=values), double]).equal(2 * values.expand(2, 5, 3, 4))
        assert at(model, X, Z, [double, Patch(Z, values=values)]).equal(values.expand(2, 5, 3, 4))
        scores = torch.zeros(1, 3, 5, 5)
        back = at(model, X, PATTERN, [RemoveKey(0), Patch(SCORES, values=scores)])
        torch.testing.assert_close(back, torch.full((2, 3, 5, 5), 1 / 5, dtype=torch.float64))

    def test_values_come_from_unedited_runs(self, model: HookedAttention) -> None:
        """The mean of z, the patched v and the frozen q know nothing of the flip and the removed key beside them."""
        others = [FlipBit(2), RemoveKey(1)]
        for step in (MeanAblate(Z), Patch(V, source=OTHER), ResampleAblate(K)):
            alone = at(model, X, step.hook, step)
            assert at(model, X, step.hook, [*others, step]).equal(alone)
        assert at(model, X, Q, [*others, Freeze(Q)]).equal(at(model, X, Q))


class TestUnchanged:
    @pytest.mark.parametrize(
        "step",
        [
            Freeze(Z),
            Patch(V, source=X, head=1),
            Patch(EMBED, source=OTHER, pos=1),
            ResampleAblate("hook_pos_embed"),
        ],
    )
    def test_a_single_one_says_so_and_changes_no_bit(self, step: Any, model: HookedAttention) -> None:
        message = f"the intervention at {step.hook} changes no activation on these 2 inputs: {step!r}"
        with pytest.warns(UnchangedWarning, match=re.escape(message)):
            logits, _ = intervene(model, X, step)
        assert logits.equal(run(model, X)[0])

    def test_names_the_one_among_several(self, model: HookedAttention) -> None:
        with pytest.warns(UnchangedWarning, match="ZeroAblate") as caught:
            intervene(model, X, [ZeroAblate(Z, head=0), MeanAblate(V, OTHER), ZeroAblate(Z, head=0)])
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            intervene(model, X, [FlipBit(1), Freeze(PATTERN)])

    def test_a_function_that_returns_none_is_silent(self, model: HookedAttention) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            logits, _ = intervene(model, X, [(Z, lambda activation, hook: None)])
        assert logits.equal(run(model, X)[0])


class TestRows:
    def test_that_no_longer_sum_to_1_are_flagged(self, model: HookedAttention) -> None:
        for step, n in (
            (ZeroAblate(PATTERN, head=1, dest=(0, 2)), 2 * 2),
            (ZeroAblate(PATTERN, src=3), 2 * 3 * 5),
            ((PATTERN, lambda activation, hook: 2 * activation), 2 * 3 * 5),
        ):
            with pytest.warns(RowSumWarning, match=f"{n} rows of {PATTERN} no longer sum to 1"):
                intervene(model, X, [step])

    def test_are_kept_where_that_is_meant(self, model: HookedAttention) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pattern = at(model, X, PATTERN, ZeroAblate(PATTERN, src=3, rows="keep"))
            assert (pattern.sum(dim=-1) < 0.99).any()
            intervene(model, X, Patch(PATTERN, source=OTHER, dest=1))

    def test_are_divided_by_their_sum(self, model: HookedAttention) -> None:
        clean, other = at(model, X, PATTERN), at(model, OTHER, PATTERN)
        pattern = at(model, X, PATTERN, Patch(PATTERN, source=OTHER, head=2, src=(0, 1), rows="renormalise"))
        expected = clean.clone()
        expected[:, 2, :, :2] = other[:, 2, :, :2]
        expected[:, 2] /= expected[:, 2].sum(dim=-1, keepdim=True)
        torch.testing.assert_close(pattern, expected, rtol=1e-12, atol=0)

    def test_of_scores_recorded_after_a_removal(self, model: HookedAttention) -> None:
        q, k, scores = at(model, X, Q), at(model, X, K), at(model, X, SCORES, RemoveKey(3))
        assert torch.isneginf(scores[..., 3]).all()
        torch.testing.assert_close(scores[..., :3], attention_scores(q, k)[..., :3])


class TestErrors:
    @pytest.mark.parametrize(
        ("step", "message"),
        [
            (ZeroAblate("hook_emb"), "this model has no hook point 'hook_emb'; near names: hook_embed"),
            (ZeroAblate(Z, pos=5), "pos 5 is out of range; there are 5, 0 to 4 (or -5 to -1)"),
            (ZeroAblate(EMBED, head=0), "has axes ('batch', 'pos', 'd_model'), so no 'head' axis"),
            (ZeroAblate(PATTERN, pos=0, dest=1), "('pos', 'dest') at blocks.0.attn.hook_pattern: pos and dest are the"),
            (ZeroAblate("hook_logit", pos=0), "hook_logit has axes ('batch',), so no 'pos' axis"),
            (RemoveKey((0, 1, 2, 3, 4)), "removing keys 0, 1, 2, 3, 4 leaves nothing to attend to; keep at least one"),
            (RemoveKey((0, 1, 2, 3, 4), head=1, hook=PATTERN), "removing keys 0, 1, 2, 3, 4 leaves nothing"),
            (FlipBit(5), "pos 5 is out of range; there are 5"),
            (Patch(Z, source=OTHER[:1]), "shapes (2, 5) and (1, 5); pairs must match row by row"),
            (MeanAblate(Z, OTHER[:0]), "needs a reference set, and this one is empty"),
            ("zero", "'zero' is no intervention; give those of interp.interventions or (hook, function)"),
        ],
    )
    def test_leave_no_trace(self, step: Any, message: str, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match=re.escape(message)):
            intervene(model, X, [step])
        assert not any(point._forward_hooks or point.fwd_hooks for point in model.hook_points())

    @pytest.mark.usefixtures("unchecked")
    def test_inputs_that_are_not_bits(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match="inputs range from 0 to 2; only bits, 0 or 1, can be flipped"):
            intervene(model, 2 * X, FlipBit(0))

    def test_an_edit_by_a_function_that_is_discarded(self) -> None:
        from tests.unit.interp.foreign_models import Shown

        model = Shown()
        logits, _ = intervene(model, X, [("hook_embed", lambda activation, hook: None)])
        with pytest.raises(BoolensError, match="edits at hook_embed are discarded"):
            intervene(model, X, [("hook_embed", lambda activation, hook: 2 * activation)])
        for step in (ZeroAblate("hook_embed"), FlipBit(0)):
            if isinstance(step, FlipBit):
                assert not torch.isclose(intervene(model, X, step)[0], logits).any()
            else:
                with pytest.raises(BoolensError, match="edits at hook_embed are discarded"):
                    intervene(model, X, step)
                with pytest.raises(BoolensError, match="edits at hook_embed are discarded"):
                    sweep(model, X, step)


class TestAUserSOwnHooks:
    def test_run_first_and_stay(self, model: HookedAttention) -> None:
        model.add_hook(Z, lambda activation, hook: activation + 1)
        logits = intervene(model, X, [(Z, lambda activation, hook: 2 * activation)], record=[Z])[1][Z]
        model.reset_hooks()
        torch.testing.assert_close(logits, 2 * (at(model, X, Z) + 1))

    @pytest.mark.parametrize("engine", ["auto", "general"])
    def test_sweeps_give_them_the_batch_as_it_is(self, engine: Any, model: HookedAttention) -> None:
        """A hook that adds something of the batch's shape works, and its effect is in every cell."""
        added = torch.rand(2, 5, 3, 7, dtype=torch.float64)
        expected = []
        for pos in range(5):
            put = (Q, lambda activation, hook: activation + added)
            expected.append(intervene(model, X, [put, ZeroAblate(K, pos=pos)])[0])
        with model.hooks(fwd_hooks=[(Q, lambda activation, hook: activation + added)]):
            result = sweep(model, X, ZeroAblate(K), engine=engine)
            assert len(model.hook_dict[Q].fwd_hooks) == 1
        torch.testing.assert_close(result, torch.stack(expected))
        assert not model.hook_dict[Q].fwd_hooks

    def test_interventions_may_be_made_inside_a_hook(self, model: HookedAttention) -> None:
        inner: list[Tensor] = []

        def look(activation: Tensor, hook: Any) -> None:
            if not inner:
                inner.append(activation.new_empty(0))
                inner[0] = intervene(model, X, ZeroAblate(V, head=0))[0]

        outer, _ = intervene(model, X, [(Q, look), ZeroAblate(V, head=1)])
        assert inner[0].equal(intervene(model, X, ZeroAblate(V, head=(0, 1)))[0])  # what is there stays there
        assert outer.equal(intervene(model, X, ZeroAblate(V, head=1))[0])

    def test_one_input_one_position(self, random_attention: Callable[..., HookedAttention]) -> None:
        small, x = random_attention(1), torch.tensor([[1]])
        assert sweep(small, x, ZeroAblate(Z), ("head", "pos")).shape == (1, 1, 1)
        assert intervene(small, x, ZeroAblate(Z, pos=-1, head=0))[0].shape == (1,)
        labels = torch.tensor([True])
        optimal = OptimalAblate("hook_logit", reference=x, labels=labels)
        assert sweep(small, x, optimal, ())[0] > 8
