"""Measures over training with the step at which each locks on, and the order of these events over seeds."""

from collections.abc import Sequence
from itertools import pairwise

import matplotlib as mpl
import numpy as np
from jaxtyping import Float, Integer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from interp.errors import BoolensError
from interp.plots.checks import AxisLengths
from interp.plots.legends import figure_legend
from interp.plots.style import NEGATIVE, NEUTRAL, SEQUENTIAL, TRUE, styled

ACROSS = 3  # panels in a row
UNITS = {"valid-loss": " (nats)"}  # distance is in the parameters' own unit, the others are shares


def plot_formation(
    steps: Sequence[int],
    values: Float[np.ndarray, "measure step"],
    chance: Float[np.ndarray, " measure"],
    at: Float[np.ndarray, " measure"],
    *,
    measures: Sequence[str],
    band: float,
) -> Figure:
    """A panel a measure over the steps (log, with step 0 beside them), and one with every lock-on, earliest first.

    Args:
        steps: logged steps, ascending, the first 0.
        values: in each measure's own unit.
        chance: a dotted line each; NaN leaves it out.
        at: step at which each measure locks on, NaN for never.
        measures: names.
        band: half the band about the final value, as a share of the measure's range; drawn pale.
    """
    lengths = AxisLengths()
    curves = lengths.numbers("values", values, "measure step")
    lengths.length("steps", len(steps), "step")
    dotted = lengths.numbers("chance", chance, "measure")
    locked = lengths.numbers("at", at, "measure")
    names = lengths.names("measures", measures, "measure")
    require_ascending(steps)
    down = -(-(len(names) + 1) // ACROSS)
    with styled():
        mpl.rcParams["axes.titley"] = None  # so near the panel, a title makes way for the axis' 1e−6; styled resets it
        fig = Figure(figsize=(8.4, 1.75 * down + 0.5), layout="constrained")
        grid = fig.add_gridspec(down, ACROSS)  # the order first: its names widen the left margin alone
        panels = [fig.add_subplot(grid[divmod(number, ACROSS)]) for number in (*range(1, len(names) + 1), 0)]
        for number, (name, curve, level, step) in enumerate(zip(names, curves, dotted, locked, strict=True)):
            ax = panels[number]
            half = band * float(np.ptp(curve)) if np.isfinite(curve).all() else 0.0
            ax.axhspan(curve[-1] - half, curve[-1] + half, color=NEUTRAL, alpha=0.25, linewidth=0)
            if np.isfinite(level):
                ax.axhline(level, color="0.4", linewidth=0.8, linestyle=":")
            ax.plot(steps, curve, color=NEGATIVE, linewidth=1, marker="o", markersize=1.8, markeredgewidth=0)
            if np.isfinite(step):
                ax.axvline(step, color=TRUE, linewidth=1)
            step_axis(ax, steps, named=number + ACROSS >= len(names))
            when = f"locks on at step {step:.0f}" if np.isfinite(step) else "does not lock on"
            ax.set_title(f"{name}{UNITS.get(name, '')}\n{when}", pad=4)
        ax = panels[-1]
        order = np.argsort(np.where(np.isfinite(locked), locked, np.inf), kind="stable")
        rows = np.arange(len(names))
        ax.hlines(rows, 0, locked[order], color=NEUTRAL, linewidth=0.6)
        ax.plot(locked[order], rows, "o", color=TRUE, markersize=4, markeredgecolor="0.2", markeredgewidth=0.3)
        ax.set_yticks(rows, [names[i] for i in order])
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        step_axis(ax, steps, named=len(names) < ACROSS)
        ax.set_title("order of the lock-ons", pad=4)
        handles = [
            Line2D([], [], color=TRUE, linewidth=1, label="locks on"),
            Patch(color=NEUTRAL, alpha=0.25, label=f"final value ± {band:.0%} of the range"),
        ]
        if np.isfinite(dotted).any():
            label = "chance: majority class, uniform attention"
            handles.append(Line2D([], [], color="0.4", linewidth=0.8, linestyle=":", label=label))
        figure_legend(fig, handles)
        return fig


def require_ascending(steps: Sequence[int]) -> None:
    """Refuse what a log axis with a step 0 cannot show."""
    if len(steps) < 2 or steps[0] != 0 or any(a >= b for a, b in pairwise(steps)):
        raise BoolensError(f"steps is {list(steps)[:6]}, but they start at 0 and ascend, two or more; sort them")


def step_axis(ax: Axes, steps: Sequence[int], *, named: bool = True) -> None:
    """A log axis from the first step after 0 on, with 0 half a decade to its left."""
    first = float(steps[1])
    ax.set_xscale("symlog", linthresh=first, linscale=0.5)
    ax.set_xlim(-0.08 * first, steps[-1] * 1.1)
    ticks = [0, steps[1], *(10**power for power in range(1, 12) if 2 * first <= 10**power <= steps[-1])]
    if steps[-1] >= 3 * ticks[-1]:
        ticks.append(steps[-1])
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    if named:
        ax.set_xlabel("training step")


def plot_order(
    at: Float[np.ndarray, "seed event"],
    before: Integer[np.ndarray, "event event"],
    of: Integer[np.ndarray, "event event"],
    *,
    steps: Sequence[int],
    events: Sequence[str],
) -> Figure:
    """Left each seed's steps and their median, by event; right in how many seeds the row's came before the column's.

    Args:
        at: step of each event in each seed; NaN where there was none.
        before: seeds in which the row's event came strictly earlier.
        of: seeds in which both happened.
        steps: logged steps, ascending, the first 0.
        events: names, in the order of the rows.
    """
    lengths = AxisLengths()
    points = lengths.numbers("at", at, "seed event")
    counts, totals = (lengths.numbers(n, v, "event event") for n, v in (("before", before), ("of", of)))
    names = lengths.names("events", events, "event")
    require_ascending(steps)
    n_events = len(names)
    shares = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    np.fill_diagonal(shares, np.nan)
    with styled():
        height = 0.36 * n_events + 1.8
        fig = Figure(figsize=(9.0, height), layout="constrained")
        left, right = fig.subplots(1, 2, width_ratios=[1, 1.1])
        spread = 0.28 * (np.arange(len(points)) * 0.6180339887498949 % 1 * 2 - 1)
        for event in range(n_events):
            seen = np.isfinite(points[:, event])
            left.plot(points[seen, event], event + spread[seen], "o", color=NEUTRAL, markersize=2.5, markeredgewidth=0)
            if seen.any():
                left.plot(float(np.median(points[seen, event])), event, "|", color="black", markersize=14)
        left.set_yticks(range(n_events), names)
        left.set_ylim(n_events - 0.5, -0.5)
        left.tick_params(axis="y", length=0)
        step_axis(left, steps)
        left.set_title(f"lock-on of {len(points)} seeds, and their median", pad=4)
        right.imshow(shares, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto", interpolation="none")
        for (row, column), share in np.ndenumerate(shares):
            if row != column:
                dark = np.isfinite(share) and share < 0.6
                right.text(
                    column, row, f"{counts[row, column]:.0f}/{totals[row, column]:.0f}", ha="center", va="center",
                    fontsize=6, color="white" if dark else "black",
                )  # fmt: skip
        right.set_yticks(range(n_events), [""] * n_events)
        right.set_xticks(range(n_events), names, rotation=90)
        right.tick_params(length=0)
        right.set_title(
            "seeds in which the row's event is earlier than the column's,\nof those that have both (colour: the share)",
            pad=4,
        )
        return fig
