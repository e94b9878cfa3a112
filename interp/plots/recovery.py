"""Which positions each method finds: scores as bars, target sets against the top ones."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from interp.errors import BoolensError
from interp.plots.checks import AxisLengths, boolean, positions_within
from interp.plots.legends import dot, figure_legend, rule_title, target_handles
from interp.plots.style import NEUTRAL, TARGET, bar_width, mark_targets, panel_width, points_away, position_axis, styled

UNITS = {  # of the methods' scores, as target-recovery defines them
    "attention": "probability",
    "effective-attention": "logit per unit of value",
    "contribution": "logit²",
    "ablation": "logit",
    "patching": "logit",
    "weights": "logit",
}
LONGEST_COLUMN = 3  # panels, where there is one rule
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plot_target_recovery(
    scores: Float[np.ndarray, "rule method pos"],
    *,
    methods: Sequence[str],
    top: Sequence[Sequence[Sequence[int]]],
    match: Bool[np.ndarray, "rule method"],
    p_value: Float[np.ndarray, "rule method"],
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    low: Float[np.ndarray, "rule method pos"] | None = None,
    high: Float[np.ndarray, "rule method pos"] | None = None,
) -> Figure:
    """A column of panels a rule, a row a method; without a rule, many methods go on in a second column.

    Args:
        scores: each in its method's own unit, on its own y axis; NaN (the rule position) is left out.
        methods: names; the known ones bring their unit.
        top: for each rule and method, the positions that the method ranks first.
        match: whether these are the targets.
        p_value: NaN where undefined.
        targets: one sequence of positions a rule.
        rule_positions: where the rule bits stand.
        low: lower end of a score's interval; NaN, or no array, where it has none.
        high: upper end of it.
    """
    lengths = AxisLengths()
    values = lengths.numbers("scores", scores, "rule method pos")
    without = np.full(values.shape, np.nan)
    lows = lengths.numbers("low", without if low is None else low, "rule method pos")
    highs = lengths.numbers("high", without if high is None else high, "rule method pos")
    names = lengths.names("methods", methods, "method")
    matches = boolean(lengths, "match", match, "rule method")
    p_values = lengths.numbers("p_value", p_value, "rule method")
    n_rules, n_methods, n_ctx = values.shape
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)
    tops = top_positions(lengths, top, values)

    width = panel_width(n_ctx, least=2.5, most=4.2)
    folded = n_rules == 1 and n_methods > LONGEST_COLUMN
    across, down = (2, -(-n_methods // 2)) if folded else (n_rules, n_methods)
    with styled():
        fig = Figure(figsize=(max(3.6, width * across + 0.4), 1.85 * down + 0.7), layout="constrained")
        panels = fig.subplots(down, across, squeeze=False)
        for (row, column), ax in np.ndenumerate(panels):
            m, r = (row + down * column, 0) if folded else (row, column)
            if m >= n_methods:
                ax.remove()
                continue
            draw_scores(ax, values[r, m], target_sets[r], tops[r][m], lows[r, m], highs[r, m])
            position_axis(ax, n_ctx, label="position (index)" if row == down - 1 or m == n_methods - 1 else "")
            mark_targets(ax, target_sets[r], where_rule)
            ax.set_ylabel(f"score\n({UNITS.get(names[m], 'own unit')})")
            verdict = "targets on top" if matches[r, m] else "missed"
            ax.set_title(f"{names[m]}\n{verdict}, {p_text(float(p_values[r, m]))}")
            if row == 0 and not folded:
                ax.annotate(
                    rule_title(r, target_sets), (0.5, 1), (0, 36), xycoords="axes fraction",
                    textcoords="offset points", ha="center", fontweight="bold",
                )  # fmt: skip
        handles: list[Artist] = [
            Patch(facecolor=TARGET, label="score of a target"),
            Patch(facecolor=NEUTRAL, label="other score"),
            dot("black", "o", "ranked on top", size=3),
        ]
        if np.isfinite(lows).any():
            handles.append(Line2D([], [], color="black", linewidth=0.8, label="95 % interval, all positions together"))
        figure_legend(fig, [*handles, *target_handles(target_sets, where_rule, spell_out=folded)])
        return fig


def top_positions(
    lengths: AxisLengths, top: Sequence[Sequence[Sequence[int]]], scores: NDArray[np.float64]
) -> list[list[list[int]]]:
    """`top` checked: one list a rule and method, of positions that have a score."""
    lengths.length("top", len(top), "rule")
    checked: list[list[list[int]]] = []
    for r, of_rule in enumerate(top):
        lengths.length(f"top[{r}]", len(of_rule), "method")
        checked.append([positions_within(f"top[{r}][{m}]", entry, scores.shape[2]) for m, entry in enumerate(of_rule)])
        for m, entry in enumerate(checked[r]):
            unknown = [position for position in entry if np.isnan(scores[r, m, position])]
            if unknown:
                raise BoolensError(f"top[{r}][{m}] holds {unknown}, whose scores are NaN; leave them out there")
    return checked


def draw_scores(
    ax: Axes,
    scores: NDArray[np.float64],
    targets: Sequence[int],
    top: Sequence[int],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> None:
    """A bar at each position that has a score, green for targets, its interval, and a dot above each of `top`."""
    where = np.flatnonzero(np.isfinite(scores))
    colours = [TARGET if position in targets else NEUTRAL for position in where]
    ax.bar(where, scores[where], width=bar_width(len(scores)), color=colours, linewidth=0)
    known = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
    if len(known):
        ax.vlines(known, low[known], high[known], color="black", linewidth=0.8, gid="interval")
    ax.axhline(0, color="black", linewidth=0.6)
    ax.margins(y=0.16)
    if not top:
        return
    above = ax.transData + points_away(ax, 0, 4)
    heights = np.fmax(np.maximum(scores[list(top)], 0), high[list(top)])
    ax.plot(list(top), heights, "o", color="black", markersize=2.5, markeredgewidth=0, transform=above, label="_top")


def p_text(p_value: float) -> str:
    """ "p = 0.012", "p = 6.2×10⁻⁶", "p undefined"."""
    if np.isnan(p_value):
        return "p undefined"
    if not 0 <= p_value <= 1:
        raise BoolensError(f"p_value holds {p_value}, but probabilities run from 0 to 1; pass NaN where undefined")
    if p_value >= 0.001:
        return f"p = {p_value:.2g}"
    mantissa, exponent = f"{p_value:.1e}".split("e")
    return f"p = {mantissa}×10{str(int(exponent)).translate(SUPERSCRIPTS)}" if p_value else "p = 0"
