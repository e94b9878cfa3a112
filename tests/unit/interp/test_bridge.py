"""A TransformerBridge, TransformerLens' own model, trained on sparse-and and analysed like one of ours."""

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.errors import BoolensError
from interp.hooks import LogitDifference, run
from interp.interventions import (
    FlipBit,
    Freeze,
    MeanAblate,
    OptimalAblate,
    Patch,
    RemoveKey,
    UnchangedWarning,
    ZeroAblate,
    intervene,
    sweep,
)
from tasks import SparseAnd
from tests.unit.interp.foreign_models import native_bridge

LOGIT = LogitDifference()
SCORES, PATTERN, Q, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("attn_scores", "pattern", "q", "v", "z"))
TARGETS = (1, 4, 5)


@pytest.fixture(scope="module")
def bridge() -> Any:
    """Trained on all inputs of a sparse-and of 7 bits, by the logit at the last position; right on every one."""
    model, task = native_bridge(7), SparseAnd(7, TARGETS)
    x = torch.tensor(list(itertools.product((0, 1), repeat=7)))
    labels = task.label(x).double()
    model = model.double()
    weight = torch.where(labels > 0, 7.0, 1.0)
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        adam.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(LOGIT(model(x)), labels, weight=weight)
        loss.backward()
        adam.step()
    adam.zero_grad()
    assert ((LOGIT(model(x)) > 0) == labels.bool()).all()
    return model


@pytest.fixture
def pairs() -> tuple[Tensor, Tensor]:
    clean, other = torch.randint(2, (2, 6, 7), generator=torch.Generator().manual_seed(0))
    return clean, other


def n_hooks(model: Any) -> int:
    return sum(len(point.fwd_hooks) + len(point._forward_hooks) for point in set(model.hook_dict.values()))


@pytest.mark.filterwarnings("ignore::interp.interventions.UnchangedWarning")
@pytest.mark.parametrize(
    ("hook", "over", "shape"),
    [
        ("hook_embed", ("pos",), (7,)),
        ("hook_pos_embed", ("pos",), (7,)),
        ("blocks.0.hook_resid_pre", ("pos",), (7,)),
        (Q, ("head", "pos"), (3, 7)),
        ("blocks.0.attn.q.hook_out", ("head", "pos"), (3, 7)),
        (V, ("pos", "head"), (7, 3)),
        (PATTERN, ("head", "dest", "src"), (3, 7, 7)),
        (Z, ("head", "pos"), (3, 7)),
        ("blocks.0.hook_attn_out", ("pos",), (7,)),
        ("blocks.0.hook_resid_post", ("pos",), (7,)),
    ],
)
def test_every_cell_is_transformer_lens_own_run(
    hook: str, over: tuple[str, ...], shape: tuple[int, ...], bridge: Any, pairs: tuple[Tensor, Tensor]
) -> None:
    x, other = pairs
    result = sweep(bridge, x, Patch(hook, source=other, rows="keep"), over, logit=LOGIT)
    assert result.shape == (*shape, 6)
    canonical = bridge.hook_dict[hook].name
    _, cache = bridge.run_with_cache(other)
    axes = ("batch", "head", "dest", "src") if hook == PATTERN else ("batch", "pos", "head")
    for cell in itertools.product(*map(range, shape)):
        where = [slice(None)] * 4
        for axis, index in zip(over, cell, strict=True):
            where[axes.index(axis)] = index  # pyright: ignore[reportArgumentType, reportCallIssue]

        def put(activation: Tensor, hook: Any, where: Any = tuple(where)) -> Tensor:
            edited = activation.clone()
            edited[where[: edited.ndim]] = cache[canonical][where[: edited.ndim]]
            return edited

        with torch.no_grad():
            expected = LOGIT(bridge.run_with_hooks(x, fwd_hooks=[(hook, put)]))
        torch.testing.assert_close(result[cell], expected, rtol=1e-6, atol=1e-6)


def test_flips_find_the_targets(bridge: Any) -> None:
    x = torch.randint(2, (64, 7), generator=torch.Generator().manual_seed(1))
    clean, _ = run(bridge, x, logit=LOGIT)
    change = (sweep(bridge, x, FlipBit(), logit=LOGIT) - clean).abs().mean(dim=1)
    assert set(change.topk(3).indices.tolist()) == set(TARGETS)
    flipped = sweep(bridge, x, Patch("hook_embed", source=1 - x), logit=LOGIT)
    torch.testing.assert_close((flipped - clean).abs().mean(dim=1), change)


def test_kinds(bridge: Any, pairs: tuple[Tensor, Tensor]) -> None:
    x, other = pairs
    logits, cache = intervene(
        bridge, x, [FlipBit(1), Freeze(PATTERN), MeanAblate(V, other, head=0)], record=[PATTERN, V], logit=LOGIT
    )
    assert cache[PATTERN].equal(run(bridge, x, record=[PATTERN], logit=LOGIT)[1][PATTERN])
    mean = run(bridge, other, record=[V], logit=LOGIT)[1][V].mean(dim=0)
    torch.testing.assert_close(cache[V][:, :, 0], mean[:, 0].expand(6, -1, -1))
    assert not torch.isclose(logits, run(bridge, x, logit=LOGIT)[0]).all()
    labels = SparseAnd(7, TARGETS).label(other)
    optimal = OptimalAblate(Z, reference=other, labels=labels, tolerance=1e-3)
    assert sweep(bridge, x, optimal, ("head",), logit=LOGIT).shape == (3, 6)


def test_keys_are_removed_at_the_pattern(bridge: Any, pairs: tuple[Tensor, Tensor]) -> None:
    pattern = run(bridge, pairs[0], record=[PATTERN], logit=LOGIT)[1][PATTERN]
    step = RemoveKey(2, hook=PATTERN)
    removed = intervene(bridge, pairs[0], step, record=[PATTERN], logit=LOGIT)[1][PATTERN]
    expected = pattern.clone()
    expected[..., 2] = 0
    torch.testing.assert_close(removed, expected / expected.sum(dim=-1, keepdim=True))
    swept = sweep(bridge, pairs[0], RemoveKey(hook=PATTERN), logit=LOGIT)
    torch.testing.assert_close(swept[2], intervene(bridge, pairs[0], step, logit=LOGIT)[0])


@pytest.mark.parametrize("step", [RemoveKey(1), ZeroAblate(SCORES), Freeze(SCORES), MeanAblate(SCORES, head=0)])
def test_edited_scores_are_discarded_and_that_is_an_error(step: Any, bridge: Any, pairs: tuple[Tensor, Tensor]) -> None:
    message = f"edits at {SCORES} are discarded: .* for attention scores hook_pattern"
    for call in (
        lambda: intervene(bridge, pairs[0], step, logit=LOGIT),
        lambda: intervene(bridge, pairs[0], [FlipBit(0), step], logit=LOGIT),
        lambda: sweep(bridge, pairs[0], step, (), logit=LOGIT),
    ):
        with pytest.raises(BoolensError, match=message):
            call()
    assert n_hooks(bridge) == 0


@pytest.mark.filterwarnings("ignore:A hook on attn.hook_attn_scores")
def test_also_those_of_a_function(bridge: Any, pairs: tuple[Tensor, Tensor]) -> None:
    edit = (SCORES, lambda activation, hook: 0 * activation)
    with pytest.raises(BoolensError, match="are discarded"):
        intervene(bridge, pairs[0], [edit, ZeroAblate(Z, head=0)], logit=LOGIT)


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("embed.hook_in", "embed.hook_in holds torch.int64, not numbers to edit; flip bits with FlipBit"),
        ("blocks.0.attn.hook_result", "the forward pass does not reach blocks.0.attn.hook_result, or"),
        ("blocks.0.attn.hook_zz", "no hook point 'blocks.0.attn.hook_zz'; near names: blocks.0.attn.hook_z"),
    ],
)
def test_points_that_hold_nothing_to_edit(hook: str, message: str, bridge: Any, pairs: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(BoolensError, match=re.escape(message)):
        intervene(bridge, pairs[0], ZeroAblate(hook), logit=LOGIT)


def test_leaves_no_trace(bridge: Any, pairs: tuple[Tensor, Tensor]) -> None:
    bridge.train()
    random = torch.get_rng_state()
    before = {name: parameter.clone() for name, parameter in bridge.named_parameters()}
    with pytest.warns(UnchangedWarning):
        sweep(bridge, pairs[0], Patch(Z, source=pairs[0]), ("head",), logit=LOGIT)
    with pytest.raises(BoolensError, match="head 5 is out of range"):
        intervene(bridge, pairs[0], [ZeroAblate(Z), ZeroAblate(Q, head=5)], logit=LOGIT)
    assert n_hooks(bridge) == 0
    assert all(module.training for module in bridge.modules())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(parameter, before[name]) for name, parameter in bridge.named_parameters())
    assert torch.is_grad_enabled()


def test_with_layer_norm_too(pairs: tuple[Tensor, Tensor]) -> None:
    model, (x, other) = native_bridge(7, normalization_type="LN"), pairs
    for hook, over in ((V, ("head", "pos")), ("ln_final.hook_in", ("pos",))):
        result = sweep(model, x, Patch(hook, source=other), over, logit=LOGIT)
        cell = (1, 3)[-len(over) :]
        single = replace(Patch(hook, source=other), **dict(zip(over, cell, strict=True)))
        torch.testing.assert_close(result[cell], intervene(model, x, single, logit=LOGIT)[0], rtol=1e-5, atol=1e-6)
