"""Every kind of figure, as a reviewer sees it: nothing cut, nothing over another thing, nothing too small to read."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox

BY_HEAD = (
    *("attention", "query attention", "effective", "ablation", "patching", "recovery", "circuits", "query circuits"),
    *("maps", "formation", "claims"),
)
OTHERS = (
    "samples",
    "certificate",
    "certificate, open",
    "certificates",
    "order",
    "abstraction",
    "attribution",
    "comparison",
    "gain",
)
CASES = [
    *((kind, n_ctx, 1 + (n_ctx == 5), n_heads) for kind in BY_HEAD for n_ctx in (5, 30, 100) for n_heads in (1, 4)),
    *((kind, n_ctx, 1 + (n_ctx != 30), 1) for kind in OTHERS for n_ctx in (5, 30, 100)),
    *(("complexity", 30, n_rules, 1) for n_rules in (1, 2)),
    *((kind, 1, 1, 1) for kind in ("attention", "effective", "recovery", "circuits", "gain", "samples")),
    *((kind, 100, 2, 1) for kind in ("ablation", "effective", "recovery")),
    *((kind, 200, 2, 1) for kind in ("samples", "patching")),
]
SMALLEST, WIDEST = 6.0, 13.0  # points of a letter, inches of a figure


@pytest.mark.parametrize(("kind", "n_ctx", "n_rules", "n_heads"), CASES)
def test_a_reviewer_finds_nothing_cut_covered_or_too_small(
    kind: str, n_ctx: int, n_rules: int, n_heads: int, example: Callable[..., Figure], seen_texts: Callable
) -> None:
    fig = example(kind, n_ctx, n_rules, n_heads)
    texts = seen_texts(fig)
    assert len(texts) > 5
    for (one, a), (other, b) in combinations(texts, 2):
        apart = a[2] <= b[0] + 0.5 or b[2] <= a[0] + 0.5 or a[3] <= b[1] + 0.5 or b[3] <= a[1] + 0.5
        assert apart, (one, other)
    for text, (left, bottom, right, top) in texts:
        assert min(left, bottom) >= 0, text
        assert (right <= fig.bbox.x1, top <= fig.bbox.y1) == (True, True), text
    assert min(float(text.get_fontsize()) for text in fig.findobj(Text) if isinstance(text, Text)) >= SMALLEST
    assert fig.get_figwidth() <= WIDEST
    covered(fig)


def covered(fig: Figure) -> None:
    """Fails where a legend lies over another, over a panel of which it is none, or over what its panel shows."""
    renderer = FigureCanvasAgg(fig).get_renderer()
    legends = [each for each in fig.findobj(Legend) if isinstance(each, Legend)]
    boxes = [legend.get_window_extent(renderer) for legend in legends]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    for legend, box in zip(legends, boxes, strict=True):
        for ax in fig.axes:
            if legend.axes is not ax:
                assert not box.overlaps(ax.get_window_extent(renderer)), ax.get_title()
                continue
            for line in ax.lines:
                path = line.get_path().transformed(line.get_transform())
                assert not path.intersects_bbox(box, filled=False), line.get_label()
                assert not box.count_contains(path.vertices), line.get_label()
            assert not any(bar.get_window_extent(renderer).overlaps(box) for bar in ax.patches)


def test_a_legend_over_data_is_seen() -> None:
    fig = Figure()
    ax = fig.subplots()
    ax.plot([0, 1], [0, 1], label="line")
    ax.legend(loc="center")
    with pytest.raises(AssertionError, match="line"):
        covered(fig)
    ax.legend(loc="upper left")
    covered(fig)
    ax.plot([0.05], [1], "o", label="dot")
    with pytest.raises(AssertionError, match="dot"):
        covered(fig)


@pytest.mark.parametrize("kind", ["attention", "ablation", "patching", "recovery", "maps", "formation", "attribution"])
def test_panels_that_share_a_column_share_its_edges(kind: str, example: Callable[..., Figure]) -> None:
    """In a grid, panels of one column are equally wide and of one row equally high."""
    fig = example(kind, 11, 1, 2)
    fig.draw_without_rendering()
    by_cell: dict[tuple[int, int, int, int, int], list[Bbox]] = {}
    for ax in fig.axes:
        spec = ax.get_subplotspec()
        if spec is not None and ax.axison:
            grid = id(spec.get_gridspec())
            for key in (
                (grid, 0, spec.colspan.start, spec.colspan.stop, 0),
                (grid, 1, spec.rowspan.start, spec.rowspan.stop, 1),
            ):
                by_cell.setdefault(key, []).append(ax.get_position())
    for (_, which, *_), found in by_cell.items():
        edges = np.array([[box.x0, box.x1] if which == 0 else [box.y0, box.y1] for box in found])
        np.testing.assert_allclose(edges - edges[0], 0, atol=2e-3)
