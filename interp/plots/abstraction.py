"""How well sites and directions stand for a causal model's variables, and what scrubbing leaves."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from interp.errors import BoolensError
from interp.plots.checks import AxisLengths, positions_within
from interp.plots.effects import RECOVERED, draw_map
from interp.plots.legends import (
    all_targets,
    figure_legend,
    interval_handle,
    kind_handles,
    kind_look,
    target_handles,
    undefined_handle,
)
from interp.plots.style import NEUTRAL, SMALL, mark_targets, panel_width, position_axis, styled

IIA = "interchange-intervention accuracy"
CHANCE = 0.5  # IIA of a label that ignores the variable
BASELINES = ("unpatched", "one label", "source's label")
ACROSS = 3  # panels of the search in a row


def plot_abstraction(
    iia: Float[np.ndarray, "source variable site"],
    *,
    baselines: Float[np.ndarray, "baseline variable"],
    search: Float[np.ndarray, "hook variable pos"],
    alignment: Float[np.ndarray, "aligned_hook aligned direction"],
    alignment_low: Float[np.ndarray, "aligned_hook aligned direction"],
    alignment_high: Float[np.ndarray, "aligned_hook aligned direction"],
    recovered: Float[np.ndarray, " hypothesis"],
    recovered_low: Float[np.ndarray, " hypothesis"],
    recovered_high: Float[np.ndarray, " hypothesis"],
    accuracy: Float[np.ndarray, " hypothesis"],
    sources: Sequence[str],
    variables: Sequence[str],
    sites: Sequence[str],
    hooks: Sequence[str],
    aligned: Sequence[str],
    aligned_hooks: Sequence[str],
    directions: Sequence[str],
    hypotheses: Sequence[str],
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
) -> Figure:
    """From top to bottom: IIA of whole sites and baselines, of single positions; directions beside scrubbing.

    Args:
        iia: interchange-intervention accuracy, 0 to 1; NaN (no such site) is hatched.
        baselines: of the labels of BASELINES.
        search: IIA of single positions.
        alignment, alignment_low, alignment_high: IIA along directions, with intervals; NaN is left out.
        recovered, recovered_low, recovered_high: fraction of the loss under each hypothesis; bars end at −1, the
            numbers beside them tell; NaN where undefined.
        accuracy: of the scrubbed model.
        sources: names of one or two.
        variables, sites, hooks, aligned, aligned_hooks, directions, hypotheses: names.
        targets: one sequence of positions a rule; those of all rules are marked.
        rule_positions: where the rule bits stand.
    """
    lengths = AxisLengths()
    whole = lengths.numbers("iia", iia, "source variable site")
    floor = lengths.numbers("baselines", baselines, "baseline variable")
    lengths.length("BASELINES", len(BASELINES), "baseline")
    single = lengths.numbers("search", search, "hook variable pos")
    along = [
        lengths.numbers(name, value, "aligned_hook aligned direction")
        for name, value in (("alignment", alignment), ("low", alignment_low), ("high", alignment_high))
    ]
    left = [
        lengths.numbers(name, value, "hypothesis")
        for name, value in (
            ("recovered", recovered),
            ("recovered_low", recovered_low),
            ("recovered_high", recovered_high),
            ("accuracy", accuracy),
        )
    ]
    variable_names = lengths.names("variables", variables, "variable")
    site_names = [short(name) for name in lengths.names("sites", sites, "site")]
    hook_names = [short(name) for name in lengths.names("hooks", hooks, "hook")]
    source_names = lengths.names("sources", sources, "source")
    aligned_names = lengths.names("aligned", aligned, "aligned")
    aligned_hook_names = [short(name) for name in lengths.names("aligned_hooks", aligned_hooks, "aligned_hook")]
    direction_names = lengths.names("directions", directions, "direction")
    hypothesis_names = lengths.names("hypotheses", hypotheses, "hypothesis")
    n_hooks, n_variables, n_ctx = single.shape
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)

    if len(source_names) > 2:
        raise BoolensError(f"sources names {len(source_names)}, but there is room for 2; draw the others apart")
    down = -(-n_hooks // ACROSS)
    rows_high = max(1.0, 0.17 * n_variables + 0.9)
    heights = [rows_high + 0.75, rows_high * down + 0.3, 2.6]
    width = min(13.0, max(8.6, ACROSS * panel_width(n_ctx, 2.4, 3.6) + 1.4))
    with styled():
        fig = Figure(figsize=(width, sum(heights) + 0.5), layout="constrained")
        grid = fig.add_gridspec(down + 2, 6, height_ratios=[heights[0], *[rows_high] * down, heights[2]])
        axes = [fig.add_subplot(grid[0, 3 * s : 3 * s + 3]) for s in range(len(source_names))]
        columns = [*site_names, *BASELINES]
        for s, ax in enumerate(axes):
            shown = np.concatenate([whole[s], floor.T], axis=1)
            draw_shares(ax, shown, variable_names if s == 0 else [""] * n_variables)
            write_shares(ax, shown)
            ax.set_xticks(range(len(columns)), columns, rotation=90)
            ax.axvline(len(site_names) - 0.5, color="black", linewidth=1)
            ax.set_title(f"whole sites, {source_names[s]} source")
        panels = []
        for number in range(n_hooks):
            row, column = divmod(number, ACROSS)
            ax = fig.add_subplot(grid[1 + row, 2 * column : 2 * column + 2])
            panels.append(ax)
            draw_shares(ax, single[number], variable_names if number % ACROSS == 0 else [""] * n_variables)
            position_axis(ax, n_ctx, label="position (index)")
            mark_targets(ax, all_targets(target_sets), where_rule)
            ax.set_title(f"one position of {hook_names[number]}")
        colours = ScalarMappable(Normalize(0, 1), RECOVERED)
        fig.colorbar(
            colours, ax=[*axes, *panels], label=f"{IIA}, {CHANCE} is chance", fraction=0.2 / width, aspect=30, pad=0.01
        )
        beside, scrubbing = fig.add_subplot(grid[-1, :3]), fig.add_subplot(grid[-1, 3:])
        draw_directions(beside, along, aligned_names, aligned_hook_names)
        draw_scrubbing(scrubbing, left, hypothesis_names)
        handles = [
            *target_handles(target_sets, where_rule, spell_out=True),
            *kind_handles(direction_names, lines=False),
        ]
        if np.isnan(whole).any() or np.isnan(single).any():
            handles.append(undefined_handle("no such site"))
        figure_legend(fig, [*handles, interval_handle("95 % interval, or range where named")])
        return fig


def short(name: str) -> str:
    """ "pattern" for blocks.0.attn.hook_pattern."""
    return name.rsplit(".", 1)[-1].removeprefix("hook_")


def draw_shares(ax: Axes, shares: NDArray[np.float64], rows: Sequence[str]) -> None:
    """A map [row, column] of shares; chance is white."""
    draw_map(ax, shares - CHANCE, CHANCE)
    ax.set_yticks(range(len(rows)), rows)


def write_shares(ax: Axes, shares: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(shares):
        if np.isfinite(value):
            colour = "white" if abs(value - CHANCE) > 0.35 else "black"
            ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)


def draw_directions(
    ax: Axes, along: Sequence[NDArray[np.float64]], variables: Sequence[str], hooks: Sequence[str]
) -> None:
    """IIA with intervals, one group a hook and variable, side by side by kind of direction."""
    values, low, high = (each.reshape(-1, each.shape[-1]) for each in along)
    n_groups, n_kinds = values.shape
    for k in range(n_kinds):
        colour, marker = kind_look(k)
        xs = np.arange(n_groups) + 0.22 * (k - (n_kinds - 1) / 2)
        known = np.isfinite(values[:, k])
        ax.vlines(xs[known], low[known, k], high[known, k], colors=colour, linewidths=0.9)
        ax.plot(
            xs, values[:, k], marker, color=colour, markersize=4, markeredgecolor="0.2", markeredgewidth=0.3,
            label=f"_direction {k}",
        )  # fmt: skip
    ax.axhline(CHANCE, color="0.5", linewidth=0.6, linestyle="--", zorder=0)
    names = [f"{variable}\n{hook}" for hook in hooks for variable in variables]
    ax.set_xticks(range(n_groups), names)
    ax.set(xlim=(-0.5, n_groups - 0.5), ylim=(min(0.0, float(np.nanmin(low, initial=0))), 1.04))
    ax.set(ylabel=IIA.replace(" ", "\n"), title="one direction of a site's activation")


def draw_scrubbing(ax: Axes, left: Sequence[NDArray[np.float64]], hypotheses: Sequence[str]) -> None:
    """Bars from 0 to the fraction recovered, cut at −1, with intervals; above each its name and numbers."""
    value, low, high, accuracy = left
    ys = np.arange(len(hypotheses))
    cut = np.clip(value, -1, None)
    ax.barh(ys + 0.18, np.nan_to_num(cut), height=0.36, color=NEUTRAL, linewidth=0)
    seen = np.isfinite(low) & (high > -1)
    ax.hlines(ys[seen] + 0.18, np.clip(low[seen], -1, None), high[seen], colors="black", linewidths=0.9)
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # over the line at 0, where the words are long
    for y, name, of_loss, right in zip(ys, hypotheses, value, accuracy, strict=True):
        text = f"{of_loss:.3g}".replace("-", "−") if np.isfinite(of_loss) else "undefined"
        said = f"{name}: {text} (accuracy {right:.3f})"
        ax.text(-0.97, y - 0.22, said, va="center", fontsize=SMALL, bbox=ground)
    ax.axvline(0, color="black", linewidth=0.6)
    ax.axvline(1, color="0.5", linewidth=0.6, linestyle="--", zorder=0)
    ax.set_xticks([-1, -0.5, 0, 0.5, 1])
    ax.set_yticks([])
    ax.set(xlim=(-1, 1), ylim=(len(hypotheses) - 0.5, -0.5), title="scrubbing, by hypothesis")
    ax.set_xlabel("fraction of the loss recovered (bars end at −1)")
