"""Properties of interventions that hold for any weights, sizes and inputs."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.ablation import ABLATION_KINDS, ablated_values, derangement
from interp.config import AttentionConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import UnchangedWarning, patch, patch_each_position, positional_hooks, remove_each_key
from interp.models import HookedAttention
from interp.patching import patch_positions_from
from interp.recovery import attention_method_scores, flip_scores

Z = "blocks.0.attn.hook_z"
few = settings(max_examples=25, deadline=None)


@st.composite
def models(draw: st.DrawFn, least_ctx: int = 1, least_batch: int = 1) -> tuple[HookedAttention, Tensor]:
    """A float64 model of small sizes with random weights and biases, and a batch of inputs."""
    cfg = AttentionConfig(
        n_ctx=draw(st.integers(least_ctx, 5)),
        d_model=draw(st.integers(1, 4)),
        n_heads=draw(st.integers(1, 3)),
        d_head=draw(st.integers(1, 3)),
        d_value=draw(st.integers(1, 3)),
        bias=draw(st.booleans()),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    model = HookedAttention(cfg).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 1, generator=generator)
    return model, torch.randint(2, (draw(st.integers(least_batch, 4)), cfg.n_ctx), generator=generator)


@few
@given(models(), st.data())
def test_the_identity_patch_changes_nothing_bit_for_bit(
    case: tuple[HookedAttention, Tensor], data: st.DataObject
) -> None:
    model, x = case
    hook = data.draw(st.sampled_from(positional_hooks(model.hook_names)))
    logits, cache = run(model, x, record=[hook])
    with pytest.warns(UnchangedWarning):
        rows = patch_each_position(model, x, hook, cache[hook])
    assert torch.equal(rows, logits.expand_as(rows))
    pos = data.draw(st.integers(-model.cfg.n_ctx, model.cfg.n_ctx - 1))
    assert torch.equal(run(model, x, [patch(hook, cache[hook], pos=pos)])[0], logits)


@few
@given(models(least_ctx=2), st.randoms(use_true_random=False))
def test_relabelling_positions_permutes_every_effect(case: tuple[HookedAttention, Tensor], random) -> None:
    model, x = case
    order = random.sample(range(model.cfg.n_ctx), model.cfg.n_ctx)
    removed, flips, scores = remove_each_key(model, x), flip_scores(model, x), attention_method_scores(model, x)
    with torch.no_grad():
        for weight in (model.W_pos, model.W_readout):
            weight.copy_(weight[order])
    relabelled = x[:, order]
    torch.testing.assert_close(remove_each_key(model, relabelled), removed[order], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(flip_scores(model, relabelled), flips[order], rtol=1e-9, atol=1e-9)
    for method, again in attention_method_scores(model, relabelled).items():
        torch.testing.assert_close(again, scores[method][order], rtol=1e-9, atol=1e-9)


@few
@given(models())
def test_heads_and_direct_path_are_the_logit(case: tuple[HookedAttention, Tensor]) -> None:
    """There is no residual path: what zeroing each head's z takes away, and the bias, make the logit."""
    model, x = case
    clean, cache = run(model, x, record=[Z])
    zero = torch.zeros_like(cache[Z][:1])
    parts = [clean - run(model, x, [patch(Z, zero, head=head)])[0] for head in range(model.cfg.n_heads)]
    bias = 0 if model.b_readout is None else model.b_readout.detach()
    torch.testing.assert_close(sum(parts) + bias, clean, rtol=1e-9, atol=1e-9)


@few
@given(models(), st.data())
def test_embeddings_patched_from_another_input_give_its_logit(
    case: tuple[HookedAttention, Tensor], data: st.DataObject
) -> None:
    """Inputs that differ in one bit: that position brings back everything, every other position nothing."""
    model, x = case
    pos = data.draw(st.integers(0, model.cfg.n_ctx - 1))
    other = x.clone()
    other[:, pos] = 1 - other[:, pos]
    rows = patch_positions_from(model, x, other, "hook_embed")
    here, there = run(model, x)[0], run(model, other)[0]
    assert torch.equal(rows, torch.stack([there if p == pos else here for p in range(model.cfg.n_ctx)]))


@few
@given(models(least_batch=2), st.sampled_from(ABLATION_KINDS), st.data())
def test_ablating_with_the_same_values_twice_is_ablating_once(
    case: tuple[HookedAttention, Tensor], kind, data: st.DataObject
) -> None:
    model, x = case
    hook = data.draw(st.sampled_from(positional_hooks(model.hook_names)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    values = ablated_values(model, x, hook, kind, reference=x, generator=generator)
    once, twice = (run(model, x, [patch(hook, values)] * n)[0] for n in (1, 2))
    assert torch.equal(once, twice)


@few
@given(st.integers(2, 500), st.integers(0, 2**32))
def test_derangements_move_everything(n: int, seed: int) -> None:
    source = derangement(n, torch.Generator().manual_seed(seed))
    assert not (source == torch.arange(n)).any()
    assert torch.equal(source.sort().values, torch.arange(n))


@few
@given(models(), st.data())
def test_no_trace_is_left_when_a_patch_does_not_fit(case: tuple[HookedAttention, Tensor], data: st.DataObject) -> None:
    model, x = case
    model.train(data.draw(st.booleans()))
    training, random = model.training, torch.get_rng_state()
    logits = run(model, x)[0]
    hook = data.draw(st.sampled_from(model.hook_names))
    with warnings.catch_warnings(), pytest.raises(BoolensError):
        run(model, x, [patch(hook, torch.zeros(len(x) + 2, 1, 1, 1, 1, 1))])
    assert not any(point.fwd_hooks or point._forward_hooks for point in model.hook_points())
    assert model.training == training
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(run(model, x)[0], logits)
