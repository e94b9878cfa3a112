"""Sweeps: every cell of every kind is the single intervention's, on our models and on others; errors and memory."""

import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens import patching

from interp.config import AttentionConfig, LinearConfig, MLPConfig
from interp.errors import BoolensError
from interp.hooks import LogitDifference, run
from interp.interventions import (
    AtHook,
    FlipBit,
    Freeze,
    MeanAblate,
    Patch,
    RemoveKey,
    ResampleAblate,
    RowSumWarning,
    UnchangedWarning,
    ZeroAblate,
    intervene,
    sweep,
    sweeps,
)
from interp.models import HookedAttention, build_model
from tests.unit.interp.foreign_models import Transformer

EMBED, RESID = "hook_embed", "blocks.0.hook_resid_pre"
Q, K, V, SCORES, PATTERN, Z = (f"blocks.0.attn.hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern", "z"))
X = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
OTHER = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 0, 1, 1]])
LOGIT = LogitDifference()
generic_activation_patch: Any = patching.generic_activation_patch


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    """Batch 2, head 3, pos 5, d_head 7, d_model 11, d_value 4."""
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


def assert_single(
    model: Any, x: Tensor, step: AtHook, over: Sequence[str], result: Tensor, logit: Any = None, most: int = 6
) -> None:
    """Each cell of a sweep is the single intervention's; of many cells some are drawn."""
    names = ["src" if axis == "pos" and isinstance(step, RemoveKey) else axis for axis in over]
    cells = list(itertools.product(*map(range, result.shape[:-1])))
    for cell in random.Random(0).sample(cells, min(most, len(cells))):
        single = replace(step, **dict(zip(names, cell, strict=True)))
        expected, _ = intervene(model, x, single, logit=logit)
        torch.testing.assert_close(result[cell], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore::interp.interventions.UnchangedWarning")
@pytest.mark.parametrize("engine", ["general", "exact"])
@pytest.mark.parametrize(
    ("hook", "over", "shape"),
    [
        (EMBED, ("pos",), (5,)),
        (RESID, ("pos",), (5,)),
        (Q, ("pos",), (5,)),
        (K, ("head",), (3,)),
        (K, ("head", "pos"), (3, 5)),
        (V, ("pos", "head"), (5, 3)),
        (SCORES, ("pos",), (5,)),
        (SCORES, ("head", "dest", "src"), (3, 5, 5)),
        (PATTERN, ("dest",), (5,)),
        (PATTERN, ("src", "head"), (5, 3)),
        (PATTERN, ("head", "dest", "src"), (3, 5, 5)),
        (Z, ("head", "pos"), (3, 5)),
    ],
)
def test_every_cell_is_the_single_intervention(
    hook: str, over: tuple[str, ...], shape: tuple[int, ...], engine: Any, model: HookedAttention
) -> None:
    values = torch.rand(run(model, X, record=[hook])[1][hook].shape, dtype=torch.float64)
    steps = [
        ZeroAblate(hook, rows="keep"),
        MeanAblate(hook, OTHER, rows="keep"),
        ResampleAblate(hook, seed=3, rows="keep"),
        Patch(hook, source=OTHER, rows="keep"),
        Patch(hook, values=values, rows="keep"),
        Patch(hook, values=values[:1], rows="keep"),
        Freeze(hook),
    ]
    for step in steps:
        result = sweep(model, X, step, over, engine=engine)
        assert result.shape == (*shape, 2)
        assert_single(model, X, step, over, result)


@pytest.mark.filterwarnings("ignore::interp.interventions.UnchangedWarning")
@pytest.mark.parametrize(
    ("hook", "over", "cells"),
    [
        (V, ("pos",), {"head": 1}),
        (V, ("head",), {"pos": (0, -1)}),
        (PATTERN, ("src",), {"head": (0, 2), "dest": 3}),
        (SCORES, ("head",), {"src": (1, 2)}),
        (K, ("pos",), {"head": -1}),
    ],
)
def test_cells_selected_along_other_axes(hook: str, over: tuple[str, ...], cells: Any, model: HookedAttention) -> None:
    step = Patch(hook, source=OTHER, rows="keep", **cells)
    result = sweep(model, X, step, over)
    assert_single(model, X, step, over, result)
    assert not torch.allclose(result, sweep(model, X, Patch(hook, source=OTHER, rows="keep"), over))


@pytest.mark.parametrize("hook", [SCORES, PATTERN])
@pytest.mark.parametrize(
    ("over", "shape", "cells"),
    [
        (("pos",), (5,), {}),
        (("head", "pos"), (3, 5), {}),
        (("head", "dest", "src"), (3, 5, 5), {}),
        (("src",), (5,), {"head": 2, "dest": (0, 1)}),
    ],
)
def test_removing_keys(
    over: tuple[str, ...], shape: tuple[int, ...], cells: Any, hook: str, model: HookedAttention
) -> None:
    step = RemoveKey(hook=hook, **cells)
    result = sweep(model, X, step, over)
    assert result.shape == (*shape, 2)
    assert_single(model, X, step, over, result)
    torch.testing.assert_close(result, sweep(model, X, replace(step, hook=SCORES), over), rtol=1e-10, atol=1e-10)


def test_of_the_logit_itself(model: HookedAttention) -> None:
    assert sweep(model, X, Patch("hook_logit", source=OTHER), ()).equal(run(model, OTHER)[0])


def test_renormalised_rows(model: HookedAttention) -> None:
    """A pattern cell zeroed and its row renormalised is the key removed from that query."""
    over = ("head", "dest", "src")
    zeroed = sweep(model, X, ZeroAblate(PATTERN, rows="renormalise"), over)
    torch.testing.assert_close(zeroed, sweep(model, X, RemoveKey(), over), rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore::interp.interventions.UnchangedWarning")
@pytest.mark.parametrize("cfg", [MLPConfig(n_ctx=5, d_mlp=13, init_std=0.7), LinearConfig(n_ctx=5, init_std=0.7)])
def test_models_without_attention(cfg: Any) -> None:
    model = build_model(cfg).double()
    for step in (ZeroAblate(EMBED), Patch(EMBED, source=OTHER), MeanAblate(EMBED, OTHER)):
        result = sweep(model, X, step)
        assert result.shape == (5, 2)
        assert_single(model, X, step, ("pos",), result)
    if isinstance(cfg, MLPConfig):
        neurons = sweep(model, X, ZeroAblate("blocks.0.mlp.hook_post"), ("d_mlp",))
        post = run(model, X, record=["blocks.0.mlp.hook_post"])[1]["blocks.0.mlp.hook_post"]
        lost = (post * model.get_parameter("blocks.0.mlp.W_out").detach()).T
        torch.testing.assert_close(run(model, X)[0] - neurons, lost)


@pytest.mark.parametrize(
    ("cfg", "n_ctx"), [(AttentionConfig(5), 5), (MLPConfig(5, d_mlp=13), 5), (LinearConfig(5), 5), (None, 5)]
)
def test_flipping_each_bit(cfg: Any, n_ctx: int) -> None:
    model = Transformer(n_ctx) if cfg is None else build_model(cfg).double()
    logit = LOGIT if cfg is None else None
    result = sweep(model, X, FlipBit(), logit=logit)
    assert result.shape == (n_ctx, 2)
    for pos in range(n_ctx):
        flipped = X.clone()
        flipped[:, pos] = 1 - flipped[:, pos]
        torch.testing.assert_close(result[pos], run(model, flipped, logit=logit)[0])


@pytest.mark.parametrize(
    ("hook", "over", "shape"),
    [
        (EMBED, ("pos",), (5,)),
        (Q, ("head", "pos"), (3, 5)),
        (V, ("head", "pos"), (3, 5)),
        (SCORES, ("head",), (3,)),
        (PATTERN, ("head", "dest", "src"), (3, 5, 5)),
        (Z, ("pos",), (5,)),
        ("blocks.0.hook_attn_out", ("pos",), (5,)),
        ("blocks.0.hook_resid_mid", ("pos",), (5,)),
        ("blocks.0.mlp.hook_post", ("pos",), (5,)),
        ("blocks.0.hook_mlp_out", ("pos",), (5,)),
        ("blocks.0.hook_resid_post", ("pos",), (5,)),
    ],
)
@pytest.mark.filterwarnings("ignore::interp.interventions.UnchangedWarning")
def test_a_model_nobody_here_wrote(hook: str, over: tuple[str, ...], shape: tuple[int, ...]) -> None:
    """Layer norms, residuals, a causal mask, an MLP, logits [batch, pos, 2] read at position 2."""
    model, logit = Transformer(5), LogitDifference(pos=2)
    for step in (Patch(hook, source=OTHER, rows="keep"), MeanAblate(hook, rows="keep")):
        result = sweep(model, X, step, over, logit=logit)
        assert result.shape == (*shape, 2)
        assert_single(model, X, step, over, result, logit)
    if "pos" in over and hook != SCORES:
        later = result[..., 3:, :]
        assert torch.equal(later, run(model, X, logit=logit)[0].expand_as(later))  # the mask


def test_agrees_with_transformer_lens_on_every_cell(model: HookedAttention) -> None:
    _, cache = model.run_with_cache(OTHER)
    for name, axes, over in (
        ("pattern", ["layer", "head", "dest_pos", "src_pos"], ("head", "dest", "src")),
        ("q", ["layer", "pos", "head"], ("pos", "head")),
        ("v", ["layer", "pos", "head"], ("pos", "head")),
    ):

        def put(corrupted: Tensor, index: Any, clean: Tensor) -> Tensor:
            where = (slice(None), *index[1:])
            corrupted[where] = clean[where]
            return corrupted

        expected = generic_activation_patch(
            model, X, cache, lambda logits: logits, put, name, index_axis_names=axes, reduce="none"
        ).values[0]
        result = sweep(model, X, Patch(f"blocks.0.attn.hook_{name}", source=OTHER, rows="keep"), over)
        torch.testing.assert_close(result, expected.detach().double(), rtol=0, atol=1e-6)


class TestNothingChanged:
    @pytest.mark.parametrize("hook", [EMBED, Q, K, V, SCORES, PATTERN, Z])
    @pytest.mark.parametrize("engine", ["general", "auto"])
    def test_says_so_and_changes_no_bit(self, hook: str, engine: Any, model: HookedAttention) -> None:
        clean, _ = run(model, X)
        for step in (Freeze(hook), Patch(hook, source=X)):
            with pytest.warns(UnchangedWarning, match=f"at {hook} changes no activation on these 2 inputs"):
                result = sweep(model, X, step, ("head",) if hook == SCORES else ("pos",), engine=engine)
            assert torch.equal(result, clean.expand_as(result))

    def test_a_cell_that_does_not_change_is_the_clean_run_s_bit_for_bit(self, model: HookedAttention) -> None:
        clean, cache = run(model, X, record=[V])
        values = cache[V].clone()
        values[1, 3, 2, 0] += 1
        result = sweep(model, X, Patch(V, values=values), ("pos", "head"))
        expected = torch.zeros(5, 3, 2, dtype=torch.bool)
        expected[3, 2, 1] = True
        assert torch.equal(result != clean, expected)

    def test_no_pass_is_spent_on_entries_that_do_not_change(self, model: HookedAttention) -> None:
        flipped = X.clone()
        flipped[:, 2] = 1 - flipped[:, 2]
        edited: list[int] = []
        kept = sweeps.run_entries

        def counting(*args: Any, **kwargs: Any) -> Tensor:
            edited.append(len(args[5][-1]))
            return kept(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sweeps, "run_entries", counting)
            sweep(model, X, Patch(K, source=flipped), ("head", "pos"), engine="general")
        assert edited == [2 * 3]  # 2 inputs, 3 heads, 1 of 5 positions


class TestRows:
    def test_are_flagged(self, model: HookedAttention) -> None:
        step = Patch(PATTERN, source=OTHER)
        message = f"{2 * 3 * 5 * 5} rows of {PATTERN} no longer sum to 1 .* rows='renormalise' .* rows='keep'"
        with pytest.warns(RowSumWarning, match=message):
            sweep(model, X, step, ("head", "dest", "src"))

    @pytest.mark.filterwarnings("error")
    def test_whole_rows_of_another_run_are_not(self, model: HookedAttention) -> None:
        sweep(model, X, Patch(PATTERN, source=OTHER), ("head", "dest"))
        sweep(model, X, Patch(PATTERN, source=OTHER, rows="keep"), ("head", "src"))
        sweep(model, X, Patch(PATTERN, source=OTHER, rows="renormalise"), ("head", "src"))

    def test_that_sum_to_nothing_cannot_be_renormalised(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match="that sum to 0 cannot be renormalised; choose rows='keep'"):
            sweep(model, X, ZeroAblate(PATTERN, rows="renormalise"), ("pos",))


class TestErrors:
    @pytest.mark.parametrize(
        ("step", "over", "message"),
        [
            (ZeroAblate(EMBED), ("head",), "has axes ('batch', 'pos', 'd_model'), so no 'head' axis"),
            (ZeroAblate(Z), ("dest",), "so no 'dest' axis"),
            (ZeroAblate(Z), ("batch",), "so no 'batch' axis"),
            (ZeroAblate(Z), ("pos", "pos"), "sweep over an axis once, or select its cells"),
            (ZeroAblate(PATTERN), ("pos", "dest"), "sweep over an axis once"),
            (ZeroAblate(Z, pos=1), ("pos",), "ZeroAblate(hook='blocks.0.attn.hook_z', pos=(1,)): sweep over an axis"),
            (ZeroAblate(Z, head=3), ("pos",), "head 3 is out of range; there are 3, 0 to 2"),
            (ZeroAblate(Z, head=(0, -4)), ("pos",), "head -4 is out of range"),
            (RemoveKey(1), ("pos",), "sweep over an axis once"),
            (FlipBit(2), ("pos",), "flips are swept over ('pos',), none selected"),
            (FlipBit(), ("head",), "flips are swept over ('pos',)"),
            (Patch(Z, source=torch.ones(3, 5).int()), ("pos",), "(2, 5) and (3, 5); pairs must match row by row"),
            (Patch(Z, values=torch.ones(2, 5, 4, 3)), ("pos",), "(2, 5, 4, 3) do not fit the activation's (2, 5"),
            (ZeroAblate("blocks.0.attn.hook_Z"), ("pos",), "no hook point 'blocks.0.attn.hook_Z'; near names: "),
        ],
    )  # fmt: skip
    def test_cells_that_are_not_there(
        self, step: Any, over: tuple[str, ...], message: str, model: HookedAttention
    ) -> None:
        with pytest.raises(BoolensError, match=re.escape(message)):
            sweep(model, X, step, over)
        assert not any(point._forward_hooks for point in model.hook_points())

    @pytest.mark.parametrize("hook", [SCORES, PATTERN])
    def test_the_only_key(self, hook: str, random_attention: Callable[..., HookedAttention]) -> None:
        with pytest.raises(BoolensError, match="removing key 0 leaves nothing to attend to; keep at least one"):
            sweep(random_attention(1), torch.tensor([[1]]), RemoveKey(hook=hook), engine="general")

    def test_a_causal_model_s_first_query_has_one_key(self) -> None:
        with pytest.raises(BoolensError, match="removing key 0 leaves nothing to attend to"):
            sweep(Transformer(5), X, RemoveKey(), logit=LOGIT)
        result = sweep(Transformer(5), X, RemoveKey(dest=(2, 3, 4)), ("src",), logit=LOGIT)
        assert result.shape == (5, 2)

    def test_engines(self, model: HookedAttention) -> None:
        wrong: Any = "fast"
        with pytest.raises(BoolensError, match="engine 'fast' is not known; choose auto, exact or general"):
            sweep(model, X, ZeroAblate(Z), engine=wrong)
        with pytest.raises(BoolensError, match="the exact engine does not flip inputs; patch hook_embed"):
            sweep(model, X, FlipBit(), engine="exact")

    @pytest.mark.parametrize(
        ("model", "step", "logit"),
        [
            (HookedAttention(AttentionConfig(5)), RemoveKey(dest=1), None),
            (HookedAttention(AttentionConfig(5)), RemoveKey(hook=PATTERN), None),
            (HookedAttention(AttentionConfig(5)), ZeroAblate(PATTERN, rows="renormalise"), None),
            (HookedAttention(AttentionConfig(5)), ZeroAblate(Z), lambda output: 2 * output),
            (HookedAttention(AttentionConfig(5)), ZeroAblate("hook_logit"), None),
            (build_model(LinearConfig(5)), ZeroAblate(EMBED), None),
            (Transformer(5), ZeroAblate(Z), LOGIT),
        ],
    )
    def test_the_exact_engine_where_it_does_not_apply(self, model: Any, step: AtHook, logit: Any) -> None:
        over = ("src",) if step.hook in (SCORES, PATTERN) else () if step.hook == "hook_logit" else ("pos",)
        with pytest.raises(BoolensError, match=r"the exact engine does not apply to .*choose engine='general'"):
            sweep(model, X, step, over, engine="exact", logit=logit)

    def test_the_exact_engine_on_a_model_with_hooks(self, model: HookedAttention) -> None:
        with (
            model.hooks(fwd_hooks=[(Z, lambda activation, hook: 2 * activation)]),
            pytest.raises(BoolensError, match="the exact engine does not apply"),
        ):
            sweep(model, X, ZeroAblate(V), engine="exact")

    def test_an_output_that_is_not_one_number_an_input(self) -> None:
        with pytest.raises(BoolensError, match=r"shape \(1,\), not \(1, 5, 2\); pass logit=LogitDifference"):
            sweep(Transformer(5), X, ZeroAblate(Z))
