"""Properties of a stack that hold for any architecture, sizes, weights and inputs."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig
from interp.models import AnyModel, build_model
from interp.stack import Inputs, ParameterBlock, stack_gradient, stack_logits

few = settings(max_examples=30, deadline=None)
Case = tuple[list[AnyModel], Tensor, Tensor]


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    n_ctx = draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["attention", "attention", "cls", "cls", "mlp", "linear"]))
    if kind == "mlp":
        return MLPConfig(n_ctx, d_mlp=draw(st.integers(1, 9)))
    if kind == "linear":
        return LinearConfig(n_ctx)
    if kind == "cls":
        sizes = {name: draw(st.integers(1, 3)) for name in ("n_heads", "d_head")}
        flags = {name: draw(st.booleans()) for name in ("norm", "bias")}
        return ClsConfig(n_ctx, d_model=draw(st.integers(2, 5)), d_mlp=draw(st.integers(0, 4)), **sizes, **flags)
    return AttentionConfig(
        n_ctx=n_ctx,
        d_model=draw(st.integers(1, 4)),
        n_heads=draw(st.integers(1, 3)),
        d_head=draw(st.integers(1, 3)),
        d_value=draw(st.integers(1, 3)),
        positions=draw(st.sampled_from(["learned", "sinusoidal"])),
        bias=draw(st.booleans()),
    )


@st.composite
def stacks(draw: st.DrawFn) -> Case:
    """Float64 models of one configuration, each with weights of a size of its own, and a labelled batch for each."""
    cfg, n_models = draw(configs()), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    models = [build_model(cfg).double().eval() for _ in range(n_models)]
    for model in models:
        std = draw(st.sampled_from([0.0, 0.01, 1.0, 2.0]))
        for parameter in model.parameters():
            parameter.data.normal_(0, 1, generator=generator).mul_(std)
    x = torch.randint(2, (n_models, draw(st.integers(1, 4)), cfg.n_ctx), generator=generator)
    return models, x, torch.randint(2, x.shape[:2], generator=generator).double()


def computed(models: list[AnyModel], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    cfg, block = models[0].cfg, ParameterBlock(models[0])
    flat, inputs = block.flatten(models), Inputs(models[0].cfg, x, torch.float64)
    return stack_logits(cfg, block, flat, inputs), stack_gradient(cfg, block, flat, inputs, y)


def check_close(mine: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], atol: float = 1e-9) -> None:
    for ours, own in zip(mine, theirs, strict=True):
        torch.testing.assert_close(ours, own, rtol=atol, atol=atol)


@few
@given(stacks())
def test_is_each_model_s_own(case: Case) -> None:
    models, x, y = case
    logits = [model(bits) for model, bits in zip(models, x, strict=True)]
    losses = [binary_cross_entropy_with_logits(own, labels) for own, labels in zip(logits, y, strict=True)]
    gradients = [
        torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
        for loss, model in zip(losses, models, strict=True)
    ]
    check_close(computed(models, x, y), (torch.stack(logits).detach(), torch.stack(gradients)))


@few
@given(stacks(), st.randoms(use_true_random=False))
def test_order_and_neighbours_do_not_matter(case: Case, random: Any) -> None:
    models, x, y = case
    logits, gradients = computed(models, x, y)
    order = random.sample(range(len(models)), random.randint(1, len(models)))
    some = computed([models[i] for i in order], x[order], y[order])
    check_close(some, (logits[order], gradients[order]))


@few
@given(stacks())
def test_an_input_given_twice_counts_twice(case: Case) -> None:
    models, x, y = case
    logits, gradients = computed(models, x, y)
    check_close(computed(models, x.repeat(1, 2, 1), y.repeat(1, 2)), (logits.repeat(1, 2), gradients))


@few
@given(stacks())
def test_the_mean_of_the_gradients_of_single_inputs(case: Case) -> None:
    models, x, y = case
    parts = [computed(models, x[:, i : i + 1], y[:, i : i + 1]) for i in range(x.shape[1])]
    logits = torch.cat([part[0] for part in parts], dim=1)
    check_close(computed(models, x, y), (logits, torch.stack([part[1] for part in parts]).mean(dim=0)))
