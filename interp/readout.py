"""What a unit of z adds to the logit directly: the readout, or what takes its place in a [CLS] transformer."""

from typing import TYPE_CHECKING

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.hooks import run

if TYPE_CHECKING:
    from interp.models import HookedAttention, HookedCls

SCALE = "ln_final.hook_scale"


@torch.no_grad()
def direct_readout(
    model: "HookedAttention | HookedCls", x: Int[Tensor, "batch pos"]
) -> Float[Tensor, "*batch dest head d_value"]:
    """The weights of z in the logit, on the way that passes no MLP.

    Of a HookedAttention, W_readout, the same for all inputs. Of a [CLS] transformer, W_O · W_readout and, with norms,
    the final one's weight over its scale on each input, as in direct logit attribution: the scale is taken as it is,
    and what a change of z would do to it is left out. So is what reaches the logit through the MLP.
    """
    weights = model.W_readout.detach()
    if weights.ndim == 3:
        return weights
    cls: HookedCls = model  # pyright: ignore[reportAssignmentType]
    scale = None
    if cls.ln_final is not None:
        weights = weights * cls.ln_final.w.detach()
        weights = weights - weights.mean()
        scale = run(model, x, record=[SCALE])[1][SCALE]
    by_head = einsum(cls.attn.W_O.detach(), weights, "head d_head d_model, d_model -> head d_head")
    readout = by_head.expand(len(x), 1, -1, -1)
    return readout if scale is None else readout / scale[..., None]
