"""Stacks: K independent models of one architecture as one block of parameters [model, parameter]."""

import math
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import gelu, logsigmoid

from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig
from interp.packed import Kernel, Packed
from interp.stacked_tables import stacked_logits

if TYPE_CHECKING:
    from interp.models import AnyModel


class ParameterBlock:
    """The parameters of models of one configuration as rows of one tensor, and back."""

    def __init__(self, model: "AnyModel") -> None:
        self.shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]

    def flatten(self, models: "Sequence[AnyModel]") -> Float[Tensor, "model parameter"]:
        """One row a model."""
        return torch.stack([torch.cat([p.detach().flatten() for p in m.parameters()]) for m in models])

    def views(self, flat: Float[Tensor, "model parameter"]) -> dict[str, Tensor]:
        """Each parameter by name with a leading model axis; differentiable in `flat`."""
        parts = flat.split(self.sizes, dim=1)
        return {
            name: part.unflatten(1, shape or (1,))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def model(self, cfg: ModelConfig, row: Float[Tensor, " parameter"]) -> "AnyModel":
        """A model with these parameters, in evaluation mode, of the row's precision and on its device."""
        from interp.models import build_model

        model = build_model(cfg).to(row).eval()
        self.write(row, model)
        return model

    def write(self, row: Float[Tensor, " parameter"], model: "AnyModel") -> None:
        """Copy one row into a model's parameters."""
        with torch.no_grad():
            for parameter, part in zip(model.parameters(), row.split(self.sizes), strict=True):
                parameter.copy_(part.view(parameter.shape))


class Inputs:
    """The inputs of a stack in the form that its architecture, precision and device take.

    Attributes:
        packed: for the compiled kernel, which computes attention models in float32 on a CPU; else None.
        numbers: the bits as numbers, [model, batch, pos], where there is no `packed`.
    """

    def __init__(self, cfg: ModelConfig, x: Int[Tensor, "model batch pos"], dtype: torch.dtype) -> None:
        compiled = self.compiled(cfg, dtype, x.device)
        self.packed = Packed(x) if compiled else None
        self.numbers = x.new_empty(0, dtype=dtype) if compiled else x.to(dtype)

    @staticmethod
    def compiled(cfg: ModelConfig, dtype: torch.dtype, device: torch.device | str) -> bool:
        """Whether the compiled kernel takes these inputs."""
        return isinstance(cfg, AttentionConfig) and dtype == torch.float32 and torch.device(device).type == "cpu"

    def keep(self, models: list[int]) -> None:
        """Go on with some models, in that order."""
        if self.packed:
            self.packed.keep(models)
        else:
            self.numbers = self.numbers[models]

    def batch(self, rows: Int[Tensor, "model row"]) -> "Inputs":
        """Some rows of each model's `numbers`."""
        some = copy(self)
        some.numbers = self.numbers.take_along_dim(rows[:, :, None], dim=1)
        return some

    def x(self, model: int) -> Int[Tensor, "batch pos"]:
        """One model's inputs."""
        return self.packed.x(model) if self.packed else self.numbers[model].long()


def stack_logits(
    cfg: ModelConfig, block: ParameterBlock, flat: Float[Tensor, "model parameter"], inputs: Inputs
) -> Float[Tensor, "model batch"]:
    """Logits of each model on its own inputs, without gradient and dropout."""
    with torch.no_grad():
        if not isinstance(cfg, AttentionConfig):
            return _number_logits(cfg, block.views(flat), inputs.numbers, None)
        if inputs.packed:
            logits, fits = Kernel(cfg, block.shapes).logits(flat, inputs.packed)
        else:
            logits, fits = stacked_logits(cfg, block.views(flat), inputs.numbers.long())
        for m in (~fits).nonzero()[:, 0].tolist():
            logits[m] = wide_logits(cfg, block, flat[m], inputs.x(m))
        return logits


def stack_gradient(
    cfg: ModelConfig,
    block: ParameterBlock,
    flat: Float[Tensor, "model parameter"],
    inputs: Inputs,
    y: Float[Tensor, "model batch"],
    keep: Float[Tensor, "model batch d_mlp"] | None = None,
) -> Float[Tensor, "model parameter"]:
    """The gradient of each model's mean binary cross-entropy (`mean_loss`).

    Args:
        cfg: the models' configuration.
        block: how a row of `flat` is laid out.
        flat: the parameters.
        inputs: one batch a model.
        y: labels, 0 or 1.
        keep: the MLP's dropout mask, 1 where a hidden unit is kept; None for no dropout.
    """
    if inputs.packed:
        assert isinstance(cfg, AttentionConfig)
        gradient, fits = Kernel(cfg, block.shapes).gradient(flat, inputs.packed, y)
    else:
        leaf = flat.detach().requires_grad_()
        with torch.enable_grad():
            if isinstance(cfg, AttentionConfig):
                logits, fits = stacked_logits(cfg, block.views(leaf), inputs.numbers.long())
            else:
                logits, fits = _number_logits(cfg, block.views(leaf), inputs.numbers, keep), torch.ones(len(flat)) > 0
            gradient = torch.autograd.grad(mean_loss(logits, y).sum(), leaf)[0]
    for m in (~fits).nonzero()[:, 0].tolist():
        gradient[m] = wide_gradient(cfg, block, flat[m], inputs.x(m), y[m])
    return gradient


def wide_logits(
    cfg: ModelConfig, block: ParameterBlock, row: Float[Tensor, " parameter"], x: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """Logits of an attention model whose scores are too far apart for tables in float32: right for any finite scores.

    Through tables in float64 or, where these do not hold them either, through the model itself.
    """
    assert isinstance(cfg, AttentionConfig)
    logits, fits = stacked_logits(cfg, block.views(row.double()[None]), x[None])
    return logits[0].to(row.dtype) if fits else block.model(cfg, row)(x)


def wide_gradient(
    cfg: ModelConfig,
    block: ParameterBlock,
    row: Float[Tensor, " parameter"],
    x: Int[Tensor, "batch pos"],
    y: Float[Tensor, " batch"],
) -> Float[Tensor, " parameter"]:
    """The gradient of its `mean_loss`, likewise."""
    assert isinstance(cfg, AttentionConfig)
    leaf = row.detach().requires_grad_()
    with torch.enable_grad():
        logits, fits = stacked_logits(cfg, block.views(leaf.double()[None]), x[None])
        if fits:
            return torch.autograd.grad(mean_loss(logits, y.to(logits)[None]).sum(), leaf)[0]
        model = block.model(cfg, row)
        loss = mean_loss(model(x)[None], y[None]).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def mean_loss(logits: Float[Tensor, "model batch"], y: Float[Tensor, "model batch"]) -> Float[Tensor, " model"]:
    """Each model's mean binary cross-entropy, in nats."""
    return ((1 - y) * logits - logsigmoid(logits)).mean(dim=1)


def _number_logits(
    cfg: MLPConfig | LinearConfig, parameters: dict[str, Tensor], numbers: Tensor, keep: Tensor | None
) -> Float[Tensor, "model batch"]:
    p = {name.rsplit(".", 1)[-1]: tensor for name, tensor in parameters.items()}
    if isinstance(cfg, LinearConfig):
        return torch.bmm(numbers, p["W"][:, :, None])[:, :, 0] + p["b"]
    post = gelu(torch.baddbmm(p["b_in"][:, None], numbers, p["W_in"]))
    if keep is not None:
        post = post * (keep / (1 - cfg.dropout))
    return torch.bmm(post, p["W_out"][:, :, None])[:, :, 0] + p["b_out"]
