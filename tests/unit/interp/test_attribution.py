"""Attribution patching and integrated gradients against differences, integrals and exact answers worked out here."""

import itertools
import re
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from interp.attribution import (
    Mode,
    Rule,
    attribution_patching,
    integrated_gradients,
    pair_values,
    quadrature,
)
from interp.config import LinearConfig, MLPConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.models import HookedAttention, HookedLinear, HookedMLP
from tests.unit.interp.exact_cases import (
    CONFIGS,
    EMBED,
    HOOKS,
    PATTERN,
    SCORES,
    SIZES,
    Build,
    Q,
    V,
    Z,
    bits,
    hooked_sweep,
    other_values,
    overs,
    put_in_cell,
)

X = bits(2, 5, 1)
METHODS: list[Callable[..., Any]] = [attribution_patching, integrated_gradients]


@pytest.fixture
def model(random_attention: Build) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.3)


def along(model: Any, x: Tensor, hook: str, values: Tensor, t: float, over: Any = (), cell: Any = ()) -> Tensor:
    """The logits when the activation in a cell, or everywhere, is moved the share t towards the values."""
    activation = run(model, x, record=[hook])[1][hook]
    return run(model, x, [put_in_cell(hook, activation + t * (values - activation), over, cell)])[0]


@pytest.mark.parametrize(SIZES, [CONFIGS[0], CONFIGS[2], CONFIGS[-1]])
@pytest.mark.parametrize("hook", HOOKS)
class TestEveryHook:
    def test_attribution_patching_is_the_slope_of_each_cell(
        self, hook: str, n_ctx: int, batch: int, fields: Any, random_attention: Build
    ) -> None:
        model, x = random_attention(n_ctx, **{**fields, "init_std": 0.5}), bits(batch, n_ctx, 3)
        values = other_values(model, x, hook)
        over = overs(hook)[-1]
        attribution = attribution_patching(model, x, hook, values, over)
        step = 1e-5
        sizes = attribution.estimate.shape[:-1]
        assert len(sizes) == len(over)
        for cell in {(0,) * len(sizes), tuple(n - 1 for n in sizes), tuple(n // 2 for n in sizes)}:
            ahead, behind = (along(model, x, hook, values, t, over, cell) for t in (step, -step))
            slope = (ahead - behind) / (2 * step)
            torch.testing.assert_close(attribution.estimate[cell], slope, rtol=1e-5, atol=1e-6)

    def test_exact_changes_are_shown_beside(
        self, hook: str, n_ctx: int, batch: int, fields: Any, random_attention: Build
    ) -> None:
        model, x = random_attention(n_ctx, **{**fields, "init_std": 0.5}), bits(batch, n_ctx, 3)
        values = other_values(model, x, hook)
        before = run(model, x)[0]
        for method in METHODS:
            for over in overs(hook)[:2]:
                attribution = method(model, x, hook, values, over)
                plain = hooked_sweep(model, x, hook, values, over) - before
                torch.testing.assert_close(attribution.exact, plain, rtol=1e-8, atol=1e-8)
                torch.testing.assert_close(attribution.error, attribution.estimate - plain, rtol=1e-8, atol=1e-8)
                torch.testing.assert_close(attribution.whole, along(model, x, hook, values, 1.0) - before)

    def test_integrated_gradients_add_up_to_the_whole_change(
        self, hook: str, n_ctx: int, batch: int, fields: Any, random_attention: Build
    ) -> None:
        model, x = random_attention(n_ctx, **{**fields, "init_std": 0.5}), bits(batch, n_ctx, 3)
        values = other_values(model, x, hook)
        for over in (overs(hook)[0], overs(hook)[-1]):
            attribution = integrated_gradients(model, x, hook, values, over, nodes=32)
            assert attribution.gap.abs().max() < 1e-6 * max(1.0, attribution.whole.abs().max().item())
            whole = along(model, x, hook, values, 1.0) - run(model, x)[0]
            summed = attribution.estimate.reshape(-1, len(x)).sum(dim=0)
            torch.testing.assert_close(summed - whole, attribution.gap, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("hook", [V, PATTERN, Z])
@pytest.mark.parametrize("method", METHODS)
def test_both_are_exact_where_the_logit_is_linear(method: Any, hook: str, model: HookedAttention) -> None:
    attribution = method(model, X, hook, other_values(model, X, hook), overs(hook)[-1])
    assert attribution.error.abs().max() < 1e-12
    assert attribution.gap.abs().max() < 1e-12
    assert attribution.estimate.abs().min() > 0


def test_integrated_gradients_of_one_cell_are_exact_where_the_first_order_is_not(model: HookedAttention) -> None:
    """Along the path of one cell alone there is nothing to share with other cells."""
    values = run(model, X, record=[Q])[1][Q].clone()
    values[:, 3, 1] += 3
    first = attribution_patching(model, X, Q, values, ("pos", "head"))
    path = integrated_gradients(model, X, Q, values, ("pos", "head"), nodes=32)
    assert path.error.abs().max() < 1e-10
    assert first.error[3, 1].abs().min() > 1e-3
    assert torch.equal(path.estimate.nonzero(), torch.tensor([[3, 1, 0], [3, 1, 1]]))


def test_more_nodes_close_the_gap(model: HookedAttention) -> None:
    values = other_values(model, X, Q)

    def gap(nodes: int, rule: Rule) -> float:
        return integrated_gradients(model, X, Q, values, ("pos",), nodes=nodes, rule=rule).gap.abs().max().item()

    trapezoid = [gap(n, "trapezoid") for n in (9, 17, 33, 65)]
    for coarse, fine in itertools.pairwise(trapezoid):
        assert coarse / fine == pytest.approx(4, rel=0.3)  # its error falls with the square of the step
    gauss = [gap(n, "gauss-legendre") for n in (1, 4, 16)]
    assert gauss[0] > 30 * gauss[1] > 900 * gauss[2]
    assert gauss[2] < trapezoid[-1] / 100


class TestQuadrature:
    @pytest.mark.parametrize("rule", ["gauss-legendre", "trapezoid"])
    @pytest.mark.parametrize("nodes", [2, 3, 5])
    def test_integrates_polynomials(self, rule: Rule, nodes: int) -> None:
        degree = 2 * nodes - 1 if rule == "gauss-legendre" else 1
        for power in range(degree + 1):
            assert sum(w * t**power for t, w in quadrature(nodes, rule)) == pytest.approx(1 / (power + 1), abs=1e-14)
        assert sum(w * t ** (degree + 1) for t, w in quadrature(nodes, rule)) != pytest.approx(
            1 / (degree + 2), abs=1e-9
        )

    def test_trapezoid_by_hand(self) -> None:
        assert quadrature(5, "trapezoid") == [(0, 0.125), (0.25, 0.25), (0.5, 0.25), (0.75, 0.25), (1, 0.125)]

    def test_errors(self) -> None:
        for nodes, rule, least in ((0, "gauss-legendre", 1), (1, "trapezoid", 2)):
            with pytest.raises(
                BoolensError, match=f"{nodes} nodes are too few; the {rule} rule needs at least {least}"
            ):
                quadrature(nodes, rule)  # pyright: ignore[reportArgumentType]
        with pytest.raises(BoolensError, match="rule 'simpson' is not known; choose one of"):
            quadrature(3, "simpson")  # pyright: ignore[reportArgumentType]


class TestPairs:
    @pytest.mark.parametrize("mode", ["denoise", "noise"])
    @pytest.mark.parametrize("hook", HOOKS)
    def test_directions(self, hook: str, mode: Mode, model: HookedAttention) -> None:
        clean, corrupted = X, X.clone()
        corrupted[:, 2] = 1 - corrupted[:, 2]
        into, values = pair_values(model, clean, corrupted, hook, mode)
        source = clean if mode == "denoise" else corrupted
        assert torch.equal(into, corrupted if mode == "denoise" else clean)
        assert torch.equal(values, run(model, source, record=[hook])[1][hook])
        if hook in (EMBED, "blocks.0.hook_resid_pre"):
            attribution = integrated_gradients(model, into, hook, values, ("pos",), nodes=32)
            whole = run(model, source)[0] - run(model, into)[0]
            torch.testing.assert_close(attribution.whole, whole)
            torch.testing.assert_close(attribution.estimate[2], whole, rtol=1e-6, atol=1e-8)
            assert (attribution.estimate[[0, 1, 3, 4]] == 0).all()

    def test_errors(self, model: HookedAttention, unchecked: None) -> None:
        with pytest.raises(BoolensError, match=re.escape("inputs of shapes (2, 5) and (1, 5); pairs must match")):
            pair_values(model, X, X[:1], Z, "noise")
        with pytest.raises(BoolensError, match=r"mode 'both' is not known; choose one of \('denoise', 'noise'\)"):
            pair_values(model, X, X, Z, "both")  # pyright: ignore[reportArgumentType]
        with pytest.raises(BoolensError, match="no hook point 'hook_zed'"):
            pair_values(model, X, X, "hook_zed", "noise")


@pytest.mark.parametrize("method", METHODS)
class TestOtherMetricsAndModels:
    def test_probability(self, method: Any, model: HookedAttention) -> None:
        values = other_values(model, X, SCORES)
        over = ("head", "dest", "src")
        attribution = method(model, X, SCORES, values, over, logit=torch.sigmoid)
        exact = hooked_sweep(model, X, SCORES, values, over).sigmoid() - run(model, X)[0].sigmoid()
        torch.testing.assert_close(attribution.exact, exact, rtol=1e-9, atol=1e-12)
        if method is integrated_gradients:
            assert attribution.gap.abs().max() < 1e-6

    def test_loss_of_each_input(self, method: Any, model: HookedAttention) -> None:
        y = torch.tensor([1.0, 0.0], dtype=torch.float64)

        def loss(logits: Tensor) -> Tensor:
            return nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none")

        values = other_values(model, X, Z)
        attribution = method(model, X, Z, values, ("pos",), logit=loss)
        swept = hooked_sweep(model, X, Z, values, ("pos",))
        exact = torch.stack([loss(row) for row in swept]) - loss(run(model, X)[0])
        torch.testing.assert_close(attribution.exact, exact, rtol=1e-9, atol=1e-12)
        plain = method(model, X, Z, values, ("pos",)).estimate
        assert not torch.allclose(attribution.estimate, plain)

    def test_linear_model(self, method: Any) -> None:
        model = HookedLinear(LinearConfig(5), torch.Generator().manual_seed(0)).eval()
        attribution = method(model, X, EMBED, (1 - X).float(), ("pos",))
        torch.testing.assert_close(attribution.estimate, ((1 - 2 * X) * model.W.detach()).T)
        assert attribution.exact is None
        with pytest.raises(BoolensError, match="the exact changes are not known here, so neither is the error"):
            _ = attribution.error

    def test_neurons_of_an_mlp(self, method: Any) -> None:
        model = HookedMLP(MLPConfig(5, d_mlp=3, init_std=0.5), torch.Generator().manual_seed(0)).double()
        post = "blocks.0.mlp.hook_post"
        values = run(model, 1 - X, record=[post])[1][post]
        attribution = method(model, X, post, values, ("d_mlp",))
        plain = hooked_sweep(cast("Any", model), X, post, values, ("d_mlp",)) - run(model, X)[0]
        torch.testing.assert_close(attribution.estimate, plain)
        assert attribution.estimate.shape == (3, 2)
        assert model.training  # dropout was off in between, and is on again

    def test_a_model_of_another_s_making(self, method: Any) -> None:
        """Output [batch, pos, vocab]; the second block's point has the first one's axes."""

        class Other(HookedRootModule):
            def __init__(self) -> None:
                super().__init__()
                self.embed, self.unembed = nn.Embedding(2, 4), nn.Linear(4, 3)
                self.blocks = nn.ModuleList([nn.Identity(), nn.Module()])
                self.blocks[1].hook_resid_pre = HookPoint()
                self.setup()

            def forward(self, x: Tensor) -> Tensor:
                return self.unembed(self.blocks[1].hook_resid_pre(self.embed(x)).cumsum(dim=1))  # pyright: ignore[reportCallIssue]

        torch.manual_seed(0)
        model = Other()
        name = "blocks.1.hook_resid_pre"
        _, values = pair_values_of(model, 1 - X, name)

        def read(output: Tensor) -> Tensor:
            return output[:, 3, 2] - output[:, 3, 1]

        attribution = method(model, X, name, values, ("pos",), logit=read)
        difference = values - model.embed(X)
        weight = model.unembed.weight[2] - model.unembed.weight[1]
        torch.testing.assert_close(attribution.estimate, ((difference @ weight) * (torch.arange(5) < 4)).T.detach())
        assert attribution.exact is None
        with pytest.raises(
            BoolensError, match=re.escape("must be one logit an input, shape (2,), not (2, 5, 3); pass")
        ):
            method(model, X, name, values, ("pos",))


def pair_values_of(model: HookedRootModule, x: Tensor, hook: str) -> tuple[Tensor, Tensor]:
    """The output of a model on x and its activation."""
    output, cache = model.run_with_cache(x)
    return output, cache[hook].detach()


@pytest.mark.parametrize("method", METHODS)
class TestErrorsAndTraces:
    def test_errors(self, method: Any, model: HookedAttention) -> None:
        values = other_values(model, X, Z)
        with pytest.raises(BoolensError, match=r"no hook point .*hook_zz'; near names: blocks\.0\.attn\.hook_z"):
            method(model, X, Z + "z", values, ("pos",))
        for axis in ("src", "batch"):
            with pytest.raises(BoolensError, match=f"has axes .*'d_value'.*, so no '{axis}' axis; leave {axis} out"):
                method(model, X, Z, values, (axis,))
        with pytest.raises(BoolensError, match=re.escape("over = ('pos', 'pos') names an axis twice; name each axis")):
            method(model, X, Z, values, ("pos", "pos"))
        with pytest.raises(BoolensError, match=re.escape("values of shape (3, 5, 3, 4) do not fit the activation's")):
            method(model, X, Z, torch.zeros(3, 5, 3, 4), ("pos",))
        with pytest.raises(BoolensError, match="attribution needs finite values"):
            method(model, X, SCORES, torch.full((2, 3, 5, 5), -torch.inf), ("src",))
        with pytest.raises(BoolensError, match="the metric does not depend on what is put at hook_embed"):
            method(model, X, EMBED, other_values(model, X, EMBED), ("pos",), logit=lambda logits: logits.detach() * 0)

    def test_leaves_no_trace(self, method: Any, model: HookedAttention) -> None:
        model.train()
        state = torch.get_rng_state()
        before = run(model, X)[0]
        values = other_values(model, X, Q)
        kept = values.clone()
        attribution = method(model, X, Q, values, ("pos",))
        assert not attribution.estimate.requires_grad
        with pytest.raises(ZeroDivisionError):
            method(model, X, Q, values, ("pos",), logit=lambda logits: 1 / 0)
        assert torch.equal(values, kept)
        assert torch.equal(run(model, X)[0], before)
        assert model.training
        assert torch.is_grad_enabled()
        assert all(p.grad is None and p.requires_grad for p in model.parameters())
        assert torch.equal(torch.get_rng_state(), state)
        assert not any(point.fwd_hooks or point._forward_hooks for point in model.hook_points())

    def test_hooks_of_a_user_s_own_stay_and_count(self, method: Any, model: HookedAttention) -> None:
        """The exact engine does not run them, so there is no exact answer then."""
        values = other_values(model, X, V)
        alone = method(model, X, V, values, ("pos",))
        model.add_hook(Z, lambda activation, hook: activation * 2)
        doubled = method(model, X, V, values, ("pos",))
        torch.testing.assert_close(doubled.estimate, 2 * alone.estimate)
        assert doubled.exact is None
        assert sum(len(point.fwd_hooks) for point in model.hook_points()) == 1

    def test_works_without_gradients_around(self, method: Any, model: HookedAttention) -> None:
        values = other_values(model, X, Q)
        expected = method(model, X, Q, values, ("head",)).estimate
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        with torch.no_grad():
            assert torch.equal(method(model, X, Q, values, ("head",)).estimate, expected)
            assert not torch.is_grad_enabled()
