"""Bounds, counts and climbs for a perceptron with one hidden layer of GELUs: an MLP as a `Side`.

Pre-activations are additive in the bits, so each lies in an interval over a box. There GELU is below or above a line
(`interp.certify.gelu`), by the sign of its outgoing weight, and lines of pre-activations add up to a function additive
in the bits, whose maximum is taken bit by bit. Every choice of slopes gives a bound. The best is found by the
method of Frank and Wolfe (1956), on the concave envelope: slopes at a point, the bits that maximise their sum, a step
from the point towards those bits. CROWN (Zhang et al. 2018) fixes the slopes, and auto_LiRPA's α-CROWN (Xu et al. 2021)
descends on them with gradients and boxes of real inputs, where this moves to maximisers among bits of which a
limited number may be unlikely ones.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from interp.certify.bounds import choose
from interp.certify.count import Counted
from interp.certify.gelu import STEEPEST, Touches, gelu, line_above, line_below, slope, touches
from interp.certify.mlp_count import count_perceptron
from interp.certify.side import BRANCH_AND_BOUND, MAX_BOXES
from interp.certify.terms import UNIT
from interp.errors import BoolensError
from interp.kernel_parts import compiled, summing

if TYPE_CHECKING:
    from interp.models import HookedMLP

ROUNDS = 8
"""Of the search for slopes, at most."""


@dataclass(frozen=True)
class Perceptron:
    """logit(x) = bias + sum over neurons of out * GELU(b_in + sum over positions of W_in * x), in float64.

    Attributes:
        margin: a bound on the difference between the logit in real arithmetic, of the weights as stored, and its
            evaluation in float64 by sums in any order (`perceptron` derives it).
    """

    W_in: Float[np.ndarray, "pos neuron"]
    b_in: Float[np.ndarray, " neuron"]
    out: Float[np.ndarray, " neuron"]
    bias: float
    margin: float


def perceptron(model: "HookedMLP") -> Perceptron:
    """An MLP's weights in float64, and how far rounding can move its logit.

    With U = 2**-53, T positions, d neurons and A = |b_in| + sum of |W_in| the largest that a pre-activation z can be:
    z is summed with an error of at most 1.01 (T + 1) U A, which GELU multiplies by at most 1.13. GELU is evaluated as
    z / 2 (1 + erf(z / √2)). erf is assumed to be within 4 U of the truth (glibc states 1 ulp, at most 2 U; the tests
    compare it with mpmath); its argument, rounded twice, moves it by max |y erf'(y)| 2 U < U; the sum adds 2 U and the
    products 1 U: 5 U |z| in all. The sum over neurons adds (d + 2) U of sum |out| A + |bias|. The total is doubled.

    Raises:
        BoolensError: a weight that is not finite, or weights so large that their sums are not.
    """
    mlp = model.mlp
    W_in, b_in, out = (weight.detach().double().numpy() for weight in (mlp.W_in, mlp.b_in, mlp.W_out))
    bias = float(mlp.b_out.detach())
    n_ctx, d_mlp = W_in.shape
    size = float((np.abs(out) * (np.abs(b_in) + np.abs(W_in).sum(axis=0))).sum())
    margin = 2 * UNIT * ((STEEPEST * (n_ctx + 2) + d_mlp + 8) * size + (d_mlp + 2) * abs(bias))
    if not np.isfinite(margin):
        largest = max(float(np.abs(weight).max()) for weight in (W_in, b_in, out))
        raise BoolensError(f"the largest weight is {largest}: nothing can be said about its logits; train it again")
    return Perceptron(W_in, b_in, out, bias, margin)


class Neurons(NamedTuple):
    """What the compiled functions read of a perceptron, its sign turned so that a logit above 0 is wrong.

    Attributes:
        order: positions in the order of what their counted bit adds to the neuron, least first; those without one last.
        n_counted: how many have one.
        touches: as in `interp.certify.gelu`.
    """

    W_in: Float[np.ndarray, "pos neuron"]
    b_in: Float[np.ndarray, " neuron"]
    out: Float[np.ndarray, " neuron"]
    bias: float
    counted: Int[np.ndarray, " pos"]
    order: Int[np.ndarray, "neuron pos"]
    n_counted: int
    slack: float
    touches: Touches


class MLPSide:
    """A perceptron against one label: a `Side`.

    The slack of a bound is 6 margins. With the names of `perceptron` and S = sum |out| A: a line's intercept is off by
    at most 36 U A (GELU and its derivative at the touching point, times a distance of at most 2 A), and its interval's
    ends, rounded, move it by 2.26 · 1.01 (T + 1) U A; the sums over neurons of slopes times weights and of intercepts
    (each at most 3.3 A) add (4.5 d + 20) U S, those over positions 2 (T + 2) U 3.3 S. That is less than
    (9 T + 4.5 d + 75) U S, while 6 margins are above 12 (1.13 T + d + 10) U S.
    """

    leaf = 12
    boxes = MAX_BOXES
    proof = BRANCH_AND_BOUND

    def __init__(self, model: "HookedMLP", label: bool, counted: Int[np.ndarray, " pos"]) -> None:
        self.weights = weights = perceptron(model)
        self.counted = np.asarray(counted, dtype=np.int8)
        self.margin, self.slack = weights.margin, 6 * weights.margin
        sign = -1.0 if label else 1.0
        adds = np.where(self.counted == 1, 1.0, -1.0)[:, None] * weights.W_in
        adds[self.counted < 0] = np.inf
        self.neurons = Neurons(
            np.ascontiguousarray(weights.W_in),
            weights.b_in,
            sign * weights.out,
            sign * weights.bias,
            self.counted,
            np.ascontiguousarray(adds.argsort(axis=0).T),
            int((self.counted >= 0).sum()),
            self.slack,
            touches(),
        )

    def bound(
        self, boxes: Int[np.ndarray, "box pos"], limit: Int[np.ndarray, " box"]
    ) -> tuple[Float[np.ndarray, " box"], Int[np.ndarray, "box pos"], Float[np.ndarray, "box pos"]]:
        return bound(self.neurons, np.asarray(boxes, dtype=np.int8), np.asarray(limit, dtype=np.int64))

    def logits(self, x: Int[np.ndarray, "batch pos"]) -> Float[np.ndarray, " batch"]:
        return logits(self.neurons, np.asarray(x, dtype=np.int8))

    def climb(
        self, starts: Int[np.ndarray, "start pos"], fixed: Int[np.ndarray, " pos"]
    ) -> tuple[Int[np.ndarray, "start pos"], Float[np.ndarray, " start"]]:
        return climb(self.neurons, np.asarray(starts, dtype=np.int8), np.asarray(fixed, dtype=np.int8))

    def count(self, fixed: Int[np.ndarray, " pos"]) -> Counted:
        n = self.neurons
        return count_perceptron(n.W_in, n.b_in, n.out, n.bias, self.margin, np.asarray(fixed), self.counted)


@compiled
def intervals(s, fixed, limit, base, low, high):
    """Of the pre-activations over a box; `base` is their value where every free bit is 0.

    At most `limit` free bits are counted ones: for each neuron those that add most, or least.
    """
    n_ctx, n_neurons = s.W_in.shape
    base[:] = s.b_in
    n_free = 0
    for k in range(n_ctx):
        if fixed[k] == 1:
            for j in range(n_neurons):
                base[j] += s.W_in[k, j]
        n_free += fixed[k] < 0 and s.counted[k] >= 0
    low[:], high[:] = base, base
    limited = limit < n_free
    for k in range(n_ctx):
        if fixed[k] >= 0:
            continue
        if limited and s.counted[k] >= 0:
            if s.counted[k] == 0:  # the likely bit is 1
                for j in range(n_neurons):
                    low[j] += s.W_in[k, j]
                    high[j] += s.W_in[k, j]
            continue
        for j in range(n_neurons):
            low[j] += min(s.W_in[k, j], 0.0)
            high[j] += max(s.W_in[k, j], 0.0)
    if not limited:
        return
    for j in range(n_neurons):
        for turn in range(2):
            left, total = limit, 0.0
            for i in range(s.n_counted):
                if left <= 0:
                    break
                k = s.order[j, i if turn == 0 else s.n_counted - 1 - i]
                if fixed[k] >= 0:
                    continue
                adds = s.W_in[k, j] if s.counted[k] == 1 else -s.W_in[k, j]
                if (adds >= 0) if turn == 0 else (adds <= 0):
                    break
                total += adds
                left -= 1
            if turn == 0:
                low[j] += total
            else:
                high[j] += total


@summing
def dot(a, b):
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@compiled
def bound(s, boxes, limit):
    """For each box an upper bound, the best of the maximisers met, and each position's part in the bound's being loose.

    Args:
        s: Neurons.
        boxes: [box, pos], the bit where it is fixed, else -1.
        limit: [box], how many of the free bits may be counted ones.
    """
    n_ctx, n_neurons = s.W_in.shape
    upper, best = np.full(len(boxes), np.inf), np.empty((len(boxes), n_ctx), np.int8)
    effect = np.zeros((len(boxes), n_ctx))
    base, low, high, point, pre = np.empty((5, n_neurons))
    at_low, at_high, slope_low, slope_high = np.empty((4, n_neurons))
    slopes, intercepts, gaps = np.empty((3, n_neurons))
    unary, gain, chosen = np.zeros((n_ctx, 2)), np.empty(n_ctx), np.empty(n_ctx, np.int8)
    for b in range(len(boxes)):
        fixed = boxes[b]
        intervals(s, fixed, limit[b], base, low, high)
        for j in range(n_neurons):
            at_low[j], at_high[j] = gelu(low[j]), gelu(high[j])
            slope_low[j], slope_high[j] = slope(low[j]), slope(high[j])
            point[j] = 0.5 * (low[j] + high[j])
        most = -np.inf
        for step in range(ROUNDS):
            for j in range(n_neurons):
                if s.out[j] > 0:
                    slopes[j], intercepts[j] = line_above(
                        s.touches, low[j], high[j], at_low[j], at_high[j], slope_low[j], slope_high[j], point[j]
                    )
                else:
                    slopes[j], intercepts[j] = line_below(
                        s.touches, low[j], high[j], at_low[j], at_high[j], slope_low[j], slope_high[j], point[j]
                    )
                slopes[j] *= s.out[j]
            total = s.bias + dot(s.out, intercepts) + dot(slopes, base)
            pre[:] = base
            for k in range(n_ctx):
                if fixed[k] < 0:
                    unary[k, 1] = dot(slopes, s.W_in[k])
            total += choose(unary, fixed, s.counted, limit[b], gain, chosen)
            for k in range(n_ctx):
                if fixed[k] < 0 and chosen[k] == 1:
                    for j in range(n_neurons):
                        pre[j] += s.W_in[k, j]
            logit = s.bias
            for j in range(n_neurons):
                there = s.out[j] * gelu(pre[j])
                logit += there
                gaps[j] = s.out[j] * intercepts[j] + slopes[j] * pre[j] - there
            if logit > most:
                most = logit
                best[b] = chosen
            better = total < upper[b]
            if better:
                upper[b] = total
                for j in range(n_neurons):
                    gaps[j] = max(gaps[j], 0.0) / max(high[j] - low[j], 1e-300)
                for k in range(n_ctx):
                    effect[b, k] = 0.0
                    if fixed[k] < 0:
                        for j in range(n_neurons):
                            effect[b, k] += gaps[j] * abs(s.W_in[k, j])
            if upper[b] < -s.slack or most >= 0 or upper[b] - most < 1e-3 * upper[b]:
                break
            share = 2.0 / (step + 3.0)
            for j in range(n_neurons):
                point[j] += share * (pre[j] - point[j])
    return upper, best, effect


@compiled
def pre_activations(s, x, pre):
    pre[:] = s.b_in
    for k in range(len(x)):
        if x[k]:
            for j in range(len(pre)):
                pre[j] += s.W_in[k, j]


@compiled
def logits(s, x):
    """The logit of every input, its sign turned as in `s`."""
    pre, out = np.empty(len(s.b_in)), np.empty(len(x))
    for i in range(len(x)):
        pre_activations(s, x[i], pre)
        out[i] = s.bias
        for j in range(len(pre)):
            out[i] += s.out[j] * gelu(pre[j])
    return out


@compiled
def climb(s, starts, fixed):
    """From each start to where no flip of a free bit raises the logit; the inputs reached and their logits."""
    n_ctx, n_neurons = s.W_in.shape
    reached, logit = starts.copy(), np.empty(len(starts))
    pre = np.empty(n_neurons)
    for i in range(len(starts)):
        x = reached[i]
        now = -np.inf
        while True:
            pre_activations(s, x, pre)
            before = now
            now = s.bias
            for j in range(n_neurons):
                now += s.out[j] * gelu(pre[j])
            if not now > before:
                break
            flip, most = -1, now
            for k in range(n_ctx):
                if fixed[k] >= 0:
                    continue
                turn = 1.0 - 2.0 * x[k]
                total = s.bias
                for j in range(n_neurons):
                    total += s.out[j] * gelu(pre[j] + turn * s.W_in[k, j])
                if total > most:
                    flip, most = k, total
            if flip < 0:
                break
            x[flip] = 1 - x[flip]
        logit[i] = now
    return reached, logit
