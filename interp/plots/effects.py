"""Effects of ablations and the recovery by patches, position by position."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from interp.plots.checks import AxisLengths, positions_within
from interp.plots.legends import (
    all_targets,
    figure_legend,
    interval_handle,
    kind_handles,
    kind_look,
    target_handles,
    undefined_handle,
)
from interp.plots.style import DIVERGING, HATCHED, mark_targets, panel_width, position_axis, styled

ACROSS = 3  # panels in a row
DODGE = 0.7  # cells that the kinds at one position share
LIMIT = 1.0  # of the colour scale for patches, either way; 1 is full recovery
RECOVERED = mpl.colormaps[DIVERGING].with_extremes(bad=(0, 0, 0, 0))  # NaN is see-through


def plot_ablation(
    effect: Float[np.ndarray, "hook kind pos"],
    low: Float[np.ndarray, "hook kind pos"],
    high: Float[np.ndarray, "hook kind pos"],
    *,
    hooks: Sequence[str],
    kinds: Sequence[str],
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    panel_rules: Sequence[int] = (),
    unit: str = "logit",
) -> Figure:
    """One panel a hook: metric(clean) − metric(ablated) at each position, one marker a kind, with its interval.

    Args:
        effect: in `unit`; NaN where a hook and kind do not go together.
        low: lower end of the 95 % interval.
        high: upper end of it.
        hooks: panel titles.
        kinds: such as "zero", "mean", "resample".
        targets: one sequence of positions a rule; those of all rules are marked.
        rule_positions: where the rule bits stand.
        panel_rules: where panels show one rule each, the rule of each panel; only its targets are marked there, and
            the rules of a hook stand side by side where they come in turn.
        unit: of `effect`, `low` and `high`.
    """
    lengths = AxisLengths()
    values = lengths.numbers("effect", effect, "hook kind pos")
    ends = [lengths.numbers(name, end, "hook kind pos") for name, end in (("low", low), ("high", high))]
    hook_names = lengths.names("hooks", hooks, "hook")
    kind_names = lengths.names("kinds", kinds, "kind")
    n_hooks, _, n_ctx = values.shape
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)
    if panel_rules:
        lengths.length("panel_rules", len(panel_rules), "hook")
        positions_within("panel_rules", panel_rules, len(target_sets))

    turns = len(target_sets) if panel_rules else 1
    hooks_across = max(1, (ACROSS + 1) // turns) if n_ctx <= 60 else 1  # of one rule each; many positions need room
    across = min(n_hooks, ACROSS if turns == 1 else turns * hooks_across)
    down = -(-n_hooks // across)
    with styled():
        least = max(2.4, 0.066 * max(map(len, hook_names)))  # inches, so that titles fit
        size = (
            max(3.4, panel_width(n_ctx, least, max(4.2, least) if across <= ACROSS else least) * across + 0.4),
            1.9 * down + 0.9,
        )
        fig = Figure(figsize=size, layout="constrained")
        panels = fig.subplots(down, across, sharey=True, squeeze=False)
        for number, ax in enumerate(panels.flat):
            if number >= n_hooks:
                ax.remove()
                continue
            draw_effects(ax, values[number], ends[0][number], ends[1][number])
            lowest = number + across >= n_hooks
            position_axis(ax, n_ctx, label="ablated position (index)" if lowest else "")
            mark_targets(ax, target_sets[panel_rules[number]] if panel_rules else all_targets(target_sets), where_rule)
            ax.set_title(hook_names[number])
            if number % across == 0:
                ax.set_ylabel(f"effect, clean − ablated\n({unit})")
        drawn = [name if np.isfinite(values[:, k]).any() else "" for k, name in enumerate(kind_names)]
        marks = target_handles(target_sets, where_rule, spell_out=True)
        figure_legend(fig, [*kind_handles(drawn, lines=False), interval_handle(), *marks])
        return fig


def draw_effects(ax: Axes, effect: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
    """Markers side by side within each position's cell, over the zero line; what is NaN is left out."""
    n_ctx = effect.shape[1]
    kinds = np.flatnonzero(np.isfinite(effect).any(axis=1))
    ax.axhline(0, color="0.5", linewidth=0.6, zorder=1)
    if not len(kinds):
        ax.text(0.5, 0.5, "does not apply", transform=ax.transAxes, ha="center", va="center", color="0.35",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 2})  # fmt: skip
        return
    size = float(np.clip(110 / n_ctx, 1.6, 4))
    for place, k in enumerate(kinds.tolist()):
        where = np.flatnonzero(np.isfinite(effect[k]))
        xs = where + (place - (len(kinds) - 1) / 2) * DODGE / len(kinds)
        colour, marker = kind_look(k)
        known = np.isfinite(low[k, where]) & np.isfinite(high[k, where])
        interval = low[k, where][known], high[k, where][known]
        ax.vlines(xs[known], *interval, colors=colour, linewidths=0.7 if n_ctx <= 60 else 0.4)
        ax.plot(
            xs, effect[k, where], marker, color=colour, markersize=size, markeredgecolor="0.2",
            markeredgewidth=0.3 if size > 2 else 0, label=f"_kind {k}",
        )  # fmt: skip


def plot_patching(
    recovered: Float[np.ndarray, "direction hook group pos"],
    *,
    directions: Sequence[str],
    hooks: Sequence[str],
    groups: Sequence[str],
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    unit: str = "logit",
) -> Figure:
    """A row of panels a direction, a column a hook: the group (y) by the patched position (x).

    More than three hooks go on in further rows below. One colour scale from −1 to 1 holds everywhere.

    Args:
        recovered: fraction of the difference clean − corrupted in `unit`; NaN where undefined (hatched).
        directions: such as "denoise", "noise".
        hooks: the names of the hooks.
        groups: what differs in a pair, such as "target 3", "rule bit".
        targets: one sequence of positions a rule; those of all rules are marked.
        rule_positions: where the rule bits stand.
        unit: what the difference is of.
    """
    lengths = AxisLengths()
    values = lengths.numbers("recovered", recovered, "direction hook group pos")
    direction_names = lengths.names("directions", directions, "direction")
    hook_names = lengths.names("hooks", hooks, "hook")
    group_names = lengths.names("groups", groups, "group")
    n_directions, n_hooks, n_groups, n_ctx = values.shape
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)

    blocks = -(-n_hooks // ACROSS)
    across = -(-n_hooks // blocks)
    down = blocks * n_directions
    margins = 0.075 * max(map(len, group_names)) + 1.2  # inches: group names and the colour bar
    least = max(1.8, 0.066 * max(map(len, [*hook_names, *direction_names])))  # inches, so that titles fit
    width = max(4.2, panel_width(n_ctx, least, max(2.7, least)) * across + margins)
    height = max(2.6, (0.2 * n_groups + 0.8) * down + 0.7)
    with styled():
        fig = Figure(figsize=(width, height), layout="constrained")
        panels = fig.subplots(down, across, squeeze=False)
        for (row, column), ax in np.ndenumerate(panels):
            block, d = divmod(row, n_directions)
            hook = block * across + column
            if hook >= n_hooks:
                ax.remove()
                continue
            draw_map(ax, values[d, hook], LIMIT)
            ax.set_yticks(range(n_groups), group_names if column == 0 else [""] * n_groups)
            lowest = (block + 1) * across + column >= n_hooks and d == n_directions - 1
            position_axis(ax, n_ctx, label="patched position (index)" if lowest else "")
            mark_targets(ax, all_targets(target_sets), where_rule)
            ax.set_title(f"{hook_names[hook]}\n{direction_names[d]}")
            if column == 0:
                ax.set_ylabel("changed bit")
        finite = values[np.isfinite(values)]
        beyond = (bool((finite < -LIMIT).any()), bool((finite > LIMIT).any()))
        extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
        label = f"fraction of the clean − corrupted\n{unit} difference"
        colours = ScalarMappable(Normalize(-LIMIT, LIMIT), RECOVERED)
        fig.colorbar(
            colours, ax=fig.axes, extend=extend, label=label,
            fraction=0.2 / width, aspect=8 * height, pad=0.12 / width,  # a bar 1/8 inch wide
        )  # fmt: skip
        handles = target_handles(target_sets, where_rule, spell_out=True)
        if np.isnan(values).any():
            handles.append(undefined_handle())
        figure_legend(fig, handles)
        return fig


def draw_map(ax: Axes, values: NDArray[np.float64], limit: float) -> None:
    """One heatmap [row, column] from −limit to limit; through NaN cells the hatched ground is seen."""
    ax.add_patch(Rectangle((0, 0), 1, 1, transform=ax.transAxes, zorder=-0.5, **HATCHED))  # over the target bands
    ax.imshow(values, cmap=RECOVERED, norm=Normalize(-limit, limit), aspect="auto", interpolation="none")
