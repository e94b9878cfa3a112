"""Where a model is wrong: its counterexamples bit by bit, and how many wrong inputs there are by number of changes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from interp.errors import BoolensError
from interp.plots.checks import AxisLengths
from interp.plots.legends import all_targets, figure_legend, status_handles, target_handles
from interp.plots.style import (
    NEUTRAL,
    POSITIVE,
    SMALL,
    STATUS,
    bar_width,
    mark_targets,
    panel_width,
    position_axis,
    styled,
)

BITS = ListedColormap(["0.93", "0.3"])
VERDICTS = ("verified", "refuted", "undecided")


def plot_certificate(
    inputs: Int[np.ndarray, "row pos"],
    shares: Float[np.ndarray, " change"],
    *,
    rows: Sequence[str],
    change: str,
    harmless: int,
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    n_ctx: int,
) -> Figure:
    """Inputs bit by bit above, the share of wrong inputs by number of changes below; either may be empty.

    Args:
        inputs: bits, 0 or 1; empty where there is nothing to show.
        shares: of the inputs with so many changes from 0, how many are wrong, in [0, 1]; empty where unknown.
        rows: what each input is.
        change: what one change is, such as 'zeros outside the targets'.
        harmless: largest number of changes that is proven harmless; -1 for none.
        targets: target indices of each rule.
        rule_positions: positions of the rule bits.
        n_ctx: number of positions.
    """
    lengths = AxisLengths()
    target_sets = lengths.targets(targets, n_ctx)
    bits = np.asarray(inputs)
    if bits.shape != (len(rows), n_ctx) or not np.isin(bits, (0, 1)).all():
        raise BoolensError(
            f"inputs have shape {bits.shape} for {len(rows)} names and {n_ctx} positions; give a row of 0 and 1 each"
        )
    with styled():
        counted = np.asarray(shares, dtype=np.float64)
        heights = [0.25 * max(len(bits), 1), 1.8 if counted.size else 0.4]
        margins = (0.8 if len(bits) else 0.1) + (0.8 if counted.size else 0.1)
        fig = Figure(figsize=(panel_width(n_ctx, least=3.2) + 2.2, sum(heights) + margins + 0.4), layout="constrained")
        above, below = fig.subplots(2, 1, height_ratios=heights)
        draw_inputs(above, bits, rows, all_targets(target_sets), rule_positions, n_ctx)
        draw_shares(below, counted, change, harmless)
        handles = target_handles(target_sets, rule_positions) if len(bits) else []
        if counted.size and harmless >= 0:
            handles.append(Patch(facecolor=NEUTRAL, alpha=0.2, linewidth=0, label="all right"))
        figure_legend(fig, handles)
        return fig


def draw_inputs(
    ax: Axes,
    bits: NDArray[np.generic],
    rows: Sequence[str],
    targets: Sequence[int],
    rule_positions: Sequence[int],
    n_ctx: int,
) -> None:
    if not len(bits):
        ax.set_axis_off()
        say(ax, "no wrong input found")
        return
    ax.imshow(bits, cmap=BITS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.set_yticks(range(len(rows)), rows)
    position_axis(ax, n_ctx, label="position (index); dark bits are 1")
    ax.set_title("inputs that the model gets wrong")
    for edge in np.arange(1, len(rows)):
        ax.axhline(edge - 0.5, color="white", linewidth=1.5)
    mark_targets(ax, targets, rule_positions)


def draw_shares(ax: Axes, shares: NDArray[np.float64], change: str, harmless: int) -> None:
    if not shares.size:
        ax.set_axis_off()
        proven = (
            f"proven right with at most {harmless} {change}" if harmless >= 0 else f"no number of {change} proven right"
        )
        say(ax, f"{proven};\nnot all inputs counted")
        return
    ax.set(xlabel=f"{change} (count)", ylabel="share of wrong inputs")
    where = np.arange(len(shares))
    ax.bar(where, shares, width=bar_width(len(shares)), color=POSITIVE)
    ax.set_xlim(-0.6, len(shares) - 0.4)
    if shares.any():
        ax.set_yscale("log")
        ax.set_ylim(shares[shares > 0].min() / 3, 1.5)
    else:
        ax.set_ylim(0, 1)
        say(ax, "none is wrong")
    if harmless >= 0:
        ax.axvspan(-0.6, harmless + 0.5, color=NEUTRAL, alpha=0.2, linewidth=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def say(ax: Axes, text: str) -> None:
    """Words in the middle, where there is nothing to draw."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center")


def plot_certificates(
    accuracy: Float[np.ndarray, " run"],
    lower: Float[np.ndarray, " run"],
    upper: Float[np.ndarray, " run"],
    radius: Int[np.ndarray, " run"],
    *,
    verdicts: Sequence[str],
    change: str,
) -> Figure:
    """Probability of a wrong input and proven radius against validation accuracy, one dot a run.

    Where all runs have the same accuracy, they stand side by side in the order of the probability instead.

    Args:
        accuracy: on the validation set, in [0, 1].
        lower, upper: bounds on the probability; a line joins them where they differ. 0 lies on the axis.
        radius: changes that are proven harmless, -1 where an input without any is wrong.
        verdicts: 'verified', 'refuted' or 'undecided'.
        change: what one change is.
    """
    lengths = AxisLengths()
    x = lengths.numbers("accuracy", accuracy, "run")
    low, high = lengths.numbers("lower", lower, "run"), lengths.numbers("upper", upper, "run")
    harmless = lengths.numbers("radius", radius, "run")
    found = lengths.names("verdicts", verdicts, "run")
    label = "validation accuracy"
    ranked = len(x) > 1 and not np.ptp(x)
    if ranked:
        label = f"run (validation accuracy {x[0]:.3f} in all)"
        x = high.argsort(kind="stable").argsort().astype(np.float64)
    with styled():
        fig = Figure(figsize=(6.4, 2.8), layout="constrained")
        left, right = fig.subplots(1, 2)
        floor = max(high[high > 0].min(initial=1.0) / 10, 1e-300)
        for verdict, (colour, marker) in zip(VERDICTS, STATUS, strict=True):
            here = np.array([each == verdict for each in found])
            if not here.any():
                continue
            dot = {"linestyle": "none", "marker": marker, "markersize": 4, "color": colour, "alpha": 0.85}
            left.plot(x[here], np.maximum(high[here], floor), markeredgewidth=0, label=verdict, **dot)
            left.vlines(
                x[here], np.maximum(low[here], floor), np.maximum(high[here], floor), color=colour, linewidth=0.8
            )
            right.plot(x[here], harmless[here], markeredgewidth=0, **dot)
        left.set_yscale("log")
        left.set(xlabel=label, ylabel="probability of a wrong input")
        if not high.all():
            left.axhline(floor, color=NEUTRAL, linewidth=0.6, linestyle=":")
            left.annotate(
                "0: proven", (1, floor), (-3, -5), xycoords=("axes fraction", "data"), textcoords="offset points",
                ha="right", va="top", fontsize=SMALL,
            )  # fmt: skip
            left.set_ylim(bottom=floor / 30)  # room for the words below the dots
        right.set(xlabel=label, ylabel=f"{change}\nproven harmless", ylim=(-1.5, None))
        for axis in (right.yaxis, *((left.xaxis, right.xaxis) if ranked else ())):
            axis.set_major_locator(MaxNLocator(integer=True))
        handles = status_handles(VERDICTS, found)
        if (low < high).any():
            handles.append(Line2D([], [], color="0.35", linewidth=0.8, label="between its bounds"))
        figure_legend(fig, handles)
        return fig
