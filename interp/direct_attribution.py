"""Direct logit attribution: the logit as a sum of terms, one a (head, dest, src), and a bias."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.exact_terms import reads
from interp.hooks import run

if TYPE_CHECKING:
    from interp.models import HookedAttention

PATTERN, V = "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_v"


@dataclass(frozen=True)
class LogitTerms:
    """Terms that add up to the logit: `cells.sum((1, 2, 3)) + bias`.

    Attributes:
        cells: readout[dest] · pattern[dest, src] · v[src]. The value's bias b_V is part of v: it enters with every src
            by its pattern, readout[dest] · b_V in all for each dest, since patterns sum to 1.
        bias: b_readout, 0 without one.
        logit: of the run.
    """

    cells: Float[Tensor, "batch head dest src"]
    bias: Float[Tensor, ""]
    logit: Float[Tensor, " batch"]

    @property
    def by_src(self) -> Float[Tensor, "batch head src"]:
        """What each head moves from each src to the logit: effective attention × value."""
        return self.cells.sum(dim=2)

    @property
    def by_dest(self) -> Float[Tensor, "batch head dest"]:
        """What each head's z adds at each dest."""
        return self.cells.sum(dim=3)

    @property
    def gap(self) -> Float[Tensor, " batch"]:
        """The terms' sum − the run's logit: rounding, and what hooks of others' on z and the logit do."""
        return self.cells.sum(dim=(1, 2, 3)) + self.bias - self.logit


def direct_logit_attribution(model: "HookedAttention", x: Int[Tensor, "batch pos"]) -> LogitTerms:
    """The terms of the logit on x, in the model's precision; memory O(batch · head · T²).

    Raises:
        BoolensError: x is not a batch of n_ctx bits.
    """
    logit, cache = run(model, x, record=[PATTERN, V])
    with torch.no_grad():
        cells = reads(model.W_readout, cache[V]).mul_(cache[PATTERN])
        bias = logit.new_zeros(()) if model.b_readout is None else model.b_readout.detach().clone()
    return LogitTerms(cells, bias, logit)
