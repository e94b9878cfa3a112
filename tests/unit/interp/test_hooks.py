"""Naming hook points, and runs that leave no trace."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig
from interp.errors import BoolensError
from interp.hooks import quietly, resolve_hooks, run
from interp.models import AnyModel, HookedMLP, build_model

POINTS = ["hook_embed", "hook_pos_embed", "blocks.0.attn.hook_q", "blocks.0.attn.hook_z", "hook_logit"]
CONFIGS: list[ModelConfig] = [
    AttentionConfig(n_ctx=5, n_heads=3, d_value=4, init_std=1.0),
    MLPConfig(n_ctx=5, d_mlp=13, init_std=1.0),
    LinearConfig(n_ctx=5, init_std=1.0),
]
PATERN = "blocks.0.attn.hook_patern"
X = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])


class Boom(Exception):
    pass


def boom(activation: Tensor, hook: Any) -> Tensor:
    raise Boom


def nothing(activation: Tensor, hook: Any) -> None:
    """An edit that edits nothing."""


def zero(activation: Tensor, hook: Any) -> Tensor:
    return torch.zeros_like(activation)


def zero_in_place(activation: Tensor, hook: Any) -> None:
    activation.zero_()


def n_hooks(model: AnyModel) -> int:
    """Hooks on all points, as TransformerLens counts them and as torch does."""
    points = list(model.hook_points())
    ours = sum(len(point.fwd_hooks) + len(point.bwd_hooks) for point in points)
    assert ours == sum(len(point._forward_hooks) + len(point._backward_hooks) for point in points)
    return ours


class TestResolveHooks:
    def test_a_name(self) -> None:
        assert resolve_hooks(POINTS, "hook_logit") == ["hook_logit"]

    def test_a_filter_keeps_the_order(self) -> None:
        assert resolve_hooks(POINTS, lambda name: ".attn." in name) == ["blocks.0.attn.hook_q", "blocks.0.attn.hook_z"]

    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("blocks.0.attn.hook_Z", "blocks.0.attn.hook_z"),
            ("blocks.1.attn.hook_q", "blocks.0.attn.hook_q"),
            ("hook_logits", "hook_logit"),
            ("hook_z", "blocks.0.attn.hook_z"),
            ("embed", "hook_embed"),
        ],
    )
    def test_an_unknown_name_lists_near_ones(self, name: str, near: str) -> None:
        with pytest.raises(BoolensError, match=f"no hook point '{name}'; near names: .*{near}"):
            resolve_hooks(POINTS, name)

    def test_a_name_near_none_lists_all(self) -> None:
        with pytest.raises(BoolensError, match=f"no hook point 'xyz'; its points: {', '.join(POINTS)}"):
            resolve_hooks(POINTS, "xyz")

    def test_a_filter_without_a_match_lists_all(self) -> None:
        with pytest.raises(BoolensError, match=f"the filter matches no hook point; .*{', '.join(POINTS)}"):
            resolve_hooks(POINTS, lambda name: name == "hook_z")


class TestRun:
    @pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.architecture)
    def test_without_edits_is_the_model(self, cfg: ModelConfig) -> None:
        model = build_model(cfg).eval()
        logits, cache = run(model, X)
        assert torch.equal(logits, model(X))
        assert cache == {}

    def test_runs_in_evaluation_mode(self) -> None:
        model = build_model(MLPConfig(n_ctx=5, dropout=0.5, init_std=1.0))
        assert torch.equal(run(model, X)[0], run(model, X)[0])
        assert torch.equal(run(model, X)[0], model.eval()(X))

    def test_an_edit_that_returns_none_changes_nothing(self) -> None:
        model = build_model(CONFIGS[0]).eval()
        logits, _ = run(model, X, [(name, nothing) for name in model.hook_names])
        assert torch.equal(logits, model(X))

    @pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.architecture)
    def test_an_edit_reaches_what_follows(self, cfg: ModelConfig) -> None:
        model = build_model(cfg).eval()
        for name in model.hook_names:
            edited, _ = run(model, X, [(name, lambda activation, hook: 2 * activation + 1)])
            assert not torch.allclose(edited, model(X)), name
        assert run(model, X, [("hook_logit", zero)])[0].tolist() == [0, 0]

    def test_edits_run_in_order(self) -> None:
        model = build_model(CONFIGS[0]).eval()
        double = ("hook_logit", lambda activation, hook: 2 * activation)
        increment = ("hook_logit", lambda activation, hook: activation + 1)
        assert torch.equal(run(model, X, [double, increment])[0], 2 * model(X) + 1)
        assert torch.equal(run(model, X, [increment, double])[0], 2 * (model(X) + 1))

    def test_edits_and_names_may_be_generators(self) -> None:
        model = build_model(CONFIGS[0])
        logits, cache = run(model, X, iter([("hook_logit", zero)]), iter(["hook_embed", "hook_logit"]))
        assert logits.tolist() == [0, 0]
        assert list(cache) == ["hook_embed", "hook_logit"]

    def test_records_what_the_pass_used(self) -> None:
        model = build_model(CONFIGS[0]).eval()
        z, pattern = "blocks.0.attn.hook_z", "blocks.0.attn.hook_pattern"
        _, clean = run(model, X, record=[z, pattern])
        logits, edited = run(model, X, [(pattern, zero)], record=[z, pattern, "hook_logit"])
        assert not edited[pattern].any()
        assert not edited[z].any()
        assert clean[z].any()
        assert torch.equal(edited["hook_logit"], logits)

    @pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.architecture)
    def test_records_snapshots(self, cfg: ModelConfig) -> None:
        model = build_model(cfg)
        _, expected = run(model, X, record=model.hook_names)
        kept: list[Tensor] = []
        for name in model.hook_names:
            later = (name, lambda activation, hook: kept.append(activation))
            logits, cache = run(model, X, [later], record=model.hook_names)
            for tensor in (*kept, logits):
                tensor.fill_(7)
            for point, activation in cache.items():
                assert torch.equal(activation, expected[point]), (name, point)

    def test_records_by_name_or_filter_once(self) -> None:
        model = build_model(CONFIGS[0])
        _, cache = run(model, X, record=["hook_embed", "hook_embed"])
        assert list(cache) == ["hook_embed"]

    @pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.architecture)
    def test_in_place_edits_do_not_reach_weights_or_inputs(self, cfg: ModelConfig) -> None:
        def zero_first_input(activation: Tensor, hook: Any) -> None:
            activation[0] = 0

        model, x = build_model(cfg), X.clone()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for batch in (1, 2):
            for edit in (zero_in_place, zero_first_input):
                for name in model.hook_names:
                    run(model, x[:batch], [(name, edit)])
        assert torch.equal(x, X)
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())

    @pytest.mark.parametrize("asked", [{"edits": [(PATERN, zero)]}, {"record": ["hook_logit", PATERN]}])
    def test_unknown_names_raise(self, asked: dict[str, Any]) -> None:
        model = build_model(CONFIGS[0])
        with pytest.raises(BoolensError, match=r"near names: blocks\.0\.attn\.hook_pattern"):
            run(model, X, **asked)
        assert n_hooks(model) == 0


class TestNoTrace:
    @pytest.mark.parametrize("edit", [zero, zero_in_place, nothing, boom])
    @pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.architecture)
    def test_hooks_gradients_modes_and_random_state(self, cfg: ModelConfig, edit: Callable[..., Any]) -> None:
        model = build_model(cfg)
        random_state = torch.get_rng_state()
        for name in model.hook_names:
            try:
                logits, cache = run(model, X, [(name, edit)], record=model.hook_names)
            except Boom:
                assert edit is boom
            else:
                assert edit is not boom
                assert not logits.requires_grad
                assert not any(activation.requires_grad for activation in cache.values())
            assert n_hooks(model) == 0
            assert model.context_level == 0
            assert model.training
            assert torch.is_grad_enabled()
            assert all(parameter.grad is None for parameter in model.parameters())
        assert torch.equal(torch.get_rng_state(), random_state)

    @pytest.mark.parametrize("edit", [zero, boom])
    def test_mixed_modes(self, edit: Callable[..., Any]) -> None:
        model = HookedMLP(MLPConfig(n_ctx=5, d_mlp=13))
        modules = list(model.modules())
        for position, module in enumerate(modules):
            module.training = position % 3 == 1
        before = [module.training for module in modules]
        assert len(set(before)) == 2
        during: list[bool] = []
        edits = [
            ("hook_logit", lambda activation, hook: during.extend(m.training for m in modules)),
            ("hook_logit", edit),
        ]
        try:
            run(model, X, edits)
        except Boom:
            assert edit is boom
        assert during == [False] * len(modules)
        assert [module.training for module in modules] == before

    def test_gradients_from_before_stay(self) -> None:
        model = build_model(CONFIGS[0])
        model(X).sum().backward()
        before = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        run(model, X, [("hook_logit", zero)], record=model.hook_names)
        after = [parameter.grad for parameter in model.parameters()]
        assert all(a is not None and torch.equal(a, b) for a, b in zip(after, before, strict=True))

    @pytest.mark.parametrize("edit", [zero, boom])
    @pytest.mark.parametrize("permanent", [False, True])
    def test_a_user_s_own_hooks_stay_and_run_first(self, permanent: bool, edit: Callable[..., Any]) -> None:
        model = build_model(CONFIGS[0])
        seen: list[Tensor] = []
        model.add_hook("hook_logit", lambda activation, hook: seen.append(activation.clone()), is_permanent=permanent)
        try:
            run(model, X, [("hook_logit", edit)])
        except Boom:
            assert edit is boom
        assert n_hooks(model) == 1
        assert seen[0].all()
        model(X)
        assert len(seen) == 2

    def test_quietly_restores_after_an_exception(self) -> None:
        model = HookedMLP(MLPConfig(n_ctx=5, d_mlp=13))
        model.blocks.eval()
        with pytest.raises(Boom), quietly(model):  # noqa: PT012
            assert not any(module.training for module in model.modules())
            assert not torch.is_grad_enabled()
            raise Boom
        assert model.training
        assert not model.blocks.training
        assert torch.is_grad_enabled()

    def test_quietly_keeps_gradients_off_where_they_were(self) -> None:
        with torch.no_grad():
            with quietly(build_model(CONFIGS[0])):
                pass
            assert not torch.is_grad_enabled()
