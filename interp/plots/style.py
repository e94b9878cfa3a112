"""What every figure shares: colours, the position axis, target marks, and files.

Nothing global changes: settings (seaborn's "ticks" on "paper", and ours over them) hold inside
:func:`styled` only, figures are plain :class:`matplotlib.figure.Figure` objects that pyplot never sees.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path as FilePath
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, Locator
from matplotlib.transforms import ScaledTranslation

from interp.errors import BoolensError
from interp.files import write_atomic
from interp.plots.checks import positions_within

# Okabe and Ito's colour-blind-safe palette; a colour means one thing in all figures.
FALSE, TRUE = "#56B4E9", "#E69F00"
TARGET, RULE, NEUTRAL = "#009E73", "#000000", "#999999"
POSITIVE, NEGATIVE = "#D55E00", "#0072B2"
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"  # RdBu_r: positive red, negative blue, as above
STATUS = ((TARGET, "o"), (POSITIVE, "X"), (TRUE, "s"))  # colour and marker of: good, bad, undecided
CATEGORICAL = ("#000000", TRUE, FALSE, "#CC79A7")  # none of them means a target or a sign
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TARGET_MARKER = Path([(-0.6, 1), (0.6, 1), (0, -1), (-0.6, 1)], closed=True)  # slim, so that neighbours stay apart
TARGET_MARKER_LEFT = Path([(1, -0.6), (1, 0.6), (-1, 0), (1, -0.6)], closed=True)
RULE_MARKER = Path([(-0.6, 0), (0, 1), (0.6, 0), (0, -1), (-0.6, 0)], closed=True)
RULE_MARKER_LEFT = Path([(-1, 0), (0, 0.6), (1, 0), (0, -0.6), (-1, 0)], closed=True)

HATCHED: dict[str, Any] = {"facecolor": "0.88", "edgecolor": "0.55", "hatch": "////", "linewidth": 0}  # where undefined

FONT_SIZE, TICK_SIZE, SMALL = 8.0, 7.0, 6.5  # points; SMALL for numbers beside or inside marks
SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib brings it along, so that every machine has it
    "font.size": FONT_SIZE,
    "image.cmap": SEQUENTIAL,
    "patch.force_edgecolor": False,  # bars touch where there are many
    "axes.titlesize": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "axes.titlepad": 10.0,  # leaves room for the target marks
    "axes.titley": 1.0,  # that pad clears an axis' 1e−6 too; to look for it takes each drawing a fifth longer
    "axes.linewidth": 0.6,
    "xtick.labelsize": TICK_SIZE,
    "ytick.labelsize": TICK_SIZE,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "hatch.linewidth": 0.5,
    "legend.fontsize": TICK_SIZE,
    "legend.title_fontsize": TICK_SIZE,
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "boolens",
    "savefig.dpi": 200,
}


@cache
def all_settings() -> dict[Any, Any]:
    """Ours over seaborn's."""
    import seaborn  # half a second, and pyplot comes with it: not before something is drawn

    return {**seaborn.axes_style("ticks"), **seaborn.plotting_context("paper"), **SETTINGS}


@contextmanager
def styled() -> Iterator[None]:
    """These settings over matplotlib's defaults, whatever theme is set outside; put back on exit."""
    with mpl.rc_context():
        mpl.rcdefaults()  # leaves the backend alone
        mpl.rcParams.update(all_settings())
        yield


class PositionLocator(Locator):
    """Integer ticks 0, step, 2 step … below `n`, with the smallest step whose labels do not touch."""

    def __init__(self, ax: Axes, which: str, n: int, counts: str = "positions") -> None:
        """`counts` says of what the ticks are numbers."""
        self.ax, self.which, self.n, self.counts = ax, which, n, counts

    def __call__(self) -> list[int]:
        box = self.ax.get_window_extent()
        pixels = box.width if self.which == "x" else box.height
        pitch = pixels / self.ax.figure.dpi * 72 / self.n  # points a position
        label = 0.65 * len(str(self.n - 1)) + 0.8 if self.which == "x" else 1.5  # in font sizes, with the gap
        return list(range(0, self.n, tick_step(label * TICK_SIZE / max(pitch, 1e-9))))

    def tick_values(self, vmin: float, vmax: float) -> list[int]:
        return [tick for tick in self() if min(vmin, vmax) <= tick <= max(vmin, vmax)]


class BlockLocator(FixedLocator):
    """Ticks of blocks that hold all positions in another order; none of positions (see `interp.plots.names`)."""

    def __init__(self, ticks: Sequence[float], order: Sequence[int], n_blocks: int) -> None:
        super().__init__(ticks)
        self.order, self.n_blocks = list(order), n_blocks


def tick_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50 … that is at least `least`."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least:
                return digit * power
        power *= 10


def position_axis(
    ax: Axes,
    n_ctx: int,
    which: Literal["x", "y"] = "x",
    label: str = "position (src)",
    counts: str = "positions",
) -> None:
    """Cell i is centred at i: limits -0.5 to n_ctx - 0.5 (y runs downwards), thinned integer ticks, label.

    Where it `counts` something else than positions, `interp.plots.names` leaves the numbers.
    """
    if n_ctx < 1:
        raise BoolensError(f"n_ctx is {n_ctx}, but an axis needs at least 1 position")
    if axis_name(which) == "x":
        ax.set_xlim(-0.5, n_ctx - 0.5)
        ax.set_xlabel(label)
        axis = ax.xaxis
    else:
        ax.set_ylim(n_ctx - 0.5, -0.5)
        ax.set_ylabel(label)
        axis = ax.yaxis
    axis.set_major_locator(PositionLocator(ax, which, n_ctx, counts))
    axis.set_tick_params(which="major", labelsize=TICK_SIZE)


def mark_targets(
    ax: Axes, targets: Sequence[int], rule_positions: Sequence[int] = (), which: Literal["x", "y"] = "x"
) -> None:
    """Points at targets (green triangle) and rule positions (black diamond) from the top or right edge.

    A pale band behind the data goes on across the panel; an image hides it. Call after
    :func:`position_axis`, whose limits say which indices exist.
    """
    horizontal = axis_name(which) == "x"
    n_ctx = round(abs(float(np.diff(ax.get_xlim() if horizontal else ax.get_ylim())[0])))
    edge = ax.get_xaxis_transform() if horizontal else ax.get_yaxis_transform()
    outside = edge + points_away(ax, 0, 4.5) if horizontal else edge + points_away(ax, 4.5, 0)
    span = ax.axvspan if horizontal else ax.axhspan
    marks = (
        ("targets", targets, TARGET, TARGET_MARKER if horizontal else TARGET_MARKER_LEFT, 5.5),
        ("rule_positions", rule_positions, RULE, RULE_MARKER if horizontal else RULE_MARKER_LEFT, 5.5),
    )
    for name, indices, colour, marker, size in marks:
        where = positions_within(name, indices, n_ctx)
        if not where:  # a line without points would still claim room in the layout, at the figure's corner
            continue
        for index in where:
            span(index - 0.5, index + 0.5, color=colour, alpha=0.15, linewidth=0, zorder=-1)
        ones = [1.0] * len(where)
        xs, ys = (where, ones) if horizontal else (ones, where)
        ax.plot(
            xs, ys, marker=marker, linestyle="none", color=colour, markersize=size, markeredgewidth=0, clip_on=False,
            transform=outside, label=f"_{name}", gid=f"{name}-{which}", scalex=False, scaley=False,
        )  # fmt: skip


def points_away(ax: Axes, x: float, y: float) -> ScaledTranslation:
    """Moves by so many points at any size and resolution; add it to a transform."""
    return ScaledTranslation(x / 72, y / 72, ax.figure.dpi_scale_trans)


def axis_name(which: str) -> str:
    """`which` itself when it is "x" or "y"."""
    if which not in ("x", "y"):
        raise BoolensError(f'which is {which!r}, but an axis is "x" or "y"')
    return which


def bar_width(n_ctx: int) -> float:
    """Width in cells of a bar at each position; many bars touch, for gaps below a pixel would come and go."""
    return 0.85 if n_ctx <= 60 else 1.0


def panel_width(n_ctx: int, least: float = 2.4, most: float = 5.6) -> float:
    """Width in inches of a panel with `n_ctx` positions across."""
    return min(most, max(least, 1.6 + 0.06 * n_ctx))


def save_figure(fig: Figure, folder: str | os.PathLike[str], stem: str = "figure") -> tuple[FilePath, FilePath]:
    """Writes `stem`.png (200 dpi) and `stem`.svg into `folder` (made if absent) and gives their paths.

    Both are drawn before one is written, beside its final name and renamed, so that a file with that name is whole.
    The same figure gives the same SVG bytes.
    """
    if not stem or FilePath(stem).name != stem:
        raise BoolensError(f"stem is {stem!r}, but it names a file inside the folder; pass a name without a slash")
    png, svg = (FilePath(folder) / f"{stem}.{kind}" for kind in ("png", "svg"))
    engine, dpi, canvas = fig.get_layout_engine(), fig.dpi, fig.canvas
    pixels, shapes = BytesIO(), BytesIO()
    try:
        with styled():
            # the canvases' own methods draw once, where Figure.savefig draws a first time for the layout alone
            fig.set_dpi(200)
            FigureCanvasAgg(fig).print_png(pixels, pil_kwargs={"compress_level": 6})
            fig.set_layout_engine("none")  # the layout is found once: it takes as long as drawing
            FigureCanvasSVG(fig).print_svg(shapes, metadata={"Date": None})
    finally:
        fig.set_layout_engine(engine)
        fig.set_dpi(dpi)
        fig.set_canvas(canvas)
    write_atomic(png, pixels.getvalue())
    write_atomic(svg, shapes.getvalue())
    return png, svg
