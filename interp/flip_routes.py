"""Through which side does each position reach the logit? The flip of one bit split exactly by query, key and value.

A bit changes its own position's query, key and value. `flip_routes` says how much of the flip's change of the logit
comes by each of them and by two or three together, for all positions at once in closed form: what `interp.paths`
gives with one position patched from the input in which its bit is flipped, at a T-th of the cost.

The key side of a position is what its flip changes while every query stays as it was: by k, by v, and by both. It is
felt in the rows of all queries. The query side is what it changes by its own query alone, in its own row alone; the
rest, only together, needs both.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention import attention_scores
from interp.exact import PATTERN, RESID, SCORES, K, Q, V, chunks, require
from interp.exact_terms import reads, row_outputs, swapped
from interp.hooks import run
from interp.paths import ROUTES

if TYPE_CHECKING:
    from interp.models import HookedAttention

SIDES: dict[str, tuple[str, ...]] = {"query": ("q",), "key": ("k", "v", "kv"), "together": ("qk", "qv", "qkv")}
"""The routes of each side; every route is in one."""


@dataclass(frozen=True)
class FlipRoutes:
    """Each bit's flip, by the routes through which it changes the logit; summed over heads and dest.

    Attributes:
        effects: change of the logit by each of `interp.paths.ROUTES` (main effects and interactions), in logit.
        total: change when the bit flips: the effects' sum.
    """

    effects: Float[Tensor, "route pos batch"]
    total: Float[Tensor, "pos batch"]

    def shares(self) -> Float[Tensor, "route pos"]:
        """Each route's part in the mean absolute change of the logit, in logit; may be negative.

        The mean over inputs of effect · sign(total): the parts add up to the mean of |total|, the score 'patching'.
        """
        return (self.effects.double() * self.total.double().sign()).mean(dim=-1)

    def by_side(self) -> dict[str, Float[Tensor, " pos"]]:
        """`shares` summed over the routes of each of SIDES, in logit."""
        shares = self.shares()
        return {side: shares[[ROUTES.index(route) for route in routes]].sum(dim=0) for side, routes in SIDES.items()}


@torch.no_grad()
def flip_routes(model: "HookedAttention", x: Int[Tensor, "batch pos"], *, budget: int = 2**30) -> FlipRoutes:
    """See FlipRoutes; cost about ten patterns an input, whatever the number of positions.

    Args:
        model: a HookedAttention without hooks of its own.
        x: inputs; the flips are of these.
        budget: bytes that the result and the work on it may take together.

    Raises:
        BoolensError: another model, hooks on the model, a budget that is too small.
    """
    require(model, RESID)
    x = model.check(x)
    effects = model.W_readout.new_empty(len(ROUTES), x.shape[1], len(x))
    for rows in chunks(model, len(x), effects.numel() * effects.element_size(), budget):
        effects[..., rows] = _effects(model, x[rows])
    return FlipRoutes(effects, effects.sum(dim=0))


def _effects(model: "HookedAttention", x: Tensor) -> Float[Tensor, "route pos batch"]:
    _, cache = run(model, x, record=[Q, K, V, SCORES, PATTERN])
    _, flipped = run(model, 1 - x, record=[Q, K, V])  # a position's q, k and v depend on its own bit alone
    read, new_read = (reads(model.W_readout, of[V]) for of in (cache, flipped))
    scores, pattern = cache[SCORES], cache[PATTERN]
    column = attention_scores(cache[Q], flipped[K])  # every query's score on the flipped key
    cells = {
        "k": swapped(scores, pattern, read, column),
        "v": pattern * (new_read - read),
        "kv": swapped(scores, pattern, read, column, new_read),
    }
    asked = attention_scores(flipped[Q], cache[K])  # the flipped query's scores
    corner = einsum(flipped[Q], flipped[K], "batch pos head d_head, batch pos head d_head -> batch head pos")
    both = _with_diagonal(asked, corner * flipped[Q].shape[-1] ** -0.5)
    seen = _with_diagonal(read, new_read.diagonal(dim1=-2, dim2=-1))
    before = (pattern * read).sum(dim=-1)
    own = {"q": (asked, read), "qk": (both, read), "qv": (asked, seen), "qkv": (both, seen)}
    changes = {name: (row_outputs(*terms) - before).sum(dim=1) for name, terms in own.items()}
    in_own_row = {name: cell.diagonal(dim1=-2, dim2=-1).sum(dim=1) for name, cell in cells.items()}
    key = {name: cell.sum(dim=(1, 2)) for name, cell in cells.items()}
    interaction = {
        "qk": changes["qk"] - changes["q"] - in_own_row["k"],
        "qv": changes["qv"] - changes["q"] - in_own_row["v"],
    }
    whole = changes["qkv"] - changes["q"] - in_own_row["kv"]  # all that needs the query and something else
    effects = {
        **{"q": changes["q"], "k": key["k"], "v": key["v"], "kv": key["kv"] - key["k"] - key["v"]},
        **interaction,
        "qkv": whole - interaction["qk"] - interaction["qv"],
    }
    return torch.stack([effects[route].T for route in ROUTES])


def _with_diagonal(cells: Tensor, diagonal: Tensor) -> Tensor:
    changed = cells.clone()
    changed.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    return changed
