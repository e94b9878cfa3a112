"""The logits of every input of a cube, all those that agree with one input outside some free positions.

Of a one-layer attention model, by its tables: a query's numerator and denominator are sums over positions, so those of
all 2**n inputs are outer sums of two tables, one over each half of the free positions. What remains for an input is a
division for each head and query.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import BoolensError
from interp.kernel_parts import compiled
from interp.tables import Tables, table_logits

LARGEST_CUBE = 28
"""Free positions of a cube at most: the logits of 2**28 inputs take 2 GiB."""
INNER = 10
"""Free positions in the inner table at most, whose rows then stay in the processor's first cache."""
BLOCK = 4096
"""Inputs at a time where each goes through `table_logits`."""
HEADROOM = float(np.log(np.finfo(np.float64).max)) / 2
"""A score may lie this far above the shift of its query."""


def cube_logits(
    tables: Tables, x: Int[Tensor, " pos"] | Int[np.ndarray, " pos"] | Sequence[int], free: Sequence[int]
) -> Float[np.ndarray, " input"]:
    """The logits of the 2**n inputs that equal x except at the n free positions, computed in float64.

    The free positions count upwards, free[0] being the most significant bit. Cost: 2**n · head · pos divisions.

    Where the scores lie too far apart for one shift to serve every input (see `interp.tables.safe_shift`), the inputs
    go through `table_logits` in blocks, at the cost of 2**n forward passes.

    Raises:
        BoolensError: x that is not one bit a position; free positions out of range, given twice, or more of them than
            LARGEST_CUBE.
    """
    row, chosen = checked_cube(tables.n_ctx, x, free)
    if len(chosen) > LARGEST_CUBE:
        raise BoolensError(
            f"{len(chosen)} free positions are more than {LARGEST_CUBE}; take the cube in parts, with more fixed in x"
        )
    weighted = column_weights(tables, row, chosen)
    if weighted is None:
        return _listed(tables, row, chosen)
    n_inner = min(len(chosen) // 2, INNER)
    cut = len(chosen) - n_inner
    fixed = [pos for pos in range(tables.n_ctx) if pos not in chosen]
    total = weighted[..., fixed, row[fixed]].sum(axis=-1)[..., None]
    outer = _outer_sums(total, weighted, chosen[:cut])
    inner = _outer_sums(np.zeros_like(total), weighted, chosen[cut:])

    # which of the two query columns an input uses: by its own bit at the query's position
    place = np.full(tables.n_ctx, -1)
    place[chosen] = np.arange(len(chosen))
    bits = (np.arange(2**n_inner) >> np.arange(n_inner - 1, -1, -1)[:, None]) & 1 == 1
    for dest in chosen[cut:]:
        inner[:, :, dest, 0] = np.where(bits[place[dest] - cut], inner[:, :, dest, 1], inner[:, :, dest, 0])
    out = np.full((2**cut, 2**n_inner), float(tables.bias.detach()))
    _add_ratios(out, outer, inner, place, cut, row, bits)
    return out.ravel()


def column_weights(
    tables: Tables, row: Int[np.ndarray, " pos"], free: Sequence[int]
) -> Float[np.ndarray, "part head dest u src vocab"] | None:
    """What each key column adds to a query column's denominator (part 0) and to its share of the logit's numerator (1).

    The values are multiplied by the query's readout first, so d_value costs nothing. Scores are shifted as in
    `interp.tables.safe_shift`, by the columns that the cube's inputs have: every denominator is at least 1.

    Returns:
        None where no shift is safe.
    """
    n_ctx = tables.n_ctx
    scores = tables.scores.detach().double().cpu().numpy().reshape(-1, n_ctx, 2, n_ctx, 2)
    absent = np.arange(2) != row[:, None]
    absent[list(free)] = False
    low = np.where(absent, np.inf, scores).min(axis=-1).max(axis=-1)[..., None, None]
    gap = np.where(absent, -np.inf, scores - low)
    if not gap.max() < HEADROOM:
        return None
    weight = np.exp(gap)
    return np.stack([weight, weight * value_shares(tables)[:, :, None]])


def value_shares(tables: Tables) -> Float[np.ndarray, "head dest src vocab"]:
    """Each key column's value times the readout of the query's position, summed over d_value: a part of the logit."""
    value, readout = (t.detach().double().cpu().numpy() for t in (tables.value, tables.readout))
    return np.einsum("dhv,hkv->hdk", readout, value).reshape(*readout.shape[1::-1], -1, 2)


def _outer_sums(
    total: Float[np.ndarray, "part head dest u 1"],
    weighted: Float[np.ndarray, "part head dest u src vocab"],
    positions: Sequence[int],
) -> Float[np.ndarray, "part head dest u pattern"]:
    """The totals with these positions' columns added, for all patterns of their bits; only sums, nothing cancels."""
    for pos in positions:
        total = (total[..., None] + weighted[..., None, pos, :]).reshape(*total.shape[:-1], -1)
    return np.ascontiguousarray(total)


@compiled
def _add_ratios(out, outer, inner, place, cut, row, bits):
    """out[o, i] += numerator / denominator over heads and queries; names as in `cube_logits`."""
    _, n_heads, n_ctx, _, n_outer = outer.shape
    n_inner = inner.shape[4]
    for o in range(n_outer):
        for h in range(n_heads):
            for dest in range(n_ctx):
                if place[dest] >= cut:
                    d0, d1 = outer[0, h, dest, 0, o], outer[0, h, dest, 1, o]
                    n0, n1 = outer[1, h, dest, 0, o], outer[1, h, dest, 1, o]
                    denominator, numerator, bit = inner[0, h, dest, 0], inner[1, h, dest, 0], bits[place[dest] - cut]
                    for i in range(n_inner):
                        d = d1 if bit[i] else d0
                        n = n1 if bit[i] else n0
                        out[o, i] += (n + numerator[i]) / (d + denominator[i])
                else:
                    u = row[dest] if place[dest] < 0 else (o >> (cut - 1 - place[dest])) & 1
                    d0, n0 = outer[0, h, dest, u, o], outer[1, h, dest, u, o]
                    denominator, numerator = inner[0, h, dest, u], inner[1, h, dest, u]
                    for i in range(n_inner):
                        out[o, i] += (n0 + numerator[i]) / (d0 + denominator[i])


def _listed(tables: Tables, row: Int[np.ndarray, " pos"], free: Sequence[int]) -> Float[np.ndarray, " input"]:
    """The same from `table_logits`, which is right for any finite scores."""
    exact = Tables(*(t.detach().double() for t in (tables.scores, tables.value, tables.readout, tables.bias)))
    shifts = torch.arange(len(free) - 1, -1, -1)
    out = np.empty(2 ** len(free))
    for start in range(0, len(out), BLOCK):
        numbers = torch.arange(start, min(start + BLOCK, len(out)))
        x = torch.from_numpy(row).repeat(len(numbers), 1)
        x[:, list(free)] = (numbers[:, None] >> shifts) & 1
        out[start : start + BLOCK] = table_logits(exact, x).numpy()
    return out


def checked_cube(
    n_ctx: int, x: Int[Tensor, " pos"] | Int[np.ndarray, " pos"] | Sequence[int], free: Sequence[int]
) -> tuple[Int[np.ndarray, " pos"], list[int]]:
    """x as an array, and the free positions counted from the start.

    Raises:
        BoolensError: x that is not one bit a position; free positions out of range or given twice.
    """
    row = np.asarray(x)
    if row.shape != (n_ctx,) or not np.isin(row, (0, 1)).all():
        raise BoolensError(f"x has shape {row.shape}; give {n_ctx} bits, each 0 or 1, one a position")
    chosen = [int(pos) + n_ctx * (pos < 0) for pos in free]
    if any(not 0 <= pos < n_ctx for pos in chosen) or len(set(chosen)) < len(chosen):
        raise BoolensError(f"free positions {list(free)}: name each of [0, {n_ctx}) at most once")
    return row.astype(np.int64), chosen
