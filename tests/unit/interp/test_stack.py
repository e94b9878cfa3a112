"""Stacks: parameters as rows, logits and gradients against the models' own, and training many models at once."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp import stack
from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig
from interp.models import AnyModel, HookedMLP, build_model
from interp.stack import Inputs, ParameterBlock, mean_loss, stack_gradient, stack_logits
from interp.tables import attention_tables

K = 3
AllInputs = Callable[[int], Tensor]
# configuration, batch (0: all 2**n_ctx inputs)
CASES: list[tuple[ModelConfig, int]] = [
    (AttentionConfig(1), 0),
    (AttentionConfig(1, n_heads=2, d_value=5, bias=True), 0),
    (AttentionConfig(2, d_model=5, d_head=1), 0),
    (AttentionConfig(4, d_model=5, d_head=7, bias=True), 0),
    (AttentionConfig(5, d_model=11, n_heads=4, d_head=7, d_value=2), 0),
    (AttentionConfig(5, d_model=11, n_heads=4, d_head=7, d_value=2, bias=True), 1),
    (AttentionConfig(6, d_model=4, positions="sinusoidal"), 0),
    (AttentionConfig(6, d_model=5, n_heads=2, positions="sinusoidal", bias=True), 13),
    (AttentionConfig(7, d_model=1, d_head=4, d_value=2), 0),
    (AttentionConfig(30), 13),
    (AttentionConfig(31), 13),
    (AttentionConfig(32, n_heads=2, d_value=4, bias=True), 13),
    (AttentionConfig(33, d_model=4), 13),
    (AttentionConfig(64, d_value=2), 1),
    (MLPConfig(6, d_mlp=13), 0),
    (MLPConfig(7, d_mlp=1, dropout=0), 1),
    (LinearConfig(5), 0),
    (LinearConfig(1), 1),
]


def random_models(cfg: ModelConfig, std: float, seed: int = 0, n: int = K) -> list[AnyModel]:
    """Float32 models in evaluation mode, every weight and bias normal."""
    generator = torch.Generator().manual_seed(seed)
    models = [build_model(cfg).eval() for _ in range(n)]
    for parameter in (p for model in models for p in model.parameters()):
        parameter.data.normal_(0, std, generator=generator)
    return models


def labelled(all_inputs: AllInputs, n_ctx: int, batch: int, n: int = K) -> tuple[Tensor, Tensor]:
    """Inputs [model, batch, pos] that differ from model to model, in float64 labels too."""
    generator = torch.Generator().manual_seed(1)
    if batch:
        x = torch.randint(2, (n, batch, n_ctx), generator=generator)
    else:
        x = torch.stack([all_inputs(n_ctx)[torch.randperm(2**n_ctx, generator=generator)] for _ in range(n)])
    return x, torch.randint(2, x.shape[:2], generator=generator).double()


def reference(models: list[AnyModel], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Each model's own logits and autograd gradient in float64; the models are float32 again afterwards."""
    logits, gradients = [], []
    for m, model in enumerate(models):
        own = model.double()(x[m])
        loss = binary_cross_entropy_with_logits(own, y[m])
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]))
        logits.append(own.detach())
        model.float()
    return torch.stack(logits), torch.stack(gradients)


def ours(models: list[AnyModel], x: Tensor, y: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    block = ParameterBlock(models[0])
    flat, inputs = block.flatten(models).to(dtype), Inputs(models[0].cfg, x, dtype)
    logits = stack_logits(models[0].cfg, block, flat, inputs)
    return logits, stack_gradient(models[0].cfg, block, flat, inputs, y.to(dtype))


def worst(mine: Tensor, theirs: Tensor) -> float:
    """The largest error relative to 1 + |reference|."""
    assert mine.shape == theirs.shape
    assert mine.isfinite().all()
    return ((mine.double() - theirs).abs() / (1 + theirs.abs())).max().item()


def largest_gap(model: AnyModel) -> float:
    """Largest difference of a query's scores on the two bits of a position."""
    scores = attention_tables(model, torch.float64).scores  # pyright: ignore[reportArgumentType]
    return (scores[..., 1::2] - scores[..., 0::2]).abs().max().item()


class TestParameterBlock:
    @pytest.mark.parametrize("cfg", [cfg for cfg, _ in CASES[:8]] + [MLPConfig(6, d_mlp=13), LinearConfig(5)])
    def test_there_and_back(self, cfg: ModelConfig) -> None:
        models, others = random_models(cfg, 1.0), random_models(cfg, 1.0, seed=9)
        block = ParameterBlock(models[0])
        flat = block.flatten(models)
        assert flat.shape == (K, sum(p.numel() for p in models[0].parameters()))
        assert not flat.requires_grad
        for row, other, model in zip(flat, others, models, strict=True):
            untouched = {name: buffer.clone() for name, buffer in other.named_buffers()}
            block.write(row, other)
            for (name, mine), theirs in zip(other.named_parameters(), model.parameters(), strict=True):
                assert torch.equal(mine, theirs), name
                assert mine.requires_grad
            assert all(torch.equal(buffer, untouched[name]) for name, buffer in other.named_buffers())
        flat.zero_()
        assert all(p.abs().min() > 0 for model in models for p in model.parameters())  # a copy

    def test_views_are_the_parameters_by_name(self) -> None:
        models = random_models(AttentionConfig(5, d_model=11, n_heads=4, d_head=7, d_value=2, bias=True), 1.0)
        block = ParameterBlock(models[0])
        views = block.views(block.flatten(models))
        assert list(views) == [name for name, _ in models[0].named_parameters()]
        for m, model in enumerate(models):
            for name, parameter in model.named_parameters():
                assert views[name].shape == (K, *(parameter.shape or (1,)))
                assert torch.equal(views[name][m].reshape(parameter.shape), parameter)


class TestAgainstTheModels:
    @pytest.mark.parametrize("std", [0.3, 1.0, 2.0])
    @pytest.mark.parametrize(("cfg", "batch"), CASES)
    def test_float64(self, cfg: ModelConfig, batch: int, std: float, all_inputs: AllInputs) -> None:
        models, (x, y) = random_models(cfg, std), labelled(all_inputs, cfg.n_ctx, batch)
        for mine, theirs in zip(ours(models, x, y, torch.float64), reference(models, x, y), strict=True):
            assert worst(mine, theirs) < (1e-10 if std == 2 else 1e-11)

    @pytest.mark.parametrize("std", [0.3, 1.0])
    @pytest.mark.parametrize(("cfg", "batch"), CASES)
    def test_float32(self, cfg: ModelConfig, batch: int, std: float, all_inputs: AllInputs) -> None:
        models, (x, y) = random_models(cfg, std), labelled(all_inputs, cfg.n_ctx, batch)
        found, expected = ours(models, x, y, torch.float32), reference(models, x, y)
        for mine, theirs, atol in zip(found, expected, (1e-5, 1e-5 if std < 1 else 3e-5), strict=True):
            assert mine.dtype == torch.float32
            assert worst(mine, theirs) < atol

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_scores_too_far_apart_for_tables(
        self, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs
    ) -> None:
        """The same weights with longer and longer queries; beyond the limit a model is computed through itself."""
        cfg = AttentionConfig(6, d_model=4, n_heads=2, bias=True)
        models, (x, y) = random_models(cfg, 0.5, n=4), labelled(all_inputs, 6, 0, n=4)
        limit = {torch.float32: 60, torch.float64: 600}[dtype]
        for model, wanted in zip(models, (1, limit * 0.99, limit * 1.01, 40 * limit), strict=True):
            attn, factor = model.get_submodule("blocks.0.attn"), wanted / largest_gap(model)
            for name in ("W_Q", "b_Q"):
                attn.get_parameter(name).data.mul_(factor)
            assert largest_gap(model) == pytest.approx(wanted, rel=1e-4)
        alone: list[Tensor] = []
        build = stack.ParameterBlock.model
        monkeypatch.setattr(stack.ParameterBlock, "model", lambda b, c, row: alone.append(row) or build(b, c, row))
        found = ours(models, x, y, dtype)
        rows = ParameterBlock(models[0]).flatten(models).to(dtype)
        through_themselves = (3,) if dtype == torch.float32 else (2, 3)  # float32's third one has tables in float64
        assert [row.tolist() for row in alone] == [rows[m].tolist() for m in through_themselves] * 2
        for mine, theirs in zip(found, reference(models, x, y), strict=True):
            for m, atol in enumerate((1e-5, 3e-4, 3e-4, 1e-2) if dtype == torch.float32 else (1e-11,) * 4):
                assert worst(mine[m], theirs[m]) < atol

    @pytest.mark.parametrize("key", range(5))
    @pytest.mark.parametrize("sign", [-1, 1])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_key_that_dominates_while_absent(
        self, dtype: torch.dtype, sign: int, key: int, all_inputs: AllInputs
    ) -> None:
        """Scores of ±200: where the key's bit is the other one, every key that is left must count as it should."""
        models, (x, y) = random_models(AttentionConfig(5, d_model=7), 0.5), labelled(all_inputs, 5, 0)
        for model in models:
            w = dict(model.named_parameters())
            w["W_E"].data[:, 5:], w["W_pos"].data[:, 5:] = 0, 0
            w["W_E"].data[1, 5], w["W_pos"].data[key, 6] = sign * 100, 100  # bit 1 and the key add to the score,
            w["W_E"].data[:, 6] += 1  # by a query that is the same everywhere
            for name in ("W_Q", "W_K"):
                w[f"blocks.0.attn.{name}"].data[:, 5:] = 0
                w[f"blocks.0.attn.{name}"].data[:, :, 5:] = 0
            w["blocks.0.attn.W_Q"].data[0, 6, 5] = 7**0.5
            w["blocks.0.attn.W_K"].data[0, 5:, 5] = 1
            w["blocks.0.attn.W_V"].data[0, 5:] = 0
        found, expected = ours(models, x, y, dtype), reference(models, x, y)
        assert worst(found[0], expected[0]) < (4e-4 if dtype == torch.float32 else 1e-11)
        assert worst(found[1] / 100, expected[1] / 100) < (4e-4 if dtype == torch.float32 else 1e-11)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
    def test_a_model_that_is_not_finite_leaves_the_others_alone(self, bad: float, all_inputs: AllInputs) -> None:
        models, (x, y) = random_models(AttentionConfig(6, d_model=4), 0.5), labelled(all_inputs, 6, 0)
        before = ours(models, x, y, torch.float32)
        models[1].get_parameter("W_pos").data[2, 1] = bad
        models[1].get_parameter("W_E").data[1, 1] = bad
        after = ours(models, x, y, torch.float32)
        for old, new in zip(before, after, strict=True):
            assert torch.equal(old[[0, 2]], new[[0, 2]])
        assert not after[0][1].isfinite().all()

    def test_dropout_masks(self, all_inputs: AllInputs) -> None:
        cfg = MLPConfig(6, d_mlp=13, dropout=0.3)
        models, (x, y) = random_models(cfg, 1.0), labelled(all_inputs, 6, 0)
        block = ParameterBlock(models[0])
        keep = (torch.rand(K, 64, 13, generator=torch.Generator().manual_seed(2)) < 0.7).double()
        flat = block.flatten(models).double()
        found = stack_gradient(cfg, block, flat, Inputs(cfg, x, torch.float64), y, keep)
        for m, model in enumerate(models):
            assert isinstance(model, HookedMLP)
            mlp = model.double().mlp
            hidden = torch.nn.functional.gelu(x[m].double() @ mlp.W_in + mlp.b_in) * keep[m] / 0.7
            loss = binary_cross_entropy_with_logits(hidden @ mlp.W_out + mlp.b_out, y[m])
            own = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
            assert worst(found[m], own) < 1e-13

    def test_mean_loss(self) -> None:
        logits = torch.tensor([[0.0, 2.0], [-1000.0, 1000.0]], dtype=torch.float64)
        y = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        expected = [(math.log(2) + math.log1p(math.exp(2))) / 2, 0.0]
        torch.testing.assert_close(mean_loss(logits, y), torch.tensor(expected, dtype=torch.float64))
        assert mean_loss(logits, 1 - y)[1].item() == 1000
