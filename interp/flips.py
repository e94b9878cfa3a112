"""The expected absolute change of the logit when a bit flips: exact over all inputs, or sampled with an interval.

All from the tables of a one-layer attention model, in float64; the arrays of weights are those of
`interp.cube.column_weights`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.cube import checked_cube, column_weights, cube_logits, value_shares
from interp.errors import BoolensError
from interp.kernel_parts import compiled, summing
from interp.tables import Tables, table_logits

FEWEST, MOST, LOOKS = 2**12, 2**18, 5
"""Inputs of a sample: at the first look FEWEST or more, at each further one twice as many, at the last at most MOST."""
BUDGET = 2**28
"""Of head · pos² · inputs, if FEWEST allows: about a second."""
LANES = 64
"""Inputs that the compiled loop takes side by side."""


@dataclass(frozen=True)
class FlipEffects:
    """Expected |change of the logit| by position; NaN at positions that are not free.

    Attributes:
        mean: the expectation, or the sample's.
        low, high: interval of the expectation, for all free positions together; the mean itself where exact.
        n_inputs: inputs drawn, or 2**(free positions) where exact.
        separated: whether the s largest intervals lie above all others; None where exact.
    """

    mean: Float[np.ndarray, " pos"]
    low: Float[np.ndarray, " pos"]
    high: Float[np.ndarray, " pos"]
    n_inputs: int
    separated: bool | None = None


def exact_flip_effects(
    tables: Tables, x: Int[Tensor, " pos"] | Sequence[int], free: Sequence[int], probability: Sequence[float]
) -> FlipEffects:
    """Over all 2**n inputs that equal x except at the n free positions, whose bits are independent.

    Cost: the cube's logits and n differences for each; 8 bytes an input.

    Args:
        tables: of the model.
        x: one input, of which only the bits outside `free` matter.
        free: the free positions.
        probability: P(bit = 1) of each position; only those of free ones matter.

    Raises:
        BoolensError: as `interp.cube.cube_logits`, or a number of probabilities other than of positions.
    """
    row, chosen = checked_cube(tables.n_ctx, x, free)
    if len(probability) != tables.n_ctx:
        raise BoolensError(f"{len(probability)} probabilities for {tables.n_ctx} positions; give one each")
    return cube_flip_effects(cube_logits(tables, row, chosen), chosen, probability)


def cube_flip_effects(
    logits: Float[np.ndarray, " input"], free: Sequence[int], probability: Sequence[float]
) -> FlipEffects:
    """The same from the logits of a cube (`interp.cube.cube_logits`), whose free positions are these, in that order."""
    cut = (len(free) + 1) // 2
    outer, inner = (_products(np.array([probability[pos] for pos in part])) for part in (free[:cut], free[cut:]))
    mean = np.full(len(probability), math.nan)
    mean[list(free)] = _cube_differences(logits.reshape(len(outer), len(inner)), outer, inner)[: len(free)]
    return FlipEffects(mean, mean, mean, len(logits))


def sampled_flip_effects(
    tables: Tables,
    draw: Callable[[int], Int[Tensor, "batch pos"]],
    x: Int[Tensor, " pos"] | Sequence[int],
    free: Sequence[int],
    s: int,
    *,
    level: float = 0.95,
    looks: int = LOOKS,
) -> FlipEffects:
    """Over inputs drawn until the s largest effects stand apart from the others, or all looks at them are over.

    The intervals are empirical Bernstein bounds (Maurer and Pontil 2009, theorem 4) with `flip_bounds` as the range, so
    they hold at any number of inputs; by Bonferroni over free positions and looks, all of them hold together, whenever
    the drawing stops, with probability `level` at least.

    Args:
        tables: of the model.
        draw: from a number to that many independent inputs, new ones at each call, which equal x outside `free`.
        x: one input.
        free: positions that are flipped, at least one.
        s: size of the index set looked for, in [1, number of free positions].
        level: of the intervals, in (0, 1).
        looks: at most, at least 1; fewer where the budget is smaller.

    Raises:
        BoolensError: as `interp.cube.cube_logits`; s, level or looks out of range.
    """
    row, chosen = checked_cube(tables.n_ctx, x, free)
    if not 1 <= s <= len(chosen) or not 0 < level < 1 or looks < 1:
        raise BoolensError(
            f"s = {s} of {len(chosen)} free positions, level {level}, {looks} looks: "
            "need 1 <= s <= free positions, 0 < level < 1 and at least one look"
        )
    most = min(MOST, BUDGET // (len(tables.scores) * tables.n_ctx**2))
    first = max(FEWEST, 1 << (most.bit_length() - LOOKS))
    looks = min(looks, max(1, (most // first).bit_length()))
    weighted = column_weights(tables, row, chosen)
    largest = flip_bounds(tables, row, chosen)[chosen]

    def changes(inputs: Int[Tensor, "batch pos"]) -> Float[np.ndarray, "batch free"]:
        return flip_changes(tables, inputs, chosen, weighted)[:, chosen]

    found = until_separated(changes, draw, largest, s, first=first, looks=looks, level=level)
    return on_positions(found, chosen, tables.n_ctx)


def until_separated(
    changes: Callable[[Int[Tensor, "batch pos"]], Float[np.ndarray, "batch free"]],
    draw: Callable[[int], Int[Tensor, "batch pos"]],
    largest: Float[np.ndarray, " free"],
    s: int,
    *,
    first: int,
    looks: int,
    level: float,
) -> FlipEffects:
    """As `sampled_flip_effects`, of the free positions alone.

    Args:
        changes: from inputs to the change of the logit by each free position's flip.
        draw: from a number to that many independent inputs.
        largest: upper bounds on |change|.
        s: size of the index set looked for.
        first: inputs of the first look; each further one doubles their number.
        looks, level: as there.
    """
    n_free = len(largest)
    log_term = math.log(4 * n_free * looks / (1 - level))
    n, total, squares = 0, np.zeros(n_free), np.zeros(n_free)
    mean = low = high = total
    separated = False
    for look in range(looks):
        found = changes(draw(first << max(look - 1, 0)))
        n, total, squares = n + len(found), total + np.abs(found).sum(axis=0), squares + (found**2).sum(axis=0)
        mean = total / n
        variance = np.maximum(squares - n * mean**2, 0) / (n - 1)
        width = np.sqrt(2 * variance * log_term / n) + 7 * largest * log_term / (3 * (n - 1))
        low, high = np.maximum(mean - width, 0), np.minimum(mean + width, largest)
        order = np.argsort(-mean, kind="stable")
        separated = bool(low[order[:s]].min() > high[order[s:]].max(initial=-math.inf))
        if separated:
            break
    return FlipEffects(mean, low, high, n, separated)


def on_positions(found: FlipEffects, free: Sequence[int], n_ctx: int) -> FlipEffects:
    """The same with NaN at positions that are not free."""
    by_pos = np.full((3, n_ctx), math.nan)
    by_pos[:, list(free)] = found.mean, found.low, found.high
    return FlipEffects(by_pos[0], by_pos[1], by_pos[2], found.n_inputs, found.separated)


def flip_changes(
    tables: Tables, x: Int[Tensor, "batch pos"], free: Sequence[int], weighted: np.ndarray | None
) -> Float[np.ndarray, "batch pos"]:
    """The change of the logit when a bit of an input flips; 0 at positions that are not free.

    Cost: about 2 nanoseconds a head, query and key; without `weighted`, a forward pass a free position.

    Args:
        tables: of the model.
        x: inputs that agree outside `free`.
        free: positions to flip.
        weighted: `column_weights` of the cube of these inputs.
    """
    if weighted is None:
        out = np.zeros(x.shape)
        exact = Tables(*(t.detach().double() for t in (tables.scores, tables.value, tables.readout, tables.bias)))
        before = table_logits(exact, x)
        for pos in free:
            flipped = x.long().clone()
            flipped[:, pos] = 1 - flipped[:, pos]
            out[:, pos] = (table_logits(exact, flipped) - before).numpy()
        return out
    batch, n_ctx = x.shape
    bits = np.zeros((-(-batch // LANES), n_ctx, LANES), dtype=np.bool_)
    padded = np.zeros((bits.shape[0] * LANES, n_ctx), dtype=np.bool_)
    padded[:batch] = x.numpy() == 1
    bits[:] = padded.reshape(-1, LANES, n_ctx).transpose(0, 2, 1)
    ordered = np.ascontiguousarray(np.moveaxis(weighted, 0, 4))  # head dest u src part vocab
    out = np.empty((bits.shape[0], n_ctx, LANES))
    _flip_blocks(bits, ordered, out)
    changes = out.transpose(0, 2, 1).reshape(-1, n_ctx)[:batch]
    changes[:, [pos for pos in range(n_ctx) if pos not in free]] = 0
    return changes


def flip_bounds(tables: Tables, x: Int[np.ndarray, " pos"] | Sequence[int], free: Sequence[int]) -> np.ndarray:
    """An upper bound on |change of the logit| by a flip of each free position, for every input of the cube; else 0.

    Each query's output is p · (its value for the key flipped) + (1 − p) · (an average of its other values), with p and
    the average in ranges that the tables give. The change is linear in each of them, so its extremes lie at the ends.
    """
    row, chosen = checked_cube(tables.n_ctx, x, free)
    present = np.arange(2) == row[:, None]
    present[chosen] = True
    shares = value_shares(tables)  # head dest src vocab
    weighted = column_weights(tables, row, chosen)
    bounds = np.zeros(tables.n_ctx)
    for pos in chosen:
        others = [i for i in range(tables.n_ctx) if i != pos] or [pos]
        own, rest = shares[:, :, pos], shares[:, :, others]
        least = np.where(present[others], rest, np.inf).min(axis=(2, 3))
        most = np.where(present[others], rest, -np.inf).max(axis=(2, 3))
        ends = np.stack([least, most])[..., None, None]  # end head dest 1 1
        moved = _pattern_ends(weighted, present, pos)[:, None] * (own[:, :, None] - ends)  # p end head dest u vocab
        zero, one = moved[..., 0], moved[..., 1]
        change = np.maximum(one.max(axis=0) - zero.min(axis=0), zero.max(axis=0) - one.min(axis=0)).max(axis=(0, 3))
        outputs = (ends + moved)[:, :, :, pos, (0, 1), (0, 1)]  # the query at pos itself goes with its bit
        low, high = outputs.min(axis=(0, 1)), outputs.max(axis=(0, 1))
        change[:, pos] = np.maximum(high[:, 1] - low[:, 0], high[:, 0] - low[:, 1])
        bounds[pos] = change.sum()
    return bounds * (1 + 1e-9)  # above the rounding of a change


def _pattern_ends(
    weighted: np.ndarray | None, present: Bool[np.ndarray, "src vocab"], pos: int
) -> Float[np.ndarray, "end head dest u vocab"]:
    """The least and the largest pattern of queries on the key at pos, with either bit."""
    if weighted is None:
        return np.stack([np.zeros((1, 1, 2, 2)), np.ones((1, 1, 2, 2))])
    weight = weighted[0, ..., pos, :]
    others = np.arange(len(present)) != pos
    least = np.where(present, weighted[0], np.inf).min(axis=-1)[..., others].sum(axis=-1)[..., None]
    most = weighted[0].max(axis=-1)[..., others].sum(axis=-1)[..., None]
    return np.stack([weight / (weight + most), weight / (weight + least)])


def _products(probability: Float[np.ndarray, " pos"]) -> Float[np.ndarray, " pattern"]:
    """The probability of every pattern of these bits."""
    total = np.ones(1)
    for p in probability:
        total = np.outer(total, (1 - p, p)).ravel()
    return total


@summing
def _cube_differences(logits, outer, inner):
    """The expected |difference| along each axis of the cube, those of the outer index first."""
    n_outer, n_inner = logits.shape
    out = np.zeros(64)
    place = 0
    step = n_outer >> 1
    while step:
        for o in range(n_outer):
            if not o & step:
                total = 0.0
                for i in range(n_inner):
                    total += inner[i] * abs(logits[o, i] - logits[o + step, i])
                out[place] += (outer[o] + outer[o + step]) * total
        place, step = place + 1, step >> 1
    step = n_inner >> 1
    while step:
        for o in range(n_outer):
            total = 0.0
            for start in range(0, n_inner, 2 * step):
                for i in range(start, start + step):
                    total += (inner[i] + inner[i + step]) * abs(logits[o, i] - logits[o, i + step])
            out[place] += outer[o] * total
        place, step = place + 1, step >> 1
    return out


@compiled
def _flip_blocks(bits, weighted, out):
    """out[block, pos, lane] = the change by a flip, for bits [block, pos, lane], weighted [head dest u src part vocab].

    Sums without a key are those before it plus those after it: nothing is subtracted, so nothing cancels.
    """
    n_blocks, n_ctx, lanes = bits.shape
    before = np.empty((2, n_ctx, lanes))
    swapped = np.empty((2, n_ctx, lanes))
    kept = np.empty((2, n_ctx, lanes))
    total = np.empty((2, lanes))
    turned = np.empty((2, lanes))
    base = np.empty(lanes)
    for block in range(n_blocks):
        x, flipped = bits[block], out[block]
        base[:] = 0
        flipped[:] = 0
        for h in range(len(weighted)):
            for dest in range(n_ctx):
                zero, one, query = weighted[h, dest, 0], weighted[h, dest, 1], x[dest]
                for part in range(2):
                    running, other = total[part], turned[part]
                    running[:] = 0
                    other[:] = 0
                    for src in range(n_ctx):
                        a, b, c, d = zero[src, part, 0], zero[src, part, 1], one[src, part, 0], one[src, part, 1]
                        bit, own = x[src], src == dest
                        for i in range(lanes):
                            of_zero, of_one = b if bit[i] else a, d if bit[i] else c
                            to_zero, to_one = a if bit[i] else b, c if bit[i] else d
                            before[part, src, i] = running[i]
                            kept[part, src, i] = of_one if query[i] else of_zero
                            swapped[part, src, i] = to_one if query[i] else to_zero
                            running[i] += kept[part, src, i]
                            if own:
                                other[i] += to_zero if query[i] else to_one
                            else:
                                other[i] += of_zero if query[i] else of_one
                for i in range(lanes):
                    base[i] += total[1, i] / total[0, i]
                total[:] = 0
                for src in range(n_ctx - 1, -1, -1):
                    if src == dest:
                        for i in range(lanes):
                            flipped[src, i] += turned[1, i] / turned[0, i]
                    else:
                        for i in range(lanes):
                            numerator = before[1, src, i] + total[1, i] + swapped[1, src, i]
                            flipped[src, i] += numerator / (before[0, src, i] + total[0, i] + swapped[0, src, i])
                    for i in range(lanes):
                        total[0, i] += kept[0, src, i]
                        total[1, i] += kept[1, src, i]
        for src in range(n_ctx):
            for i in range(lanes):
                flipped[src, i] -= base[i]
