"""Stacks: parameters as rows, logits and gradients against the models' own, and training many models at once."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp import stacked_tables
from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig
from interp.models import AnyModel, HookedMLP, build_model
from interp.stack import Inputs, ParameterBlock, mean_loss, stack_gradient, stack_logits, stacked_attention_tables

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
    logits = stack_logits(models[0].cfg, block.views(flat), inputs)
    return logits, stack_gradient(models[0].cfg, block, flat, inputs, y.to(dtype))


def worst(mine: Tensor, theirs: Tensor) -> float:
    """The largest error relative to 1 + |reference|."""
    assert mine.shape == theirs.shape
    assert mine.isfinite().all()
    return ((mine.double() - theirs).abs() / (1 + theirs.abs())).max().item()


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

    def test_all_three_paths(self, monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs) -> None:
        """The same weights with longer and longer queries; a query's sign depends on its position."""
        models, (x, y) = random_models(AttentionConfig(6, d_model=4), 0.5, seed=3), labelled(all_inputs, 6, 0)
        block = ParameterBlock(models[0])

        def growth() -> Tensor:
            tables = stacked_attention_tables(AttentionConfig(6, d_model=4), block.views(block.flatten(models)))
            return tables.log_ratio.movedim(2, 0).flatten(2)

        one = growth()[:, 0]
        assert (one.amin(dim=1) < 0).all()
        assert (one.amax(dim=1) > 0).all()  # no choice of hi makes them all positive
        start = {name: tensor.clone() for name, tensor in models[0].state_dict().items()}
        for model, least in zip(models, (-1, -8, -60), strict=True):
            model.load_state_dict(start)
            model.get_parameter("blocks.0.attn.W_Q").data.mul_(least / one.min())
        torch.testing.assert_close(growth().amin(dim=(0, 2)), torch.tensor([-1.0, -8.0, -60.0]))
        wide: list[list[int]] = []
        softmax: list[int] = []
        widened, softmax_pass = stacked_tables.Bits.widened, stacked_tables._softmax_pass
        monkeypatch.setattr(stacked_tables.Bits, "widened", lambda b, models: wide.append(models) or widened(b, models))
        monkeypatch.setattr(
            stacked_tables, "_softmax_pass", lambda part, x: softmax.append(len(x)) or softmax_pass(part, x)
        )
        found = ours(models, x, y, torch.float32)
        assert wide == [[1, 2], [1, 2]]
        assert softmax == [1, 1]
        for mine, theirs in zip(found, reference(models, x, y), strict=True):
            for m, atol in enumerate((1e-5, 1e-5, 3e-4)):
                assert worst(mine[m], theirs[m]) < atol

    def test_hi_is_chosen_so_that_lo_is_not_far_above_it(self) -> None:
        models = random_models(AttentionConfig(6, d_model=4, n_heads=2), 1.0)
        block = ParameterBlock(models[0])
        tables = stacked_attention_tables(AttentionConfig(6, d_model=4, n_heads=2), block.views(block.flatten(models)))
        of_query = tables.log_ratio.movedim(2, 0).flatten(2)
        assert (of_query.amin(dim=2) + of_query.amax(dim=2) >= 0).all()
        assert tables.hi_is_one.any()
        assert not tables.hi_is_one.all()

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
