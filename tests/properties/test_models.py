"""Properties of HookedAttention that hold for any weights, sizes and inputs."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.attention import contributions, effective_attention
from interp.config import AttentionConfig
from interp.hooks import run
from interp.models import HookedAttention
from interp.tables import attention_tables, table_logits

PATTERN, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("pattern", "v", "z"))
few = settings(max_examples=25, deadline=None)


class Boom(Exception):
    pass


@st.composite
def models(draw: st.DrawFn) -> tuple[HookedAttention, Tensor]:
    """A float64 model of small sizes with random weights and biases, and a batch of inputs."""
    cfg = AttentionConfig(
        n_ctx=draw(st.integers(1, 5)),
        d_model=draw(st.integers(1, 4)),
        n_heads=draw(st.integers(1, 3)),
        d_head=draw(st.integers(1, 3)),
        d_value=draw(st.integers(1, 3)),
        positions=draw(st.sampled_from(["learned", "sinusoidal"])),
        bias=draw(st.booleans()),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    model = HookedAttention(cfg).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, draw(st.sampled_from([0.01, 1.0, 3.0])), generator=generator)
    x = torch.randint(2, (draw(st.integers(1, 4)), cfg.n_ctx), generator=generator)
    return model, x


def keep(activation: Tensor, hook: Any) -> Tensor:
    return activation


def copy(activation: Tensor, hook: Any) -> Tensor:
    return activation.clone()


def boom(activation: Tensor, hook: Any) -> Tensor:
    raise Boom


@few
@given(models(), st.randoms(use_true_random=False))
def test_relabelling_positions_changes_nothing(case: tuple[HookedAttention, Tensor], random: Any) -> None:
    model, x = case
    order = random.sample(range(model.cfg.n_ctx), model.cfg.n_ctx)
    logits, cache = run(model, x, record=[PATTERN])
    with torch.no_grad():
        for weight in (model.W_pos, model.W_readout):
            weight.copy_(weight[order])
    relabelled, again = run(model, x[:, order], record=[PATTERN])
    torch.testing.assert_close(relabelled, logits, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(again[PATTERN], cache[PATTERN][:, :, order][..., order], rtol=1e-9, atol=1e-9)


@few
@given(models(), st.data())
def test_identity_edits_change_nothing_bit_for_bit(case: tuple[HookedAttention, Tensor], data: st.DataObject) -> None:
    model, x = case
    logits, cache = run(model, x, record=model.hook_names)
    name = data.draw(st.sampled_from(model.hook_names))
    edit = data.draw(st.sampled_from([keep, copy, lambda activation, hook: cache[name]]))
    edited, again = run(model, x, [(name, edit)], record=model.hook_names)
    assert torch.equal(edited, logits)
    assert all(torch.equal(activation, cache[point]) for point, activation in again.items())


@few
@given(models())
def test_head_contributions_and_bias_are_the_logit(case: tuple[HookedAttention, Tensor]) -> None:
    model, x = case
    logits, cache = run(model, x, record=[PATTERN, V, Z])
    constant = 0 if model.b_readout is None else model.b_readout.detach()
    by_key = contributions(effective_attention(cache[PATTERN], model.W_readout.detach()), cache[V])
    by_head = torch.einsum("bphv,phv->bh", cache[Z], model.W_readout.detach())
    torch.testing.assert_close(by_key.sum(dim=-1), by_head, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(by_head.sum(dim=-1) + constant, logits, rtol=1e-9, atol=1e-9)


@few
@given(models())
def test_tables_are_the_model(case: tuple[HookedAttention, Tensor]) -> None:
    model, x = case
    torch.testing.assert_close(table_logits(attention_tables(model), x), model(x), rtol=1e-9, atol=1e-9)


@few
@given(models())
def test_inputs_of_a_batch_do_not_affect_each_other(case: tuple[HookedAttention, Tensor]) -> None:
    model, x = case
    for row in range(len(x)):
        torch.testing.assert_close(model(x[row : row + 1])[0], model(x)[row], rtol=1e-9, atol=1e-9)


@few
@given(models(), st.data())
def test_hooks_are_gone_after_an_exception(case: tuple[HookedAttention, Tensor], data: st.DataObject) -> None:
    model, x = case
    model.train(data.draw(st.booleans()))
    names = st.sampled_from(model.hook_names)
    edits: list[Any] = [(name, keep) for name in data.draw(st.lists(names, max_size=3))]
    edits.insert(data.draw(st.integers(0, len(edits))), (data.draw(names), boom))
    logits, training = model(x), model.training
    with pytest.raises(Boom):
        run(model, x, edits, record=data.draw(st.lists(names, max_size=3)))
    with pytest.raises(Boom):
        model.run_with_hooks(x, fwd_hooks=edits)
    assert not any(point.fwd_hooks or point._forward_hooks for point in model.hook_points())
    assert model.training == training
    assert torch.is_grad_enabled()
    assert torch.equal(model(x), logits)
