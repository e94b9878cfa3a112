"""Architectures side by side on sparse and dense tasks (the tutorial's Exercise 3.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from interp.plots.checks import AxisLengths
from interp.plots.legends import kind_look
from interp.plots.sample_size import SampleSizes, check_sizes, draw_sizes
from interp.plots.style import NEUTRAL, SMALL, styled

CELLS = "density training architecture"
DODGE = 0.76  # of the distance between architectures, shared by the trainings
SCATTER = 0.17  # width of the seeds' cloud, in the same unit
SEEDS, MEAN, BALANCED = -0.07, 0.07, 0.135  # where cloud and markers stand within a training's share


@dataclass(frozen=True)
class Measure:
    """A measure of every model, and its mean over seeds with the interval's ends (NaN where there is none)."""

    values: Float[np.ndarray, "density training architecture seed"]
    mean: Float[np.ndarray, "density training architecture"]
    low: Float[np.ndarray, "density training architecture"]
    high: Float[np.ndarray, "density training architecture"]


def plot_comparison(
    accuracy: Measure,
    balanced: Measure,
    loss: Measure,
    majority: Float[np.ndarray, "density seed"],
    *,
    densities: Sequence[str],
    trainings: Sequence[str],
    architectures: Sequence[str],
    parameters: Sequence[int],
    n_train: int,
    n_valid: int,
    sample_sizes: SampleSizes | None = None,
) -> Figure:
    """Columns are densities; rows validation accuracy, validation loss and, where measured, sample sizes.

    Args:
        accuracy: on the validation set, shares in [0, 1].
        balanced: balanced accuracy; only its mean is drawn.
        loss: on the validation set, in nats.
        majority: the majority class's accuracy on each seed's validation set.
        densities: titles of the columns.
        trainings, architectures: names.
        parameters: learnable ones, by architecture.
        n_train, n_valid: samples.
        sample_sizes: Exercise 3.4, on the first density.
    """
    lengths = AxisLengths()
    for name, measure in (("accuracy", accuracy), ("balanced", balanced), ("loss", loss)):
        lengths.numbers(f"{name}.values", measure.values, f"{CELLS} seed")
        for part in ("mean", "low", "high"):
            lengths.numbers(f"{name}.{part}", getattr(measure, part), CELLS)
    lengths.numbers("majority", majority, "density seed")
    titles = lengths.names("densities", densities, "density")
    kinds = lengths.names("trainings", trainings, "training")
    names = lengths.names("architectures", architectures, "architecture")
    lengths.length("parameters", len(parameters), "architecture")
    if sample_sizes is not None:
        check_sizes(lengths, sample_sizes)

    across = len(titles)
    with styled():
        size = (3.2 * across + 1.9, 4.6 if sample_sizes is None else 6.2)
        fig = Figure(figsize=size, layout="constrained")
        ratios = [1.25, 1, *([0.85] if sample_sizes is not None else [])]
        grid = fig.add_gridspec(len(ratios), across, height_ratios=ratios)
        top = [fig.add_subplot(grid[0, d]) for d in range(across)]
        below = [fig.add_subplot(grid[1, d]) for d in range(across)]
        ticks = [f"{name}\n{n:,}\nparameters" for name, n in zip(names, parameters, strict=True)]
        for d, (upper, lower) in enumerate(zip(top, below, strict=True)):
            draw_accuracy(upper, accuracy, balanced, majority[d], d)
            upper.set_title(f"{titles[d]}\n{n_train:,} training and {n_valid:,} validation samples", pad=16)
            draw_cells(lower, loss, d)
            lower.set_yscale("log")
            lower.yaxis.set_minor_formatter(NullFormatter())
            for ax in (upper, lower):
                ax.set_xlim(-0.5, len(names) - 0.5)
                ax.set_xticks(range(len(names)), ticks if ax is lower else [""] * len(names))
            if d:
                for ax, first in ((upper, top[0]), (lower, below[0])):
                    ax.sharey(first)
                    ax.tick_params(labelleft=False)
        lowest = min(float(np.nanmin(m)) for m in (accuracy.values, balanced.mean, majority))
        top[0].set_ylim(min(0.45, lowest) - 0.03, 1.02)
        below[0].set_ylim(*whole_decades(loss.values))
        top[0].set_ylabel("validation accuracy (share)")
        below[0].set_ylabel("validation loss (nats)")
        if sample_sizes is not None:
            draw_sizes(fig.add_subplot(grid[2, :]), sample_sizes, names, titles[0], kinds[-1], n_valid)
        fig.legend(handles=handles(kinds, sample_sizes is not None), loc="outside right upper")
        return fig


def draw_accuracy(ax: Axes, accuracy: Measure, balanced: Measure, majority: Float[np.ndarray, " seed"], d: int) -> None:
    """Accuracies with their means written above, the balanced ones, and the majority class's line."""
    middle = float(np.mean(majority))
    ax.axhspan(float(majority.min()), float(majority.max()), color=NEUTRAL, alpha=0.3, linewidth=0, zorder=0.5)
    ax.axhline(middle, color="0.35", linestyle="--", linewidth=0.9, zorder=0.6, gid="majority")
    draw_cells(ax, accuracy, d)
    _, n_trainings, n_architectures = accuracy.mean.shape
    above: dict[str, Any] = {
        "xycoords": ("data", "axes fraction"),
        "textcoords": "offset points",
        "va": "bottom",
        "fontsize": SMALL,
    }
    for k in range(n_trainings):
        colour, _ = kind_look(k)
        xs = place(np.arange(float(n_architectures)), k, n_trainings)
        ax.plot(
            xs + BALANCED, balanced.mean[d, k], "d", color=colour, markerfacecolor="white", markersize=4.5,
            markeredgewidth=0.9, zorder=5, label=f"_balanced {k}",
        )  # fmt: skip
        for x, mean in zip(xs, accuracy.mean[d, k], strict=True):
            ax.annotate(share(mean), (x, 1), (0, 3), ha="center", annotation_clip=False, **above)


def draw_cells(ax: Axes, measure: Measure, d: int) -> None:
    """For each architecture and training a cloud of seeds, and beside it the mean with its interval."""
    _, n_trainings, n_architectures, n_seeds = measure.values.shape
    spread = (np.arange(n_seeds) * 0.618034 % 1 - 0.5) * SCATTER  # the same for every call: no random numbers
    for k in range(n_trainings):
        colour, marker = kind_look(k)
        xs = place(np.arange(float(n_architectures)), k, n_trainings)
        cloud = np.broadcast_to(xs[:, None] + spread + SEEDS, measure.values.shape[2:])
        ax.plot(
            cloud.ravel(), measure.values[d, k].ravel(), marker, color=colour, alpha=0.35, markersize=2.6,
            markeredgewidth=0, label=f"_seeds {k}",
        )  # fmt: skip
        known = np.isfinite(measure.low[d, k]) & np.isfinite(measure.high[d, k])
        ax.vlines(xs[known] + MEAN, measure.low[d, k][known], measure.high[d, k][known], colors=colour, linewidths=1.2)
        ax.plot(
            xs + MEAN, measure.mean[d, k], marker, color=colour, markersize=4.5, markeredgecolor="0.2",
            markeredgewidth=0.4, zorder=4, label=f"_mean {k}",
        )  # fmt: skip


def share(value: float) -> str:
    """Three decimals, or four where three would make a perfect 1.000 of what is less."""
    text = f"{value:.3f}"
    return f"{min(value, 0.9999):.4f}" if text == "1.000" and value < 1 else text


def whole_decades(values: Float[np.ndarray, "*shape"]) -> tuple[float, float]:
    """Powers of ten around all positive values, so that two at least are labelled."""
    exponents = np.log10(values[np.isfinite(values) & (values > 0)])
    if not exponents.size:
        return 0.1, 1.0
    low = np.floor(exponents.min())
    return float(10**low), float(10 ** max(np.ceil(exponents.max()), low + 1))


def place(x: Float[np.ndarray, " architecture"], k: int, n: int) -> Float[np.ndarray, " architecture"]:
    """Where the k-th of n trainings stands."""
    return x + (k - (n - 1) / 2) * DODGE / n


def handles(kinds: Sequence[str], with_sizes: bool) -> list[Artist]:
    """The legend's entries."""
    entries: list[Artist] = []
    for k, name in enumerate(kinds):
        colour, marker = kind_look(k)
        edge: dict[str, Any] = {"markeredgecolor": "0.2", "markeredgewidth": 0.4}
        entries.append(
            Line2D([], [], color=colour, marker=marker, markersize=4.5, linestyle="none", label=name, **edge)
        )
    grey: dict[str, Any] = {"color": "0.35"}
    middle = "mean (number above) and\n95 % interval" + ("; below, median" if with_sizes else "")
    entries += [
        Line2D([], [], marker="o", alpha=0.5, markersize=2.6, linestyle="none", label="one seed", **grey),
        Line2D([], [], marker="o", markersize=4.5, linewidth=1.2, label=middle, **grey),
        Line2D([], [], marker="d", markersize=4.5, markerfacecolor="white", markeredgewidth=0.9, linestyle="none",
               label="balanced accuracy, mean", **grey),
        Line2D([], [], linestyle="--", linewidth=0.9, label="majority class, mean\n(band: range of seeds)", **grey),
    ]  # fmt: skip
    return entries
