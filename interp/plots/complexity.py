"""Smallest sufficient training sets against T, with the floor below any learner and the laws fitted."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from interp.errors import BoolensError
from interp.plots.style import NEUTRAL, TICK_SIZE, styled


@dataclass(frozen=True)
class Growth:
    """One model and task by T; NaN where not known, an interval's end that is NaN has no bound there."""

    name: str
    n_ctx: Sequence[int]
    m_star: Float[np.ndarray, " cell"]
    low: Float[np.ndarray, " cell"]
    high: Float[np.ndarray, " cell"]
    floor: Float[np.ndarray, " cell"]
    laws: dict[str, Callable[[np.ndarray], np.ndarray]] = field(default_factory=dict)


def plot_complexity(growths: Sequence[Growth], published: Mapping[int, float], rule: str) -> Figure:
    """A panel for each growth: m* with intervals, floor, fitted laws, and the published points where given.

    Args:
        growths: at least one.
        published: T to m*; drawn in the panels whose name tells sparse-and.
        rule: the success rule, written below the axes.

    Raises:
        BoolensError: nothing to draw.
    """
    if not growths:
        raise BoolensError("no growth to draw; give at least one")
    with styled():
        fig = Figure(figsize=(4.2 * len(growths) + 0.4, 3.8), layout="constrained")
        axes = fig.subplots(1, len(growths), squeeze=False)[0]
        for ax, growth in zip(axes, growths, strict=True):
            t = np.array(growth.n_ctx, dtype=float)
            shown = published if "sparse-and" in growth.name else {}
            if shown:
                ax.plot(list(shown), list(shown.values()), "x", color=NEUTRAL, label="published", markersize=4)
            line = np.geomspace(min([*t, *shown]), max([*t, *shown]), 200)
            for (law, curve), style in zip(growth.laws.items(), ("-", "--", ":"), strict=False):
                ax.plot(line, curve(line), style, linewidth=1, color="C1", label=law)
            ends = np.stack([growth.m_star - growth.low, growth.high - growth.m_star])
            known = np.isfinite(growth.m_star)
            ends = np.where(np.isfinite(ends), np.maximum(ends, 0), 0)
            ax.errorbar(t[known], growth.m_star[known], ends[:, known], fmt="o", color="C0", capsize=2, label="m*")
            ax.plot(t, growth.floor, "s", color="C2", markersize=4, label="floor: one set left")
            ax.set_xscale("log", base=2)
            ax.set_xticks(t, [f"{v:.0f}" for v in t])
            ax.minorticks_off()
            ax.set_ylim(bottom=0)
            ax.set_xlabel("bits T")
            ax.set_title(growth.name)
            ax.legend(loc="upper left")
        axes[0].set_ylabel("training samples m*")
        fig.supxlabel(textwrap.fill(rule, 75 * len(growths)), fontsize=TICK_SIZE)
    return fig
