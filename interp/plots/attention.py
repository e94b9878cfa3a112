"""Attention patterns: each sample's, their mean and spread, and the mean heatmap."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Integer
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from interp.plots.checks import AxisLengths, boolean, positions_within, rule_of_sample
from interp.plots.legends import dot, figure_legend, rule_title, target_handles
from interp.plots.style import FALSE, SEQUENTIAL, TRUE, mark_targets, panel_width, position_axis, styled

SIDE, SPREAD = 0.24, 0.13  # cells: False stands left of the position by SIDE and True right, each ± SPREAD
MOST_VECTOR_POINTS = 5000  # a panel with more is an image in SVG files
GOLDEN = 0.6180339887498949


def plot_attention_patterns(
    per_sample: Float[np.ndarray, "batch head src"],
    labels: Bool[np.ndarray, " batch"],
    rule: Integer[np.ndarray, " batch"],
    mean: Float[np.ndarray, "rule head src"],
    sd: Float[np.ndarray, "rule head src"],
    heatmap: Float[np.ndarray, "rule head dest src"],
    *,
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
    heads: Sequence[int] | None = None,
) -> Figure:
    """One row a (rule, head): every sample's pattern with mean ± sd, and the mean dest × src heatmap.

    All values are probabilities. One scale holds for all scatter panels and one for all heatmaps.

    Args:
        per_sample: each sample's pattern, averaged over dest.
        labels: each sample's label.
        rule: each sample's rule (zeros for a task without one).
        mean: over the samples of a rule.
        sd: over the samples of a rule.
        heatmap: mean pattern of a rule's samples.
        targets: one sequence of positions a rule.
        rule_positions: where the rule bits stand.
        heads: their numbers, where these are some of a model's; counted from 0 by default.
    """
    lengths = AxisLengths()
    points = lengths.numbers("per_sample", per_sample, "batch head src")
    means = lengths.numbers("mean", mean, "rule head src")
    spreads = lengths.numbers("sd", sd, "rule head src")
    images = lengths.numbers("heatmap", heatmap, "rule head dest src")
    truth = boolean(lengths, "labels", labels, "batch")
    n_rules, n_heads, n_ctx = means.shape
    numbers = range(n_heads) if heads is None else heads
    lengths.length("heads", len(numbers), "head")
    rules = rule_of_sample(lengths, rule, n_rules, "batch")
    target_sets = lengths.targets(targets, n_ctx)
    where_rule = positions_within("rule_positions", rule_positions, n_ctx)
    top = ceiling(points, means + spreads)
    brightest = ceiling(images)

    height = min(3.2, max(2.3, 2.2 + 0.006 * n_ctx))  # inches a row
    heat_width = height + 0.8  # with its colour bar, for a square as high as the scatter panel
    width = panel_width(n_ctx)
    with styled():
        size = (width + heat_width, height * n_rules * n_heads + 0.6)
        fig = Figure(figsize=size, layout="constrained")
        panels = fig.subplots(
            n_rules * n_heads, 2, squeeze=False, gridspec_kw={"width_ratios": [width, heat_width]}
        )  # fmt: skip
        for row, (r, h) in enumerate(np.ndindex(n_rules, n_heads)):
            left, right = panels[row]
            chosen = rules == r
            draw_samples(left, points[chosen, h], truth[chosen])
            draw_mean(left, means[r, h], spreads[r, h])
            left.set_ylim(-0.04 * top, 1.06 * top)
            left.set_ylabel("attention probability\n(averaged over dest)")
            image = right.imshow(images[r, h], cmap=SEQUENTIAL, vmin=0, vmax=brightest, interpolation="none")
            position_axis(right, images.shape[2], "y", label="position (dest)")
            bar = fig.colorbar(image, cax=right.inset_axes((1.1, 0, 0.05, 1)), label="attention probability")
            bar.outline.set_linewidth(0.6)  # pyright: ignore[reportCallIssue]
            for ax in (left, right):
                position_axis(ax, n_ctx)
                mark_targets(ax, target_sets[r], where_rule)
            if images.shape[2] == n_ctx:
                mark_targets(right, target_sets[r], where_rule, "y")
            left.set_title(f"head {numbers[h]}, {rule_title(r, target_sets)}")
            right.set_title("mean over samples")
        figure_legend(fig, [*sample_handles(), *target_handles(target_sets, where_rule)])
        return fig


def draw_samples(ax: Axes, points: NDArray[np.float64], truth: NDArray[np.bool_]) -> None:
    """One dot a (sample, src): False left of its position and True right, jittered by a fixed sequence."""
    n_samples, n_ctx = points.shape
    alpha = float(np.clip(40 / max(n_samples, 1), 0.1, 0.7))
    area = float(np.clip(150 / n_ctx, 1.8, 8))  # points²
    for label, colour, side in ((False, FALSE, -SIDE), (True, TRUE, SIDE)):
        chosen = points[truth == label]
        jitter = ((np.arange(len(chosen)) * GOLDEN) % 1 * 2 - 1) * SPREAD
        xs = np.arange(n_ctx) + (side + jitter)[:, None]
        ax.scatter(
            xs.ravel(), chosen.ravel(), s=area, c=colour, alpha=alpha, linewidths=0, gid=f"samples-{label}",
            rasterized=points.size > MOST_VECTOR_POINTS,
        )  # fmt: skip


def draw_mean(ax: Axes, mean: NDArray[np.float64], sd: NDArray[np.float64]) -> None:
    """Mean and mean ± sd, exactly at each position."""
    where = np.flatnonzero(np.isfinite(mean) & np.isfinite(sd))
    small = len(mean) > 60
    ax.errorbar(
        where, mean[where], yerr=sd[where], fmt="o", color="black", markersize=1.5 if small else 2.5,
        elinewidth=0.5 if small else 0.9, markeredgewidth=0, zorder=3,
    )  # fmt: skip


def sample_handles() -> list[Artist]:
    """Legend entries of the scatter panels, in the colours that :func:`draw_samples` uses."""
    average = Line2D([], [], color="black", marker="o", markersize=3, linewidth=0.9, label="mean ± sd")
    sides = [dot(FALSE, "o", "label False (left)"), dot(TRUE, "o", "label True (right)")]  # in greyscale too
    return [*sides, average]


def ceiling(*arrays: NDArray[np.float64]) -> float:
    """The largest finite value, or 1 where there is none above 0."""
    values = np.concatenate([array[np.isfinite(array)] for array in arrays])
    return float(values.max()) if values.size and values.max() > 0 else 1.0
