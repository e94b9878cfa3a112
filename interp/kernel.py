"""Logits, gradients and Adam steps of float32 attention models on a CPU, compiled; one model after another.

`interp.kernel_parts` says how, and names the arrays. Arguments that the functions here share:
    flat [model, parameter]: a model's parameters in a row, of which `at` has the offsets (`parameters`); `shape` is
    (n_ctx, d_model, n_heads, d_head, d_value); `fixed` is W_pos where it is no parameter.
    bits, codes: inputs, with a leading axis on which `which` has the index of each model; y [model, row]: labels.
"""

from typing import NamedTuple

import numpy as np

from interp.kernel_parts import (
    BITS,
    LARGEST_WEIGHT,
    adam,
    backward,
    compiled,
    f,
    fold,
    forward,
    parameters,
    sigmoid,
    tabulate,
    unproject,
    unquery,
    weigh,
)


class Scratch(NamedTuple):
    """Memory for one model; names as in the module's docstring, with a leading head where a head has its own."""

    grad: np.ndarray
    zeros: np.ndarray
    spare: np.ndarray
    spare_pos: np.ndarray
    q: np.ndarray
    k_pos: np.ndarray
    k_vocab: np.ndarray
    v_pos: np.ndarray
    v_vocab: np.ndarray
    a: np.ndarray
    w: np.ndarray
    readout: np.ndarray
    row: np.ndarray
    parts: np.ndarray
    on_key: np.ndarray
    table: np.ndarray
    inverse: np.ndarray
    z: np.ndarray
    logits: np.ndarray
    g_w: np.ndarray
    g_q: np.ndarray
    g_k_pos: np.ndarray
    g_k_vocab: np.ndarray
    g_v_pos: np.ndarray
    g_v_vocab: np.ndarray
    g_readout: np.ndarray


@compiled
def empty(*shape):
    return np.zeros(shape, np.float32)


@compiled
def scratch(n_parameters, n_rows, n_groups, width, n_tiles, shape):
    T, d, H, dh, dv = shape
    columns = 2 * width
    size = columns * (1 + dv)
    row = empty(2, size)
    n_zeros = max(H * max(dh, dv), 1)
    return Scratch(
        empty(n_parameters), empty(n_zeros), empty(n_zeros), empty(T, d),
        empty(H, n_tiles, dh, columns), empty(H, T, dh), empty(H, 2, dh), empty(H, T, dv), empty(H, 2, dv),
        empty(H, n_tiles, T, columns), empty(H, n_tiles, 2, columns), empty(H, n_tiles, dv, width),
        row, row[0].reshape(1 + dv, 2, width), empty(columns), empty(n_groups, 1 << BITS, size),
        empty(H, n_tiles, n_rows, width), empty(H, n_tiles, n_rows, dv, width), empty(n_rows),
        empty(2, columns), empty(dh, columns), empty(T, dh), empty(2, dh), empty(T, dv), empty(2, dv),
        empty(dv, width),
    )  # fmt: skip


@compiled
def prepare(flat, p, s):
    """Fill every head's tables; True if float32 holds them."""
    fits = True
    for i in range(len(flat)):
        fits = fits and abs(flat[i]) <= LARGEST_WEIGHT
    for h in range(len(s.q)):
        if not fits:
            break
        fits = weigh(
            p, h, s.readout.shape[3], s.zeros,
            s.q[h], s.k_pos[h], s.k_vocab[h], s.v_pos[h], s.v_vocab[h], s.a[h], s.w[h], s.readout[h], s.row[0],
        )  # fmt: skip
    return fits


@compiled
def run(p, s, bits, codes, rows, n_rows):
    """Logits of some rows, in s.logits; z and inverse stay for `gradient`."""
    s.logits[:n_rows] = p[9][0]
    for h in range(len(s.q)):
        for tile in range(s.q.shape[1]):
            tabulate(s.a[h, tile], s.w[h, tile], s.v_pos[h], s.v_vocab[h], s.row, s.table)
            forward(
                tile, bits, codes, rows, n_rows,
                s.table, s.readout[h, tile], s.row[0], s.parts, s.inverse[h, tile], s.z[h, tile], s.logits,
            )  # fmt: skip


@compiled
def gradient(p, gp, s, bits, codes, y, rows, n_rows):
    """After `run`: the gradient of the mean binary cross-entropy by the parameters, in s.grad."""
    s.grad[:] = f(0)
    W_E, W_pos, W_K, W_V = p[0], p[1], p[4], p[6]
    sigmoid(s.logits[:n_rows])
    for n in range(n_rows):
        s.logits[n] = (s.logits[n] - y[rows[n]]) / f(n_rows)
        gp[9][0] += s.logits[n]
    width = s.readout.shape[3]
    for h in range(len(s.q)):
        s.g_k_pos[:], s.g_k_vocab[:], s.g_v_pos[:], s.g_v_vocab[:] = f(0), f(0), f(0), f(0)
        for tile in range(s.q.shape[1]):
            backward(
                tile, bits, codes, rows, n_rows,
                s.readout[h, tile], s.inverse[h, tile], s.z[h, tile], s.logits, s.row[0], s.parts, s.table, s.g_readout,
            )  # fmt: skip
            fold(
                s.a[h, tile], s.w[h, tile], s.v_pos[h], s.v_vocab[h], s.q[h, tile], s.k_pos[h], s.k_vocab[h],
                s.table, s.row, s.on_key, s.g_w, s.g_q, s.g_k_pos, s.g_k_vocab, s.g_v_pos, s.g_v_vocab,
            )  # fmt: skip
            unquery(p, gp, h, tile * width, width, s.g_q, s.g_readout)
        unproject(s.g_k_pos, W_pos, W_K[h], gp[1], gp[4][h], gp[5][h])
        unproject(s.g_v_pos, W_pos, W_V[h], gp[1], gp[6][h], gp[7][h])
        unproject(s.g_k_vocab, W_E, W_K[h], gp[0], gp[4][h], s.spare)
        unproject(s.g_v_vocab, W_E, W_V[h], gp[0], gp[6][h], s.spare)


@compiled
def gradients(flat, at, shape, fixed, bits, codes, which, y, rows, out):
    """Each model's gradient on some rows, in a row of `out`; for each, whether float32 holds its tables."""
    n_models, n_parameters = flat.shape
    s = scratch(n_parameters, len(rows), codes.shape[2], bits.shape[3], bits.shape[2], shape)
    gp = parameters(s.grad, at, shape, s.spare_pos, s.spare)
    fits = np.zeros(n_models, np.bool_)
    for model in range(n_models):
        x, code = bits[which[model]], codes[which[model]]
        p = parameters(flat[model], at, shape, fixed, s.zeros)
        fits[model] = prepare(flat[model], p, s)
        if fits[model]:
            run(p, s, x, code, rows, len(rows))
            gradient(p, gp, s, x, code, y[model], rows, len(rows))
            out[model] = s.grad
    return fits


@compiled
def logits(flat, at, shape, fixed, bits, codes, which, out):
    """Each model's logits on all its rows, in a row of `out`; for each, whether float32 holds its tables."""
    n_models, n_parameters = flat.shape
    n_rows = codes.shape[1]
    block = min(128, n_rows)
    s = scratch(n_parameters, block, codes.shape[2], bits.shape[3], bits.shape[2], shape)
    fits = np.zeros(n_models, np.bool_)
    for model in range(n_models):
        x, code = bits[which[model]], codes[which[model]]
        p = parameters(flat[model], at, shape, fixed, s.zeros)
        fits[model] = prepare(flat[model], p, s)
        if not fits[model]:
            continue
        out[model] = p[9][0]
        for h in range(len(s.q)):
            for tile in range(s.q.shape[1]):
                tabulate(s.a[h, tile], s.w[h, tile], s.v_pos[h], s.v_vocab[h], s.row, s.table)
                for start in range(0, n_rows, block):
                    stop = min(start + block, n_rows)
                    forward(
                        tile, x, code, np.arange(start, stop), stop - start, s.table, s.readout[h, tile],
                        s.row[0], s.parts, s.inverse[h, tile], s.z[h, tile], out[model, start:stop],
                    )  # fmt: skip
    return fits


@compiled
def train(flat, m, v, at, shape, fixed, bits, codes, which, sizes, step, lr, decay, y, rows):
    """Steps of Adam on each model in place, until all are taken or float32 does not hold a model's tables.

    `lr` and `decay` as in `adam`. `rows` [model, step, row] are those of each step's batch, of which the first
    `sizes[step]` count, or [model, 1, row] for the same at every step; `step` is the number of steps before these.
    Returns the number of steps that each model took.
    """
    n_models, n_parameters = flat.shape
    s = scratch(n_parameters, rows.shape[2], codes.shape[2], bits.shape[3], bits.shape[2], shape)
    gp = parameters(s.grad, at, shape, s.spare_pos, s.spare)
    done = np.zeros(n_models, np.int64)
    for model in range(n_models):
        x, code = bits[which[model]], codes[which[model]]
        p = parameters(flat[model], at, shape, fixed, s.zeros)
        for i in range(len(sizes)):
            if not prepare(flat[model], p, s):
                break
            batch = rows[model, i % rows.shape[1]]
            run(p, s, x, code, batch, sizes[i])
            gradient(p, gp, s, x, code, y[model], batch, sizes[i])
            adam(flat[model], m[model], v[model], s.grad, step + i + 1, lr, decay)
            done[model] += 1
    return done
