"""HookedMLP: the tutorial's multi-layer perceptron, bits as numbers in, one logit out."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from interp.config import MLPConfig
from interp.models.base import Dropout, HookedModel, normal_parameter


class MLP(nn.Module):
    """W_in, GELU, dropout (in training only, from a generator of its own), W_out."""

    def __init__(self, cfg: MLPConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.W_in = normal_parameter((cfg.n_ctx, cfg.d_mlp), cfg.init_std, generator)
        self.b_in = nn.Parameter(torch.zeros(cfg.d_mlp))
        self.W_out = normal_parameter((cfg.d_mlp,), cfg.init_std, generator)
        self.b_out = nn.Parameter(torch.zeros(()))
        self.dropout = Dropout(cfg.dropout, generator)
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, bits: Float[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        post = self.hook_post(nn.functional.gelu(self.hook_pre(bits @ self.W_in + self.b_in)))
        return self.dropout(post) @ self.W_out + self.b_out


class Block(nn.Module):
    def __init__(self, cfg: MLPConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.mlp = MLP(cfg, generator)


class HookedMLP(HookedModel[MLPConfig]):
    """n_ctx -> d_mlp GELU -> 1. hook_embed is the bits as numbers, [batch, pos]."""

    def __init__(self, cfg: MLPConfig, generator: torch.Generator | None = None) -> None:
        """Initialise from `generator` (seed 0 when it is None); the global random state is not touched."""
        super().__init__(cfg)
        self.hook_embed, self.hook_logit = HookPoint(), HookPoint()
        self.blocks = nn.ModuleList([Block(cfg, generator or torch.Generator().manual_seed(0))])
        self.setup()

    @property
    def mlp(self) -> MLP:
        """The perceptron, blocks.0.mlp."""
        return self.blocks[0].mlp  # pyright: ignore[reportReturnType]

    def logits(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        return self.hook_logit(self.mlp(self.hook_embed(x.to(self.mlp.W_in.dtype))))
