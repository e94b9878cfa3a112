"""Smallest sufficient training sets against T, with the floor below any learner and the laws fitted."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from interp.errors import BoolensError
from interp.plots.style import NEGATIVE, NEUTRAL, TARGET, TICK_SIZE, styled


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
        fig = Figure(figsize=(5.2 * len(growths) + 0.4, 4.0), layout="constrained")
        axes = fig.subplots(1, len(growths), squeeze=False)[0]
        for ax, growth in zip(axes, growths, strict=True):
            t = np.array(growth.n_ctx, dtype=float)
            shown = published if "sparse-and" in growth.name else {}
            if shown:
                ax.plot(list(shown), list(shown.values()), "x", color=NEUTRAL, label="published", markersize=4)
            line = np.geomspace(t.min(), t.max(), 200)
            for (law, curve), style in zip(growth.laws.items(), ("-", "--", ":"), strict=False):
                ax.plot(line, curve(line), style, linewidth=1.1, color=NEGATIVE, label=law)
            ends = np.stack([growth.m_star - growth.low, growth.high - growth.m_star])
            known = np.isfinite(growth.m_star)
            ends = np.where(np.isfinite(ends), np.maximum(ends, 0), 0)
            ax.errorbar(
                t[known], growth.m_star[known], ends[:, known], fmt="o", color="black", capsize=2, markersize=4,
                elinewidth=0.9, label="m* (95 % interval)",
            )  # fmt: skip
            ax.plot(t, growth.floor, "s", color=TARGET, markersize=3.5, label="floor: one set left")
            ax.set_xscale("log")
            places = [*t, *shown]
            ticks = [d * 10**k for k in range(7) for d in (1, 2, 5) if min(places) <= d * 10**k <= max(places)]
            ax.set_xticks(ticks, [f"{tick}" for tick in ticks])
            ax.minorticks_off()
            drawn = np.concatenate([growth.m_star + ends[1], growth.floor, list(shown.values())])
            ax.set_ylim(0, 1.45 * float(np.nanmax(drawn)) if np.isfinite(drawn).any() else None)  # with room above
            ax.set_xlabel("bits T (log scale)")
            ax.set_title(growth.name)
            ax.set_ylabel("training samples m*")  # each has a scale of its own
            ax.legend(loc="upper left", ncols=2)
        fig.supxlabel(textwrap.fill(rule, 75 * len(growths)), fontsize=TICK_SIZE)
    return fig
