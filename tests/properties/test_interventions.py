"""Properties of interventions that hold for any weights, sizes and inputs."""

import itertools
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.ablation import ABLATION_KINDS, ablation, derangement
from interp.axes import HOOK_AXES
from interp.config import AttentionConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import (
    AtHook,
    FlipBit,
    Freeze,
    MeanAblate,
    Patch,
    RemoveKey,
    ResampleAblate,
    UnchangedWarning,
    ZeroAblate,
    intervene,
    patch,
    positional_hooks,
    remove_each_key,
    sweep,
)
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


def overs(hook: str) -> list[tuple[str, ...]]:
    """All orders of all axes that a hook's activations can be swept over."""
    axes = [axis for axis in HOOK_AXES[hook] if axis in ("pos", "head", "dest", "src")]
    return [order for n in range(len(axes) + 1) for order in itertools.permutations(axes, n)]


@st.composite
def steps(draw: st.DrawFn, hook: str, x: Tensor, key: int | None = 0) -> AtHook:
    """An intervention of any kind but OptimalAblate at a hook point; keys are removed at `key`."""
    other = torch.randint(2, x.shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 2**32))))
    makes = [ZeroAblate, MeanAblate, Freeze, lambda *a, **k: Patch(*a, source=other, **k)]
    makes += [lambda *a, **k: MeanAblate(*a, reference=other, **k)]
    if len(x) > 1:
        makes.append(lambda *a, **k: ResampleAblate(*a, seed=3, **k))
    if hook.endswith(("scores", "pattern")) and x.shape[1] > 1:
        makes.append(lambda hook, rows: RemoveKey(key, hook=hook, rows=rows))
    return draw(st.sampled_from(makes))(hook, rows="keep")


@few
@given(models(), st.data())
def test_every_cell_of_a_sweep_is_the_single_intervention(
    case: tuple[HookedAttention, Tensor], data: st.DataObject
) -> None:
    model, x = case
    hook = data.draw(st.sampled_from([name for name in model.hook_names if name != "hook_logit"]))
    step = data.draw(steps(hook, x, key=None))
    over = data.draw(st.sampled_from([o for o in overs(hook) if not isinstance(step, RemoveKey) or "src" in o]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)
        result = sweep(model, x, step, over, engine=data.draw(st.sampled_from(["general", "auto"])))
        cell = tuple(data.draw(st.integers(0, n - 1)) for n in result.shape[:-1])
        negative = tuple(index - n for index, n in zip(cell, result.shape, strict=False))
        for indices in (cell, negative):
            expected, _ = intervene(model, x, replace(step, **dict(zip(over, indices, strict=True))))
            torch.testing.assert_close(result[cell], expected, rtol=1e-9, atol=1e-9)


@few
@given(models(), st.data())
def test_the_identity_patch_changes_nothing_bit_for_bit(
    case: tuple[HookedAttention, Tensor], data: st.DataObject
) -> None:
    model, x = case
    hook = data.draw(st.sampled_from(model.hook_names))
    logits, cache = run(model, x, record=[hook])
    identity = data.draw(st.sampled_from([Patch(hook, values=cache[hook]), Patch(hook, source=x), Freeze(hook)]))
    over = data.draw(st.sampled_from(overs(hook)))
    with pytest.warns(UnchangedWarning):
        rows = sweep(model, x, identity, over, engine=data.draw(st.sampled_from(["general", "auto"])))
    assert torch.equal(rows, logits.expand_as(rows))
    cells = {axis: data.draw(st.integers(-n, n - 1)) for axis, n in zip(over, rows.shape, strict=False)}
    with pytest.warns(UnchangedWarning):
        assert torch.equal(intervene(model, x, replace(identity, **cells))[0], logits)


@few
@given(models(least_ctx=2), st.data())
def test_interventions_at_different_points_compose_in_any_order(
    case: tuple[HookedAttention, Tensor], data: st.DataObject
) -> None:
    """Bits first, then the forward pass's order, whatever the list's; at one point the last one stays."""
    model, x = case
    hooks = data.draw(st.lists(st.sampled_from(model.hook_names), min_size=1, max_size=3, unique=True))
    chosen: list[Any] = [data.draw(steps(hook, x)) for hook in hooks]
    chosen += [FlipBit(pos) for pos in data.draw(st.lists(st.integers(0, x.shape[1] - 1), max_size=2))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = (intervene(model, x, order)[0] for order in (chosen, data.draw(st.permutations(chosen))))
        assert torch.equal(first, second)
        last = data.draw(steps("blocks.0.attn.hook_z", x))
        over_it = [data.draw(steps("blocks.0.attn.hook_z", x)), last]
        assert torch.equal(intervene(model, x, over_it)[0], intervene(model, x, last)[0])


@few
@given(models(), st.data())
def test_nothing_is_left_behind_also_after_an_exception_inside_a_user_s_hooks(
    case: tuple[HookedAttention, Tensor], data: st.DataObject
) -> None:
    model, x = case
    model.train(data.draw(st.booleans()))
    points = data.draw(st.lists(st.sampled_from(model.hook_names), min_size=1, max_size=3))
    calls: list[str] = []
    inside = data.draw(st.booleans())
    for name in points[1:]:
        model.add_hook(name, lambda activation, hook: calls.append(hook.name))
    model(x).sum().backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    hooks = {name: list(point._forward_hooks.items()) for name, point in model.hook_dict.items()}
    random, training = torch.get_rng_state(), [module.training for module in model.modules()]
    step = data.draw(steps(points[0], x))
    fails = data.draw(st.booleans())

    def act() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnchangedWarning)
            intervene(model, x, [step, (points[0], boom)] if fails else [step], record=model.hook_names)
            sweep(model, x, step, ())

    context = model.hooks(fwd_hooks=[(points[0], lambda activation, hook: None)]) if inside else torch.no_grad()
    try:
        with context:
            act()
    except Boom:
        assert fails
    else:
        assert not fails
    assert {name: list(point._forward_hooks.items()) for name, point in model.hook_dict.items()} == hooks
    assert [module.training for module in model.modules()] == training
    assert model.context_level == 0
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.is_grad_enabled()
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
    assert all(torch.equal(p.grad, grads[name]) for name, p in model.named_parameters() if p.grad is not None)


class Boom(Exception):
    pass


def boom(activation: Tensor, hook: Any) -> Tensor:
    raise Boom


@few
@given(models(), st.data())
def test_a_hook_that_returns_none_changes_nothing(case: tuple[HookedAttention, Tensor], data: st.DataObject) -> None:
    model, x = case
    hook = data.draw(st.sampled_from(model.hook_names))
    assert torch.equal(intervene(model, x, [(hook, lambda activation, hook: None)])[0], run(model, x)[0])


@few
@given(models(), st.data())
def test_caches_and_values_are_snapshots(case: tuple[HookedAttention, Tensor], data: st.DataObject) -> None:
    """Whatever later hooks do to an activation in place reaches neither the cache nor the values given."""
    model, x = case
    hook = data.draw(st.sampled_from(model.hook_names))
    values = torch.rand_like(run(model, x, record=[hook])[1][hook])
    given_values, step = values.clone(), Patch(hook, values=values, rows="keep")
    later: list[Tensor] = []
    logits, cache = intervene(model, x, [step, (hook, lambda activation, hook: later.append(activation))], [hook])
    for tensor in (*later, logits, values):
        tensor.fill_(7)
    assert torch.equal(cache[hook], given_values)
    assert torch.equal(step.values, given_values)  # pyright: ignore[reportArgumentType]


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
    torch.testing.assert_close(rows[pos], there, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(rows[p], here) for p in range(model.cfg.n_ctx) if p != pos)


@few
@given(models(least_batch=2), st.sampled_from(ABLATION_KINDS), st.data())
def test_ablating_with_the_same_values_twice_is_ablating_once(
    case: tuple[HookedAttention, Tensor], kind, data: st.DataObject
) -> None:
    model, x = case
    hook = data.draw(st.sampled_from(positional_hooks(model.hook_names)))
    step = ablation(kind, hook, seed=data.draw(st.integers(0, 2**32)), rows="keep")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)
        once, twice = (intervene(model, x, [step] * n)[0] for n in (1, 2))
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
