"""Counterexamples by flipping one bit at a time, always the one that raises a wrong logit most, from many starts."""

import numpy as np

from interp.kernel_parts import compiled


@compiled
def climb(s, starts, fixed):
    """From each start to where no flip of a free bit raises the logit; the inputs reached and their logits.

    Args:
        s: `interp.certify.bounds.Signed`.
        starts: [start, pos], within the box.
        fixed: [pos], the bit where it is fixed, else -1.
    """
    n_terms, _, n_ctx, _ = s.weight.shape
    reached, logit = starts.copy(), np.empty(len(starts))
    d, n = np.empty((n_terms, 2)), np.empty((n_terms, 2))
    for i in range(len(starts)):
        x = reached[i]
        now = sums(s, x, d, n)
        for _ in range(4 * n_ctx):
            flip, most = -1, now
            now_additive = s.bias
            for k in range(n_ctx):
                now_additive += s.additive[k, x[k]]
            for k in range(n_ctx):
                if fixed[k] >= 0:
                    continue
                total = now_additive - s.additive[k, x[k]] + s.additive[k, 1 - x[k]]
                old = x[k]
                for t in range(n_terms):
                    u = x[s.own[t]] if s.own[t] >= 0 else 0
                    if s.own[t] == k:
                        u = 1 - u
                    below = d[t, u] - s.weight[t, u, k, old] + s.weight[t, u, k, 1 - old]
                    above = n[t, u] - s.weight[t, u, k, old] * s.value[t, k, old]
                    above += s.weight[t, u, k, 1 - old] * s.value[t, k, 1 - old]
                    total += above / below
                if total > most:
                    flip, most = k, total
            if flip < 0:
                break
            x[flip] = 1 - x[flip]
            before = now
            now = sums(s, x, d, n)
            if not now > before:
                break
        logit[i] = now
    return reached, logit


@compiled
def sums(s, x, d, n):
    """Denominators and numerators of an input for both values of each query's own bit; the logit."""
    total = s.bias
    for k in range(len(x)):
        total += s.additive[k, x[k]]
    for t in range(len(d)):
        for u in range(2):
            d[t, u], n[t, u] = 0.0, 0.0
            shift = -np.inf
            if s.wide[t, u]:  # one scale does not serve every input: the largest score that is present does
                for k in range(len(x)):
                    shift = max(shift, s.score[t, u, k, x[k]])
            for k in range(len(x)):
                weight = np.exp(s.score[t, u, k, x[k]] - shift) if s.wide[t, u] else s.weight[t, u, k, x[k]]
                d[t, u] += weight
                n[t, u] += weight * s.value[t, k, x[k]]
        u = x[s.own[t]] if s.own[t] >= 0 else 0
        total += n[t, u] / d[t, u]
    return total


@compiled
def logits(s, x):
    """The logit of every input, its sign turned as in `s`."""
    d, n = np.empty((len(s.own), 2)), np.empty((len(s.own), 2))
    out = np.empty(len(x))
    for i in range(len(x)):
        out[i] = sums(s, x[i], d, n)
    return out
