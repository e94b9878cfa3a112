"""Stacks: K independent models of one architecture as one block of parameters [model, parameter]."""

import math
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import gelu, logsigmoid

from interp.cls_packed import kernel_of
from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig
from interp.packed import Packed
from interp.stacked_cls import cls_logits
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
        packed: for the compiled kernel, which computes attention models and [CLS] transformers in float32 on a CPU;
            else None.
        numbers: the bits as numbers, [model, batch, pos], where there is no `packed`.
    """

    def __init__(self, cfg: ModelConfig, x: Int[Tensor, "model batch pos"], dtype: torch.dtype) -> None:
        compiled = self.compiled(cfg, dtype, x.device)
        self.packed = Packed(x, with_bits=isinstance(cfg, AttentionConfig)) if compiled else None
        self.numbers = x.new_empty(0, dtype=dtype) if compiled else x.to(dtype)

    @staticmethod
    def compiled(cfg: ModelConfig, dtype: torch.dtype, device: torch.device | str) -> bool:
        """Whether the compiled kernel takes these inputs."""
        of_kernel = isinstance(cfg, AttentionConfig | ClsConfig)
        return of_kernel and dtype == torch.float32 and torch.device(device).type == "cpu"

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
        if inputs.packed:
            assert isinstance(cfg, AttentionConfig | ClsConfig)
            logits, fits = kernel_of(cfg, block.shapes).logits(flat, inputs.packed)
        else:
            logits, fits = differentiable_logits(cfg, block.views(flat), inputs.numbers)
        for m in (~fits).nonzero()[:, 0].tolist():
            logits[m] = wide_logits(cfg, block, flat[m], inputs.x(m))
        return logits


def stack_gradient(
    cfg: ModelConfig,
    block: ParameterBlock,
    flat: Float[Tensor, "model parameter"],
    inputs: Inputs,
    y: Float[Tensor, "model batch"],
    keep: Float[Tensor, "model ..."] | None = None,
) -> Float[Tensor, "model parameter"]:
    """The gradient of each model's mean binary cross-entropy (`mean_loss`).

    Args:
        cfg: the models' configuration.
        block: how a row of `flat` is laid out.
        flat: the parameters.
        inputs: one batch a model.
        y: labels, 0 or 1.
        keep: dropout's masks, of the shape that `mask_shape` says, 1 where an entry is kept; None for no dropout.
    """
    if inputs.packed:
        assert isinstance(cfg, AttentionConfig | ClsConfig)
        gradient, fits = kernel_of(cfg, block.shapes).gradient(flat, inputs.packed, y, keep)
    else:
        leaf = flat.detach().requires_grad_()
        with torch.enable_grad():
            logits, fits = differentiable_logits(cfg, block.views(leaf), inputs.numbers, keep)
            gradient = torch.autograd.grad(mean_loss(logits, y).sum(), leaf)[0]
    for m in (~fits).nonzero()[:, 0].tolist():
        gradient[m] = wide_gradient(cfg, block, flat[m], inputs.x(m), y[m], None if keep is None else keep[m])
    return gradient


def differentiable_logits(
    cfg: ModelConfig,
    parameters: dict[str, Tensor],
    numbers: Float[Tensor, "model batch pos"],
    keep: Float[Tensor, "model ..."] | None = None,
) -> tuple[Float[Tensor, "model batch"], Bool[Tensor, " model"]]:
    """Logits of each model on its own bits, through torch, and for which models they are right; arguments as above."""
    match cfg:
        case AttentionConfig():
            return stacked_logits(cfg, parameters, numbers.long())
        case ClsConfig():
            return cls_logits(cfg, parameters, numbers.long(), keep)
        case _:
            logits = _number_logits(cfg, parameters, numbers, keep)
            return logits, torch.ones(len(logits), dtype=torch.bool, device=logits.device)


def mask_shape(cfg: ModelConfig, batch: int) -> tuple[int, ...]:
    """Of one model's dropout masks for a batch; () where it has none."""
    match cfg:
        case ClsConfig(d_model=d_model, dropout=dropout) if dropout:
            return 2, batch, d_model
        case MLPConfig(d_mlp=d_mlp, dropout=dropout) if dropout:
            return batch, d_mlp
        case _:
            return ()


def wide_logits(
    cfg: ModelConfig, block: ParameterBlock, row: Float[Tensor, " parameter"], x: Int[Tensor, "batch pos"]
) -> Float[Tensor, " batch"]:
    """Logits of a model whose scores are too far apart for tables in float32: right for any finite scores.

    Through tables in float64 or, where these do not hold them either, through the model itself.
    """
    logits, fits = differentiable_logits(cfg, block.views(row.double()[None]), x[None].double())
    return logits[0].to(row.dtype) if fits else block.model(cfg, row)(x)


def wide_gradient(
    cfg: ModelConfig,
    block: ParameterBlock,
    row: Float[Tensor, " parameter"],
    x: Int[Tensor, "batch pos"],
    y: Float[Tensor, " batch"],
    keep: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, " parameter"]:
    """The gradient of its `mean_loss`, likewise; through the model itself it is that without dropout."""
    leaf, masks = row.detach().requires_grad_(), None if keep is None else keep[None].double()
    with torch.enable_grad():
        logits, fits = differentiable_logits(cfg, block.views(leaf.double()[None]), x[None].double(), masks)
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
