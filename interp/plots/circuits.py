"""The QK and OV tables of each head as maps, the readout, and what the tables are made of."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter
from numpy.typing import NDArray

from interp.plots.checks import AxisLengths, positions_within
from interp.plots.effects import RECOVERED
from interp.plots.legends import all_targets, figure_legend, kind_handles, kind_look, target_handles
from interp.plots.style import MARKERS, NEUTRAL, RULE, SMALL, TARGET, BlockLocator, mark_targets, position_axis, styled

LOOKS = ("QK", "OV")
MAP, STRIP, SIDE, ROW = 3.1, 1.0, 2.7, 3.2  # inches: a map with its colour bar, the readout, the numbers; a row


def plot_circuits(
    qk: Float[np.ndarray, "head dest query_vocab src key_vocab"],
    ov: Float[np.ndarray, "head dest src key_vocab"],
    readout: Float[np.ndarray, "dest head d_value"],
    qk_shares: Float[np.ndarray, "head part"],
    ov_shares: Float[np.ndarray, "head part"],
    *,
    parts: Sequence[str],
    qk_singular_values: Sequence[Sequence[float]],
    ov_singular_values: Sequence[Sequence[float]],
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
) -> Figure:
    """A row a head: QK map, OV map beside the readout, shares of variance above the singular values.

    In every block of a map (one a bit) the targets come first, rule by rule, then the rule positions, then the others
    in order; one colour scale holds for the QK maps of all heads and one for OV, both symmetric about zero.

    Args:
        qk: row-centred scores, in score units.
        ov: row-centred value × readout, in logit.
        readout: in logit per unit of value.
        qk_shares: share of variance of each part of QK; NaN where undefined, which leaves the bar out.
        ov_shares: the same of OV.
        parts: the names of the parts.
        qk_singular_values: those of each head's table above rounding, largest first.
        ov_singular_values: the same of OV.
        targets: one sequence of positions a rule.
        rule_positions: where the rule bits stand.
    """
    lengths = AxisLengths()
    scores = lengths.numbers("qk", qk, "head dest vocab src vocab")
    logits = lengths.numbers("ov", ov, "head dest src vocab")
    weights = lengths.numbers("readout", readout, "dest head d_value")
    shares = [lengths.numbers(f"{k}_shares", v, "head part") for k, v in (("qk", qk_shares), ("ov", ov_shares))]
    names = lengths.names("parts", parts, "part")
    spectra = (qk_singular_values, ov_singular_values)
    for name, values in zip(("qk_singular_values", "ov_singular_values"), spectra, strict=True):
        lengths.length(name, len(values), "head")
    n_heads, n_ctx = scores.shape[:2]
    lengths.length("the query's positions", n_ctx, "src")
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)
    order = grouped(target_sets, where_rule, n_ctx)
    qk_maps = scores[:, order][:, :, :, order].transpose(0, 2, 1, 4, 3).reshape(n_heads, 2 * n_ctx, 2 * n_ctx)
    ov_maps = logits[:, order][:, :, order].transpose(0, 1, 3, 2).reshape(n_heads, n_ctx, 2 * n_ctx)
    marks = [order.index(t) for t in all_targets(target_sets)], [order.index(p) for p in where_rule]

    widths = [MAP + 0.3, MAP + 0.3, STRIP, SIDE]
    with styled():
        fig = Figure(figsize=(sum(widths), ROW * n_heads + 0.7), layout="constrained")
        grid = fig.add_gridspec(n_heads, 4, width_ratios=widths)
        for h in range(n_heads):
            ax = fig.add_subplot(grid[h, 0])
            draw_table(ax, qk_maps[h], peak(qk_maps), marks, order, "score, row-centred")
            ax.set_title(f"head {h}: QK")
            blocks(ax, "y", 2, order, "position (dest)")
            ax = fig.add_subplot(grid[h, 1])
            draw_table(ax, ov_maps[h], peak(ov_maps), marks, order, "logit, row-centred")
            ax.set_title(f"head {h}: OV, value × readout")
            blocks(ax, "y", 1, order, "position (dest)")
            draw_readout(fig.add_subplot(grid[h, 2], sharey=ax), weights[order, h], marks)
            side = grid[h, 3].subgridspec(2, 1, height_ratios=[1.3, 1])
            draw_shares(fig.add_subplot(side[0]), names, shares[0][h], shares[1][h])
            draw_spectra(fig.add_subplot(side[1]), spectra[0][h], spectra[1][h])
        handles = [*target_handles(target_sets, where_rule, spell_out=True), *kind_handles(LOOKS)]
        figure_legend(fig, handles)
        return fig


def plot_query_circuits(
    qk: Float[np.ndarray, "head src key_vocab"],
    ov: Float[np.ndarray, "head src key_vocab"],
    *,
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
) -> Figure:
    """The tables of a model with one query: QK above OV, a row a head, keys in the order of `plot_circuits`.

    Args:
        qk: row-centred scores, in score units.
        ov: row-centred value × readout, in logit.
        targets: one sequence of positions a rule.
        rule_positions: where the rule bits stand.
    """
    lengths = AxisLengths()
    tables = [lengths.numbers(name, values, "head src vocab") for name, values in (("qk", qk), ("ov", ov))]
    n_heads, n_ctx, _ = tables[0].shape
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)
    order = grouped(target_sets, where_rule, n_ctx)
    marks = [order.index(t) for t in all_targets(target_sets)], [order.index(p) for p in where_rule]
    names = (("QK of the [CLS] query", "score, row-centred"), ("OV, value × readout", "logit, row-centred"))
    with styled():
        fig = Figure(figsize=(7.2, 0.9 + 2 * (0.9 + max(0.6, 0.13 * n_heads))), layout="constrained")
        for ax, table, (title, label) in zip(fig.subplots(2, 1), tables, names, strict=True):
            rows = table[:, order].transpose(0, 2, 1).reshape(n_heads, 2 * n_ctx)
            draw_table(ax, rows, peak(rows), marks, order, label, ("x",))
            position_axis(ax, n_heads, "y", label="head", counts="heads")
            ax.set_title(title)
        figure_legend(fig, target_handles(target_sets, where_rule, spell_out=True))
        return fig


def grouped(targets: Sequence[Sequence[int]], rule_positions: Sequence[int], n_ctx: int) -> list[int]:
    """All positions: the targets first, rule by rule, then the rule positions, then the others in order."""
    first = [*(index for entry in targets for index in sorted(entry)), *rule_positions]
    return list(dict.fromkeys([*first, *range(n_ctx)]))


def peak(maps: NDArray[np.float64]) -> float:
    """Where a symmetric colour scale ends: the largest absolute value, or 1 where all are 0."""
    return float(np.abs(maps).max()) or 1.0


def draw_table(
    ax: Axes,
    values: NDArray[np.float64],
    limit: float,
    marks: tuple[list[int], list[int]],
    order: Sequence[int],
    label: str,
    marked: Sequence[str] = ("x", "y"),
) -> None:
    """One map with its colour bar; columns are the keys with bit 0, then those with bit 1.

    Targets and rule positions are marked on the axes of `marked`.
    """
    n_rows, n_columns = values.shape
    n_ctx = n_columns // 2
    image: Any = ax.imshow(values, cmap=RECOVERED, norm=Normalize(-limit, limit), aspect="auto", interpolation="none")
    bar: Any = ax.figure.colorbar(image, cax=ax.inset_axes((1.09, 0, 0.04, 1)), label=label)
    bar.outline.set_linewidth(0.6)
    blocks(ax, "x", 2, order, "position (src)")
    axes: tuple[tuple[Literal["x", "y"], int], ...] = (("x", n_columns), ("y", n_rows))
    for which, size in (axis for axis in axes if axis[0] in marked):
        at_targets, at_rule = ([i + offset for offset in range(0, size, n_ctx) for i in of] for of in marks)
        mark_targets(ax, at_targets, at_rule, which)


def blocks(ax: Axes, which: str, n_blocks: int, order: Sequence[int], label: str) -> None:
    """Blocks of positions, one a bit, named at their middle and parted by a line; no numbers, as they are regrouped."""
    axis, line = (ax.xaxis, ax.axvline) if which == "x" else (ax.yaxis, ax.axhline)
    axis.set_label_text(f"{label}, targets first")
    if n_blocks == 1:
        axis.set_major_locator(BlockLocator([], order, 1))
        return
    n_ctx = len(order)
    axis.set_ticks([(b + 0.5) * n_ctx - 0.5 for b in range(n_blocks)], [f"bit {b}" for b in range(n_blocks)])
    axis.set_major_locator(BlockLocator(axis.get_majorticklocs().tolist(), order, n_blocks))
    axis.set_tick_params(length=0)
    line(n_ctx - 0.5, color="0.3", linewidth=0.6)


def draw_readout(ax: Axes, weights: NDArray[np.float64], marks: tuple[list[int], list[int]]) -> None:
    """The readout of each query, a marker a value dimension, in the rows of the OV map beside it."""
    n_ctx, d_value = weights.shape
    ax.axvline(0, color="0.5", linewidth=0.6, zorder=1)
    for d in range(d_value):
        marker = MARKERS[d % len(MARKERS)]
        ax.plot(weights[:, d], range(n_ctx), marker, color="0.3", markersize=2.5, markeredgewidth=0)
    for rows, colour in zip(marks, (TARGET, RULE), strict=True):
        for row in rows:
            ax.axhspan(row - 0.5, row + 0.5, color=colour, alpha=0.15, linewidth=0, zorder=-1)
    ax.tick_params(labelleft=False, left=False)
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.margins(x=0.12)
    ax.set(title="readout", xlabel="logit per\nunit of value")


def draw_shares(ax: Axes, names: Sequence[str], qk: NDArray[np.float64], ov: NDArray[np.float64]) -> None:
    """Bars of each part's share of variance, QK's above OV's; OV has only the parts whose query side is a position."""
    entries = [("QK", name, share) for name, share in zip(names, qk, strict=True)]
    entries += [("OV", name, share) for name, share in zip(names, ov, strict=True) if name.startswith("position")]
    colours = [kind_look(LOOKS.index(circuit))[0] for circuit, _, _ in entries]
    ax.barh(range(len(entries)), [share for _, _, share in entries], color=colours, height=0.7)
    ax.set_yticks(range(len(entries)), [name for _, name, _ in entries])
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(0, 1), xlabel="share of variance", xticks=[0, 0.5, 1])
    for row, (circuit, _, share) in enumerate(entries):
        if np.isfinite(share):
            inside = share > 0.8
            ax.text(
                share - 0.03 if inside else share + 0.03, row, f"{share:.2f}", va="center", fontsize=SMALL,
                ha="right" if inside else "left", color="white" if inside and circuit == "QK" else "black",
            )  # fmt: skip


def draw_spectra(ax: Axes, qk: Sequence[float], ov: Sequence[float]) -> None:
    """The singular values on a log scale."""
    for k, values in enumerate((qk, ov)):
        colour, marker = kind_look(k)
        if len(values):
            ax.plot(
                range(1, len(values) + 1), values, marker=marker, color=colour, linewidth=0.7, markersize=4,
                markeredgecolor="0.2", markeredgewidth=0.3,
            )  # fmt: skip
    ax.set_yscale("log")
    sizes = [*qk, *ov] or [1.0]
    low, high = np.floor(np.log10(min(sizes))), np.ceil(np.log10(max(sizes)))
    ax.set_ylim(10.0**low / 1.5, 10.0 ** max(high, low + 1) * 1.5)  # whole decades, so that two ticks have a number
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlim(0.5, max(len(qk), len(ov), 2) + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", color=NEUTRAL, alpha=0.3, linewidth=0.5)
    ax.set(xlabel="rank, largest first", ylabel="singular value")
