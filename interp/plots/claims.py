"""How well each method's scores pick out the indices that a claim names."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from interp.plots.checks import AxisLengths
from interp.plots.legends import figure_legend, status_handles
from interp.plots.style import NEUTRAL, STATUS, styled

STATES = ("holds", "fails", "undecided")


def plot_claims(
    auroc: Float[np.ndarray, "test rule"],
    initial: Float[np.ndarray, "test rule"],
    *,
    claims: Sequence[str],
    methods: Sequence[str],
    status: Sequence[str],
) -> Figure:
    """One row a claim and method: the AUROC of the claimed indices, a dot a rule, coloured by status.

    Args:
        auroc: of the trained model, in [0, 1].
        initial: of the model at initialisation; NaN where unknown.
        claims: in words, one a test.
        methods: one a test.
        status: 'holds', 'fails' or 'undecided', one a test.
    """
    lengths = AxisLengths()
    trained, before = lengths.numbers("auroc", auroc, "test rule"), lengths.numbers("initial", initial, "test rule")
    names = lengths.names("claims", claims, "test")
    method_names = lengths.names("methods", methods, "test")
    found = lengths.names("status", status, "test")
    n_tests, n_rules = trained.shape
    labels = [f"{name}: {method}" for name, method in zip(names, method_names, strict=True)]
    with styled():
        width = 3.6 + 0.066 * max(map(len, labels))
        fig = Figure(figsize=(width, 0.26 * n_tests + 1.2), layout="constrained")
        ax = fig.subplots()
        ax.axvline(0.5, color="0.7", linewidth=0.8, zorder=0)
        for row in range(n_tests):
            colour, marker = STATUS[STATES.index(found[row])]
            look = {"linestyle": "none", "markersize": 5}
            ax.plot(before[row], [row] * n_rules, "o", markerfacecolor="none", markeredgecolor=NEUTRAL, **look)
            ax.plot(trained[row], [row] * n_rules, marker, color=colour, markeredgewidth=0, **look)
        ax.set_yticks(range(n_tests), labels)
        of_each = ", a mark a rule" if n_rules > 1 else ""
        ax.set(xlim=(-0.03, 1.03), ylim=(n_tests - 0.5, -0.5))
        ax.set_xlabel(f"AUROC of the claimed indices{of_each} (0.5 is chance)")
        handles = status_handles(STATES, found)
        if np.isfinite(before).any():
            at_start = Line2D([], [], linestyle="none", marker="o", markerfacecolor="none", markeredgecolor=NEUTRAL)
            at_start.set_label("at initialisation")
            handles.append(at_start)
        figure_legend(fig, handles)
        return fig
