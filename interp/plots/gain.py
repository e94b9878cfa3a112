"""Dot product attention with two gains: the tutorial's Exercise 1."""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from interp.plots.checks import AxisLengths
from interp.plots.style import NEGATIVE, NEUTRAL, POSITIVE, bar_width, panel_width, position_axis, styled


def plot_gain_attention(
    q1: Float[np.ndarray, " pos"],
    q2: Float[np.ndarray, " pos"],
    weights: Float[np.ndarray, " pos"],
    x: Float[np.ndarray, " pos"],
    y: float,
    *,
    z1: float,
    z2: float,
) -> Figure:
    """Three panels over the same positions: patterns, weights = softmax(z1 q1 + z2 q2), input with y = weights · x.

    Args:
        q1: first pattern vector (score per unit of gain).
        q2: second pattern vector (score per unit of gain).
        weights: the attention weights (probability).
        x: the input (value).
        y: the weighted output, in the input's unit.
        z1: gain of `q1`.
        z2: gain of `q2`.
    """
    lengths = AxisLengths()
    first, second, chosen, given = (
        lengths.numbers(name, value, "pos") for name, value in (("q1", q1), ("q2", q2), ("weights", weights), ("x", x))
    )
    n_ctx = lengths["pos"]
    where = np.arange(n_ctx)
    size = 3 if n_ctx <= 40 else 0
    with styled():
        fig = Figure(figsize=(panel_width(n_ctx, least=3.6) + 1.6, 5.0), layout="constrained")
        patterns, middle, below = fig.subplots(3, 1)
        for q, look, colour, label in (
            (first, "-o", POSITIVE, f"q₁, gain z₁ = {z1:.3g}"),
            (second, "-s", NEGATIVE, f"q₂, gain z₂ = {z2:.3g}"),
        ):
            patterns.plot(where, q, look, color=colour, markersize=size, linewidth=1.2, label=label)
        patterns.set_ylabel("pattern\n(score per unit of gain)")
        middle.bar(
            where, chosen, width=bar_width(n_ctx), color="black", linewidth=0, label="weights w\n= softmax(z₁q₁ + z₂q₂)"
        )
        middle.set_ylabel("weight\n(probability)")
        below.bar(where, given, width=bar_width(n_ctx), color=NEUTRAL, linewidth=0, label="input x")
        below.axhline(y, color="black", linewidth=1.2, linestyle="--", label=f"output y = w · x = {y:.3g}")
        below.axhline(0, color="black", linewidth=0.6)
        below.set_ylabel("input, output\n(value)")
        for ax in (patterns, middle, below):
            position_axis(ax, n_ctx, label="position (index)" if ax is below else "")
            ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        return fig
