"""The graph picture: one node a position, one node for the logit, an edge for each contribution."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from interp.plots.style import NEGATIVE, NEUTRAL, POSITIVE, RULE, TARGET, TICK_SIZE, tick_step

LABEL_GAP = 1.15 * TICK_SIZE  # points between two node labels' centres


def draw_graph(
    ax: Axes,
    contribution: NDArray[np.float64],
    targets: Sequence[int],
    rule_positions: Sequence[int],
    *,
    scale: float,
    height: float,
) -> None:
    """Position i is a node at (0, i), the logit a node at (1, middle); targets are outlined in green.

    Args:
        contribution: [src], in logit.
        targets: outlined positions.
        rule_positions: outlined in black.
        scale: points of edge width per logit, the same in all panels that are to be compared.
        height: points that the panel has from top to bottom, to place labels that do not touch.
    """
    n_ctx = len(contribution)
    middle = (n_ctx - 1) / 2
    ax.set(xlim=(-0.42, 1.32), ylim=(n_ctx - 0.5, -0.5))
    ax.set_axis_off()
    drawn = np.flatnonzero(np.isfinite(contribution))
    edges = LineCollection(
        [np.array([[0, i], [1, middle]]) for i in drawn],
        linewidths=scale * np.abs(contribution[drawn]),
        colors=[POSITIVE if contribution[i] > 0 else NEGATIVE for i in drawn],
        capstyle="butt", alpha=0.85, zorder=1, gid="edges",
    )  # fmt: skip
    ax.add_collection(edges, autolim=False)

    pitch = height / n_ctx
    size = float(np.clip(0.75 * pitch, 0.8, 6.0))
    kinds = np.full(n_ctx, NEUTRAL, dtype=object)
    kinds[list(targets)] = TARGET
    kinds[list(rule_positions)] = RULE
    plain = np.flatnonzero(kinds == NEUTRAL)
    special = np.flatnonzero(kinds != NEUTRAL)
    ax.scatter(np.zeros(len(plain)), plain, s=size**2, c=NEUTRAL, linewidths=0, zorder=2, gid="nodes")
    ax.scatter(
        np.zeros(len(special)), special, s=max(size, 3.5) ** 2, c="white", edgecolors=kinds[special].tolist(),
        linewidths=1.3, zorder=3, clip_on=False, gid="nodes-outlined",
    )  # fmt: skip
    ax.scatter([1], [middle], s=7**2, c="black", zorder=3)
    ax.annotate("logit", (1, middle), (6, 0), textcoords="offset points", va="center", fontsize=TICK_SIZE)
    for position, y in node_labels(n_ctx, special.tolist(), LABEL_GAP / pitch).items():
        colour = "0.25" if kinds[position] == NEUTRAL else str(kinds[position])
        if abs(y - position) > 0.5:  # moved aside: a thin line leads to its node
            ax.plot([-0.11, -0.03], [y, position], color=colour, linewidth=0.4, clip_on=False)
        ax.text(
            -0.13, y, str(position), ha="right", va="center", fontsize=TICK_SIZE, color=colour,
            gid=f"position-{position}", fontweight="normal" if kinds[position] == NEUTRAL else "bold",
        )  # fmt: skip


def node_labels(n_ctx: int, special: Sequence[int], gap: float) -> dict[int, float]:
    """Which positions to name, and where along the column, so that names are at least `gap` apart.

    The `special` ones come first, moved aside where they would touch, and as many as there is room
    for; round numbers fill what is left.
    """
    room = max(1, int((n_ctx - 1) / gap) + 1)
    kept = list(special)[:: -(-len(special) // room)] if special else []
    placed = dict(zip(kept, spread(kept, gap, n_ctx - 1), strict=True))
    for position in range(0, n_ctx, tick_step(gap)):
        if position not in special and all(abs(y - position) >= gap for y in placed.values()):
            placed[position] = float(position)
    return placed


def spread(wanted: Sequence[float], gap: float, end: float) -> list[float]:
    """Places in [0, end], at least `gap` apart and as near as can be to `wanted` (increasing).

    Less i * gap, the i-th place may not fall below the one before: neighbours that would touch
    are pooled, and a pool stands at its members' mean.
    """
    pools: list[tuple[float, int]] = []  # sum and count of wanted[i] - i * gap
    for number, place in enumerate(wanted):
        total, count = place - number * gap, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    lowest = [total / count for total, count in pools for _ in range(count)]
    last = max(0.0, end - (len(wanted) - 1) * gap)
    return [min(max(place, 0.0), last) + number * gap for number, place in enumerate(lowest)]
