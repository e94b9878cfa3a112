"""Effective attention as signed bars, and the graph from positions to the logit."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from interp.plots.checks import AxisLengths, positions_within
from interp.plots.graph import draw_graph
from interp.plots.legends import dot, figure_legend, interval_handle, kind_look, rule_title, target_handles
from interp.plots.style import (
    CATEGORICAL,
    NEGATIVE,
    NEUTRAL,
    POSITIVE,
    mark_targets,
    panel_width,
    position_axis,
    styled,
)

HATCHES = ("", "////", "....")  # a second and third round through the colours
MOST_BARS = 150  # side by side in one panel; with more, each channel has its own
TERMS = ("terms by key (src)", "terms by query (dest)")
WIDEST = 5.0  # points, the edge with the largest absolute contribution


def plot_effective_attention(
    mean: Float[np.ndarray, "rule channel src"],
    low: Float[np.ndarray, "rule channel src"],
    high: Float[np.ndarray, "rule channel src"],
    contribution: Float[np.ndarray, "rule channel src"],
    *,
    by_src: Float[np.ndarray, "rule src"],
    by_dest: Float[np.ndarray, "rule dest"],
    flips: Float[np.ndarray, "rule side pos"],
    sides: Sequence[str],
    channels: Sequence[str],
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    unit: str = "logit per unit of value",
) -> Figure:
    """For each rule, signed bars with their interval, a graph of each channel's edges to the logit, and both sides.

    The sides: what varies with the input, by key and by query, above what a flip of each bit changes, by query and key.

    Args:
        mean: effective attention, in `unit`.
        low: lower end of its 95 % interval.
        high: upper end of it.
        contribution: what each position adds to the logit, in logit; sets the edges' width and colour.
        by_src: variance of the logit's terms summed by key, in logit².
        by_dest: variance of the same logit's terms summed by query, in logit².
        flips: parts of the mean absolute change of the logit by each bit's flip, in logit.
        sides: their names, such as "flip, by query".
        channels: names, such as "head 0".
        targets: one sequence of positions a rule.
        rule_positions: where the rule bits stand.
        unit: of `mean`, `low` and `high`.
    """
    lengths = AxisLengths()
    height = lengths.numbers("mean", mean, "rule channel src")
    ends = [lengths.numbers(name, end, "rule channel src") for name, end in (("low", low), ("high", high))]
    edges = lengths.numbers("contribution", contribution, "rule channel src")
    terms = [lengths.numbers("by_src", by_src, "rule src"), lengths.numbers("by_dest", by_dest, "rule dest")]
    parts = lengths.numbers("flips", flips, "rule side src")
    side_names = lengths.names("sides", sides, "side")
    names = lengths.names("channels", channels, "channel")
    n_rules, n_channels, n_ctx = height.shape
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)
    largest = float(np.abs(edges[np.isfinite(edges)]).max(initial=0))
    scale = WIDEST / largest if largest > 0 else 0.0

    across = min(n_channels, 2)  # graphs beside the bars, two in a row
    down = -(-n_channels // across)
    split = n_channels > 1 and n_channels * n_ctx > MOST_BARS
    lanes = [[c] for c in range(n_channels)] if split else [list(range(n_channels))]
    width, graph_width = panel_width(n_ctx, most=4.4), 1.7  # inches
    row_height = max(3.4, 1.75 * down, 1.4 * len(lanes))
    with styled():
        size = (2 * width + graph_width * across, row_height * n_rules + 0.6)
        fig = Figure(figsize=size, layout="constrained")
        grid = fig.add_gridspec(n_rules, 3, width_ratios=[width, graph_width * across, width])
        first: Axes | None = None
        for r in range(n_rules):
            left, right = grid[r, 0].subgridspec(len(lanes), 1), grid[r, 1].subgridspec(down, across)
            for row, lane in enumerate(lanes):
                bars = fig.add_subplot(left[row], sharey=first)
                first = first or bars
                draw_bars(bars, lane, height[r], ends[0][r], ends[1][r], width)
                bars.set_ylabel(f"{names[row] if split else 'effective attention'}\n({unit})")
                bars.set_title(rule_title(r, target_sets) if row == 0 else "")
                position_axis(bars, n_ctx, label="position (src)" if row == len(lanes) - 1 else "")
                mark_targets(bars, target_sets[r], where_rule)
            for c, name in enumerate(names):
                ax = fig.add_subplot(right[divmod(c, across)])
                inside = (row_height / down - 0.55) * 72  # points, without title and margins
                draw_graph(ax, edges[r, c], target_sets[r], where_rule, scale=scale, height=inside)
                ax.set_title(name)
            upper, lower = (fig.add_subplot(part) for part in grid[r, 2].subgridspec(2, 1))
            draw_kinds(upper, np.stack([of_side[r] for of_side in terms]), TERMS)
            upper.set(title="what varies with the input", ylabel="variance of the\nlogit's terms (logit²)")
            draw_kinds(lower, parts[r], side_names, len(TERMS))
            lower.set(title="what a flip of the bit changes", ylabel="part of mean\n|change| (logit)")
            for ax, label in ((upper, ""), (lower, "position (index)")):
                position_axis(ax, n_ctx, label=label)
                mark_targets(ax, target_sets[r], where_rule)
        handles = [
            *channel_handles(names),
            interval_handle(),
            *target_handles(target_sets, where_rule),
            *edge_handles(largest),
        ]
        kinds = (dot(*kind_look(k), name) for k, name in enumerate((*TERMS, *side_names)))
        figure_legend(fig, [*handles, *kinds])
        return fig


def draw_kinds(ax: Axes, values: Float[np.ndarray, "kind pos"], names: Sequence[str], first: int = 0) -> None:
    """Markers side by side at each position, in the look of the kinds from number `first` on."""
    n_kinds, n_ctx = values.shape
    for k, (row, name) in enumerate(zip(values, names, strict=True)):
        colour, marker = kind_look(first + k)
        xs = np.arange(n_ctx) + (k - (n_kinds - 1) / 2) * 0.3
        size = float(np.clip(110 / n_ctx, 2.2, 4))
        ax.plot(xs, row, marker, color=colour, markersize=size, markeredgewidth=0, label=f"_{name}")
    ax.axhline(0, color="0.5", linewidth=0.6, zorder=1)


def draw_bars(
    ax: Axes,
    channels: Sequence[int],
    mean: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    width: float,
) -> None:
    """Bars of `channels` side by side at each position; where there is one in all, they are grey.

    Args:
        ax: a panel about `width` inches wide.
        channels: which of the arrays' channels to draw.
        mean: [channel, src], as are the interval's ends `low` and `high`.
    """
    n_channels, n_ctx = mean.shape
    bar_width = 0.8 / len(channels)
    points = bar_width * width * 72 / n_ctx
    for number, c in enumerate(channels):
        where = np.flatnonzero(np.isfinite(mean[c]))
        xs = where + (number - (len(channels) - 1) / 2) * bar_width
        values = mean[c, where]
        colour = NEUTRAL if n_channels == 1 else channel_colour(c)  # red and blue are the edges'
        hatch = "" if n_channels == 1 else HATCHES[c // len(CATEGORICAL) % len(HATCHES)]
        ax.bar(xs, values, width=bar_width, color=colour, hatch=hatch, linewidth=0, label=f"_channel {c}")
        known = np.isfinite(low[c, where]) & np.isfinite(high[c, where])
        ends = low[c, where][known], high[c, where][known]
        ax.vlines(xs[known], *ends, colors="0.3", linewidths=min(0.8, 0.4 * points), zorder=3)
    ax.axhline(0, color="black", linewidth=0.6)


def channel_colour(channel: int) -> str:
    """Colours come round again, then with a hatch."""
    return CATEGORICAL[channel % len(CATEGORICAL)]


def channel_handles(names: Sequence[str]) -> list[Artist]:
    """Legend entries for the bars, where there is more than one channel."""
    if len(names) == 1:
        return []
    return [
        Patch(facecolor=channel_colour(c), hatch=HATCHES[c // len(CATEGORICAL) % len(HATCHES)], label=name)
        for c, name in enumerate(names)
    ]


def edge_handles(largest: float) -> list[Artist]:
    """Legend entries for the graph: what colours and widths mean."""
    return [
        Line2D([], [], color=POSITIVE, linewidth=2.5, label="edge that raises the logit"),
        Line2D([], [], color=NEGATIVE, linewidth=2.5, label="edge that lowers it"),
        Line2D([], [], color="0.4", linewidth=WIDEST, label=f"widest edge {largest:.3g} logit"),
    ]
