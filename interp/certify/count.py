"""How many inputs of a box are wrong: every one of them evaluated.

An input's bits are split into three groups; denominators and numerators are outer sums of the groups' tables. The
innermost loop, over the patterns of the last group, has one division a term and runs in float32; what lies within
float32's error of 0 is evaluated again in float64, and what lies within float64's is counted apart.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from interp.certify.terms import Terms
from interp.kernel_parts import compiled

INNER, MIDDLE = 8, 9
"""Bits of the innermost two groups; the innermost tables (60 terms, both bits, 64 KiB each) stay in the cache."""


LARGEST_WEIGHT = {np.float32: 1e34, np.float64: 1e250}
"""Of a key, relative to the largest that is present in every input, and of its value: sums of them stay finite."""
SMALLEST_WEIGHT = 1e-30
"""Smaller ones count as 0, far inside the margin: no denormal numbers."""


class Part(NamedTuple):
    """Sums over one group's positions for all its patterns; `code` adds up to an input's bin."""

    denominator: np.ndarray
    numerator: np.ndarray
    additive: np.ndarray
    code: np.ndarray
    bits: np.ndarray


@compiled
def add(total, numerator, denominator, n, d):
    """Add a term whose own bit is not among the innermost."""
    for k in range(len(total)):
        total[k] += (numerator[k] + n) / (denominator[k] + d)


@compiled
def add_either(total, numerator, denominator, n0, n1, d0, d1, bit):
    """Add a term whose own bit is."""
    for k in range(len(total)):
        total[k] += (numerator[k] + (n1 if bit[k] else n0)) / (denominator[k] + (d1 if bit[k] else d0))


@compiled
def reaches(total, least):
    """Whether some total is at least so large."""
    n = 0
    for k in range(len(total)):
        n += total[k] >= least
    return n > 0


@compiled
def own_bit(group, index, outer, middle, inner, i, j, k):
    """A term's own bit in the input of the patterns i, j and k."""
    if group == 0:
        return np.int64(outer[index, i])
    if group == 1:
        return np.int64(middle[index, j])
    if group == 2:
        return np.int64(inner[index, k])
    return index


@compiled
def count(outer, middle, inner, d_inner, n_inner, group, index, bias, margin, exact_margin, n_bins):
    """Bins of wrong and of unresolved inputs; in each bin of wrong ones, the last one found; and the worst input.

    Args:
        outer, middle, inner: Parts in float64, [pattern, term, own_vocab].
        d_inner, n_inner: the innermost tables again, [term, own_vocab, pattern], in the precision to count in.
        group, index: where each term's own bit is: 0, 1, 2 for a group's bit `index`; 3 where it is fixed at `index`.
        bias: added to the sum of ratios; an input is wrong where the total is above 0.
        margin, exact_margin: errors of the total, in this precision and in float64.
        n_bins: number of bins.
    """
    n_terms, n_inner_patterns = d_inner.shape[0], d_inner.shape[2]
    wrong, unresolved = np.zeros(n_bins, np.int64), np.zeros(n_bins, np.int64)
    example = np.full(n_bins, -1, np.int64)
    worst, largest = np.int64(-1), -np.inf
    one = d_inner.dtype.type
    total = np.empty(n_inner_patterns, d_inner.dtype)
    n_middle = len(middle.code)
    for i in range(len(outer.code)):
        for j in range(n_middle):
            start = bias + outer.additive[i] + middle.additive[j]
            for k in range(n_inner_patterns):
                total[k] = one(start + inner.additive[k])
            for t in range(n_terms):
                if group[t] == 2:
                    d0 = one(outer.denominator[i, t, 0] + middle.denominator[j, t, 0])
                    d1 = one(outer.denominator[i, t, 1] + middle.denominator[j, t, 1])
                    n0 = one(outer.numerator[i, t, 0] + middle.numerator[j, t, 0])
                    n1 = one(outer.numerator[i, t, 1] + middle.numerator[j, t, 1])
                    add_either(total, n_inner[t, 0], d_inner[t, 0], n0, n1, d0, d1, inner.bits[index[t]])
                else:
                    v = own_bit(group[t], index[t], outer.bits, middle.bits, inner.bits, i, j, 0)
                    d = one(outer.denominator[i, t, v] + middle.denominator[j, t, v])
                    n = one(outer.numerator[i, t, v] + middle.numerator[j, t, v])
                    add(total, n_inner[t, v], d_inner[t, v], n, d)
            if not reaches(total, one(-margin)):
                continue
            base = outer.code[i] + middle.code[j]
            at = (i * n_middle + j) * n_inner_patterns
            for k in range(n_inner_patterns):
                value = np.float64(total[k])
                if value < -margin:
                    continue
                if value <= margin:
                    value = start + inner.additive[k]
                    for t in range(n_terms):
                        v = own_bit(group[t], index[t], outer.bits, middle.bits, inner.bits, i, j, k)
                        value += (outer.numerator[i, t, v] + middle.numerator[j, t, v] + inner.numerator[k, t, v]) / (
                            outer.denominator[i, t, v] + middle.denominator[j, t, v] + inner.denominator[k, t, v]
                        )
                    if value < -exact_margin:
                        continue
                bin = base + inner.code[k]
                if value <= exact_margin:
                    unresolved[bin] += 1
                    continue
                wrong[bin] += 1
                example[bin] = at + k
                if value > largest:
                    largest, worst = value, at + k
    return wrong, unresolved, example, worst, largest


class Counted(NamedTuple):
    """The inputs of a box that are wrong.

    Attributes:
        wrong, unresolved: numbers of inputs whose logit has the wrong sign, or lies within rounding of 0, by the
            number of ones and of counted bits at the box's free positions.
        fewest: a wrong input with the fewest counted bits; None without a wrong one.
        worst: the wrong input whose logit is furthest from 0, at `largest`.
    """

    wrong: Int[np.ndarray, "ones counted"]
    unresolved: Int[np.ndarray, "ones counted"]
    fewest: Int[np.ndarray, " pos"] | None
    worst: Int[np.ndarray, " pos"] | None
    largest: float


def count_box(
    terms: Terms, fixed: Int[np.ndarray, " pos"], label: bool, counted: Int[np.ndarray, " pos"]
) -> Counted | int:
    """Evaluate every input of a box; 2**free of them.

    Args:
        terms: the model's.
        fixed: the bit where it is fixed, else -1.
        label: the label that all inputs of the box have.
        counted: the bit that is counted at each position, -1 where neither is.

    Returns:
        What was found; or, where weights lie too far apart for float64, the free position to split the box at.
    """
    table = box_tables(terms, fixed, label)
    value = max(1.0, terms.size.max(initial=0.0), np.abs(terms.additive).max())
    largest = table.spread + np.log(value)  # of a weight, and of one times a value
    if largest > np.log(LARGEST_WEIGHT[np.float64]) and (fixed < 0).any():
        return table.widest
    dtype = np.float32 if largest < np.log(LARGEST_WEIGHT[np.float32]) else np.float64
    free = np.flatnonzero(fixed < 0)
    inner, middle, outer = free[:INNER], free[INNER : INNER + MIDDLE], free[INNER + MIDDLE :]
    side = len(free) + 1
    code = np.arange(2) * side + (np.arange(2) == counted[:, None])  # [pos, vocab]
    parts = [_part(table, code, positions) for positions in (outer, middle, inner)]
    rest = np.flatnonzero(fixed >= 0)
    for sums, keys in zip(parts[0][:3], table[:3], strict=True):
        sums[:] += keys[..., rest, fixed[rest]].sum(axis=-1)
    group, index = np.full(len(terms.own), 3), np.where(terms.own < 0, 0, fixed[terms.own]).astype(np.int64)
    for g, positions in enumerate((outer, middle, inner)):
        for i, pos in enumerate(positions):
            here = terms.own == pos
            group[here], index[here] = g, i
    d_inner, n_inner = (np.ascontiguousarray(np.moveaxis(sums, 0, 2)) for sums in parts[2][:2])
    for t in np.flatnonzero(group == 2):
        bit = parts[2].bits[index[t]]
        for sums in (d_inner, n_inner):
            sums[t, 0] = np.where(bit, sums[t, 1], sums[t, 0])
    bias = -terms.bias if label else terms.bias
    margin = terms.margin + (_single_margin(terms) if dtype == np.float32 else 0.0)
    order = np.concatenate([outer, middle, inner])
    wrong, unresolved, example, worst, largest = count(
        *parts, d_inner.astype(dtype), n_inner.astype(dtype), group, index, bias, margin, terms.margin, side**2
    )
    return as_counted(wrong, unresolved, example, worst, largest, fixed, order)


def as_counted(
    wrong: Int[np.ndarray, " bin"],
    unresolved: Int[np.ndarray, " bin"],
    example: Int[np.ndarray, " bin"],
    worst: int,
    largest: float,
    fixed: Int[np.ndarray, " pos"],
    order: Int[np.ndarray, " free"],
) -> Counted:
    """What a compiled count found, whose inputs are numbers of patterns of the free positions in `order`.

    A bin is (free positions + 1) · ones + counted bits.
    """
    side = len(order) + 1

    def bits_of(number: int) -> np.ndarray:
        x = fixed.astype(np.int64)
        x[order] = (number >> np.arange(len(order) - 1, -1, -1)) & 1
        return x

    bins = np.flatnonzero(wrong)
    fewest = bits_of(int(example[bins[(bins % side).argmin()]])) if len(bins) else None
    farthest = bits_of(worst) if len(bins) else None
    return Counted(wrong.reshape(side, side), unresolved.reshape(side, side), fewest, farthest, float(largest))


class BoxTables(NamedTuple):
    """Weights and weighted values of the keys that can occur in a box, [term, own_vocab, pos, vocab].

    Attributes:
        spread: largest log of a weight; weights are relative to the largest that is present in every input.
        widest: the free position with that weight.
    """

    denominator: np.ndarray
    numerator: np.ndarray
    additive: np.ndarray
    spread: float
    widest: int


def box_tables(terms: Terms, fixed: np.ndarray, label: bool) -> BoxTables:
    """The tables of a box; where the label is True, numerators have their sign turned: a sum above 0 is wrong."""
    allowed = np.ones(terms.score.shape, dtype=bool)
    queries = np.flatnonzero(terms.own >= 0)
    for v in (0, 1):
        allowed[:, :, fixed == 1 - v, v] = False
        allowed[queries, 1 - v, terms.own[queries], v] = False
    low = np.where(allowed, terms.score, np.inf).min(axis=3)
    low = np.where(np.isfinite(low), low, -np.inf).max(axis=2)
    relative = np.where(allowed, terms.score - low[:, :, None, None], -np.inf)
    relevant = np.ones(low.shape, dtype=bool)  # own bits that occur
    held = np.where(terms.own < 0, 0, fixed[terms.own])
    for v in (0, 1):
        relevant[held == 1 - v, v] = False
    relative[~relevant] = -np.inf
    free = np.where((fixed < 0)[:, None], relative, -np.inf)
    spread = float(free.max(initial=0.0))
    widest = int(np.unravel_index(free.argmax(), free.shape)[2]) if free.size else 0
    weight = np.exp(np.minimum(relative, 650.0))  # larger ones are not used: `spread`
    weight[weight < SMALLEST_WEIGHT] = 0
    sign = -1.0 if label else 1.0
    return BoxTables(weight, weight * (sign * terms.value[:, None]), sign * terms.additive, spread, widest)


def _part(table: BoxTables, code: np.ndarray, positions: np.ndarray) -> Part:
    n = len(positions)
    bits = ((np.arange(2**n) >> np.arange(n - 1, -1, -1)[:, None]) & 1).astype(bool)
    denominator, numerator, additive = (
        pattern_sums(np.ascontiguousarray(np.moveaxis(side, (-2, -1), (0, 1))), positions) for side in table[:3]
    )
    return Part(denominator, numerator, additive, pattern_sums(code, positions), bits)


def pattern_sums(each: np.ndarray, positions: Int[np.ndarray, " pos"]) -> np.ndarray:
    """For every pattern of the positions' bits, the sum of the entries [pos, vocab, ...] that it chooses."""
    total = np.zeros((1, *each.shape[2:]), dtype=each.dtype)
    for pos in positions:
        total = (total[:, None] + each[pos]).reshape(2 * len(total), *each.shape[2:])  # of no terms, too
    return total


def _single_margin(terms: Terms) -> float:
    """What float32 adds to the margin: three rounded sums and a division a term, and the sum over terms."""
    return float(
        (len(terms.own) + 10)
        * 2.0**-23
        * (terms.size.sum() + np.abs(terms.additive).max(axis=1).sum() + abs(terms.bias))
    )
