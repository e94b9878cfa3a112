"""Maps of effects: head × position, dest × src."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from interp.plots.checks import AxisLengths, positions_within
from interp.plots.effects import RECOVERED, draw_map
from interp.plots.legends import all_targets, figure_legend, target_handles, undefined_handle
from interp.plots.style import mark_targets, panel_width, position_axis, styled

ACROSS, WIDEST = 4, 11.0  # panels in a row, and inches that they take
POSITIONS = ("pos", "dest", "src")


def plot_maps(
    values: Float[np.ndarray, "panel row column"],
    *,
    titles: Sequence[str],
    row: str,
    column: str,
    label: str,
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    panel_rules: Sequence[int] = (),
    row_names: Sequence[str] = (),
) -> Figure:
    """One map a panel, all on one colour scale that is symmetric about zero; NaN is hatched.

    Args:
        values: in the unit that `label` names.
        titles: one a panel.
        row: what a row is: one of POSITIONS, where targets are marked, or another name.
        column: what a column is, likewise.
        label: of the colour bar.
        targets: one sequence of positions a rule; those of all rules are marked.
        rule_positions: where the rule bits stand.
        panel_rules: where panels show one rule each, the rule of each panel; only its targets are marked there.
        row_names: written beside the rows, where they are no numbers.
    """
    lengths = AxisLengths()
    maps = lengths.numbers("values", values, "panel row column")
    names = lengths.names("titles", titles, "panel")
    n_panels, n_rows, n_columns = maps.shape
    if row_names:
        lengths.names("row_names", row_names, "row")
    positions = [size for what, size in ((row, n_rows), (column, n_columns)) if what in POSITIONS]
    most = max(positions, default=1 + max((*rule_positions, *(i for entry in targets for i in entry)), default=0))
    target_sets = lengths.targets(targets, most)
    where_rule = positions_within("rule_positions", rule_positions, most)
    if panel_rules:
        lengths.length("panel_rules", len(panel_rules), "panel")
        positions_within("panel_rules", panel_rules, len(target_sets))
    finite = np.abs(maps[np.isfinite(maps)])
    limit = float(finite.max()) if finite.size and finite.max() > 0 else 1.0

    least = max(2.0, 0.066 * max(map(len, names)))  # inches, so that titles fit
    wide = panel_width(n_columns, least, max(3.6, least))
    down = -(-n_panels // min(ACROSS, max(1, int(WIDEST / wide))))
    across = -(-n_panels // down)
    high = 0.9 + (wide - 0.9 if row in POSITIONS else max(0.3, 0.22 * n_rows))
    beside = 0.066 * max(map(len, row_names), default=0)
    width, height = max(3.6, wide * across + 1.0 + beside), max(2.0, high * down + 0.6)
    with styled():
        fig = Figure(figsize=(width, height), layout="constrained")
        panels = fig.subplots(down, across, squeeze=False)
        for number, ax in enumerate(panels.flat):
            if number >= n_panels:
                ax.remove()
                continue
            draw_map(ax, maps[number], limit)
            marked = target_sets[panel_rules[number]] if panel_rules else all_targets(target_sets)
            axes: tuple[tuple[Literal["x", "y"], str, int], ...] = (("x", column, n_columns), ("y", row, n_rows))
            for which, what, size in axes:
                if what not in POSITIONS:
                    axis = ax.xaxis if which == "x" else ax.yaxis
                    axis.set_major_locator(MaxNLocator(integer=True))
                    axis.set_label_text(what)
                else:
                    position_axis(ax, size, which, label=f"position ({'index' if what == 'pos' else what})")
                    mark_targets(ax, marked, where_rule, which)
            if row_names:
                ax.set_yticks(range(n_rows), row_names if number % across == 0 else [""] * n_rows)
            ax.set_title(names[number])
        colours = ScalarMappable(Normalize(-limit, limit), RECOVERED)
        fig.colorbar(colours, ax=fig.axes, label=label, fraction=0.2 / width, aspect=8 * height, pad=0.12 / width)
        handles = target_handles(target_sets, where_rule, spell_out=True) if positions else []
        if np.isnan(maps).any():
            handles.append(undefined_handle())
        figure_legend(fig, handles)
        return fig
