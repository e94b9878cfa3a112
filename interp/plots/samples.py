"""Inputs and labels of a Boolean task as black and white cells."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Integer
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from interp.errors import BoolensError
from interp.plots.checks import AxisLengths, boolean, positions_within, rule_of_sample
from interp.plots.legends import figure_legend, target_handles
from interp.plots.style import TARGET, mark_targets, position_axis, styled


def plot_samples(
    x: Integer[np.ndarray, "sample pos"],
    labels: Bool[np.ndarray, " sample"],
    *,
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    rule: Integer[np.ndarray, " sample"] | None = None,
) -> Figure:
    """One row a sample: its bits (1 black, 0 white) and, beside them, its label (True black).

    Args:
        x: bits, 0 or 1.
        labels: each sample's label.
        targets: one sequence of positions a rule; a sample's own rule's targets are framed.
        rule_positions: where the rule bits stand.
        rule: each sample's rule; may be left out where there is one rule.
    """
    lengths = AxisLengths()
    bits = boolean(lengths, "x", x, "sample pos")
    truth = boolean(lengths, "labels", labels, "sample")
    n_samples, n_ctx = bits.shape
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)
    if rule is None and len(target_sets) > 1:
        raise BoolensError(f"rule is missing, but targets names {len(target_sets)} rules; pass each sample's rule")
    rules = np.zeros(n_samples, int) if rule is None else rule_of_sample(lengths, rule, len(target_sets), "sample")

    width = min(0.2, max(0.042, 8.4 / n_ctx))  # inches a cell
    height = min(0.2, max(0.04, 6.0 / n_samples))
    with styled():
        fig = Figure(figsize=(max(3.2, width * (n_ctx + 3) + 0.9), height * n_samples + 1.3), layout="constrained")
        inputs, column = fig.subplots(1, 2, gridspec_kw={"width_ratios": [n_ctx, max(1.0, n_ctx / 40)]})
        draw_cells(inputs, bits)
        position_axis(inputs, n_ctx, label="position (index)")
        position_axis(inputs, n_samples, "y", label="sample (index)", counts="samples")
        frame_targets(inputs, rules, target_sets, width=min(1.2, 18 * min(width, height)))
        mark_targets(inputs, sorted({t for r in np.unique(rules) for t in target_sets[r]}), where_rule)
        draw_cells(column, truth[:, None])
        position_axis(column, n_samples, "y", label="", counts="samples")
        column.set(xlim=(-0.5, 0.5), xticks=[0], xticklabels=["label"], yticks=[])
        legend: list[Artist] = [
            Patch(facecolor="black", edgecolor="0.5", linewidth=0.5, label="1 (True)"),
            Patch(facecolor="white", edgecolor="0.5", linewidth=0.5, label="0 (False)"),
        ]
        frame = Patch(
            facecolor="none",
            edgecolor=TARGET,
            linewidth=1.2,
            label="target" if len(target_sets) == 1 else "target of its rule",
        )
        figure_legend(fig, [*legend, frame, *target_handles(target_sets, where_rule)])
        return fig


def draw_cells(ax: Axes, cells: NDArray[np.bool_]) -> None:
    """Cell [row, col] is centred at (col, row), black for True, with thin lines between cells."""
    n_rows, n_columns = cells.shape
    ax.imshow(cells.astype(float), cmap="binary", vmin=0, vmax=1, aspect="auto", interpolation="none")
    across = [[(c - 0.5, -0.5), (c - 0.5, n_rows - 0.5)] for c in range(1, n_columns)]
    down = [[(-0.5, r - 0.5), (n_columns - 0.5, r - 0.5)] for r in range(1, n_rows)]
    ax.add_collection(LineCollection(across + down, colors="0.6", linewidths=0.3, zorder=1), autolim=False)


def frame_targets(ax: Axes, rules: NDArray[np.generic], targets: Sequence[Sequence[int]], width: float) -> None:
    """Frames each row's targets; neighbouring rows with the same rule share one frame, `width` points thick."""
    changes = [0, *(np.flatnonzero(np.diff(rules)) + 1).tolist(), len(rules)]
    frames = [
        [(t - 0.5, top - 0.5), (t + 0.5, top - 0.5), (t + 0.5, end - 0.5), (t - 0.5, end - 0.5)]
        for top, end in pairwise(changes)
        for t in targets[int(rules[top])]
    ]
    outlines = PolyCollection(frames, facecolors="none", edgecolors=TARGET, linewidths=width, zorder=2, clip_on=False)
    ax.add_collection(outlines, autolim=False)
