"""Smallest sufficient training sets by architecture (the tutorial's Exercise 3.4): a panel of the comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from interp.errors import BoolensError
from interp.plots.checks import AxisLengths
from interp.plots.legends import kind_look
from interp.plots.style import NEUTRAL, SMALL

ACROSS = 6  # seeds side by side at one sample size


@dataclass(frozen=True)
class SampleSizes:
    """Smallest sufficient training sets among those `tried`: each seed's, their median and its interval.

    inf is more than the largest tried; an interval that ends in 0 or inf has no bound there.
    """

    tried: Sequence[int]
    per_seed: Float[np.ndarray, "architecture seed"]
    median: Float[np.ndarray, " architecture"]
    low: Float[np.ndarray, " architecture"]
    high: Float[np.ndarray, " architecture"]


def check_sizes(lengths: AxisLengths, sizes: SampleSizes) -> None:
    """Shapes that agree, and sizes that were tried."""
    values = lengths.numbers("sample_sizes.per_seed", sizes.per_seed, "architecture seed")
    for part in ("median", "low", "high"):
        lengths.numbers(f"sample_sizes.{part}", getattr(sizes, part), "architecture")
    strange = values[np.isfinite(values) & ~np.isin(values, sizes.tried)]
    if strange.size:
        raise BoolensError(f"sample_sizes.per_seed holds {strange[0]:g}, which is not among those tried")


def draw_sizes(ax: Axes, sizes: SampleSizes, names: Sequence[str], density: str, training: str, n_valid: int) -> None:
    """A row an architecture: each seed's smallest sufficient training set, the median and its interval."""
    first, last = sizes.tried[0], sizes.tried[-1]
    step = np.log(last / first) / max(len(sizes.tried) - 1, 1) or 0.35
    beyond = last * np.exp(1.3 * step)  # where 'more than the largest' is drawn
    edge = beyond * np.exp(0.65 * step)
    ax.axvspan(last * np.exp(0.6 * step), edge, color=NEUTRAL, alpha=0.2, linewidth=0, zorder=0)
    for row in range(len(names)):
        colour, marker = kind_look(1)
        per_seed = np.minimum(sizes.per_seed[row], beyond)
        for size in np.unique(per_seed):
            number = np.arange(int((per_seed == size).sum()))
            in_line = (number % ACROSS) - (min(len(number), ACROSS) - 1) / 2
            ax.plot(
                size * np.exp(in_line * step / (ACROSS + 1)), row + 0.12 + 0.14 * (number // ACROSS), marker,
                color=colour, alpha=0.6, markersize=2.4, markeredgewidth=0, label=f"_seeds {row}",
            )  # fmt: skip
        ends = np.clip([sizes.low[row], sizes.high[row]], first * np.exp(-0.55 * step), beyond)
        ax.hlines(row - 0.12, *ends, colors=colour, linewidths=1.2, label=f"_interval {row}")
        median = min(float(sizes.median[row]), beyond)
        ax.plot(
            median, row - 0.12, marker, color=colour, markersize=4.5, markeredgecolor="0.2", markeredgewidth=0.4,
            zorder=4, label=f"_median {row}",
        )  # fmt: skip
        text = f"{sizes.median[row]:,.0f}" if np.isfinite(sizes.median[row]) else f"> {last:,}"
        ax.annotate(
            text, (median, row - 0.12), (0, 5), textcoords="offset points", ha="center", va="bottom", fontsize=SMALL
        )
    ax.set_xscale("log")
    ax.set_xlim(first * np.exp(-0.65 * step), edge)
    ax.set_xticks([*sizes.tried[::2], beyond], [*(f"{size:,}" for size in sizes.tried[::2]), f"> {last:,}"])
    ax.minorticks_off()
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.65)
    ax.set_xlabel("training samples (count, log scale)")
    ax.set_title(f"training samples for all {n_valid:,} validation inputs right; {density}, {training}", pad=4)
