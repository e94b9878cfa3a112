"""Naming hook points, and runs that leave no trace."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig
from interp.errors import BoolensError
from interp.hooks import LogitDifference, check_read, has_hooks, hooked, quietly, resolve_hooks, run, without_hooks
from interp.models import AnyModel, HookedMLP, build_model
from tests.unit.interp.foreign_models import Shown, Transformer

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

    @pytest.mark.parametrize("edit", [zero, boom])
    def test_hooks_that_a_context_left_behind_stay(self, edit: Callable[..., Any]) -> None:
        """TransformerLens' own context manager would take them off: they were put on at its nesting level."""
        model = build_model(CONFIGS[0])
        with model.hooks(fwd_hooks=[("hook_logit", nothing)], reset_hooks_end=False):
            pass
        with pytest.raises(Boom) if edit is boom else nullcontext():
            run(model, X, [("hook_logit", edit)], record=["hook_logit"])
        assert n_hooks(model) == 1

    def test_a_hook_that_resets_hooks(self) -> None:
        model = build_model(CONFIGS[0])
        with pytest.raises(BoolensError, match="does not reach hook_logit, or a hook has reset the others"):
            run(model, X, [("hook_embed", lambda activation, hook: model.reset_hooks()), ("hook_logit", zero)])
        assert n_hooks(model) == 0

    def test_nested_runs(self) -> None:
        model = build_model(CONFIGS[0])
        inner: list[Tensor] = []

        def look(activation: Tensor, hook: Any) -> None:
            if not inner:
                inner.append(activation)
                inner[0] = run(model, X, [("hook_logit", lambda activation, hook: activation + 1)])[0]

        outer, _ = run(model, X, [("hook_embed", look)])
        torch.testing.assert_close(inner[0], outer + 1)
        assert n_hooks(model) == 0


class TestOutput:
    def test_one_logit_from_a_vocabulary(self) -> None:
        output = torch.arange(2 * 5 * 3.0).reshape(2, 5, 3) ** 2
        assert LogitDifference()(output).equal(output[:, 4, 1] - output[:, 4, 0])
        assert LogitDifference(true=2, false=1, pos=3)(output).equal(output[:, 3, 2] - output[:, 3, 1])
        assert LogitDifference(true=0, false=2)(output[:, 0]).equal(output[:, 0, 0] - output[:, 0, 2])
        assert LogitDifference() == LogitDifference(1, 0, -1)

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        ("model", "logit", "message"),
        [
            (Transformer(5), None, "must be one logit an input, shape (2,), not (2, 5, 2); pass logit=LogitDifference"),
            (Transformer(5), lambda output: output[..., 0], "not (2, 5); change the function logit"),
            (Transformer(5), lambda output: 3.0, "not float; change the function logit"),
            (build_model(CONFIGS[2]), LogitDifference(), "LogitDifference reads [batch, pos, d_vocab] or [batch, d_v"),
        ],
    )
    def test_that_is_not_one_logit_an_input(self, model: Any, logit: Any, message: str) -> None:
        with pytest.raises(BoolensError, match=re.escape(message)):
            run(model, X, logit=logit)

    def test_inputs_on_another_device(self) -> None:
        message = "inputs are on meta, the model on cpu; move them there with x.to"
        with pytest.raises(BoolensError, match=message):
            run(build_model(CONFIGS[0]), X.to("meta"))


class TestOthers:
    def test_are_seen_and_set_aside(self) -> None:
        model = build_model(CONFIGS[0]).eval()
        assert not has_hooks(model)
        clean = model(X)
        model.add_hook("hook_logit", zero)
        assert has_hooks(model)
        with without_hooks(model):
            assert not has_hooks(model)
            assert model(X).equal(clean)
        with pytest.raises(Boom), without_hooks(model):
            raise Boom
        assert not model(X).any()
        assert n_hooks(model) == 1

    def test_hooked_takes_off_exactly_its_own(self) -> None:
        model = build_model(CONFIGS[0])
        with hooked(model.hook_dict, [("hook_logit", zero)]):
            model.add_hook("hook_logit", nothing)
            assert n_hooks(model) == 2
        assert n_hooks(model) == 1


class TestCheckRead:
    @pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.architecture)
    def test_every_point_of_ours_is_read(self, cfg: ModelConfig) -> None:
        model = build_model(cfg)
        for name in model.hook_names:
            check_read(model, X, name)
        for name in Transformer(5).hook_dict:
            check_read(Transformer(5), X, name, LogitDifference())

    def test_a_point_that_is_only_shown(self) -> None:
        with pytest.raises(BoolensError, match="edits at hook_embed are discarded: the logit does not depend on what"):
            check_read(Shown(), X, "hook_embed")

    def test_a_user_s_hook_behind_it_does_not_count(self) -> None:
        model = build_model(CONFIGS[0])
        calls: list[int] = []
        model.add_hook("hook_logit", lambda activation, hook: calls.append(len(activation)) or torch.zeros(2))
        check_read(model, X, "hook_embed")
        assert calls == []
