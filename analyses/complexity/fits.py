"""How m* grows with T: a + b log T, a + b T or a T**b, compared."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from interp.seeds import numpy_generator

PUBLISHED = {
    **{100: 50, 150: 53, 200: 58, 250: 56, 300: 69, 350: 61, 400: 79, 450: 82, 500: 80, 550: 85, 600: 94, 650: 97},
    **{700: 89, 750: 101, 800: 100, 900: 108, 1000: 111, 1100: 113},
}
"""T: m*, sparse AND of 3 bits, digitised by eye (within 1) from the figure of Edelman et al. 2022 (Inductive biases
and variable creation in self-attention mechanisms), whose success rule and optimiser could not be read."""
LAWS = ("log", "linear", "power")
WORDS = {"log": "a + b log T", "linear": "a + b T", "power": "a T^b"}
LEAST = 4
"""Different T that three laws of two parameters need to be told apart."""
EXPONENTS = np.linspace(-1, 3, 4001)
DRAWS = 1000


def fit_laws(
    n_ctx: Sequence[float],
    m_star: Sequence[float],
    low: Sequence[float | None] | None = None,
    high: Sequence[float | None] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """The laws' least-squares fits, AICc (Hurvich and Tsai 1989), Akaike weights, and the power's exponent.

    Each point weighs one over the square of its interval's width where all points have both ends, else 1. The scale of
    the errors is estimated, so a law has three parameters. With four T AICc is undefined, but the laws' differences
    are not, since their numbers of parameters are equal. The exponent's 95 % interval is a parametric bootstrap: m*
    drawn log-normally with its interval's width, or without intervals the spread about the power law.

    Returns:
        {'n': points, 'defined': whether there are LEAST or more T, 'weighted': ..., 'laws': {law: {'a', 'b', 'r2',
        'aicc', 'delta', 'weight'}}, 'exponent': [b, low, high]}; laws and exponent are None where undefined.
    """
    t, m = np.array(n_ctx, dtype=float), np.array(m_star, dtype=float)
    if len(set(t)) < LEAST:
        return {"n": len(t), "defined": False, "weighted": False, "laws": None, "exponent": None}
    ends = [
        np.array([math.nan if v is None else v for v in end or [None] * len(t)], dtype=float) for end in (low, high)
    ]
    width = ends[1] - ends[0]
    weighted = bool(np.isfinite(width).all() and (width > 0).all() and (ends[0] > 0).all())
    w = width**-2.0 / (width**-2.0).mean() if weighted else np.ones(len(t))
    exponent, scale = (float(part[0]) for part in _powers(t, m[None], w))
    fits = {"log": (*_line(np.log(t), m, w),), "linear": (*_line(t, m, w),), "power": (scale, exponent)}
    total = float((w * (m - np.average(m, weights=w)) ** 2).sum())
    laws, n = {}, len(t)
    for law, (a, b) in fits.items():
        rss = max(float((w * (m - predict(law, a, b, t)) ** 2).sum()), 1e-12 * max(total, 1e-12))
        correction = 6 + 24 / (n - 4) if n > 4 else math.nan
        laws[law] = {"a": a, "b": b, "r2": 1 - rss / total if total else math.nan, "aicc": n * math.log(rss / n)}
        laws[law]["delta"] = laws[law]["aicc"]
        laws[law]["aicc"] += correction
    best = min(fit["delta"] for fit in laws.values())
    for fit in laws.values():
        fit["delta"] -= best
    whole = sum(math.exp(-fit["delta"] / 2) for fit in laws.values())
    for fit in laws.values():
        fit["weight"] = math.exp(-fit["delta"] / 2) / whole
    if weighted:
        spread = np.log(ends[1] / ends[0]) / (2 * 1.96)
    else:
        errors = np.log(m / predict("power", scale, exponent, t))
        spread = np.full(n, math.sqrt(float((errors**2).sum()) / (n - 2)))
    drawn = m * np.exp(spread * numpy_generator(seed, "statistics").standard_normal((DRAWS, n)))
    bounds = np.quantile(_powers(t, drawn, w)[0], (0.025, 0.975)).tolist()
    return {"n": n, "defined": True, "weighted": weighted, "laws": laws, "exponent": [exponent, *bounds]}


def predict(law: str, a: float, b: float, t: np.ndarray) -> np.ndarray:
    """The law's m* at every T."""
    return {"log": lambda: a + b * np.log(t), "linear": lambda: a + b * t, "power": lambda: a * t**b}[law]()


def _line(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[float, float]:
    mean_x, mean_y = np.average(x, weights=w), np.average(y, weights=w)
    b = float((w * (x - mean_x) * (y - mean_y)).sum() / (w * (x - mean_x) ** 2).sum())
    return float(mean_y - b * mean_x), b


def _powers(t: np.ndarray, m: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exponent (to 0.001) and factor of the least-squares power law of every row [draw, point]: the factor is linear,
    the exponent searched for."""
    middle = math.exp(float(np.log(t).mean()))
    shape = (t / middle) ** EXPONENTS[:, None]
    along, length = (m * w) @ shape.T, (w * shape**2).sum(axis=1)
    best = (along**2 / length).argmax(axis=1)
    b = EXPONENTS[best]
    return b, along[np.arange(len(m)), best] / length[best] / middle**b
