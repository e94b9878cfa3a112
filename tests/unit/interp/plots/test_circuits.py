"""The arrays behind the circuits' maps, regrouped."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from interp.plots import plot_circuits
from interp.plots.circuits import grouped

N_HEADS, N_CTX, D_VALUE = 2, 5, 3
DRAW = np.random.default_rng(8)
QK, OV = DRAW.normal(size=(N_HEADS, N_CTX, 2, N_CTX, 2)), DRAW.normal(size=(N_HEADS, N_CTX, N_CTX, 2))
READOUT = DRAW.normal(size=(N_CTX, N_HEADS, D_VALUE))
SHARES = np.array([[0.1, 0.2, 0.3, 0.4], [0.0, 0.9, 0.1, np.nan]])
PARTS = ["position-position", "position-token", "token-position", "token-token"]
ORDER = [1, 3, 2, 4, 0]  # targets of both rules, rule position, the other


def circuits(**changed: Any) -> Figure:
    arguments = {
        "qk": QK, "ov": OV, "readout": READOUT, "qk_shares": SHARES, "ov_shares": SHARES[:, ::-1],
        "parts": PARTS, "qk_singular_values": [[5.0, 2.0], [3.0]], "ov_singular_values": [[7.0], []],
        "targets": [[3, 1], [2]], "rule_positions": [4],
    }  # fmt: skip
    return plot_circuits(**{**arguments, **changed})


def panels(fig: Figure, title: str) -> list[Any]:
    return [ax for ax in fig.axes if ax.get_title().endswith(title)]


def test_positions_are_grouped_and_named_once() -> None:
    assert grouped([[3, 1], [2]], [4], 5) == ORDER
    assert grouped([[2, 0], [0, 3]], [], 5) == [0, 2, 3, 1, 4]


def test_maps_are_the_tables_by_bit_with_the_targets_first() -> None:
    fig = circuits()
    for h, ax in enumerate(panels(fig, "QK")):
        shown = np.asarray(ax.images[0].get_array())
        for (row, column), value in np.ndenumerate(shown):
            (u, dest), (v, src) = divmod(row, N_CTX), divmod(column, N_CTX)
            assert value == QK[h, ORDER[dest], u, ORDER[src], v]
        assert ax.images[0].norm.vmax == -ax.images[0].norm.vmin == np.abs(QK).max()
    for h, ax in enumerate(panels(fig, "OV, value × readout")):
        shown = np.asarray(ax.images[0].get_array())
        for (dest, column), value in np.ndenumerate(shown):
            v, src = divmod(column, N_CTX)
            assert value == OV[h, ORDER[dest], ORDER[src], v]
        assert ax.images[0].norm.vmax == np.abs(OV).max()


def test_marks_stand_at_the_groups_of_every_block() -> None:
    (ax, _) = panels(circuits(), "QK")
    marks = {line.get_gid(): line for line in ax.lines if line.get_gid()}
    assert sorted(marks["targets-x"].get_xdata()) == sorted(marks["targets-y"].get_ydata()) == [0, 1, 2, 5, 6, 7]
    assert list(marks["rule_positions-x"].get_xdata()) == [3, 8]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["bit 0", "bit 1"]


def test_readouts_stand_in_the_rows_of_the_ov_map() -> None:
    fig = circuits()
    strips = [ax for ax in fig.axes if ax.get_title() == "readout"]
    assert len(strips) == N_HEADS
    for h, ax in enumerate(strips):
        points = [line for line in ax.lines if len(np.atleast_1d(line.get_xdata())) == N_CTX]
        assert len(points) == D_VALUE
        for d, line in enumerate(points):
            np.testing.assert_array_equal(line.get_xdata(), READOUT[ORDER, h, d])
            np.testing.assert_array_equal(line.get_ydata(), range(N_CTX))
        assert ax.get_ylim() == (N_CTX - 0.5, -0.5)


def test_bars_are_the_shares_and_lines_the_singular_values() -> None:
    fig = circuits()
    bars: list[Any] = [ax for ax in fig.axes if ax.get_xlabel() == "share of variance"]
    for h, ax in enumerate(bars):
        np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], [*SHARES[h], *SHARES[h, :1:-1]])
    spectra: list[Any] = [ax for ax in fig.axes if ax.get_ylabel() == "singular value"]
    assert [[list(line.get_ydata()) for line in ax.lines] for ax in spectra] == [[[5, 2], [7]], [[3]]]
    assert all(ax.get_yscale() == "log" for ax in spectra)


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="ov along src has length 4, but qk along src has 5"):
        circuits(ov=OV[:, :, :4])
    with pytest.raises(ValueError, match="qk_singular_values has length 1, but qk along head has 2"):
        circuits(qk_singular_values=[[1.0]])
    with pytest.raises(ValueError, match="parts has length 3, but qk_shares along part has 4"):
        circuits(parts=PARTS[:3])
    with pytest.raises(ValueError, match=r"targets\[0\] holds 5, but positions run from 0 to 4"):
        circuits(targets=[[5], [1]])
