"""The expected absolute change of a [CLS] transformer's logit when a bit flips: `interp.flips` for one query.

All in float64 from the keys' columns (`interp.stacked_cls`). A flip takes one column out of each softmax's numerator
and denominator and puts another in, so that only what stands behind attention is computed for every flip.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from interp.cube import checked_cube
from interp.flips import FEWEST, LOOKS, FlipEffects, cube_flip_effects, on_positions, until_separated
from interp.formation import with_flips
from interp.stack import ParameterBlock
from interp.stacked_cls import after_attention, key_columns, short_names

if TYPE_CHECKING:
    from interp.models import HookedCls

EXACT_UP_TO = 16
"""Free positions of a cube whose logits are all computed: 2**16 inputs take about half a second."""
AT_ONCE = 2**22
"""Numbers in one array, which bounds the flips computed together."""
CANCELLED = 1e-6
"""A denominator that a flip leaves less than this share of is summed anew."""
UNDERFLOWN = 1e-200
"""A denominator below this is not trusted."""
GELU_SLOPE = 1.13
"""Above the largest derivative of GELU, 1.1290 at sqrt(2)."""


class ClsColumns:
    """One model's columns in float64, and logits from them."""

    def __init__(self, model: "HookedCls") -> None:
        self.cfg = model.cfg
        block = ParameterBlock(model)
        self.p = short_names(block.views(block.flatten([model]).detach().double()))
        self.scores, self.values, self.cls = key_columns(self.cfg, self.p)
        shift = self.scores.amax(dim=-1, keepdim=True)
        weight = (self.scores - shift).exp()[0].T  # column head
        self.terms = torch.cat([weight[..., None], weight[..., None] * self.values[0].transpose(0, 1)], dim=-1)

    def sums(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch head channel"]:
        """The softmaxes' denominators, and behind them the numerators, of each input."""
        flat = one_hot(x, 2).double().flatten(1) @ self.terms[:-1].flatten(1)
        return flat.view(len(x), *self.terms.shape[1:]) + self.terms[-1]

    def logits_of_sums(self, sums: Float[Tensor, "batch head channel"]) -> Float[Tensor, " batch"]:
        return after_attention(self.cfg, self.p, self.cls, (sums[..., 1:] / sums[..., :1])[None])[0]

    def logits(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        """In float64. Where scores lie so far apart that exp underflows, through a softmax of each input's own."""
        sums = self.sums(x)
        if bool((sums[..., 0] > UNDERFLOWN).all()):
            return self.logits_of_sums(sums)
        column = 2 * torch.arange(self.cfg.n_ctx) + x
        column = torch.cat([column, column.new_full((len(x), 1), self.terms.shape[0] - 1)], dim=1)
        pattern = self.scores[0][:, column].softmax(dim=-1)
        z = torch.einsum("hbs,hbsd->bhd", pattern, self.values[0][:, column])
        return after_attention(self.cfg, self.p, self.cls, z[None])[0]

    def changes(self, x: Int[Tensor, "batch pos"], free: Sequence[int]) -> Float[Tensor, "batch free"]:
        """The change of the logit by the flip of each free position."""
        chosen, before = list(free), self.sums(x)
        turned = self.terms[1:-1:2] - self.terms[0:-1:2]
        sign = (1 - 2 * x[:, chosen]).double()
        after = before[:, None] + sign[:, :, None, None] * turned[chosen]
        least = (CANCELLED * before[:, None, :, 0]).clamp(min=UNDERFLOWN)
        if bool((after[..., 0] < least).any() or (before[..., 0] < UNDERFLOWN).any()):
            flipped = with_flips(x).unflatten(0, (-1, len(x)))[1:][chosen].transpose(0, 1)
            return self.logits(flipped.flatten(0, 1)).view(len(x), -1) - self.logits(x)[:, None]
        return self.logits_of_sums(after.flatten(0, 1)).view(len(x), -1) - self.logits_of_sums(before)[:, None]

    def largest_change(self) -> float:
        """An upper bound on the difference of the logits of any two inputs, by Lipschitz constants and ranges.

        z of a head is a mean of its values, so it moves by less than their diameter; what a norm lets through has
        length sqrt(d_model) at most.
        """
        centred = self.values[0] - self.values[0].mean(dim=1, keepdim=True)
        moved = 2 * float((centred @ self.p["W_O"][0]).norm(dim=-1).amax(dim=1).sum())
        unit = 2 * self.cfg.d_model**0.5
        if self.cfg.d_mlp:
            inside = unit * float(self.p["ln2.w"].abs().max()) if self.cfg.norm else moved
            slopes = [float(torch.linalg.matrix_norm(self.p[f"mlp.W_{name}"][0], 2)) for name in ("in", "out")]
            moved += GELU_SLOPE * slopes[0] * slopes[1] * inside
        readout = self.p["W_readout"][0]
        if self.cfg.norm:
            return unit * float((readout * self.p["ln_final.w"][0]).norm())
        return moved * float(readout.norm())


@torch.no_grad()
def cls_flip_effects(
    model: "HookedCls",
    draw: Callable[[int], Int[Tensor, "batch pos"]],
    x: Int[Tensor, " pos"] | Sequence[int],
    free: Sequence[int],
    probability: Sequence[float],
    s: int,
    *,
    level: float = 0.95,
    looks: int = LOOKS,
) -> FlipEffects:
    """Exact over all inputs that equal x outside `free` where these are few (EXACT_UP_TO), else sampled with intervals.

    Args:
        model: the model.
        draw, x, free, s, level, looks: as in `interp.flips.sampled_flip_effects`.
        probability: P(bit = 1) of each position.

    Raises:
        BoolensError: x that is not one bit a position; free positions out of range or given twice.
    """
    columns, n_ctx = ClsColumns(model), model.cfg.n_ctx
    row, chosen = checked_cube(n_ctx, x, free)
    if len(chosen) <= EXACT_UP_TO:
        inputs = torch.from_numpy(row).long().repeat(2 ** len(chosen), 1)
        places = torch.arange(len(chosen) - 1, -1, -1)
        inputs[:, chosen] = (torch.arange(len(inputs))[:, None] >> places) & 1
        logits = torch.cat([columns.logits(part) for part in inputs.split(4096)])
        return cube_flip_effects(logits.numpy(), chosen, probability)
    size = max(1, AT_ONCE // (len(chosen) * columns.terms[0].numel()))

    def changes(inputs: Int[Tensor, "batch pos"]) -> Float[np.ndarray, "batch free"]:
        return torch.cat([columns.changes(part, chosen) for part in inputs.split(size)]).numpy()

    largest = np.full(len(chosen), columns.largest_change() * (1 + 1e-9))
    found = until_separated(changes, draw, largest, s, first=FEWEST, looks=looks, level=level)
    return on_positions(found, chosen, n_ctx)
