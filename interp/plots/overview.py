"""Distributions over seeds: accuracy, how well each method ranks the targets, and the probability of an error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from interp.errors import BoolensError
from interp.plots.checks import AxisLengths
from interp.plots.legends import figure_legend
from interp.plots.style import NEUTRAL, SETTINGS, TARGET, styled

OTHER = "majority class"
DOTS: dict[str, Any] = {"s": 14, "alpha": 0.75, "linewidth": 0, "zorder": 3}
GOLDEN, SPREAD = 0.6180339887, 0.4
SMALLEST = 1e-30
"""A probability below this is drawn as 0."""


def plot_overview(
    accuracy: Float[np.ndarray, " seed"],
    majority: Float[np.ndarray, " seed"],
    auroc: Float[np.ndarray, "method seed"],
    *,
    methods: Sequence[str],
    error: Float[np.ndarray, " bounded"],
) -> Figure:
    """Three panels, a dot a seed and a bar at the median: accuracy, AUROC by method, probability of an error.

    Args:
        accuracy: validation accuracy, in [0, 1].
        majority: of always giving the more frequent answer.
        auroc: of the targets, the mean over rules, in [0, 1]; NaN where it is undefined.
        methods: what each row of `auroc` is.
        error: upper bound of the probability of a wrong input, of the seeds that have one; may be empty. A 0 is drawn
            at the lower edge of the logarithmic axis.

    Raises:
        BoolensError: lengths that differ, or a share outside [0, 1].
    """
    lengths = AxisLengths()
    valid, other = lengths.numbers("accuracy", accuracy, "seed"), lengths.numbers("majority", majority, "seed")
    areas, names = lengths.numbers("auroc", auroc, "method seed"), lengths.names("methods", methods, "method")
    errors = np.asarray(error, dtype=np.float64)
    for name, values in (("accuracy", valid), ("majority", other), ("auroc", areas), ("error", errors)):
        outside = values[(values < 0) | (values > 1)]
        if outside.size:
            raise BoolensError(f"{name} has {outside.flat[0]:g}; it must lie between 0 and 1")
    with styled():
        ratios = [1.6, 0.75 * len(names) + 1, 1.6][: 3 if errors.size else 2]
        fig = Figure(figsize=(0.9 * sum(ratios) + 1.6, 2.9), layout="constrained")
        axes = fig.subplots(1, len(ratios), width_ratios=ratios)
        _strip(axes[0], ["model", OTHER], [valid, other], "share of right answers")
        axes[0].set_title("validation accuracy")
        axes[0].set_ylim(min(0.45, float(min(valid.min(), other.min())) - 0.03), 1.02)
        _strip(axes[1], names, list(areas), "AUROC of the targets")
        axes[1].axhline(0.5, color="0.7", linewidth=0.8, zorder=0)
        axes[1].set_title("ranking of the targets (0.5 is chance)")
        lowest = float(np.nanmin(areas)) if np.isfinite(areas).any() else 0.5
        axes[1].set_ylim(min(0.45, lowest - 0.03), 1.02)
        if errors.size:
            _errors(axes[2], errors)
        handles = [axes[0].plot([], [], "o", color=TARGET, markersize=4, markeredgewidth=0, label="one seed")[0]]
        handles += [axes[0].plot([], [], "-", color="black", linewidth=1.4, label="median")[0]]
        figure_legend(fig, handles)
        return fig


def _strip(ax: Axes, names: Sequence[str], values: Sequence[np.ndarray], label: str) -> None:
    """One category a name, a dot a value; dots are spread sideways by steps of the golden ratio, never by chance."""
    x = np.concatenate([i + SPREAD * ((np.arange(len(each)) * GOLDEN) % 1 - 0.5) for i, each in enumerate(values)])
    group = np.repeat(np.arange(len(names)), [len(each) for each in values])
    colours = [NEUTRAL if name == OTHER else TARGET for name in names]
    sns.scatterplot(x=x, y=np.concatenate(values), hue=group, palette=colours, legend=False, ax=ax, **DOTS)
    for i, each in enumerate(values):
        if np.isfinite(each).any():
            ax.hlines(float(np.nanmedian(each)), i - 0.3, i + 0.3, color="black", linewidth=1.4, zorder=4)
    size = SETTINGS["xtick.labelsize"]
    ax.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor", fontsize=size)
    ax.set(xlabel="", ylabel=label, xlim=(-0.6, len(names) - 0.4))


def _errors(ax: Axes, errors: np.ndarray) -> None:
    positive = errors[errors > SMALLEST]
    floor = 10.0 ** (np.floor(np.log10(positive.min())) - 1) if positive.size else 1e-12
    _strip(ax, ["all seeds"], [np.maximum(errors, floor)], "probability of a wrong input")
    ax.set_yscale("log")
    ax.set_ylim(floor / 2, max(10 * float(errors.max()), 10 * floor))
    ax.set_title("probability of error")
    if (errors <= SMALLEST).any():
        ax.axhspan(floor / 2, floor * 2, color="0.9", linewidth=0, zorder=0)
        ax.text(0.5, floor, "0", ha="left", va="center", transform=ax.get_yaxis_transform())
