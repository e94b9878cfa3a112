"""The steps of `interp.kernel`, compiled by numba: a head's tables, sums over keys, and their gradients.

The computation is that of `interp.tables`, with sums over keys taken group by group. The score of query (u, dest) on
key (v, src) is on_pos[u, dest, src] + on_vocab[u, dest, v]. With a = exp(on_pos − its maximum over src) and
w = exp(on_vocab − its minimum over v), every weight a · w is finite while the two on_vocab lie within LARGEST_GAP, and
every denominator is at least 1, whatever the input: nothing cancels and no present key underflows.

The positions are split into groups of BITS. For each group the sums over its positions are tabulated for all 2**BITS
patterns of its bits; an input's denominators and numerators are then one row of each group's table, added up. The
gradient goes back the same way: each input adds its row to the tables' gradients, which are then folded, bit by bit.
That is a fifth of the additions of a matrix product with the inputs (the method of four Russians: Arlazarov, Dinic,
Kronrod, Faradzhev 1970), and the tables stay in the processor's cache.

Names of axes and arrays, all float32 unless stated:
    tile, column: dests are padded to tiles of `width`; a tile's column is u * width + dest, for the query's bit u.
    q [tile, d_head, column]; a [tile, src, column], w [tile, vocab, column] (above).
    table [group, pattern, c * column]: denominators, then numerators of each value (c = 1 + d_value).
    bits [row, tile, width]: the inputs; codes [row, group] uint8: each group's pattern, its first
    position the lowest bit. z, inverse (of the denominator) [tile, row, ..., width].
"""

import hashlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

BITS = 5
LARGEST_GAP = np.float32(60)
"""Largest |on_vocab[1] − on_vocab[0]|: its exp, and the inverse times a gradient of 1e-11, are normal numbers."""
LARGEST_WEIGHT = np.float32(1e6)
"""Largest |parameter|, so that scores are finite."""
f = np.float32
SOURCES = sorted(Path(__file__).parent.glob("*kernel*.py"))


@cache
def version(folder: Path) -> str:
    """Of the compiled functions of a folder's files and of this one's kernels.

    numba keeps code by a function's name and file, though it has those it calls inside.
    """
    own = [] if folder == Path(__file__).parent else sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in [*SOURCES, *own])).hexdigest()[:16]


def compiled(function: Any, **more: Any) -> Any:
    """numba's njit, kept on disk between processes where there is a place for it."""
    function = inspect.unwrap(function)
    function.__qualname__ += f"_{version(Path(inspect.getfile(function)).parent)}"
    options = {"fastmath": {"contract", "nsz"}, "error_model": "numpy", "nogil": True, **more}
    try:
        return njit(function, cache=True, **options)
    except RuntimeError:  # no folder to keep it in
        return njit(function, **options)


def summing(function: Any) -> Any:
    """The same, free to reorder sums (vectorised); never for sums of large terms that cancel exactly."""
    return compiled(function, fastmath={"contract", "nsz", "reassoc"})


def internal(function: Any) -> Any:
    """The same for calls from compiled functions only, which compiles faster; Python crashes on calling it."""
    return compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _exp(x):
    """e**x to 1e-7 of itself for -87 <= x <= 88, without a branch; below, that of -87 (Cephes' expf, Moshier 1989)."""
    x = max(x, f(-87))
    n = np.floor(x * f(1.44269504) + f(0.5))
    r = x - n * f(0.693359375) + n * f(2.12194440e-4)
    p = f(1.9875691500e-4)
    p = p * r + f(1.3981999507e-3)
    p = p * r + f(8.3334519073e-3)
    p = p * r + f(4.1665795894e-2)
    p = p * r + f(1.6666665459e-1)
    p = p * r + f(5.0000001201e-1)
    p = p * r * r + r + f(1)
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


_exp = compiled(_exp, inline="always")


@compiled
def parameters(flat, at, shape, fixed, zeros):
    """The weights in a row of parameters: views of `flat` at the offsets `at`, -1 for those that a model lacks.

    W_E, W_pos, W_Q, b_Q, W_K, b_K, W_V, b_V, W_readout, b_readout; `fixed` is W_pos where it is no parameter.
    """
    T, d, H, dh, dv = shape
    W_E = flat[at[0] : at[0] + 2 * d].reshape(2, d)
    W_pos = fixed if at[1] < 0 else flat[at[1] : at[1] + T * d].reshape(T, d)
    W_Q = flat[at[2] : at[2] + H * d * dh].reshape(H, d, dh)
    b_Q = (zeros[: H * dh] if at[3] < 0 else flat[at[3] : at[3] + H * dh]).reshape(H, dh)
    W_K = flat[at[4] : at[4] + H * d * dh].reshape(H, d, dh)
    b_K = (zeros[: H * dh] if at[5] < 0 else flat[at[5] : at[5] + H * dh]).reshape(H, dh)
    W_V = flat[at[6] : at[6] + H * d * dv].reshape(H, d, dv)
    b_V = (zeros[: H * dv] if at[7] < 0 else flat[at[7] : at[7] + H * dv]).reshape(H, dv)
    readout = flat[at[8] : at[8] + T * H * dv].reshape(T, H, dv)
    bias = zeros[:1] if at[9] < 0 else flat[at[9] : at[9] + 1]
    return W_E, W_pos, W_Q, b_Q, W_K, b_K, W_V, b_V, readout, bias


@compiled
def project(out, resid, W, bias, factor):
    """out[row, k] = (resid · W + bias) * factor."""
    for row in range(resid.shape[0]):
        for k in range(W.shape[1]):
            total = bias[k]
            for j in range(W.shape[0]):
                total += resid[row, j] * W[j, k]
            out[row, k] = total * factor


@compiled
def weigh(p, h, width, zeros, q, k_pos, k_vocab, v_pos, v_vocab, a, w, readout, largest):
    """Fill a head's tables; True if float32 holds them."""
    W_E, W_pos, W_Q, b_Q, W_K, b_K, W_V, b_V, W_readout, _ = p
    T, d = W_pos.shape
    dh, dv = W_Q.shape[2], W_V.shape[2]
    project(k_pos, W_pos, W_K[h], b_K[h], f(1))
    project(k_vocab, W_E, W_K[h], zeros[:dh], f(1))
    project(v_pos, W_pos, W_V[h], b_V[h], f(1))
    project(v_vocab, W_E, W_V[h], zeros[:dv], f(1))
    scale = f(1 / np.sqrt(dh))
    fits = True
    for i in range(T):
        tile, at = i // width, i % width
        for k in range(dv):
            readout[tile, k, at] = W_readout[i, h, k]
        for u in range(2):
            r0, r1 = f(0), f(0)
            for k in range(dh):
                t = b_Q[h, k]
                for j in range(d):
                    t += (W_E[u, j] + W_pos[i, j]) * W_Q[h, j, k]
                t *= scale
                q[tile, k, u * width + at] = t
                r0 += t * k_vocab[0, k]
                r1 += t * k_vocab[1, k]
            w[tile, 0, u * width + at] = r0 - min(r0, r1)
            w[tile, 1, u * width + at] = r1 - min(r0, r1)
            fits = fits and abs(r0 - r1) <= LARGEST_GAP
    columns = 2 * width
    for tile in range(a.shape[0]):
        for v in range(2):
            for col in range(columns):
                w[tile, v, col] = _exp(w[tile, v, col])
        for j in range(T):
            for col in range(columns):
                a[tile, j, col] = q[tile, 0, col] * k_pos[j, 0]
            for k in range(1, dh):
                for col in range(columns):
                    a[tile, j, col] += q[tile, k, col] * k_pos[j, k]
        for col in range(columns):
            largest[col] = a[tile, 0, col]
        for j in range(1, T):
            for col in range(columns):
                largest[col] = max(largest[col], a[tile, j, col])
        for j in range(T):
            for col in range(columns):
                a[tile, j, col] = _exp(a[tile, j, col] - largest[col])
    return fits


@compiled
def tabulate(a, w, v_pos, v_vocab, row, table):
    """Fill one tile's table: for each group and pattern, the sums over the group's positions."""
    T, columns = a.shape
    dv = v_pos.shape[1]
    size = columns * (1 + dv)
    for group in range(table.shape[0]):
        for b in range(min(BITS, T - group * BITS)):
            j = group * BITS + b
            for v in range(2):
                for col in range(columns):
                    row[v, col] = a[j, col] * w[v, col]
                for k in range(dv):
                    value = v_pos[j, k] + v_vocab[v, k]
                    for col in range(columns):
                        row[v, (1 + k) * columns + col] = row[v, col] * value
            if b == 0:
                for i in range(size):
                    table[group, 0, i] = row[0, i]
                    table[group, 1, i] = row[1, i]
            for pattern in range(1 << b if b else 0):
                for i in range(size):
                    t = table[group, pattern, i]
                    table[group, pattern, i] = t + row[0, i]
                    table[group, (1 << b) + pattern, i] = t + row[1, i]


@summing
def dot(z, n, k, readout):
    total = f(0)
    for i in range(z.shape[2]):
        total += z[n, k, i] * readout[k, i]
    return total


@compiled
def forward(tile, bits, codes, rows, n_rows, table, readout, row, parts, inverse, z, logits):
    """Add one tile's part to the logits of some rows of the inputs."""
    n_groups = table.shape[0]
    dv, width = z.shape[1:]
    for n in range(n_rows):
        r = rows[n]
        p = codes[r, 0]
        if n_groups % 2:
            for i in range(len(row)):
                row[i] = table[0, p, i]
        else:
            other = codes[r, 1]
            for i in range(len(row)):
                row[i] = table[0, p, i] + table[1, other, i]
        for group in range(2 - n_groups % 2, n_groups, 2):
            p, other = codes[r, group], codes[r, group + 1]
            for i in range(len(row)):
                row[i] += table[group, p, i] + table[group + 1, other, i]
        for i in range(width):
            one = bits[r, tile, i]
            inverse[n, i] = f(1) / (one * parts[0, 1, i] + (f(1) - one) * parts[0, 0, i])
        for k in range(dv):
            for i in range(width):
                one = bits[r, tile, i]
                z[n, k, i] = (one * parts[1 + k, 1, i] + (f(1) - one) * parts[1 + k, 0, i]) * inverse[n, i]
            logits[n] += dot(z, n, k, readout)


@compiled
def backward(tile, bits, codes, rows, n_rows, readout, inverse, z, g_logits, row, parts, table, g_readout):
    """Fill the gradient of one tile's table, and of its readout, given that of the logits."""
    n_groups = table.shape[0]
    dv, width = z.shape[1:]
    table[:] = f(0)
    g_readout[:] = f(0)
    for n in range(n_rows):
        r = rows[n]
        g = g_logits[n]
        for i in range(width):
            parts[0, 0, i] = f(0)
            parts[0, 1, i] = f(0)
        for k in range(dv):
            for i in range(width):
                one = bits[r, tile, i]
                high = g * readout[k, i] * inverse[n, i] * one
                low = g * readout[k, i] * inverse[n, i] * (f(1) - one)
                parts[1 + k, 0, i] = low
                parts[1 + k, 1, i] = high
                parts[0, 0, i] -= low * z[n, k, i]
                parts[0, 1, i] -= high * z[n, k, i]
            for i in range(width):
                g_readout[k, i] += g * z[n, k, i]
        for group in range(n_groups):
            p = codes[r, group]
            for i in range(len(row)):
                table[group, p, i] += row[i]


@summing
def fold(a, w, v_pos, v_vocab, q, k_pos, k_vocab, table, row, on_key, g_w, g_q, g_k_pos, g_k_vocab, g_v_pos, g_v_vocab):
    """Turn the gradient of one tile's table into that of its queries (filled), and of keys and values (added to)."""
    T, columns = a.shape
    dh, dv = q.shape[0], v_pos.shape[1]
    size = columns * (1 + dv)
    g_q[:] = f(0)
    g_w[:] = f(0)
    for group in range(table.shape[0]):
        for b in range(min(BITS, T - group * BITS) - 1, -1, -1):
            j = group * BITS + b
            for i in range(size):
                row[0, i] = f(0)
                row[1, i] = f(0)
            for pattern in range(1 << b):
                for i in range(size):
                    t0, t1 = table[group, pattern, i], table[group, (1 << b) + pattern, i]
                    row[0, i] += t0
                    row[1, i] += t1
                    table[group, pattern, i] = t0 + t1
            for col in range(columns):
                on_key[col] = f(0)
            for v in range(2):
                for k in range(dv):
                    at = (1 + k) * columns
                    value = v_pos[j, k] + v_vocab[v, k]
                    t = f(0)
                    for col in range(columns):
                        t += a[j, col] * w[v, col] * row[v, at + col]
                        row[v, col] += value * row[v, at + col]
                    g_v_vocab[v, k] += t
                    g_v_pos[j, k] += t
                for col in range(columns):
                    t = a[j, col] * w[v, col] * row[v, col]
                    g_w[v, col] += t
                    on_key[col] += t
            for k in range(dh):
                t = f(0)
                for col in range(columns):
                    t += on_key[col] * q[k, col]
                    g_q[k, col] += on_key[col] * k_pos[j, k]
                g_k_pos[j, k] += t
    for v in range(2):
        for k in range(dh):
            t = f(0)
            for col in range(columns):
                t += g_w[v, col] * q[k, col]
                g_q[k, col] += g_w[v, col] * k_vocab[v, k]
            g_k_vocab[v, k] += t


@compiled
def unproject(g, resid, W, g_resid, g_W, g_bias):
    """Add to the gradients behind `project` (factor 1), given that of its output."""
    for row in range(resid.shape[0]):
        for k in range(W.shape[1]):
            g_bias[k] += g[row, k]
            for j in range(W.shape[0]):
                g_resid[row, j] += g[row, k] * W[j, k]
                g_W[j, k] += g[row, k] * resid[row, j]


@compiled
def unquery(p, gp, h, first, width, g_q, g_readout):
    """Add one tile's gradients behind its queries and readout."""
    W_E, W_pos, W_Q = p[0], p[1], p[2]
    g_W_E, g_W_pos, g_W_Q, g_b_Q, g_W_readout = gp[0], gp[1], gp[2], gp[3], gp[8]
    T, d = W_pos.shape
    dh = W_Q.shape[2]
    scale = f(1 / np.sqrt(dh))
    for i in range(first, min(first + width, T)):
        for k in range(g_readout.shape[0]):
            g_W_readout[i, h, k] += g_readout[k, i - first]
        for k in range(dh):
            for u in range(2):
                t = g_q[k, u * width + i - first] * scale
                g_b_Q[h, k] += t
                for j in range(d):
                    g_W_E[u, j] += t * W_Q[h, j, k]
                    g_W_pos[i, j] += t * W_Q[h, j, k]
                    g_W_Q[h, j, k] += t * (W_E[u, j] + W_pos[i, j])


@compiled
def sigmoid(x):
    """Of every entry, in place."""
    for n in range(len(x)):
        e = _exp(-abs(x[n]))
        x[n] = (f(1) if x[n] >= 0 else e) / (f(1) + e)


@compiled
def adam(flat, m, v, grad, taken, lr, decay):
    """Step `taken`, from 1, of Adam as torch.optim.Adam takes it (Kingma and Ba 2015; betas 0.9, 0.999; eps 1e-8).

    `decay` times the weights is added to the gradient.
    """
    rate, root = f(min(lr / (1 - 0.9**taken), 3e38)), f(1 / np.sqrt(1 - 0.999**taken))
    for j in range(len(flat)):
        g = grad[j] + f(decay) * flat[j]
        m[j] += f(0.1) * (g - m[j])
        v[j] = f(0.999) * v[j] + f(0.001) * g * g
        flat[j] -= rate * (m[j] / (np.sqrt(v[j]) * root + f(1e-8)))
