"""Estimates of patches against their exact effects, and the paths of a bit's effect."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from interp.plots.checks import AxisLengths
from interp.plots.legends import figure_legend, kind_handles, kind_look
from interp.plots.style import styled

ACROSS = 3  # panels in a row
EQUAL = "0.7"


def plot_attribution(
    exact: Float[np.ndarray, "panel cell"],
    estimate: Float[np.ndarray, "kind panel cell"],
    *,
    panels: Sequence[str],
    kinds: Sequence[str],
    unit: str,
    paths: Float[np.ndarray, "group route"] | None = None,
    groups: Sequence[str] = (),
    routes: Sequence[str] = (),
) -> Figure:
    """One panel a hook: each cell's estimate over its exact effect, which are equal on the grey line; then the paths.

    Args:
        exact: change of the metric when a cell is patched, in `unit`.
        estimate: of the same.
        panels: titles.
        kinds: of estimate.
        unit: of the changes.
        paths: change of the logit by each route, one line a group.
        groups: the names of the groups.
        routes: such as "q", "k", "v", "qk".
    """
    lengths = AxisLengths()
    truth = lengths.numbers("exact", exact, "panel cell")
    guess = lengths.numbers("estimate", estimate, "kind panel cell")
    titles = lengths.names("panels", panels, "panel")
    kind_names = lengths.names("kinds", kinds, "kind")
    by_route = None if paths is None else lengths.numbers("paths", paths, "group route")
    if by_route is not None:
        lengths.names("groups", groups, "group")
        lengths.names("routes", routes, "route")
    n_panels = len(titles) + 2 * (by_route is not None)  # the second for its legend
    across = min(n_panels, ACROSS)
    down = -(-n_panels // across)
    with styled():
        fig = Figure(figsize=(2.7 * across + 0.4, 2.4 * down + 0.6), layout="constrained")
        axes = list(fig.subplots(down, across, squeeze=False).flat)
        for ax, title, xs, ys in zip(axes, titles, truth, guess.swapaxes(0, 1), strict=False):
            ax.axline((0, 0), slope=1, color=EQUAL, linewidth=0.8, zorder=0)
            for k, one in enumerate(ys):
                colour, marker = kind_look(k)
                look = {"color": colour, "markeredgecolor": "0.2", "markeredgewidth": 0.2}
                size = 5 if k == 0 else 3  # where estimates agree, both are seen
                ax.plot(xs, one, marker, markersize=size, label=f"_kind {k}", rasterized=xs.size > 5000, **look)
            limits = square(xs, ys)
            ax.set(title=title, xlabel=f"exact effect ({unit})", ylabel=f"estimate ({unit})", xlim=limits, ylim=limits)
        rest = axes[len(titles) :]
        if by_route is not None:
            paths_ax, beside = rest.pop(0), rest.pop(0)
            draw_paths(paths_ax, by_route, groups, routes)
            beside.set_axis_off()
            beside.legend(*paths_ax.get_legend_handles_labels(), loc="center left", title="bit of", alignment="left")
        for ax in rest:
            ax.remove()
        equal = Line2D([], [], color=EQUAL, linewidth=0.8, label="estimate = exact effect")
        figure_legend(fig, [*kind_handles(kind_names, lines=False), equal])
        return fig


def square(*values: Float[np.ndarray, "..."]) -> tuple[float, float]:
    """One pair of limits for both axes, with room about all finite values, so that equality is the diagonal."""
    finite = np.concatenate([each[np.isfinite(each)] for each in values])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = 0.06 * (high - low) or 0.5
    return low - room, high + room


def draw_paths(
    ax: Axes, by_route: Float[np.ndarray, "group route"], groups: Sequence[str], routes: Sequence[str]
) -> None:
    """Effects by route, one line a group."""
    for g, (name, values) in enumerate(zip(groups, by_route, strict=True)):
        colour, marker = kind_look(g)
        ax.plot(
            range(len(routes)), values, marker, color=colour, markersize=3.5, linestyle=":", linewidth=0.8, label=name
        )
    ax.axhline(0, color="0.5", linewidth=0.6, zorder=0)
    ax.set_xticks(range(len(routes)), routes)
    ax.set(
        title="paths of the bit, embed → z → logit", xlabel="through (several: only together)", ylabel="effect (logit)"
    )
