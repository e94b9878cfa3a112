"""The memory in which `interp.cls_kernel` computes: all of it is taken before the first step.

`interp.cls_kernel_parts` names the axes; `shape` is as in `interp.cls_kernel`, `n` the most rows of inputs at once.
"""

from typing import NamedTuple

import numpy as np

from interp.kernel_parts import BITS, compiled, f, internal

GROUPS = 4
"""Groups of bits whose tables are in use at once, so that these stay in the processor's first caches."""


class Tables(NamedTuple):
    """What all inputs share; `embed` and `pos` are centred where there is a norm."""

    embed: np.ndarray
    pos: np.ndarray
    cls: np.ndarray
    unit: np.ndarray
    seen: np.ndarray
    inverse_seen: np.ndarray
    q: np.ndarray
    matrix: np.ndarray
    scaled: np.ndarray
    turned: np.ndarray
    bias: np.ndarray
    of_embed: np.ndarray
    of_pos: np.ndarray
    inverse: np.ndarray
    terms: np.ndarray
    lowest: np.ndarray
    W_O: np.ndarray
    spare: np.ndarray
    row: np.ndarray
    table: np.ndarray


class Rows(NamedTuple):
    """What each input of a batch has for itself."""

    masks: np.ndarray
    sums: np.ndarray
    inverse: np.ndarray
    z: np.ndarray
    resid: np.ndarray
    out: np.ndarray
    unit2: np.ndarray
    inverse2: np.ndarray
    seen2: np.ndarray
    post: np.ndarray
    slope: np.ndarray
    unit_final: np.ndarray
    inverse_final: np.ndarray
    final: np.ndarray
    logits: np.ndarray


class Gradients(NamedTuple):
    """Gradients of what has the same name in Tables or Rows, and transposed weights."""

    flat: np.ndarray
    spare: np.ndarray
    of_embed: np.ndarray
    of_pos: np.ndarray
    scaled: np.ndarray
    bias: np.ndarray
    seen: np.ndarray
    cls: np.ndarray
    W_O: np.ndarray
    turned_O: np.ndarray
    turned_in: np.ndarray
    turned_out: np.ndarray
    resid: np.ndarray
    out: np.ndarray
    post: np.ndarray
    z: np.ndarray
    sums: np.ndarray


@internal
def empty(*shape):
    return np.zeros(shape, np.float32)


@compiled
def new_tables(shape):
    T, d, H, dh, _, _ = shape
    C = H * (1 + dh)
    return Tables(
        empty(3, d), empty(T + 1, d), empty(d), empty(1, d), empty(1, d), empty(1), empty(H, dh),
        empty(d, C), empty(d, C), empty(C, d), empty(C), empty(3, C), empty(T + 1, C), empty(2 * T + 1),
        empty(2 * T + 1, C), empty(H), empty(H * dh, d), empty(1, d), empty(2, C), empty(GROUPS, 1 << BITS, C),
    )  # fmt: skip


@compiled
def new_rows(shape, n):
    _, d, H, dh, d_mlp, _ = shape
    masks = empty(2 * n * d)
    masks[:] = f(1)
    return Rows(
        masks, empty(n, H * (1 + dh)), empty(n, H), empty(n, H * dh), empty(n, d), empty(n, d),
        empty(n, d), empty(n), empty(n, d), empty(n, d_mlp), empty(n, d_mlp),
        empty(n, d), empty(n), empty(n, d), empty(n),
    )  # fmt: skip


@compiled
def new_gradients(n_parameters, shape, n):
    T, d, H, dh, d_mlp, _ = shape
    C = H * (1 + dh)
    return Gradients(
        empty(n_parameters), empty(max(d, d_mlp, H * dh)), empty(3, C), empty(T + 1, C), empty(d, C), empty(C),
        empty(1, d), empty(d), empty(H * dh, d), empty(d, H * dh), empty(d_mlp, d), empty(d, d_mlp),
        empty(n, d), empty(n, d), empty(n, d_mlp), empty(n, H * dh), empty(n, C),
    )  # fmt: skip


@internal
def absent(size):
    """What stands for norms' weights and for biases that a model lacks."""
    ones = empty(size)
    ones[:] = f(1)
    return ones, empty(size)
