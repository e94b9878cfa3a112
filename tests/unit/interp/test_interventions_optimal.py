"""The constants that hurt least, against closed forms, against searches of scipy's, and against zero and mean."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp.attention import effective_attention
from interp.config import LinearConfig
from interp.hooks import LogitDifference, run
from interp.interventions import (
    ConvergenceWarning,
    MeanAblate,
    OptimalAblate,
    Patch,
    ZeroAblate,
    intervene,
    sweep,
)
from interp.interventions.optimal import optimal_values
from interp.models import HookedAttention, HookedLinear
from tests.unit.interp.foreign_models import Transformer

EMBED = "hook_embed"
PATTERN, Q, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("pattern", "q", "v", "z"))
X = torch.tensor(list(itertools.product((0, 1), repeat=5)))
LABELS = X[:, 1].bool() & X[:, 3].bool()


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


def loss(logits: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, LABELS.to(logits).expand_as(logits), reduction="none").mean(dim=-1)


def test_the_best_constant_logit_is_the_log_odds(model: HookedAttention) -> None:
    step = OptimalAblate("hook_logit", reference=X, labels=LABELS, tolerance=1e-8)
    logits, _ = intervene(model, X, step)
    torch.testing.assert_close(logits, torch.full((32,), np.log(8 / 24), dtype=torch.float64), rtol=0, atol=1e-6)


def test_of_a_linear_model_is_logistic_regression_s_intercept() -> None:
    """logit = w · x + b; the constant for one bit is the one number that is left to fit."""
    linear = HookedLinear(LinearConfig(n_ctx=5)).double()
    with torch.no_grad():
        linear.W.copy_(torch.tensor([0.5, 2, -1, 3, 0.25]))
    step = OptimalAblate(EMBED, reference=X, labels=LABELS, tolerance=1e-8)
    result = sweep(linear, X, step)
    for pos, weight in enumerate(linear.W.tolist()):
        rest = (X.double() * linear.W.detach()).sum(dim=1) - X[:, pos] * weight
        best = minimize(lambda c, rest=rest, w=weight: loss(rest + c[0] * w).item(), [0.5], tol=1e-12)
        assert loss(result)[pos].item() == pytest.approx(best.fun, abs=1e-8)


@pytest.mark.parametrize("hook", [V, Z])
def test_where_the_logit_is_affine_it_is_the_global_minimum(hook: str, model: HookedAttention) -> None:
    """Each cell against scipy's search from another start."""
    step = OptimalAblate(hook, reference=X, labels=LABELS, tolerance=1e-8)
    losses = loss(sweep(model, X, step, ("pos", "head")))
    clean, cache = run(model, X, record=[hook, PATTERN])
    for pos, head in itertools.product(range(5), range(3)):
        read = effective_attention(cache[PATTERN], model.W_readout.detach())[:, head, pos]
        if hook == Z:
            read = model.W_readout.detach()[pos, head].expand(32, 4)
        rest = clean - (read * cache[hook][:, pos, head]).sum(dim=1)
        best = minimize(
            lambda c, rest=rest, read=read: loss(rest + read @ torch.tensor(c)).item(), np.ones(4), tol=1e-9
        )
        assert losses[pos, head].item() == pytest.approx(best.fun, abs=1e-6)


@pytest.mark.filterwarnings("ignore::interp.interventions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("hook", "over"), [(EMBED, ("pos",)), (Q, ("head", "pos")), (V, ("head",)), (PATTERN, ("head", "dest", "src"))]
)
def test_never_hurts_more_than_zero_or_mean(hook: str, over: tuple[str, ...], model: HookedAttention) -> None:
    optimal = loss(sweep(model, X, OptimalAblate(hook, reference=X, labels=LABELS, tolerance=1e-2, rows="keep"), over))
    for other in (ZeroAblate(hook, rows="keep"), MeanAblate(hook, X, rows="keep")):
        ablated = loss(sweep(model, X, other, over))
        assert (optimal <= ablated + 1e-12).all()
        assert (optimal < ablated - 1e-6).any()


def test_in_a_sweep_every_cell_is_optimal_alone(model: HookedAttention) -> None:
    step = OptimalAblate(Q, reference=X, labels=LABELS, tolerance=1e-7, pos=2)
    together = loss(sweep(model, X, step, ("head",)))
    for head in range(3):
        alone = loss(intervene(model, X, replace(step, head=head))[0])
        assert together[head].item() == pytest.approx(alone.item(), abs=1e-6)


def test_the_way_by_gradients_and_the_way_by_runs_agree(model: HookedAttention) -> None:
    step = OptimalAblate(V, reference=X[::2], labels=LABELS[::2], tolerance=1e-3, head=1)
    affine = optimal_values(model, step, ("pos",))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("interp.interventions.optimal.downstream_gradient", lambda *args: None)
        by_runs = optimal_values(model, step, ("pos",), budget=2**20)
    assert affine.shape == by_runs.shape == (1, 5, 3, 4)
    losses = [loss(sweep(model, X, Patch(V, values=values, head=1))) for values in (affine, by_runs)]
    torch.testing.assert_close(*losses, atol=1e-4, rtol=0)


def test_of_another_s_model() -> None:
    model, logit = Transformer(5), LogitDifference(pos=4)
    step = OptimalAblate("blocks.0.hook_mlp_out", pos=4, reference=X, labels=LABELS)
    optimal, zero = (intervene(model, X, s, logit=logit)[0] for s in (step, ZeroAblate(step.hook, pos=4)))
    assert loss(optimal) < loss(zero) - 1e-3


def test_says_so_where_it_has_not_converged(model: HookedAttention, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.interventions.optimal.MAX_ITERATIONS", 3)
    with pytest.warns(ConvergenceWarning, match="hook_q have not converged in 3 steps: a derivative of"):
        sweep(model, X, OptimalAblate(Q, reference=X, labels=LABELS, tolerance=1e-12))


def test_leaves_no_trace(model: HookedAttention) -> None:
    model.train()
    random = torch.get_rng_state()
    for hook in (Q, V):
        sweep(model, X, OptimalAblate(hook, reference=X, labels=LABELS, tolerance=1e-2))
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert torch.is_grad_enabled()
    assert not any(point._forward_hooks for point in model.hook_points())
