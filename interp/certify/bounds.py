"""An upper bound on a sum of ratios over a box of inputs, of which at most so many bits are unlikely ones.

Each ratio's largest value z over the box is found exactly by Dinkelbach's iteration (1967): pick for every key the
bit with the larger n − z a until z stops growing. As N − z D <= 0 throughout the box, N / D <= z + (N − z D) / D_max,
which is additive in the bits. Added up over the terms, all queries share the same bits, so the maximum of the sum is
taken bit by bit. Where a query's own bit is free its two functions differ; their mean is additive, their difference an
interaction of two bits, and those are bounded by their absolute values.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from interp.certify.terms import UNIT, Terms
from interp.kernel_parts import compiled

MOST = np.iinfo(np.int16).max
"""As a limit on unlikely bits: none."""
WIDEST = 600.0
"""Spread of a query's scores from which its weights are taken anew in every box, relative to what is present there."""


LARGEST = 1e290
"""Of a weighted value: sums of larger ones may not be finite, and bound nothing."""


class Signed(NamedTuple):
    """What `bound` and `climb` read: terms with values turned so that a logit above 0 is wrong.

    Attributes:
        score, value, own, bias, size, additive: as in Terms.
        weight: exp(score), relative to the largest of the query's.
        wide: whether the query's scores are further apart than WIDEST.
        counted: [pos], the bit that counts as unlikely at each position, -1 where neither does.
    """

    score: Float[np.ndarray, "term own_vocab pos vocab"]
    value: Float[np.ndarray, "term pos vocab"]
    own: Int[np.ndarray, " term"]
    bias: float
    size: Float[np.ndarray, " term"]
    weight: Float[np.ndarray, "term own_vocab pos vocab"]
    wide: np.ndarray
    additive: Float[np.ndarray, "pos vocab"]
    counted: Int[np.ndarray, " pos"]


def signed(terms: Terms, label: bool, counted: Int[np.ndarray, " pos"]) -> Signed:
    """The terms for inputs of one label."""
    sign = -1.0 if label else 1.0
    relative = terms.score - terms.score.max(axis=(2, 3), keepdims=True, initial=-np.inf)
    wide = relative.min(axis=(2, 3), initial=np.inf) < -WIDEST
    return Signed(
        terms.score,
        sign * terms.value,
        terms.own.astype(np.int64),
        sign * terms.bias,
        terms.size,
        np.exp(relative),
        wide,
        sign * terms.additive,
        counted.astype(np.int8),
    )


@compiled
def bound(s, boxes, limit):
    """For each box an upper bound, a likely maximiser, and each position's effect on the bound.

    Args:
        s: Signed.
        boxes: [box, pos], the bit where it is fixed, else -1.
        limit: [box], how many of the free bits may be unlikely ones.
    """
    n_terms, _, n_ctx, _ = s.weight.shape
    n_boxes = len(boxes)
    upper = np.empty(n_boxes)
    best = np.empty((n_boxes, n_ctx), np.int8)
    effect = np.zeros((n_boxes, n_ctx))
    unary, pair = np.empty((n_ctx, 2)), np.empty((n_ctx, n_ctx))
    h, top = np.empty((2, n_ctx, 2)), np.empty(2)
    a, n, gain = np.empty((n_ctx, 2)), np.empty((n_ctx, 2)), np.empty(n_ctx)
    chosen = np.empty(n_ctx, np.int8)
    for b in range(n_boxes):
        fixed = boxes[b]
        unary[:] = s.additive
        pair[:] = 0.0
        total = s.bias
        for k in range(n_ctx):
            if fixed[k] >= 0:
                total += s.additive[k, fixed[k]]
            else:
                effect[b, k] = abs(s.additive[k, 1] - s.additive[k, 0])
        for t in range(n_terms):
            q = s.own[t]
            held = fixed[q] if q >= 0 else 0
            for u in range(2):
                if held == 1 - u:
                    continue
                weigh(s, t, u, fixed, a, n)
                z, slack, d_max = ratio(a, n, fixed, q, u, s.size[t], s.counted, limit[b], gain, chosen)
                top[u] = z + slack
                if slack > s.size[t]:  # weights too far apart: split at the largest one
                    widest, most = -1, 0.0
                    for k in range(n_ctx):
                        if fixed[k] < 0 and max(a[k, 0], a[k, 1]) > most:
                            widest, most = k, max(a[k, 0], a[k, 1])
                    if widest >= 0:
                        effect[b, widest] += 1e6 * s.size[t]
                for k in range(n_ctx):
                    for v in range(2):
                        h[u, k, v] = (n[k, v] - z * a[k, v]) / d_max
            if held >= 0:
                u = held
                total += top[u]
                for k in range(n_ctx):
                    if fixed[k] >= 0:
                        total += h[u, k, fixed[k]]
                    else:
                        unary[k, 0] += h[u, k, 0]
                        unary[k, 1] += h[u, k, 1]
                        effect[b, k] += abs(h[u, k, 1] - h[u, k, 0])
                continue
            for u in range(2):
                unary[q, u] += top[u] + h[u, q, u]
            change = abs(top[1] + h[1, q, 1] - top[0] - h[0, q, 0])
            for k in range(n_ctx):
                if k == q:
                    continue
                if fixed[k] >= 0:
                    unary[q, 0] += h[0, k, fixed[k]]
                    unary[q, 1] += h[1, k, fixed[k]]
                    continue
                half0, half1 = (h[1, k, 0] - h[0, k, 0]) / 2, (h[1, k, 1] - h[0, k, 1]) / 2
                mean, difference = (half0 + half1) / 2, (half1 - half0) / 2
                unary[k, 0] += (h[0, k, 0] + h[1, k, 0]) / 2
                unary[k, 1] += (h[0, k, 1] + h[1, k, 1]) / 2
                unary[q, 0] -= mean
                unary[q, 1] += mean
                pair[min(q, k), max(q, k)] += difference
                effect[b, k] += (abs(h[0, k, 1] - h[0, k, 0]) + abs(h[1, k, 1] - h[1, k, 0])) / 2
                change += abs(difference)
            effect[b, q] += change
        for k in range(n_ctx):
            for q in range(k):
                total += abs(pair[q, k])
        upper[b] = total + choose(unary, fixed, s.counted, limit[b], gain, best[b])
        if not upper[b] < np.inf:  # numbers that float64 does not hold bound nothing
            upper[b] = np.inf
    return upper, best, effect


@compiled
def weigh(s, t, u, fixed, a, n):
    """A query's weights and weighted values in a box."""
    if not s.wide[t, u]:
        a[:] = s.weight[t, u]
        n[:] = a * s.value[t]
        return
    shift = -np.inf
    for k in range(len(a)):
        if k == s.own[t]:
            shift = max(shift, s.score[t, u, k, u])
        elif fixed[k] >= 0:
            shift = max(shift, s.score[t, u, k, fixed[k]])
        else:
            shift = max(shift, min(s.score[t, u, k, 0], s.score[t, u, k, 1]))
    for k in range(len(a)):
        for v in range(2):
            a[k, v] = np.exp(min(s.score[t, u, k, v] - shift, 650.0))
            n[k, v] = a[k, v] * s.value[t, k, v]


@compiled
def choose(unary, fixed, counted, limit, gain, chosen):
    """The largest sum of one entry a free position with at most `limit` unlikely bits; the bits in `chosen`."""
    total = 0.0
    n_gains = 0
    for k in range(len(fixed)):
        if fixed[k] >= 0:
            chosen[k] = fixed[k]
            continue
        if counted[k] < 0:
            chosen[k] = 1 if unary[k, 1] > unary[k, 0] else 0
            total += unary[k, chosen[k]]
            continue
        likely = 1 - counted[k]
        chosen[k] = likely
        total += unary[k, likely]
        more = unary[k, 1 - likely] - unary[k, likely]
        if more > 0:
            gain[n_gains] = more
            n_gains += 1
    limit = max(limit, 0)
    least = 0.0
    if n_gains > limit:
        if limit == 0:
            return total
        ordered = np.sort(gain[:n_gains])
        least = ordered[n_gains - limit]
        n_gains = limit
    for equal in range(2):  # those above the least one first
        for k in range(len(fixed)):
            if fixed[k] < 0 and counted[k] >= 0 and n_gains > 0:
                more = unary[k, counted[k]] - unary[k, 1 - counted[k]]
                if (more == least if equal else more > least) and more > 0:
                    chosen[k] = counted[k]
                    total += more
                    n_gains -= 1
    return total


@compiled
def ratio(a, n, fixed, q, u, size, counted, limit, gain, chosen):
    """The largest ratio over a box, what rounding can hide of it, and an upper bound on the denominator."""
    n_ctx = len(a)
    d_max, d_min = 0.0, 0.0
    excess = np.empty((n_ctx, 2))
    z, largest = -np.inf, 0.0
    for k in range(n_ctx):
        v = u if k == q else np.int64(fixed[k])
        if v < 0:
            d_max += max(a[k, 0], a[k, 1])
            d_min += min(a[k, 0], a[k, 1])
            chosen[k] = 1 - counted[k] if counted[k] >= 0 else 0
        else:
            d_max += a[k, v]
            d_min += a[k, v]
            chosen[k] = v
        largest = max(largest, abs(n[k, 0]), abs(n[k, 1]))
    for _ in range(100):
        numerator, denominator = 0.0, 0.0
        for k in range(n_ctx):
            numerator += n[k, chosen[k]]
            denominator += a[k, chosen[k]]
        new = numerator / denominator
        if not new > z:
            break
        z = new
        for k in range(n_ctx):
            excess[k, 0] = n[k, 0] - z * a[k, 0]
            excess[k, 1] = n[k, 1] - z * a[k, 1]
        if q < 0 or fixed[q] >= 0:
            choose(excess, fixed, counted, limit, gain, chosen)
        else:
            fixed[q] = u
            choose(excess, fixed, counted, limit - (1 if counted[q] == u else 0), gain, chosen)
            fixed[q] = -1
    if not largest < LARGEST:
        z = np.inf
    return z, 8 * (n_ctx + 2) * UNIT * size * (d_max / d_min), d_max
