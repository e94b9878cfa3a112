"""The arrays behind the curves, the lock-ons and the order over seeds."""

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from interp.plots import plot_formation, plot_order
from interp.plots.style import TRUE

STEPS = [0, 20, 40, 60, 250]
VALUES = np.array([[0.5, 0.6, 1.0, 0.98, 1.0], [0.7, 0.6, 0.2, 0.1, 0.0], [3.0, 3.0, 3.0, 3.0, 3.0]])
AT, CHANCE = np.array([60.0, 40.0, np.nan]), np.array([0.5, np.nan, 3.0])
MEASURES = ["accuracy", "loss", "still"]


def formation(**changed: Any) -> Figure:
    arguments = {"steps": STEPS, "values": VALUES, "chance": CHANCE, "at": AT, "measures": MEASURES, "band": 0.1}
    return plot_formation(**{**arguments, **changed})


def test_curves_bands_and_lock_ons() -> None:
    *panels, last = formation().axes
    assert len(panels) == 3
    for i, ax in enumerate(panels):
        (curve,) = [line for line in ax.lines if len(np.atleast_1d(line.get_xdata())) == len(STEPS)]
        np.testing.assert_array_equal(curve.get_xdata(), STEPS)
        np.testing.assert_array_equal(curve.get_ydata(), VALUES[i])
        (band,) = ax.patches
        half = 0.1 * np.ptp(VALUES[i])
        assert band.get_y() == pytest.approx(VALUES[i, -1] - half)  # pyright: ignore[reportAttributeAccessIssue]
        assert band.get_height() == pytest.approx(2 * half)  # pyright: ignore[reportAttributeAccessIssue]
        locks = [float(np.asarray(line.get_xdata())[0]) for line in ax.lines if line.get_color() == TRUE]
        assert locks == ([AT[i]] if np.isfinite(AT[i]) else [])
        chances = [float(np.asarray(line.get_ydata())[0]) for line in ax.lines if line.get_linestyle() == ":"]
        assert chances == ([CHANCE[i]] if np.isfinite(CHANCE[i]) else [])
    assert [ax.get_title() for ax in panels] == [
        "accuracy\nlocks on at step 60", "loss\nlocks on at step 40", "still\ndoes not lock on",
    ]  # fmt: skip
    assert [label.get_text() for label in last.get_yticklabels()] == ["loss", "accuracy", "still"]
    np.testing.assert_array_equal(np.asarray(last.lines[0].get_xdata()), [40, 60, np.nan])


def test_titles_make_way_for_what_an_axis_is_counted_from() -> None:
    """Before anything is learned, curves differ in the seventh digit only, and the axis says 1e−7+6.93e−1 above."""
    fig = formation(values=np.log(2) + 1e-7 * VALUES, chance=np.full(3, np.nan))
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    for ax in fig.axes[:2]:
        offset = ax.yaxis.get_offset_text()
        assert offset.get_text()
        assert not offset.get_window_extent().overlaps(ax.title.get_window_extent())


def test_step_0_has_a_place_on_the_log_axis() -> None:
    for ax in formation().axes:
        assert ax.get_xscale() == "symlog"
        assert ax.get_xticks().tolist() == [0, 20, 100]
        left, first, second, end = ax.transData.transform([[0, 0], [20, 0], [40, 0], [250, 0]])[:, 0]
        assert ax.bbox.x0 < left < first < second < end < ax.bbox.x1
        assert (second - first) / (end - first) == pytest.approx(np.log(2) / np.log(12.5))


def test_the_order_over_seeds() -> None:
    at = np.array([[20.0, 40], [20, np.nan], [60, 20]])
    before, of = np.array([[0, 1], [1, 0]]), np.array([[3, 2], [2, 2]])
    left, right = plot_order(at, before, of, steps=STEPS, events=["a", "b"]).axes
    dots = [np.asarray(line.get_xdata()).tolist() for line in left.lines if line.get_marker() == "o"]
    assert dots == [[20, 20, 60], [40, 20]]
    assert [np.asarray(line.get_xdata()).tolist() for line in left.lines if line.get_marker() == "|"] == [[20], [30]]
    np.testing.assert_array_equal(np.ma.filled(right.images[0].get_array(), np.nan), [[np.nan, 0.5], [0.5, np.nan]])  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert [text.get_text() for text in right.texts] == ["1/2", "1/2"]
    assert [label.get_text() for label in right.get_xticklabels()] == ["a", "b"]


@pytest.mark.parametrize("steps", [[5, 20, 40, 60, 250], [0, 40, 20, 60, 250]])
def test_steps_that_no_log_axis_shows_are_refused(steps: list[int]) -> None:
    with pytest.raises(ValueError, match="but they start at 0 and ascend"):
        formation(steps=steps)


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="steps has length 4, but values along step has 5"):
        formation(steps=STEPS[:4])
    with pytest.raises(ValueError, match="at along measure has length 2, but values along measure has 3"):
        formation(at=AT[:2])
    with pytest.raises(ValueError, match="events has length 1, but at along event has 2"):
        plot_order(np.ones((3, 2)), np.ones((2, 2), int), np.ones((2, 2), int), steps=STEPS, events=["a"])
