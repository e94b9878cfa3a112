"""The pieces of `interp.cls_kernel`, compiled by numba: products, norms, GELU, dropout's masks, sums over keys.

Names of axes, all float32 unless stated:
    token: a position with its bit, 2 * src + bit for the bits, 2 * n_ctx for [CLS].
    column: (1 + c) * n_heads + head for a head's c-th value; the score's, or its weight's, column is `head`. The head
    is the inner axis, so that what a head's weight multiplies lies in steps of n_heads: such loops are vectorised.
    codes [row, group] uint8: the pattern of each group of BITS bits, its first position the lowest bit.
"""

from typing import NamedTuple

import numpy as np

from interp.config import NORM_EPS
from interp.kernel_parts import BITS, _exp, compiled, f, internal, summing

EPS = f(NORM_EPS)
"""Added to the variance in a LayerNorm."""
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Parameters(NamedTuple):
    """A model's parameters, or their gradients; absent ones are zeros (biases), ones (norms' weights), or empty."""

    embed: np.ndarray
    pos: np.ndarray
    w1: np.ndarray
    b1: np.ndarray
    W_Q: np.ndarray
    b_Q: np.ndarray
    W_K: np.ndarray
    b_K: np.ndarray
    W_V: np.ndarray
    b_V: np.ndarray
    W_O: np.ndarray
    b_O: np.ndarray
    w2: np.ndarray
    b2: np.ndarray
    W_in: np.ndarray
    b_in: np.ndarray
    W_out: np.ndarray
    b_out: np.ndarray
    w_final: np.ndarray
    b_final: np.ndarray
    readout: np.ndarray
    b_readout: np.ndarray


@internal
def part(flat, at, size, absent):
    return absent[:size] if at < 0 else flat[at : at + size]


@internal
def parameters(flat, at, shape, ones, zeros):
    """Views of a row of parameters at the offsets `at`, in the order of Parameters, -1 for those that a model lacks."""
    T, d, H, dh, d_mlp, _ = shape

    size = H * d * dh
    return Parameters(
        part(flat, at[0], 3 * d, zeros).reshape(3, d), part(flat, at[1], (T + 1) * d, zeros).reshape(T + 1, d),
        part(flat, at[2], d, ones), part(flat, at[3], d, zeros),
        part(flat, at[4], size, zeros).reshape(H, d, dh), part(flat, at[5], H * dh, zeros).reshape(H, dh),
        part(flat, at[6], size, zeros).reshape(H, d, dh), part(flat, at[7], H * dh, zeros).reshape(H, dh),
        part(flat, at[8], size, zeros).reshape(H, d, dh), part(flat, at[9], H * dh, zeros).reshape(H, dh),
        part(flat, at[10], size, zeros).reshape(H, dh, d), part(flat, at[11], d, zeros),
        part(flat, at[12], d, ones), part(flat, at[13], d, zeros),
        part(flat, at[14], d * d_mlp, zeros).reshape(d, d_mlp), part(flat, at[15], d_mlp, zeros),
        part(flat, at[16], d_mlp * d, zeros).reshape(d_mlp, d), part(flat, at[17], d, zeros),
        part(flat, at[18], d, ones), part(flat, at[19], d, zeros),
        part(flat, at[20], d, zeros), part(flat, at[21], 1, zeros),
    )  # fmt: skip


@compiled
def add_product(a, b, out):
    """out += a · b, in blocks of 4 rows and 4 terms, which stay in registers; `a` may be a transposed view."""
    rows, terms = a.shape
    whole_rows, whole_terms = rows - rows % 4, terms - terms % 4
    for i in range(0, whole_rows, 4):
        o0, o1, o2, o3 = out[i], out[i + 1], out[i + 2], out[i + 3]
        for k in range(0, whole_terms, 4):
            p0, p1, p2, p3 = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            q0, q1, q2, q3 = a[i + 1, k], a[i + 1, k + 1], a[i + 1, k + 2], a[i + 1, k + 3]
            r0, r1, r2, r3 = a[i + 2, k], a[i + 2, k + 1], a[i + 2, k + 2], a[i + 2, k + 3]
            s0, s1, s2, s3 = a[i + 3, k], a[i + 3, k + 1], a[i + 3, k + 2], a[i + 3, k + 3]
            b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
            for c in range(b.shape[1]):
                x0, x1, x2, x3 = b0[c], b1[c], b2[c], b3[c]
                o0[c] = o0[c] + p0 * x0 + p1 * x1 + p2 * x2 + p3 * x3
                o1[c] = o1[c] + q0 * x0 + q1 * x1 + q2 * x2 + q3 * x3
                o2[c] = o2[c] + r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3
                o3[c] = o3[c] + s0 * x0 + s1 * x1 + s2 * x2 + s3 * x3
    for i in range(rows):
        for k in range(whole_terms if i < whole_rows else 0, terms):
            t = a[i, k]
            for c in range(b.shape[1]):
                out[i, c] += t * b[k, c]


@internal
def transpose(a, out):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j, i] = a[i, j]


@internal
def set_rows(out, row):
    for n in range(len(out)):
        out[n] = row


@internal
def add_rows(a, out):
    """out += the sum of a's rows."""
    for n in range(len(a)):
        for j in range(len(out)):
            out[j] += a[n, j]


@summing
def inner(a, b):
    total = f(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@summing
def square_of_sum(a, b):
    """|a + b|²."""
    total = f(0)
    for i in range(len(a)):
        total += (a[i] + b[i]) * (a[i] + b[i])
    return total


@summing
def inner_of_sum(a, b, c):
    """a · (b + c)."""
    total = f(0)
    for i in range(len(a)):
        total += a[i] * (b[i] + c[i])
    return total


@internal
def n_above(a, base, most):
    """How many entries are not within `most` above those of `base`."""
    n = np.int32(0)
    for i in range(len(a)):
        n += np.int32(0) if a[i] - base[i] <= most else np.int32(1)
    return n


@summing
def mean(a):
    total = f(0)
    for i in range(len(a)):
        total += a[i]
    return total / f(len(a))


@internal
def centre(norm, x, out):
    """Rows less their mean where there is a norm, else as they are; `out` may be `x`."""
    for n in range(len(x)):
        shift = mean(x[n]) if norm else f(0)
        for j in range(x.shape[1]):
            out[n, j] = x[n, j] - shift


@internal
def normalise(norm, x, w, b, unit, inverse, out):
    """LayerNorm of rows: `unit` before w and b, `out` after, `inverse` of the standard deviation."""
    centre(norm, x, unit)
    for n in range(len(x)):
        inverse[n] = f(1) / np.sqrt(inner(unit[n], unit[n]) / f(len(w)) + EPS) if norm else f(1)
        for j in range(len(w)):
            unit[n, j] *= inverse[n]
            out[n, j] = unit[n, j] * w[j] + b[j]


@internal
def unnormalise(norm, g, w, unit, inverse, g_w, g_b, out):
    """Add to the gradients behind `normalise`, given that of its output, which is overwritten."""
    d = len(w)
    for n in range(len(g)):
        for j in range(d):
            g_w[j] += g[n, j] * unit[n, j]
            g_b[j] += g[n, j]
            g[n, j] *= w[j]
        shift, slope = f(0), f(0)
        if norm:
            shift, slope = mean(g[n]), inner(g[n], unit[n]) / f(d)
        for j in range(d):
            out[n, j] += inverse[n] * (g[n, j] - shift - unit[n, j] * slope)


@compiled
def gelu(x, slope):
    """In place x * Phi(x), and its derivative; Phi to 1e-7 (Abramowitz and Stegun 1964, 7.1.26)."""
    for n in range(x.shape[0]):
        for j in range(x.shape[1]):
            t = x[n, j]
            e = _exp(f(-0.5) * min(t * t, f(170)))
            u = f(1) / (f(1) + f(0.3275911 * 0.7071067811865476) * abs(t))
            tail = f(1.061405429)
            tail = tail * u - f(1.453152027)
            tail = tail * u + f(1.421413741)
            tail = tail * u - f(0.284496736)
            tail = (tail * u + f(0.254829592)) * u * e * f(0.5)
            phi = f(1) - tail if t > f(0) else tail
            x[n, j] = t * phi
            slope[n, j] = phi + t * e * f(0.3989422804014327)


@compiled
def mixed(z):
    """SplitMix64's output function (Steele, Lea, Flood 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def draw_masks(key, step, dropout, out):
    """Fill out [entry] with 1 / (1 - dropout) or, with probability `dropout`, 0: a function of key, step and entry.

    Entry i is dropped where the upper half of output i of SplitMix64 is below dropout * 2**32; the generator's state is
    output `step` of the one that starts at `key`. So any step's masks are drawn without those before.
    """
    start = mixed(np.uint64(key) + GOLDEN * np.uint64(step + 1))
    below, kept = np.uint64(dropout * 4294967296.0), f(1 / (1 - dropout))
    for i in range(len(out)):
        out[i] = f(0) if mixed(start + GOLDEN * np.uint64(i + 1)) >> np.uint64(32) < below else kept


@internal
def multiply(a, b, out):
    for i in range(len(out)):
        out[i] = a[i] * b[i]


@internal
def weighted(terms, H, out):
    """A token's row of weights and values into weights and their products with values."""
    out[:H] = terms[:H]
    for at in range(H, len(terms), H):
        multiply(terms[:H], terms[at : at + H], out[at : at + H])


@internal
def branch(zero, one, low, high):
    """What a pattern sums to with one bit more, 0 in `low` (which holds the sum without it) and 1 in `high`."""
    for i in range(len(low)):
        t = low[i]
        low[i] = t + zero[i]
        high[i] = t + one[i]


@internal
def tabulate(terms, H, first, row, table):
    """Fill the tables of some groups: for each pattern of a group's bits, the sums over its positions."""
    T = (len(terms) - 1) // 2
    for group in range(len(table)):
        for b in range(BITS):
            j = (first + group) * BITS + b
            row[:] = f(0)  # positions after the last count nothing
            if j < T:
                weighted(terms[2 * j], H, row[0])
                weighted(terms[2 * j + 1], H, row[1])
            if b == 0:
                table[group, :2] = row
            for pattern in range(1 << b if b else 0):
                branch(row[0], row[1], table[group, pattern], table[group, (1 << b) + pattern])


@internal
def sum_keys(terms, H, codes, rows, row, table, sums):
    """Numerators and denominators of the inputs `rows`: sums of `weighted` over their tokens and [CLS]."""
    weighted(terms[-1], H, row[0])
    set_rows(sums, row[0])
    for first in range(0, codes.shape[1], len(table)):
        n_groups = min(len(table), codes.shape[1] - first)
        tabulate(terms, H, first, row, table[:n_groups])
        if n_groups < len(table):
            table[n_groups:, 0] = f(0)
        for n in range(len(sums)):
            own, out = codes[rows[n], first : first + n_groups], sums[n]
            t0, t1 = table[0, own[0]], table[1, own[1] if n_groups > 1 else 0]
            t2, t3 = table[2, own[2] if n_groups > 2 else 0], table[3, own[3] if n_groups > 3 else 0]
            for i in range(len(out)):
                out[i] += (t0[i] + t1[i]) + (t2[i] + t3[i])


@internal
def spread(g_sums, codes, rows, first, table):
    """Fill the gradient of some groups' tables, given that of the sums."""
    table[:] = f(0)
    for n in range(len(g_sums)):
        g = g_sums[n]
        for group in range(min(len(table), codes.shape[1] - first)):
            to = table[group, codes[rows[n], first + group]]
            for i in range(len(g)):
                to[i] += g[i]


@internal
def join(zero, one, low, high):
    """The gradient of `branch`: added to `zero` and `one`, and in `low` that of the sum without the bit."""
    for i in range(len(low)):
        zero[i] += low[i]
        one[i] += high[i]
        low[i] += high[i]


@internal
def fold(table, b, row):
    """The gradient of what bit b added to one group's table, for 0 and 1; the table then is that of the bits below."""
    row[:] = f(0)
    for pattern in range(1 << b):
        join(row[0], row[1], table[pattern], table[(1 << b) + pattern])


@internal
def unweighted(terms, H, g):
    """The gradient of a token's score and values in place of that of `weighted`."""
    for at in range(H, len(g), H):
        unmultiply(terms[:H], terms[at : at + H], g[:H], g[at : at + H])
    for h in range(H):
        g[h] *= terms[h]


@internal
def unmultiply(weight, value, on_weight, on_value):
    for h in range(len(weight)):
        t = on_value[h]
        on_weight[h] += t * value[h]
        on_value[h] = t * weight[h]


@internal
def on_token(
    token, src, v, norm, row, terms, H, inverse, of_pos, of_embed, pos, embed,
    g_of_pos, g_of_embed, g_bias, g_pos, g_embed,
):  # fmt: skip
    """Add the gradients behind one token's row of `weighted`, given that row's, which is overwritten."""
    unweighted(terms[token], H, row)
    r, d = inverse[token], pos.shape[1]
    if norm:
        slope = -r * r * r / f(d) * inner_of_sum(row, of_pos[src], of_embed[v])
        for j in range(d):
            own = slope * (embed[v, j] + pos[src, j])
            g_pos[src, j] += own
            g_embed[v, j] += own
    for c in range(len(row)):
        g_bias[c] += row[c]
        g_of_pos[src, c] += r * row[c]
        g_of_embed[v, c] += r * row[c]
