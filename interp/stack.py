"""Stacks: K independent models of one architecture as one block of parameters [model, parameter]."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import gelu, logsigmoid

from interp.attention import sinusoidal_encoding
from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig
from interp.stacked_tables import TABLES, Bits, StackedTables, tables_gradient, tables_logits

if TYPE_CHECKING:
    from interp.models import AnyModel


PREFERENCE = 1.0
"""Bit 1 is hi unless bit 0 is better by more than this (in log lo / hi): a choice that flips rearranges the inputs."""


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

    def write(self, row: Float[Tensor, " parameter"], model: "AnyModel") -> None:
        """Copy one row into a model's parameters."""
        with torch.no_grad():
            for parameter, part in zip(model.parameters(), row.split(self.sizes), strict=True):
                parameter.copy_(part.view(parameter.shape))


class Inputs:
    """The inputs of a stack, in whatever form its architecture takes."""

    def __init__(self, cfg: ModelConfig, x: Int[Tensor, "model batch pos"], dtype: torch.dtype) -> None:
        self.bits = Bits(x, dtype) if isinstance(cfg, AttentionConfig) else None
        self.numbers = None if isinstance(cfg, AttentionConfig) else x.to(dtype)


def stack_logits(cfg: ModelConfig, parameters: dict[str, Tensor], inputs: Inputs) -> Float[Tensor, "model batch"]:
    """Logits of each model on its own inputs, without gradient and dropout."""
    with torch.no_grad():
        if isinstance(cfg, AttentionConfig):
            assert inputs.bits is not None
            return tables_logits(stacked_attention_tables(cfg, parameters), inputs.bits)
        return _number_logits(cfg, parameters, inputs, None)


def stack_gradient(
    cfg: ModelConfig,
    block: ParameterBlock,
    flat: Float[Tensor, "model parameter"],
    inputs: Inputs,
    y: Float[Tensor, "model batch"],
    keep: Float[Tensor, "model batch d_mlp"] | None = None,
    *,
    precise: bool = True,
) -> Float[Tensor, "model parameter"]:
    """The gradient of each model's mean binary cross-entropy (`mean_loss`).

    Args:
        cfg: the models' configuration.
        block: how a row of `flat` is laid out.
        flat: the parameters.
        inputs: one batch a model.
        y: labels, 0 or 1.
        keep: the MLP's dropout mask, 1 where a hidden unit is kept; None for no dropout.
        precise: False lets the rounding error of an attention model's gradient grow to about 1e-4 of its largest entry
            for fewer passes in float64; training does not need more.
    """
    leaf = flat.detach().requires_grad_()
    with torch.enable_grad():
        parameters = block.views(leaf)
        if isinstance(cfg, AttentionConfig):
            assert inputs.bits is not None
            tables = stacked_attention_tables(cfg, parameters)
            with torch.no_grad():
                gradients = tables_gradient(tables, inputs.bits, y, precise=precise)
            outputs = [getattr(tables, name) for name in TABLES]
            pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
            return torch.autograd.grad([o for o, _ in pairs], leaf, [g for _, g in pairs])[0]
        logits = _number_logits(cfg, parameters, inputs, keep)
        return torch.autograd.grad(mean_loss(logits, y).sum(), leaf)[0]


def mean_loss(logits: Float[Tensor, "model batch"], y: Float[Tensor, "model batch"]) -> Float[Tensor, " model"]:
    """Each model's mean binary cross-entropy, in nats."""
    return ((1 - y) * logits - logsigmoid(logits)).mean(dim=1)


def _number_logits(
    cfg: MLPConfig | LinearConfig, parameters: dict[str, Tensor], inputs: Inputs, keep: Tensor | None
) -> Float[Tensor, "model batch"]:
    assert inputs.numbers is not None
    p = {name.rsplit(".", 1)[-1]: tensor for name, tensor in parameters.items()}
    if isinstance(cfg, LinearConfig):
        return torch.bmm(inputs.numbers, p["W"][:, :, None])[:, :, 0] + p["b"]
    post = gelu(torch.baddbmm(p["b_in"][:, None], inputs.numbers, p["W_in"]))
    if keep is not None:
        post = post * (keep / (1 - cfg.dropout))
    return torch.bmm(post, p["W_out"][:, :, None])[:, :, 0] + p["b_out"]


def stacked_attention_tables(cfg: AttentionConfig, parameters: dict[str, Tensor]) -> StackedTables:
    """The tables of a stack of HookedAttention models, from their parameters; differentiable in them.

    The score of query (u, dest) on key (v, src) is q[u, dest] · (k_pos[src] + k_vocab[v]), and values split likewise.
    """
    p = {name.rsplit(".", 1)[-1]: tensor for name, tensor in parameters.items()}
    W_E, n_models = p["W_E"], len(p["W_E"])
    if cfg.positions == "learned":
        W_pos = p["W_pos"]
    else:
        W_pos = sinusoidal_encoding(cfg.n_ctx, cfg.d_model).to(W_E).expand(n_models, -1, -1)

    def project(resid: Tensor, name: str, *, bias: bool = True) -> Float[Tensor, "model head column width"]:
        out = resid[:, None] @ p[f"W_{name}"]
        return out + p[f"b_{name}"][:, :, None] if cfg.bias and bias else out

    queries = project((W_E[:, :, None] + W_pos[:, None]).flatten(1, 2), "Q") * cfg.d_head**-0.5
    k_pos, k_vocab = project(W_pos, "K"), project(W_E, "K", bias=False)
    v_pos, v_vocab = project(W_pos, "V"), project(W_E, "V", bias=False)
    on_vocab = (queries @ k_vocab.transpose(-1, -2)).unflatten(2, (2, cfg.n_ctx))
    on_pos = (queries @ k_pos.transpose(-1, -2)).unflatten(2, (2, cfg.n_ctx))
    log_ratio = on_vocab[..., 1] - on_vocab[..., 0]
    of_query = log_ratio.detach().movedim(2, 0).flatten(2)
    hi_is_one = of_query.amin(dim=2) + of_query.amax(dim=2) >= -PREFERENCE
    one_for_query = hi_is_one.T[:, None, :]
    sign = torch.where(one_for_query, 1.0, -1.0).to(W_E.dtype)
    lo_vocab = torch.where(one_for_query[..., None], on_vocab[..., 0], on_vocab[..., 1])
    by_vocab = v_vocab.transpose(-1, -2)
    lo_value = torch.where(one_for_query[:, :, None], by_vocab[..., :1], by_vocab[..., 1:])
    return StackedTables(
        lo=on_pos + lo_vocab[..., None],
        log_ratio=log_ratio * sign[..., None],
        value=v_pos.transpose(-1, -2)[:, :, :, None] + lo_value[..., None],
        step=(by_vocab[..., 1:] - by_vocab[..., :1]) * sign[:, :, None],
        readout=p["W_readout"].movedim(1, -1),
        bias=p["b_readout"][:, 0] if cfg.bias else W_E.new_zeros(n_models),
        hi_is_one=hi_is_one,
    )
