"""How many inputs of a box a perceptron gets wrong: every one of them evaluated.

An input's free bits are split into two groups, and pre-activations are sums of the groups' tables. The innermost loop,
over the patterns of the second group, runs in float32; what lies within its error of 0 is
evaluated again in float64, and what lies within float64's is counted apart.
"""

import numpy as np
from jaxtyping import Float, Int

from interp.certify.count import Counted, as_counted, pattern_sums, reaches
from interp.certify.gelu import INVERSE_ROOT_2_PI, gelu
from interp.kernel_parts import _exp, compiled

INNER = 8
"""Bits of the second group."""
f = np.float32


def single_error(out: Float[np.ndarray, " neuron"], largest: Float[np.ndarray, " neuron"], bias: float) -> float:
    """How far a logit by float32 can be from that in float64.

    Abramowitz and Stegun's 26.2.17 is within 7.5e-8 < 2 · 2**-24 of Φ, and its evaluation in float32 adds less than
    3e-7 to a neuron's GELU (some 16 roundings of a product of at most 0.17). Its pre-activation, a rounded sum of two
    rounded parts, is off by 3 · 2**-24 of `largest`, which GELU multiplies by at most 1.13; the rounded weight, product
    and sum over neurons add (neurons + 4) 2**-24 of |out| `largest`. Half as much again covers products of errors.

    Args:
        out: weights of the neurons.
        largest: sums of absolute values that a neuron's pre-activation is made of.
    """
    size = float(np.abs(out) @ largest)
    return 1.5 * (3e-7 * float(np.abs(out).sum()) + 2.0**-24 * ((len(out) + 10) * size + (len(out) + 2) * abs(bias)))


@compiled
def add_gelu(total, inner, z, weight):
    """Add a neuron's contribution for every pattern of the inner bits; Φ by Abramowitz and Stegun (1964), 26.2.17."""
    for k in range(len(total)):
        here = z + inner[k]
        size = abs(here)
        t = f(1) / (f(1) + f(0.2316419) * size)
        p = f(1.330274429)
        p = p * t - f(1.821255978)
        p = p * t + f(1.781477937)
        p = p * t - f(0.356563782)
        p = p * t + f(0.319381530)
        beyond = p * t * size * f(INVERSE_ROOT_2_PI) * _exp(f(-0.5) * here * here)
        total[k] += weight * (f(0.5) * (here + size) - beyond)


@compiled
def count(outer, inner, inner_single, out, bias, codes_outer, codes_inner, margin, single, n_bins):
    """Bins of wrong and of unresolved inputs; in each bin of wrong ones, the last one found; and the worst input.

    Args:
        outer, inner: [pattern, neuron] and [neuron, pattern], parts of pre-activations; `inner_single` in float32.
        codes_outer, codes_inner: [pattern]; their sum is an input's bin.
        margin: errors of a logit in float64; `single` in float32.
    """
    n_neurons, n_inner = inner.shape
    wrong, unresolved = np.zeros(n_bins, np.int64), np.zeros(n_bins, np.int64)
    example = np.full(n_bins, -1, np.int64)
    worst, largest = np.int64(-1), -np.inf
    total = np.empty(n_inner, np.float32)
    for i in range(len(outer)):
        total[:] = f(bias)
        for j in range(n_neurons):
            add_gelu(total, inner_single[j], f(outer[i, j]), f(out[j]))
        if not reaches(total, f(-single)):
            continue
        for k in range(n_inner):
            if total[k] < -single:
                continue
            value = np.float64(total[k])
            if value <= single:
                value = bias
                for j in range(n_neurons):
                    value += out[j] * gelu(outer[i, j] + inner[j, k])
                if value < -margin:
                    continue
            bin = codes_outer[i] + codes_inner[k]
            if value <= margin:
                unresolved[bin] += 1
                continue
            wrong[bin] += 1
            example[bin] = i * n_inner + k
            if value > largest:
                largest, worst = value, i * n_inner + k
    return wrong, unresolved, example, worst, largest


def count_perceptron(
    W_in: Float[np.ndarray, "pos neuron"],
    b_in: Float[np.ndarray, " neuron"],
    out: Float[np.ndarray, " neuron"],
    bias: float,
    margin: float,
    fixed: Int[np.ndarray, " pos"],
    counted: Int[np.ndarray, " pos"],
) -> Counted:
    """Evaluate every input of a box; 2**free of them.

    Args:
        W_in, b_in, out, bias: the perceptron, its sign turned so that a logit above 0 is wrong.
        margin: its own.
        fixed: the bit where it is fixed, else -1.
        counted: the bit that is counted at each position, -1 where neither is.
    """
    free = np.flatnonzero(fixed < 0)
    split = max(len(free) - INNER, 0)
    n_bits = len(free) + 1
    code = np.arange(2) * n_bits + (np.arange(2) == counted[:, None])  # [pos, vocab]
    adds = np.stack([np.zeros_like(W_in), W_in], axis=1)
    outer, inner = (
        pattern_sums(adds, free[:split]) + (b_in + W_in[fixed == 1].sum(axis=0)),
        pattern_sums(adds, free[split:]),
    )
    largest = np.abs(outer).max(axis=0) + np.abs(inner).max(axis=0)
    inner = np.ascontiguousarray(inner.T)
    single = margin + single_error(out, largest, bias)
    codes = pattern_sums(code, free[:split]), pattern_sums(code, free[split:])
    wrong, unresolved, example, worst, most = count(
        outer, inner, inner.astype(np.float32), out, bias, *codes, margin, single, n_bits**2
    )
    return as_counted(wrong, unresolved, example, worst, most, fixed, free)
