"""Attention of a single query, such as a [CLS] token's: samples of some heads, and the mean of all heads as a map."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Integer
from matplotlib.figure import Figure

from interp.plots.attention import ceiling, draw_mean, draw_samples, sample_handles
from interp.plots.checks import AxisLengths, boolean, positions_within, rule_of_sample
from interp.plots.legends import figure_legend, rule_title, target_handles
from interp.plots.style import SEQUENTIAL, mark_targets, panel_width, position_axis, styled


def plot_query_attention(
    per_sample: Float[np.ndarray, "batch head src"],
    labels: Bool[np.ndarray, " batch"],
    rule: Integer[np.ndarray, " batch"],
    mean: Float[np.ndarray, "rule head src"],
    sd: Float[np.ndarray, "rule head src"],
    *,
    heads: Sequence[int],
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int] = (),
) -> Figure:
    """A column a rule: the map of every head's mean pattern, and below it the samples of the heads that are named.

    All values are probabilities, on one scale.

    Args:
        per_sample: each sample's pattern.
        labels: each sample's label.
        rule: each sample's rule (zeros for a task without one).
        mean: over the samples of a rule.
        sd: over the samples of a rule.
        heads: whose samples are shown.
        targets: one sequence of positions a rule.
        rule_positions: where the rule bits stand.
    """
    lengths = AxisLengths()
    points = lengths.numbers("per_sample", per_sample, "batch head src")
    means = lengths.numbers("mean", mean, "rule head src")
    spreads = lengths.numbers("sd", sd, "rule head src")
    truth = boolean(lengths, "labels", labels, "batch")
    n_rules, n_heads, n_keys = means.shape
    rules = rule_of_sample(lengths, rule, n_rules, "batch")
    target_sets = lengths.targets(targets, n_keys)
    where_rule = positions_within("rule_positions", rule_positions, n_keys)
    shown = positions_within("heads", heads, n_heads)
    top, width = ceiling(points, means + spreads), panel_width(n_keys)
    map_height = max(1.1, 0.13 * n_heads + 0.6)  # inches
    with styled():
        size = (width * n_rules + 0.9, map_height + 2.1 * len(shown) + 0.7)
        fig = Figure(figsize=size, layout="constrained")
        panels = fig.subplots(
            len(shown) + 1, n_rules, squeeze=False, gridspec_kw={"height_ratios": [map_height, *(2.1 for _ in shown)]}
        )
        for r in range(n_rules):
            first, *below = panels[:, r]
            image = first.imshow(
                means[r], cmap=SEQUENTIAL, vmin=0, vmax=ceiling(means), aspect="auto", interpolation="none"
            )
            position_axis(first, n_heads, "y", label="head", counts="heads")
            first.set_title(f"{rule_title(r, target_sets)}: mean pattern")
            if r == n_rules - 1:
                bar = fig.colorbar(image, ax=first, label="probability")
                bar.outline.set_linewidth(0.6)  # pyright: ignore[reportCallIssue]
            for h, ax in zip(shown, below, strict=True):
                draw_samples(ax, points[rules == r, h], truth[rules == r])
                draw_mean(ax, means[r, h], spreads[r, h])
                ax.set_ylim(-0.04 * top, 1.06 * top)
                ax.set(title=f"head {h}", ylabel="attention probability")
            for ax in (first, *below):
                position_axis(ax, n_keys)
                mark_targets(ax, target_sets[r], where_rule)
        figure_legend(fig, [*sample_handles(), *target_handles(target_sets, where_rule)])
        return fig
