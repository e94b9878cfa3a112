"""Logits, gradients and Adam steps of float32 [CLS] transformers on a CPU, compiled; one model after another.

There is one query, so a token's score is its normalised embedding times one vector a head, W_K q, and with W_V these
are one matrix [d_model, column] (`interp.cls_kernel_parts` names the axes). The norm divides e + p, centred, by a
number, so the products with W_E's rows and with W_pos's are taken apart and added: T + 4 rows instead of 2T + 1, and no
key at all. What the inputs sum, they sum from tables of the patterns of a few bits, as in `interp.kernel_parts`. The
gradient goes back the same way. Scores are relative to the largest that every input has at least (`lowest`), so that
every denominator is at least 1.

Arguments that the functions here share:
    flat [model, parameter]: a model's parameters in a row, of which `at` has the offsets; `shape` is
    (n_ctx, d_model, n_heads, d_head, d_mlp, whether there are norms); `dropout` the share dropped.
    codes: inputs, with a leading axis on which `which` has the index of each model; y [model, row]: labels.
"""

import numpy as np

from interp.cls_kernel_memory import GROUPS, absent, new_gradients, new_rows, new_tables
from interp.cls_kernel_parts import (
    EPS,
    add_product,
    add_rows,
    centre,
    draw_masks,
    fold,
    gelu,
    inner,
    n_above,
    normalise,
    on_token,
    parameters,
    set_rows,
    spread,
    square_of_sum,
    sum_keys,
    transpose,
    unnormalise,
)
from interp.kernel_parts import BITS, _exp, adam, compiled, f, internal, sigmoid

LARGEST_SCORE = f(60)
"""Largest score above the lowest that an input's largest can have."""
LARGEST = f(1e6)
"""Largest |parameter| and |value|: a weight times a value, and sums of thousands, are finite."""
LEAST_SHARE = f(1e-3)
"""Least variance of e + p relative to those of e and p: with less, products taken apart lose digits."""
ROWS = 256
"""Most rows of inputs at once in a forward pass."""


@internal
def prepare(flat, p, norm, t):
    """Fill a model's tables; True if float32 holds them."""
    for i in range(len(flat)):
        if not abs(flat[i]) <= LARGEST:
            return False
    H, d, dh = p.W_Q.shape
    T = len(p.pos) - 1
    centre(norm, p.embed, t.embed)
    centre(norm, p.pos, t.pos)
    for j in range(d):
        t.cls[j] = p.embed[2, j] + p.pos[T, j]
        t.unit[0, j] = t.cls[j]
    normalise(norm, t.unit, p.w1, p.b1, t.unit, t.inverse_seen, t.seen)
    for h in range(H):
        for k in range(dh):
            total = p.b_Q[h, k]
            for j in range(d):
                total += t.seen[0, j] * p.W_Q[h, j, k]
            t.q[h, k] = total / f(np.sqrt(dh))
            t.W_O[k * H + h] = p.W_O[h, k]
    for h in range(H):
        t.bias[h] = inner(p.b_K[h], t.q[h])
        for k in range(dh):
            t.bias[(1 + k) * H + h] = p.b_V[h, k]
        for j in range(d):
            t.matrix[j, h] = inner(p.W_K[h, j], t.q[h])
            for k in range(dh):
                t.matrix[j, (1 + k) * H + h] = p.W_V[h, j, k]
    for j in range(d):
        for c in range(len(t.bias)):
            t.bias[c] += p.b1[j] * t.matrix[j, c]
            t.scaled[j, c] = p.w1[j] * t.matrix[j, c]
    t.of_embed[:] = f(0)
    t.of_pos[:] = f(0)
    add_product(t.embed, t.scaled, t.of_embed)
    add_product(t.pos, t.scaled, t.of_pos)
    return weigh(d, norm, t)


@internal
def weigh(d, norm, t):
    """Fill t.terms from the products; True if float32 holds them."""
    H, T = len(t.lowest), len(t.pos) - 1
    t.lowest[:] = f(-3e38)
    beyond = 0
    for token in range(2 * T + 1):
        src, v = token // 2, token % 2 if token < 2 * T else 2
        inverse = f(1)
        if norm:
            variance = square_of_sum(t.embed[v], t.pos[src]) / f(d) + EPS
            apart = (inner(t.embed[v], t.embed[v]) + inner(t.pos[src], t.pos[src])) / f(d)
            beyond += variance < LEAST_SHARE * apart
            inverse = f(1) / np.sqrt(variance)
        t.inverse[token] = inverse
        on_pos, on_embed, out = t.of_pos[src], t.of_embed[v], t.terms[token]
        for c in range(len(out)):
            out[c] = (on_pos[c] + on_embed[c]) * inverse + t.bias[c]
        if v == 1:
            for h in range(H):
                t.lowest[h] = max(t.lowest[h], min(t.terms[token - 1, h], out[h]))
        elif v == 2:
            for h in range(H):
                t.lowest[h] = max(t.lowest[h], out[h])
    for token in range(2 * T + 1):
        out = t.terms[token]
        beyond += n_above(out[:H], t.lowest, LARGEST_SCORE)
        beyond += not inner(out[H:], out[H:]) <= LARGEST * LARGEST
        for h in range(H):
            out[h] = _exp(out[h] - t.lowest[h])
    return beyond == 0


@internal
def run(p, shape, t, r, codes, rows):
    """Logits of the inputs `rows`, in r.logits; the rest of `r` stays for `gradient`."""
    norm, H, n = shape[5] > 0, shape[2], len(rows)
    d = shape[1]
    masks = r.masks[: 2 * n * d].reshape(2, n, d)
    sums, z, resid, out = r.sums[:n], r.z[:n], r.resid[:n], r.out[:n]
    sum_keys(t.terms, H, codes, rows, t.row, t.table, sums)
    for i in range(n):
        for h in range(H):
            r.inverse[i, h] = f(1) / sums[i, h]
        for at in range(0, z.shape[1], H):
            for h in range(H):
                z[i, at + h] = sums[i, H + at + h] * r.inverse[i, h]
    set_rows(out, p.b_O)
    add_product(z, t.W_O, out)
    for i in range(n):
        for j in range(d):
            resid[i, j] = t.cls[j] + out[i, j] * masks[0, i, j]
    if len(p.b_in):
        seen, post = r.seen2[:n], r.post[:n]
        normalise(norm, resid, p.w2, p.b2, r.unit2, r.inverse2, seen)
        set_rows(post, p.b_in)
        add_product(seen, p.W_in, post)
        gelu(post, r.slope)
        set_rows(out, p.b_out)
        add_product(post, p.W_out, out)
        for i in range(n):
            for j in range(d):
                resid[i, j] += out[i, j] * masks[1, i, j]
    normalise(norm, resid, p.w_final, p.b_final, r.unit_final, r.inverse_final, r.final)
    for i in range(n):
        r.logits[i] = p.b_readout[0] + inner(r.final[i], p.readout)


@internal
def gradient(p, gp, shape, t, r, g, codes, y, rows):
    """After `run`: the gradient of the mean binary cross-entropy by the parameters, in g.flat."""
    g.flat[:] = f(0)
    g.spare[:] = f(0)
    norm, d, H, n = shape[5] > 0, shape[1], shape[2], len(rows)
    masks = r.masks[: 2 * n * d].reshape(2, n, d)
    z, resid, out, sums = g.z[:n], g.resid[:n], g.out[:n], g.sums[:n]
    sigmoid(r.logits[:n])
    for i in range(n):
        t_logit = (r.logits[i] - y[rows[i]]) / f(n)
        gp.b_readout[0] += t_logit
        for j in range(d):
            gp.readout[j] += t_logit * r.final[i, j]
            out[i, j] = t_logit * p.readout[j]
            resid[i, j] = f(0)
    unnormalise(norm, out, p.w_final, r.unit_final, r.inverse_final, gp.w_final, gp.b_final, resid)
    if len(p.b_in):
        post = g.post[:n]
        through_mask(resid, masks[1], out)
        add_rows(out, gp.b_out)
        add_product(r.post[:n].T, out, gp.W_out)
        transpose(p.W_out, g.turned_out)
        post[:] = f(0)
        add_product(out, g.turned_out, post)
        for i in range(n):
            for j in range(len(p.b_in)):
                post[i, j] *= r.slope[i, j]
        add_rows(post, gp.b_in)
        add_product(r.seen2[:n].T, post, gp.W_in)
        transpose(p.W_in, g.turned_in)
        out[:] = f(0)
        add_product(post, g.turned_in, out)
        unnormalise(norm, out, p.w2, r.unit2, r.inverse2, gp.w2, gp.b2, resid)
    g.cls[:] = f(0)
    add_rows(resid, g.cls)
    through_mask(resid, masks[0], out)
    add_rows(out, gp.b_O)
    g.W_O[:] = f(0)
    add_product(r.z[:n].T, out, g.W_O)
    transpose(t.W_O, g.turned_O)
    z[:] = f(0)
    add_product(out, g.turned_O, z)
    for i in range(n):
        sums[i, :H] = f(0)
        for at in range(0, z.shape[1], H):
            for h in range(H):
                own = z[i, at + h] * r.inverse[i, h]
                sums[i, H + at + h] = own
                sums[i, h] -= own * r.z[i, at + h]
    on_tokens(p, gp, norm, t, g, sums, codes, rows)
    on_matrix(p, gp, norm, t, g)


@internal
def through_mask(a, mask, out):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] * mask[i, j]


@internal
def on_tokens(p, gp, norm, t, g, sums, codes, rows):
    """The gradient behind the sums over keys: in g.of_pos, g.of_embed and g.bias, and by the norm in gp.pos, .embed."""
    T, H = len(p.pos) - 1, len(p.W_Q)
    g.of_pos[:], g.of_embed[:], g.bias[:] = f(0), f(0), f(0)
    row, table, terms, inverse = t.row, t.table, t.terms, t.inverse
    of_pos, of_embed, pos, embed = t.of_pos, t.of_embed, t.pos, t.embed
    g_of_pos, g_of_embed, bias, g_pos, g_embed = g.of_pos, g.of_embed, g.bias, gp.pos, gp.embed
    row[0] = f(0)
    add_rows(sums, row[0])
    on_token(
        2 * T, T, 2, norm, row[0], terms, H, inverse, of_pos, of_embed, pos, embed,
        g_of_pos, g_of_embed, bias, g_pos, g_embed,
    )  # fmt: skip
    for first in range(0, codes.shape[1], GROUPS):
        spread(sums, codes, rows, first, table)
        for group in range(min(GROUPS, codes.shape[1] - first)):
            src = (first + group) * BITS
            for b in range(min(BITS, T - src) - 1, -1, -1):
                fold(table[group], b, row)
                for v in range(2):
                    on_token(
                        2 * (src + b) + v, src + b, v, norm, row[v], terms, H, inverse, of_pos, of_embed, pos, embed,
                        g_of_pos, g_of_embed, bias, g_pos, g_embed,
                    )  # fmt: skip


@internal
def on_matrix(p, gp, norm, t, g):
    """Add the gradients behind the products with embeddings, the query, and the norm of both."""
    H, d, dh = p.W_Q.shape
    transpose(t.scaled, t.turned)
    add_product(g.of_pos, t.turned, gp.pos)
    add_product(g.of_embed, t.turned, gp.embed)
    g.scaled[:] = f(0)
    add_product(t.pos.T, g.of_pos, g.scaled)
    add_product(t.embed.T, g.of_embed, g.scaled)
    for j in range(d):
        gp.w1[j] += inner(t.matrix[j], g.scaled[j])
        gp.b1[j] += inner(t.matrix[j], g.bias)
        for c in range(len(g.bias)):
            g.scaled[j, c] = p.w1[j] * g.scaled[j, c] + p.b1[j] * g.bias[c]
    g.seen[:] = f(0)
    for h in range(H):
        for k in range(dh):
            c = (1 + k) * H + h
            gp.b_V[h, k] += g.bias[c]
            gp.b_K[h, k] += g.bias[h] * t.q[h, k]
            gp.W_O[h, k] = g.W_O[k * H + h]
            total = g.bias[h] * p.b_K[h, k]
            for j in range(d):
                gp.W_V[h, j, k] += g.scaled[j, c]
                gp.W_K[h, j, k] += g.scaled[j, h] * t.q[h, k]
                total += g.scaled[j, h] * p.W_K[h, j, k]
            total /= f(np.sqrt(dh))
            gp.b_Q[h, k] += total
            for j in range(d):
                gp.W_Q[h, j, k] += t.seen[0, j] * total
                g.seen[0, j] += p.W_Q[h, j, k] * total
    t.spare[:] = f(0)
    unnormalise(norm, g.seen, p.w1, t.unit, t.inverse_seen, gp.w1, gp.b1, t.spare)
    for j in range(d):
        gp.pos[-1, j] += t.spare[0, j]
        gp.embed[2, j] += t.spare[0, j]
    centre(norm, gp.pos, gp.pos)
    centre(norm, gp.embed, gp.embed)
    for j in range(d):
        gp.pos[-1, j] += g.cls[j]
        gp.embed[2, j] += g.cls[j]


@compiled
def logits(flat, at, shape, codes, which, out):
    """Each model's logits on all its rows, in a row of `out`; for each, whether float32 holds its tables."""
    n_models, n_parameters = flat.shape
    n_rows = codes.shape[1]
    t, r = new_tables(shape), new_rows(shape, min(ROWS, n_rows))
    ones, zeros = absent(n_parameters)
    fits = np.zeros(n_models, np.bool_)
    for model in range(n_models):
        p = parameters(flat[model], at, shape, ones, zeros)
        fits[model] = prepare(flat[model], p, shape[5] > 0, t)
        for start in range(0, n_rows if fits[model] else 0, ROWS):
            rows = np.arange(start, min(start + ROWS, n_rows))
            run(p, shape, t, r, codes[which[model]], rows)
            out[model, start : start + ROWS] = r.logits[: len(rows)]
    return fits


@compiled
def train(flat, m, v, at, shape, codes, which, sizes, step, lr, decay, dropout, y, rows, key, masks, out):
    """Steps of Adam on each model in place, until all are taken or float32 does not hold a model's tables.

    Arguments as of `interp.kernel.train`; key [model, 1] is that of the model's dropout masks (`draw_masks`), of which
    a step has 2 * (rows of its batch) * d_model. Where `out` has a row a model, its gradient goes there instead of
    being taken as a step, and the masks are its row of `masks`, 0 or 1 / (1 - dropout). Returns the number of steps
    that each model took.
    """
    n_models, n_parameters = flat.shape
    t, r, g = new_tables(shape), new_rows(shape, rows.shape[2]), new_gradients(n_parameters, shape, rows.shape[2])
    ones, zeros = absent(n_parameters)
    gp = parameters(g.flat, at, shape, g.spare, g.spare)
    done = np.zeros(n_models, np.int64)
    for model in range(n_models):
        p = parameters(flat[model], at, shape, ones, zeros)
        for i in range(len(sizes)):
            if not prepare(flat[model], p, shape[5] > 0, t):
                break
            batch = rows[model, i % rows.shape[1], : sizes[i]]
            own = r.masks[: 2 * len(batch) * shape[1]]
            if masks.shape[1]:
                own[:] = masks[model]
            elif dropout > 0:
                draw_masks(key[model, 0], step + i, dropout, own)
            run(p, shape, t, r, codes[which[model]], batch)
            gradient(p, gp, shape, t, r, g, codes[which[model]], y[model], batch)
            if out.shape[1]:
                out[model] = g.flat
            else:
                adam(flat[model], m[model], v[model], g.flat, step + i + 1, lr, decay)
            done[model] += 1
    return done
