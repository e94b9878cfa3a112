"""GELU(z) = z Φ(z) between two lines over an interval, the exact one with erf.

GELU is concave on (−∞, −√2], convex on [−√2, √2] and concave on [√2, ∞), as GELU'' = φ(z)(2 − z²). A line of any
slope s is a bound once its intercept is an extremum of g(z) = GELU(z) − s z over the interval. The maximum of g on the
convex piece is at its ends; on a concave piece g lies below its tangent at any point q, so that the tangent's larger
end is enough, whether q is the maximiser or not. (For the minimum the same with the pieces' parts exchanged.) Nothing
depends on an iteration having converged: slopes and q are chosen so that the line is the concave (convex) envelope's
tangent at a given point, up to the interpolation of the tables below, and a poor choice only loosens the bound.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import erf

from interp.kernel_parts import compiled

BEND = math.sqrt(2.0)
"""Where GELU'' changes sign."""
STEEPEST = 1.13
"""|GELU'| is below this: GELU'(√2) = 1.12890."""
INVERSE_ROOT_2 = 1 / math.sqrt(2.0)
INVERSE_ROOT_2_PI = 1 / math.sqrt(2.0 * math.pi)
N_TOUCHES = 1024


class Touches(NamedTuple):
    """Where lines through a point of the curve touch it on the other side of a bend; up to interpolation.

    Attributes:
        from_outside: for a point u >= √2, by √2 / u in equal steps from 0 to 1; touches in [0.75, √2].
        from_inside: for a point l in [0, √2], by l / √2; the touching point's inverse, 0 where the line never touches.
    """

    from_outside: Float[np.ndarray, " step"]
    from_inside: Float[np.ndarray, " step"]


@cache
def touches() -> Touches:
    """The tables, by bisection. GELU(z) − z / 2 is even, so that they serve both sides."""
    steps = np.linspace(0, 1, N_TOUCHES)

    def above_line(t: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The tangent at t, at z, minus the curve."""
        phi = np.exp(-t * t / 2) * INVERSE_ROOT_2_PI
        cdf = (1 + erf(t * INVERSE_ROOT_2)) / 2
        return t * cdf + (cdf + t * phi) * (z - t) - z * (1 + erf(z * INVERSE_ROOT_2)) / 2

    outside = BEND / np.maximum(steps, 1e-3)
    low, high = np.full(N_TOUCHES, 0.7), np.full(N_TOUCHES, BEND)
    for _ in range(50):
        middle = (low + high) / 2
        over = above_line(middle, outside) > 0
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    far, near = np.full(N_TOUCHES, 13.0), np.full(N_TOUCHES, BEND)
    for _ in range(50):
        middle = (far + near) / 2
        over = above_line(middle, steps * BEND) > 0
        far, near = np.where(over, middle, far), np.where(over, near, middle)
    return Touches((low + high) / 2, np.where(near > 12.5, 0.0, 1 / near))


@compiled
def gelu(z):
    return 0.5 * z * (1.0 + math.erf(z * INVERSE_ROOT_2))


@compiled
def slope(z):
    """GELU'."""
    return 0.5 * (1.0 + math.erf(z * INVERSE_ROOT_2)) + z * math.exp(-0.5 * z * z) * INVERSE_ROOT_2_PI


@compiled
def look_up(table, fraction):
    at = fraction * (len(table) - 1)
    i = min(int(at), len(table) - 2)
    return table[i] + (at - i) * (table[i + 1] - table[i])


@compiled
def touch_from_outside(touches, u):
    """The point in [0, √2] whose tangent passes through the curve at u >= √2."""
    return look_up(touches.from_outside, BEND / u)


@compiled
def touch_from_inside(touches, z):
    """The point above √2 whose tangent passes through the curve at z in [0, √2]."""
    inverse = look_up(touches.from_inside, z * INVERSE_ROOT_2)
    return np.inf if inverse <= 0.08 else max(1 / inverse, BEND)


@compiled
def line_above(touches, low, high, at_low, at_high, slope_low, slope_high, p):
    """Slope and intercept of a line that GELU is nowhere above in [low, high], close to it at p.

    Args:
        at_low, at_high, slope_low, slope_high: GELU and its derivative at low and high.
    """
    p = min(max(p, low), high)
    before, after = low, high  # the envelope is the curve up to before, a chord, and again the curve from after
    if high <= -BEND:
        before = high
    elif low >= BEND:
        after = low
    elif low >= 0 and high > BEND:
        after = min(touch_from_inside(touches, low), high)
    elif high <= 0 and low < -BEND:
        before = max(-touch_from_inside(touches, -high), low)
    left, right, left_at, right_at, left_slope, right_slope = low, high, at_low, at_high, slope_low, slope_high
    if p <= before and before > low:
        left, left_at, left_slope = p, gelu(p), slope(p)
        s = left_slope
    elif before > low:
        left, left_at, left_slope = before, gelu(before), slope(before)
        s = left_slope
    elif p >= after and after < high:
        right, right_at, right_slope = p, gelu(p), slope(p)
        s = right_slope
    elif after < high:
        right, right_at, right_slope = after, gelu(after), slope(after)
        s = right_slope
    elif high > low:
        s = min(max((at_high - at_low) / (high - low), -STEEPEST), STEEPEST)
    else:
        s = slope_low
    c = max(at_low - s * low, at_high - s * high)
    if low < -BEND:
        end = min(high, -BEND)
        more = left_slope - s
        c = max(c, left_at - s * left + max(more * (low - left), more * (end - left)))
    if high > BEND:
        end = max(low, BEND)
        more = right_slope - s
        c = max(c, right_at - s * right + max(more * (high - right), more * (end - right)))
    return s, c


@compiled
def line_below(touches, low, high, at_low, at_high, slope_low, slope_high, p):
    """Slope and intercept of a line that GELU is nowhere below in [low, high], close to it at p; arguments as above."""
    start, end = max(low, -BEND), min(high, BEND)  # of the convex piece
    if not start < end:
        s = min(max((at_high - at_low) / (high - low), -STEEPEST), STEEPEST) if high > low else slope_low
        return s, min(at_low - s * low, at_high - s * high)
    first = low if low >= -BEND else -touch_from_outside(touches, -low)
    last = high if high <= BEND else touch_from_outside(touches, high)
    if first < last:
        q = min(max(p, first), last)
        at_q, slope_q = gelu(q), slope(q)
        s = slope_q
    else:
        q, at_q, slope_q = (high, at_high, slope_high) if high <= BEND else (low, at_low, slope_low)
        s = min(max((at_high - at_low) / (high - low), -STEEPEST), STEEPEST)
    q_in = min(max(q, start), end)
    if q_in != q:  # rounding of a touching point
        q, at_q, slope_q = q_in, gelu(q_in), slope(q_in)
    more = slope_q - s
    c = at_q - s * q + min(more * (start - q), more * (end - q))
    return s, min(c, at_low - s * low, at_high - s * high)
