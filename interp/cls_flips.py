"""The expected absolute change of a [CLS] transformer's logit when a bit flips: `interp.flips` for one query.

All in float64 from `interp.cls_tables`. A flip takes one column out of each softmax's numerator
and denominator and puts another in, so that only what stands behind attention is computed for every flip.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from interp.certify.gelu import STEEPEST
from interp.cls_tables import ClsTables, cls_tables
from interp.cube import checked_cube
from interp.flips import FEWEST, LOOKS, FlipEffects, cube_flip_effects, on_positions, until_separated
from interp.formation import with_flips

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


def flip_changes(tables: ClsTables, x: Int[Tensor, "batch pos"], free: Sequence[int]) -> Float[Tensor, "batch free"]:
    """The change of the logit by the flip of each of some positions; cost a pass behind attention a flip."""
    chosen = list(free)
    weight = (tables.scores - tables.scores.amax(dim=-1, keepdim=True)).exp()
    terms = torch.cat([weight[..., None], weight[..., None] * tables.value], dim=-1).transpose(0, 1)
    before = (one_hot(x, 2).to(terms.dtype).flatten(1) @ terms[:-1].flatten(1)).view(-1, *terms.shape[1:]) + terms[-1]
    turned = terms[1:-1:2] - terms[0:-1:2]  # pos head channel
    after = before[:, None] + (1 - 2 * x[:, chosen])[:, :, None, None] * turned[chosen]
    denominator, least = after[..., 0], (CANCELLED * before[:, None, :, 0]).clamp(min=UNDERFLOWN)
    if bool((denominator < least).any() or (before[..., 0] < UNDERFLOWN).any()):
        flipped = with_flips(x).unflatten(0, (-1, len(x)))[1:][chosen].transpose(0, 1).flatten(0, 1)
        return tables.logits(flipped).view(len(x), -1) - tables.logits(x)[:, None]
    rows = after.flatten(0, 1)
    changed, clean = (tables.logits_of_z(sums[..., 1:] / sums[..., :1]) for sums in (rows, before))
    return changed.view(len(x), -1) - clean[:, None]


def largest_change(tables: ClsTables) -> float:
    """An upper bound on the difference of the logits of any two inputs, by Lipschitz constants and ranges.

    z of a head is a mean of its values, so it moves by less than their diameter; what a norm lets through is
    sqrt(d_model) long at most.
    """
    model = tables.model
    mlp: Any = model.blocks[0].mlp
    norm = model.ln_final
    centred = tables.value - tables.value.mean(dim=1, keepdim=True)
    moved = 2 * float((centred @ model.attn.W_O).norm(dim=-1).amax(dim=1).sum())
    unit = 2 * model.cfg.d_model**0.5
    if norm is not None:
        return unit * float((model.W_readout * norm.w).norm())
    if mlp is not None:
        moved *= 1 + STEEPEST * math.prod(float(torch.linalg.matrix_norm(w, 2)) for w in (mlp.W_in, mlp.W_out))
    return moved * float(model.W_readout.norm())


@torch.no_grad()
def cls_flip_effects(
    model: "HookedCls",
    draw: Callable[[int], Int[Tensor, "batch pos"]],
    x: Int[Tensor, " pos"] | Sequence[int],
    free: Sequence[int],
    probability: Sequence[float] | None,
    s: int,
    *,
    level: float = 0.95,
    looks: int = LOOKS,
) -> FlipEffects:
    """Exact over all inputs that equal x outside `free` where these are few (EXACT_UP_TO), else sampled with intervals.

    Args:
        model: the model.
        draw, x, free, s, level, looks: as in `interp.flips.sampled_flip_effects`.
        probability: P(bit = 1) of each position where bits are independent; None samples whatever their number.

    Raises:
        BoolensError: x that is not one bit a position; free positions out of range or given twice.
    """
    tables, n_ctx = cls_tables(model), model.cfg.n_ctx
    row, chosen = checked_cube(n_ctx, x, free)
    if probability is not None and len(chosen) <= EXACT_UP_TO:
        inputs = torch.from_numpy(row).long().repeat(2 ** len(chosen), 1)
        places = torch.arange(len(chosen) - 1, -1, -1)
        inputs[:, chosen] = (torch.arange(len(inputs))[:, None] >> places) & 1
        logits = torch.cat([tables.logits(part) for part in inputs.split(4096)])
        return cube_flip_effects(logits.numpy(), chosen, probability)
    size = max(1, AT_ONCE // (len(chosen) * model.cfg.n_heads * (1 + model.cfg.d_head)))

    def changes(inputs: Int[Tensor, "batch pos"]) -> Float[np.ndarray, "batch free"]:
        return torch.cat([flip_changes(tables, part, chosen) for part in inputs.split(size)]).numpy()

    largest = np.full(len(chosen), largest_change(tables) * (1 + 1e-9))
    found = until_separated(changes, draw, largest, s, first=FEWEST, looks=looks, level=level)
    return on_positions(found, chosen, n_ctx)
