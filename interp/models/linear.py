"""HookedLinear: logistic regression on the bits, the baseline that the tutorial mentions and does not run."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from interp.config import LinearConfig
from interp.models.base import HookedModel, normal_parameter


class HookedLinear(HookedModel[LinearConfig]):
    """logit = W · x + b. hook_embed is the bits as numbers, [batch, pos]."""

    def __init__(self, cfg: LinearConfig, generator: torch.Generator | None = None) -> None:
        """Initialise from `generator` (seed 0 when it is None); the global random state is not touched."""
        super().__init__(cfg)
        self.W = normal_parameter((cfg.n_ctx,), cfg.init_std, generator or torch.Generator().manual_seed(0))
        self.b = nn.Parameter(torch.zeros(()))
        self.hook_embed, self.hook_logit = HookPoint(), HookPoint()
        self.setup()

    def logits(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        return self.hook_logit(self.hook_embed(x.to(self.W.dtype)) @ self.W + self.b)
