"""Names for positions, in a finished figure: at every axis of positions, in titles and in the legend."""

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from interp.errors import BoolensError
from interp.plots.style import TICK_SIZE, BlockLocator, PositionLocator, styled

LONGEST = 24
"""Characters of a name at an axis; longer ones end with an ellipsis."""
IN_TITLE = 16
LABELS = (
    ("position (index)", "feature"),
    ("position", "feature"),
    ("targets first", "hypothesis first"),
)
PITCH = 1.2 * TICK_SIZE
"""Points that a name needs across."""
SMALLEST = 4.5
"""Points of the smallest letters; below it names thin out."""
WIDEST = 1.8
"""A figure grows at most so many times, so that all names fit; beyond it they thin out."""
CLS = "[CLS]"
"""The name of one more position at an axis than there are names."""
INDICES = re.compile(r"\btargets? (\d+(?:, \d+)*)(?!\d)")
NODE = re.compile(r"position-(\d+)")
WORDS = {"target position": "hypothesised feature", "target": "hypothesised feature"}


class NameLocator(PositionLocator):
    """The positions in `keep`, and of the others each `step`-th that leaves them room."""

    def __init__(self, ax: Axes, which: str, order: Sequence[int], keep: Sequence[int]) -> None:
        super().__init__(ax, which, len(order))
        self.size = TICK_SIZE
        self.kept = [place for place, position in enumerate(order) if position in keep]

    def __call__(self) -> list[int]:
        box = self.ax.get_window_extent()
        pixels = box.width if self.which == "x" else box.height
        pitch = pixels / self.ax.figure.dpi * 72 / self.n
        step = max(1, -(-1.2 * self.size // max(pitch, 1e-9)))
        shown = list(self.kept)
        for place in range(self.n):
            if all(abs(place - other) >= step for other in shown):
                shown.append(place)
        return sorted(shown)


def name_positions(fig: Figure, names: Sequence[str], keep: Sequence[int] = ()) -> None:
    """Writes names where a finished figure has the numbers of positions.

    The figure grows by what the names take, and as far as WIDEST until all fit; then they thin out.

    Args:
        fig: of one of this package's plot functions, for T = len(names) positions.
        names: one a position; shortened to LONGEST characters at axes.
        keep: positions that are named also where there is no room for all.

    Raises:
        BoolensError: a position to keep that does not exist.
    """
    wrong = [i for i in keep if not 0 <= i < len(names)]
    if wrong:
        raise BoolensError(f"keep names position {wrong[0]}, but there are {len(names)} names; pass one a position")
    with styled():
        named = [found for ax in fig.axes for found in ((ax, "x", ax.xaxis), (ax, "y", ax.yaxis)) if _orders(*found)]
        named = [(ax, which, axis) for ax, which, axis in named if _name_axis(ax, which, axis, names, keep)]
        for text in fig.findobj(Text):
            assert isinstance(text, Text)
            node = NODE.fullmatch(text.get_gid() or "")
            text.set_text(shortened(names[int(node[1])], IN_TITLE) if node else renamed(text.get_text(), names))
        _make_room(fig, named, names)


class LastLocator(PositionLocator):
    """The ticks of a PositionLocator, and the last place, with room about it."""

    def __call__(self) -> list[int]:
        ticks = super().__call__()
        step = ticks[1] - ticks[0] if len(ticks) > 1 else self.n
        return [*(tick for tick in ticks if self.n - 1 - tick > step), self.n - 1]


def name_last(fig: Figure, n: int, name: str) -> None:
    """Writes a name in the place of the last number at every axis of n positions of a finished figure."""
    for ax in fig.axes:
        for which, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
            locator = axis.get_major_locator()
            if isinstance(locator, PositionLocator) and (locator.counts, locator.n) == ("positions", n):
                axis.set_major_locator(LastLocator(ax, which, n))
                axis.set_major_formatter(FuncFormatter(lambda place, _: name if place == n - 1 else f"{place:g}"))


def _orders(ax: Axes, which: str, axis: Axis) -> bool:
    locator = axis.get_major_locator()
    return isinstance(locator, BlockLocator) or (isinstance(locator, PositionLocator) and locator.counts == "positions")


def _name_axis(ax: Axes, which: str, axis: Axis, names: Sequence[str], keep: Sequence[int]) -> bool:
    """Whether the axis now has names; one without a label stands above another that has them."""
    locator = axis.get_major_locator()
    order, n_blocks = list(range(len(names))), 1
    if isinstance(locator, BlockLocator):
        order, n_blocks = locator.order, locator.n_blocks
    elif isinstance(locator, PositionLocator) and locator.n == len(names) + 1:
        order = list(range(locator.n))
        names, keep = [*names, CLS], [*keep, len(names)]
    elif isinstance(locator, NameLocator) or (isinstance(locator, PositionLocator) and locator.n != len(names)):
        return False  # shared with another that has its names, or no axis of these positions
    label = axis.get_label_text()
    if which == "x" and not label:
        axis.set_tick_params(which="major", labelbottom=False)
        return False
    ends = [f" = {bit}" for bit in range(n_blocks)] if n_blocks > 1 else [""]
    shown = [shortened(names[position], LONGEST) + end for end in ends for position in order]
    axis.set_major_locator(NameLocator(ax, which, order * n_blocks, keep))
    axis.set_major_formatter(FuncFormatter(lambda place, _: shown[round(place)] if 0 <= place < len(shown) else ""))
    axis.set_tick_params(which="major", labelrotation=90 if which == "x" else 0)
    for number, word in LABELS:
        label = label.replace(number, word)
    axis.set_label_text(label)
    return True


def _make_room(fig: Figure, named: Sequence[tuple[Axes, str, Axis]], names: Sequence[str]) -> None:
    if not named:
        return
    longest = 0.55 * TICK_SIZE / 72 * min(LONGEST, max(map(len, names)))  # inches
    width, height = fig.get_size_inches()
    rows, columns = ({ax.get_subplotspec() for ax, w, _ in named if w == which} for which in ("x", "y"))
    tall = {getattr(spec, "rowspan", range(0, 1)).start for spec in rows if spec}
    wide = {getattr(spec, "colspan", range(0, 1)).start for spec in columns if spec}
    fig.set_size_inches(width + longest * len(wide), height + longest * len(tall))
    fig.draw_without_rendering()
    grow = {"x": 1.0, "y": 1.0}
    for ax, which, axis in named:
        box = ax.get_window_extent()
        points = (box.width if which == "x" else box.height) / fig.dpi * 72
        grow[which] = max(grow[which], min(WIDEST, PITCH * axis_length(axis) / max(points, 1.0)))
    width, height = fig.get_size_inches()
    fig.set_size_inches(width * grow["x"], height * grow["y"])
    fig.draw_without_rendering()
    for ax, which, axis in named:
        box = ax.get_window_extent()
        points = (box.width if which == "x" else box.height) / fig.dpi * 72
        locator = axis.get_major_locator()
        assert isinstance(locator, NameLocator)
        locator.size = min(TICK_SIZE, max(SMALLEST, points / axis_length(axis) / 1.2))
        axis.set_tick_params(which="major", labelsize=locator.size)


def axis_length(axis: Axis) -> int:
    """The number of places along an axis of names."""
    locator = axis.get_major_locator()
    return locator.n if isinstance(locator, PositionLocator) else 1


def renamed(text: str, names: Sequence[str]) -> str:
    """A title or a legend's entry, as `interp.plots.legends` words it, with names.

    >>> renamed("rule 0: targets 0, 2", ["fever", "cough", "lump"])
    'rule 0: fever AND lump'
    """

    def listed(match: re.Match[str]) -> str:
        return " AND ".join(shortened(names[int(i)], IN_TITLE) for i in match[1].split(", "))

    return WORDS.get(text) or INDICES.sub(listed, text)


def shortened(name: str, most: int) -> str:
    """The name, or so much of it as there is room for; of a threshold's name first the number goes.

    >>> shortened("mean concavity>0.06071", 16), shortened("mean concave points>0.0346", 16)
    ('mean concavity>…', 'mean concave po…')
    >>> shortened("occupation=teacher", 14)
    'occupatio…cher'
    """
    if len(name) <= most:
        return name
    stem, threshold, _ = name.rpartition(">")
    if threshold:
        return f"{stem}>…" if len(stem) + 2 <= most else f"{stem[: most - 1]}…"
    tail = most // 3
    return f"{name[: most - 1 - tail]}…{name[-tail:]}"
