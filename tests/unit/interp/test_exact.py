"""The exact engine against one hooked run a cell, on every cell, and against TransformerLens' own patching loop."""

import itertools
import re
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens.patching import generic_activation_patch

from interp.config import AttentionConfig, LinearConfig
from interp.errors import BoolensError
from interp.exact import RECORDED, covers, exact_sweep
from interp.hooks import run
from interp.interventions import UnchangedWarning
from interp.models import HookedAttention, HookedLinear
from tests.peak_memory import peak_bytes
from tests.unit.interp.exact_cases import (
    CONFIGS,
    EMBED,
    HOOKS,
    PATTERN,
    POS_EMBED,
    RESID,
    SCORES,
    SIZES,
    Build,
    K,
    V,
    Z,
    bits,
    extreme_scores,
    hooked_sweep,
    other_values,
    overs,
    smallest_budget,
    with_scores,
)


@pytest.fixture
def model(random_attention: Build) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


X = bits(2, 5, 1)


@pytest.mark.parametrize(SIZES, CONFIGS)
@pytest.mark.parametrize("hook", HOOKS)
def test_is_one_hooked_run_a_cell(hook: str, n_ctx: int, batch: int, fields: Any, random_attention: Build) -> None:
    model, x = random_attention(n_ctx, **fields), bits(batch, n_ctx, 0)
    values = other_values(model, x, hook)
    for over in overs(hook):
        exact, plain = exact_sweep(model, x, hook, values, over), hooked_sweep(model, x, hook, values, over)
        assert exact.shape == plain.shape
        assert exact.dtype == torch.float64
        torch.testing.assert_close(exact, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(SIZES, CONFIGS)
@pytest.mark.parametrize("hook", HOOKS)
def test_single_precision(hook: str, n_ctx: int, batch: int, fields: Any, random_attention: Build) -> None:
    model, x = random_attention(n_ctx, dtype=torch.float32, **fields, init_std=0.3), bits(batch, n_ctx, 2)
    values = other_values(model, x, hook)
    for over in (overs(hook)[0], overs(hook)[-1]):
        exact, plain = exact_sweep(model, x, hook, values, over), hooked_sweep(model, x, hook, values, over)
        assert exact.dtype == torch.float32
        torch.testing.assert_close(exact, plain, rtol=1e-6, atol=2e-6 * max(1.0, plain.abs().max().item()))


@pytest.mark.parametrize("hook", HOOKS)
def test_one_row_of_values_serves_every_input(hook: str, model: HookedAttention) -> None:
    x, values = bits(4, 5, 3), other_values(model, X, hook)[:1]
    for over in overs(hook)[1:3]:
        plain = hooked_sweep(model, x, hook, values, over)
        torch.testing.assert_close(exact_sweep(model, x, hook, values, over), plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("hook", HOOKS)
def test_cells_are_in_the_order_asked_for(hook: str, model: HookedAttention) -> None:
    values = other_values(model, X, hook)
    for over in overs(hook):
        swept = exact_sweep(model, X, hook, values, over)
        for order in itertools.permutations(range(len(over))):
            again = exact_sweep(model, X, hook, values, [over[i] for i in order])
            assert torch.equal(again, swept.permute(*order, -1))


@pytest.mark.parametrize("hook", [SCORES, PATTERN])
def test_pos_is_dest_in_scores_and_patterns(hook: str, model: HookedAttention) -> None:
    values = other_values(model, X, hook)
    assert torch.equal(
        exact_sweep(model, X, hook, values, ("head", "pos")), exact_sweep(model, X, hook, values, ("head", "dest"))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hook", HOOKS)
def test_cells_that_do_not_change_give_the_unedited_logit_bit_for_bit(
    hook: str, dtype: torch.dtype, random_attention: Build
) -> None:
    model = random_attention(5, dtype=dtype, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True)
    logit, cache = run(model, X, record=[hook])
    for over in overs(hook):
        with pytest.warns(UnchangedWarning, match=f"{re.escape(hook)} changes no activation on these 2 inputs"):
            same = exact_sweep(model, X, hook, cache[hook], over)
        assert torch.equal(same, logit.expand_as(same))
    half = cache[hook].clone()
    half[1] += 1
    swept = exact_sweep(model, X, hook, half, overs(hook)[-1])
    assert torch.equal(swept[..., 0], logit[0].expand_as(swept[..., 0]))
    if hook != K:  # the same addition to every score of a row changes nothing, so to see k change takes one position
        assert not torch.isclose(swept[..., 1], logit[1]).all()


class TestExtremeScores:
    """Rows whose largest terms outweigh all others by far more than the precision holds."""

    @pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
    @pytest.mark.parametrize("hook", HOOKS)
    def test_every_cell(self, hook: str, dtype: torch.dtype, rtol: float, random_attention: Build) -> None:
        model = with_scores(random_attention, extreme_scores(0)).to(dtype)
        source = with_scores(random_attention, extreme_scores(1)).to(dtype)
        x = bits(4, 6, 7)
        values = run(source, 1 - x, record=[hook])[1][hook]
        if hook in (EMBED, POS_EMBED, RESID):
            values = values.roll(1, dims=1) + values
        for over in overs(hook):
            exact, plain = exact_sweep(model, x, hook, values, over), hooked_sweep(model, x, hook, values, over)
            size = run(model, x, record=[V])[1][V].abs().max() * model.W_readout.abs().sum()
            torch.testing.assert_close(exact, plain, rtol=rtol, atol=rtol * size.item())

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_what_a_dominant_key_hides(self, dtype: torch.dtype, random_attention: Build) -> None:
        """Only src 2 is seen by dest 0, by e**400; without it the others share, and subtraction would leave 0 / 0."""
        model = with_scores(random_attention, extreme_scores(0)).to(dtype)
        x = bits(3, 6, 7)
        _, cache = run(model, x, record=[SCORES, PATTERN, V])
        assert (cache[PATTERN][:, :, 0, 2] == 1).all()
        assert (cache[SCORES][:, :, 0].abs() > 190).all()
        lower = cache[SCORES].clone()
        lower[:, :, 0, 2] = -1000
        swept = exact_sweep(model, x, SCORES, lower, ("head", "dest", "src"))[:, 0, 2]
        left = cache[SCORES][:, :, 0, [0, 1, 3, 4, 5]].softmax(dim=-1)
        new = torch.einsum("bhs,bshd,hd->hb", left, cache[V][:, [0, 1, 3, 4, 5]], model.W_readout[0])
        old = torch.einsum("bhd,hd->hb", cache[V][:, 2], model.W_readout[0])
        torch.testing.assert_close(swept - model(x), (new - old).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_small_budget_gives_the_same(hook: str, model: HookedAttention) -> None:
    x = bits(7, 5, 3)
    values, over = other_values(model, x, hook), overs(hook)[-1]
    whole = exact_sweep(model, x, hook, values, over)
    least = smallest_budget(model, x, hook, values, over)
    assert whole.nbytes < least < 40_000
    torch.testing.assert_close(exact_sweep(model, x, hook, values, over, budget=least), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("factor", [1, 30])
def test_memory_stays_within_the_budget(hook: str, factor: int, random_attention: Build) -> None:
    model = random_attention(17, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True)
    x = bits(20, 17, 3)
    for over in overs(hook)[1:]:
        values = other_values(model, x, hook)
        least = smallest_budget(model, x, hook, values, over)
        result = 8 * 20 * exact_sweep(model, x, hook, values, over)[..., 0].numel()
        budget = result + factor * (least - result)
        peak = peak_bytes(partial(exact_sweep, model, x, hook, values, over, budget=budget))
        assert result < peak <= budget + 60_000  # beside what does not grow with the work: indices, a few small tensors


def test_what_is_covered(model: HookedAttention) -> None:
    assert set(RECORDED) == set(HOOKS) == set(model.hook_names) - {"hook_logit"}
    assert all(covers(model, hook) for hook in HOOKS)
    assert not covers(model, "hook_logit")
    assert not covers(HookedLinear(LinearConfig(5)), EMBED)
    assert not covers(torch.nn.Linear(2, 3), EMBED)
    model.add_hook(Z, lambda activation, hook: activation * 2)
    assert not covers(model, EMBED)


class TestErrors:
    def test_other_models(self) -> None:
        message = "the exact engine needs a HookedAttention, not HookedLinear; use the general engine"
        with pytest.raises(BoolensError, match=message):
            exact_sweep(HookedLinear(LinearConfig(5)), X, EMBED, torch.zeros(2, 5), ("pos",))  # pyright: ignore[reportArgumentType]

    def test_unknown_hooks_and_uncovered_ones(self, model: HookedAttention) -> None:
        with pytest.raises(
            BoolensError, match=r"no hook point 'blocks.0.attn.hook_zz'; near names: blocks.0.attn.hook_z"
        ):
            exact_sweep(model, X, Z + "z", torch.zeros(2, 5, 3, 4), ("pos",))
        with pytest.raises(BoolensError, match="the exact engine does not cover hook_logit; it covers hook_embed, "):
            exact_sweep(model, X, "hook_logit", torch.zeros(2), ())

    @pytest.mark.parametrize(
        ("hook", "over", "message"),
        [
            (Z, ("src",), r"has axes \('batch', 'pos', 'head', 'd_value'\), so no 'src' axis"),
            (EMBED, ("head",), "so no 'head' axis"),
            (Z, ("pos", "pos"), r"over = \('pos', 'pos'\) names 'pos' twice"),
            (PATTERN, ("pos", "dest"), "names 'dest' twice"),
            (Z, ("batch",), "'batch'"),
            (Z, ("d_value",), "cells cannot run over 'd_value'; choose from"),
        ],
    )
    def test_axes(self, hook: str, over: tuple[str, ...], message: str, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match=message):
            exact_sweep(model, X, hook, other_values(model, X, hook), over)

    @pytest.mark.parametrize("shape", [(3, 5, 3, 4), (2, 5, 4, 3), (5, 3, 4), (2, 1, 3, 4), ()])
    def test_values_that_do_not_fit(self, shape: tuple[int, ...], model: HookedAttention) -> None:
        message = f"{Z}: values of shape {shape} do not fit the activation's (2, 5, 3, 4); only the batch axis may be 1"
        with pytest.raises(BoolensError, match=re.escape(message)):
            exact_sweep(model, X, Z, torch.zeros(shape), ("pos",))

    def test_hooks_on_the_model(self, model: HookedAttention) -> None:
        values = other_values(model, X, Z)
        expected = exact_sweep(model, X, Z, values, ("pos",))
        message = "the model has hooks at blocks.0.attn.hook_v, which the exact engine would not run; "
        with (
            model.hooks(fwd_hooks=[(V, lambda activation, hook: activation * 2)]),
            pytest.raises(BoolensError, match=message),
        ):
            exact_sweep(model, X, Z, values, ("pos",))
        assert torch.equal(exact_sweep(model, X, Z, values, ("pos",)), expected)
        handle = model.attn.register_forward_hook(lambda *given: given[-1] * 2)
        with pytest.raises(BoolensError, match=r"hooks at blocks\.0\.attn, which"):
            exact_sweep(model, X, Z, values, ("pos",))
        handle.remove()

    def test_a_budget_that_holds_nothing(self, model: HookedAttention) -> None:
        message = (
            r"the budget of 100 bytes is too small: the result takes 80 and the work on one input \d+ more; raise it"
        )
        with pytest.raises(BoolensError, match=message):
            exact_sweep(model, X, Z, other_values(model, X, Z), ("pos",), budget=100)

    def test_inputs(self, model: HookedAttention, unchecked: None) -> None:
        with pytest.raises(BoolensError, match="this model takes integers"):
            exact_sweep(model, torch.zeros(2, 6, dtype=torch.int64), Z, torch.zeros(1, 5, 3, 4), ("pos",))
        assert exact_sweep(model, torch.zeros(0, 5, dtype=torch.int64), Z, torch.zeros(1, 5, 3, 4), ("pos",)).shape == (
            5,
            0,
        )


def test_leaves_no_trace(model: HookedAttention) -> None:
    model.train()
    state = torch.get_rng_state()
    weights = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for hook in HOOKS:
        values = other_values(model, X, hook)
        kept = values.clone()
        result = exact_sweep(model, X, hook, values.requires_grad_(), overs(hook)[-1])
        assert not result.requires_grad
        assert torch.equal(values, kept)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(weights[n], p) and p.grad is None for n, p in model.named_parameters())
    assert not any(point.fwd_hooks or point._forward_hooks for point in model.hook_points())


@pytest.mark.parametrize("short", ["resid_pre", "q", "k", "v", "z", "attn_scores", "pattern"])
def test_is_transformer_lens_s_generic_activation_patch(short: str, model: HookedAttention) -> None:
    clean, corrupted = X, 1 - X
    _, cache = model.run_with_cache(clean)
    hook = RESID if short == "resid_pre" else f"blocks.0.attn.hook_{short}"
    axes = {RESID: ["layer", "pos"], SCORES: ["layer", "head", "dest_pos", "src_pos"]}
    axes[PATTERN] = axes[SCORES]
    names = axes.get(hook, ["layer", "pos", "head"])

    def put(activation: Tensor, index: Any, source: Any) -> Tensor:
        where = (slice(None), *index[1:])
        activation = activation.clone()
        activation[where] = source[where]
        return activation

    patch_all: Any = generic_activation_patch
    theirs = patch_all(model, corrupted, cache, lambda logits: logits, put, short, names, reduce="none").values[0]
    ours = exact_sweep(model, corrupted, hook, cache[hook], tuple(n.removesuffix("_pos") for n in names[1:]))
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-6, atol=1e-6)
    assert len(set(ours.flatten().tolist())) == ours.numel()


def test_weights_by_hand() -> None:
    """T = 2, scores 0, values 1 and 5, readout 2 and 3: each row reads 3; score log 3 on a cell of src 1 makes it 4."""
    model = HookedAttention(AttentionConfig(n_ctx=2, d_model=1)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.W_pos[:, 0] = torch.tensor([1.0, 5.0])
        model.attn.get_parameter("W_V").fill_(1)
        model.W_readout[:, 0, 0] = torch.tensor([2.0, 3.0])
    x = torch.zeros(1, 2, dtype=torch.int64)
    swept = exact_sweep(model, x, SCORES, torch.full((1, 1, 2, 2), 3.0).log(), ("dest", "src"))[..., 0]
    expected = torch.tensor([[2 * 2 + 3 * 3, 2 * 4 + 3 * 3], [2 * 3 + 3 * 2, 2 * 3 + 3 * 4]], dtype=torch.float64)
    torch.testing.assert_close(swept, expected)
    assert list(itertools.chain(*expected.tolist())) == [13, 17, 12, 18]
