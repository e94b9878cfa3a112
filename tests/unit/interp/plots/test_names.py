"""Names at every axis of positions, and nowhere else."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from interp.errors import BoolensError
from interp.plots import name_positions, plot_circuits, plot_samples, plot_target_recovery
from interp.plots.names import LONGEST, renamed

NAMES = ["fever", "cough", "a name that is much too long for an axis", "rash", "pain", "lump", "itch"]


def ticks(fig: Figure, which: str) -> list[list[str]]:
    fig.draw_without_rendering()
    return [
        [label.get_text() for label in axis.get_majorticklabels() if label.get_visible()]
        for ax in fig.axes
        for axis in [ax.xaxis if which == "x" else ax.yaxis]
    ]


def recovery(n: int) -> Figure:
    return plot_target_recovery(
        np.arange(2.0 * n).reshape(1, 2, n),
        methods=["patching", "ablation"],
        top=[[[n - 1], [n - 1]]],
        match=np.array([[False, False]]),
        p_value=np.array([[0.25, 0.5]]),
        targets=[[1]],
    )


def test_positions_are_named_under_the_lowest_panel() -> None:
    fig = recovery(7)
    width, height = fig.get_size_inches()
    name_positions(fig, NAMES, [1])
    upper, lower = ticks(fig, "x")
    assert [name for name in lower if name != NAMES[2]][:2] == ["fever", "cough"]
    assert lower[3:] == NAMES[3:]
    assert len(lower[2]) == LONGEST
    assert "…" in lower[2]
    assert not any(upper)
    assert fig.axes[1].get_xlabel() == "feature"
    assert fig.get_size_inches()[1] > height
    assert fig.get_size_inches()[0] >= width


def test_numbers_of_samples_stay() -> None:
    x = np.eye(7, dtype=int)
    fig = plot_samples(x, x[:, 0] == 1, targets=[[0, 3]])
    name_positions(fig, NAMES)
    assert ticks(fig, "y")[0] == [str(i) for i in range(7)]
    assert ticks(fig, "x")[0][0] == "fever"


def test_where_there_is_no_room_the_kept_ones_are_named() -> None:
    fig = recovery(300)
    names = [f"feature number {i}" for i in range(300)]
    name_positions(fig, names, [1, 138, 299])
    lower = ticks(fig, "x")[1]
    assert {names[1], names[138], names[299]} <= set(lower)
    assert len(lower) < 150
    places = sorted(names.index(name) for name in lower)
    assert min(np.diff(places)) > 1


def test_regrouped_positions_have_their_own_names() -> None:
    n, rng = 7, np.random.default_rng(0)
    fig = plot_circuits(
        rng.normal(size=(1, n, 2, n, 2)),
        rng.normal(size=(1, n, n, 2)),
        rng.normal(size=(n, 1, 1)),
        qk_shares=np.full((1, 4), 0.25),
        ov_shares=np.full((1, 4), 0.25),
        parts=["position-position", "position-token", "token-position", "token-token"],
        qk_singular_values=[[1.0]],
        ov_singular_values=[[1.0]],
        targets=[[3, 5]],
    )
    name_positions(fig, NAMES, [3, 5])
    rows = ticks(fig, "y")
    assert rows[0][:3] == ["rash = 0", "lump = 0", "fever = 0"]
    assert next(row for row in rows if row[:1] == ["rash"])[:3] == ["rash", "lump", "fever"]


def test_titles_name_the_hypothesis() -> None:
    assert renamed("head 0, targets 0, 5", NAMES) == "head 0, fever AND lump"
    assert renamed("12 targets", NAMES) == "12 targets"
    assert renamed("target position", NAMES) == "hypothesised feature"


def test_a_position_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BoolensError, match="position 7, but there are 7 names"):
        name_positions(recovery(7), NAMES, [7])
