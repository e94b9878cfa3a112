"""The bars, whiskers and edges behind plot_effective_attention."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from interp.plots import plot_effective_attention
from interp.plots.effective import WIDEST
from interp.plots.graph import node_labels, spread
from interp.plots.style import NEGATIVE, NEUTRAL, POSITIVE, TARGET

N_RULES, N_CHANNELS, N_CTX = 2, 3, 5
DRAW = np.random.default_rng(1)
MEAN = DRAW.normal(size=(N_RULES, N_CHANNELS, N_CTX))
LOW, HIGH = MEAN - 0.3, MEAN + 0.2
CONTRIBUTION = DRAW.normal(size=(N_RULES, N_CHANNELS, N_CTX))
BY_SRC, BY_DEST = DRAW.random((2, N_RULES, N_CTX))
FLIPS = DRAW.normal(size=(N_RULES, 4, N_CTX))
SIDES = ["by query", "by key", "by both", "by none"]
NAMES = ["head 0", "head 1", "direct"]
TARGETS = [[0, 2], [3]]


def titled(fig: Figure, title: str) -> list[Axes]:
    return [ax for ax in fig.axes if ax.get_title() == title]


def bar_panels(fig: Figure) -> list[Axes]:
    return [ax for ax in fig.axes if ax.containers]


def edges(ax: Axes) -> LineCollection:
    (found,) = [c for c in ax.collections if isinstance(c, LineCollection)]
    return found


@pytest.fixture(scope="module")
def fig() -> Figure:
    return plot_effective_attention(
        MEAN,
        LOW,
        HIGH,
        CONTRIBUTION,
        by_src=BY_SRC,
        by_dest=BY_DEST,
        flips=FLIPS,
        sides=SIDES,
        channels=NAMES,
        targets=TARGETS,
        rule_positions=[4],
        unit="u",
    )


def test_bars_have_the_heights_the_whiskers_the_ends_and_the_legend_the_colours(fig: Figure) -> None:
    (legend,) = fig.legends
    colours = dict(zip([t.get_text() for t in legend.texts], legend.legend_handles, strict=True))
    for rule, ax in enumerate(bar_panels(fig)):
        assert ax.get_ylabel() == "effective attention\n(u)"
        whiskers = [c for c in ax.collections if isinstance(c, LineCollection)]
        for channel, bars in enumerate(c for c in ax.containers if isinstance(c, BarContainer)):
            np.testing.assert_allclose([bar.get_height() for bar in bars], MEAN[rule, channel])
            centres = np.array([bar.get_x() + bar.get_width() / 2 for bar in bars])
            np.testing.assert_array_equal(centres.round(), np.arange(N_CTX))
            handle = colours[NAMES[channel]]
            assert {to_hex(bar.get_facecolor()) for bar in bars} == {to_hex(handle.get_facecolor())}  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            ends = np.array(whiskers[channel].get_segments())
            np.testing.assert_allclose(ends[:, 0, 1], LOW[rule, channel])
            np.testing.assert_allclose(ends[:, 1, 1], HIGH[rule, channel])
            np.testing.assert_allclose(ends[:, :, 0], np.stack([centres, centres], 1))


def test_the_terms_by_key_and_by_query_have_their_values_and_the_legend_their_names(fig: Figure) -> None:
    panels = titled(fig, "what varies with the input")
    assert len(panels) == N_RULES
    (legend,) = fig.legends
    colours = dict(zip([t.get_text() for t in legend.texts], legend.legend_handles, strict=True))
    for rule, ax in enumerate(panels):
        assert ax.get_ylabel().endswith("(logit²)")
        for name, values in (("terms by key (src)", BY_SRC), ("terms by query (dest)", BY_DEST)):
            (line,) = [line for line in ax.lines if line.get_label() == f"_{name}"]
            np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), values[rule])
            np.testing.assert_array_equal(np.asarray(line.get_xdata()).round(), np.arange(N_CTX))
            assert line.get_color() == colours[name].get_color()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def test_the_parts_of_a_flip_have_their_values_and_the_legend_their_names(fig: Figure) -> None:
    (legend,) = fig.legends
    colours = dict(zip([t.get_text() for t in legend.texts], legend.legend_handles, strict=True))
    panels = titled(fig, "what a flip of the bit changes")
    assert len(panels) == N_RULES
    for rule, ax in enumerate(panels):
        for side, name in enumerate(SIDES):
            (line,) = [line for line in ax.lines if line.get_label() == f"_{name}"]
            np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), FLIPS[rule, side])
            np.testing.assert_allclose(np.asarray(line.get_xdata()), np.arange(N_CTX) + (side - 1.5) * 0.3)
            assert line.get_color() == colours[name].get_color()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            assert line.get_marker() == colours[name].get_marker()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        assert [np.asarray(line.get_xdata()).tolist() for line in ax.lines if line.get_gid() == "targets-x"] == [
            TARGETS[rule]
        ]


def test_grouped_bars_do_not_overlap(fig: Figure) -> None:
    for ax in bar_panels(fig):
        bars = sorted((bar.get_x(), bar.get_width()) for c in ax.containers if isinstance(c, BarContainer) for bar in c)
        assert all(x + width <= following + 1e-9 for (x, width), (following, _) in pairwise(bars))


def test_one_channel_is_grey_as_red_and_blue_are_the_edges() -> None:
    fig = plot_effective_attention(
        MEAN[:, :1],
        LOW[:, :1],
        HIGH[:, :1],
        CONTRIBUTION[:, :1],
        by_src=BY_SRC,
        by_dest=BY_DEST,
        flips=FLIPS,
        sides=SIDES,
        channels=["head 0"],
        targets=TARGETS,
    )
    for rule, ax in enumerate(bar_panels(fig)):
        assert {to_hex(bar.get_facecolor()) for bar in ax.patches[:N_CTX]} == {NEUTRAL}  # pyright: ignore[reportArgumentType]
        np.testing.assert_allclose([bar.get_height() for bar in ax.patches[:N_CTX]], MEAN[rule, 0])  # pyright: ignore[reportAttributeAccessIssue]
    assert "95 % interval" in [text.get_text() for text in fig.legends[0].texts]


def test_edges_lead_from_each_position_with_sign_and_comparable_width(fig: Figure) -> None:
    scale = WIDEST / abs(CONTRIBUTION).max()
    for channel, name in enumerate(NAMES):
        for rule, ax in enumerate(titled(fig, name)):
            lines, signed = edges(ax), CONTRIBUTION[rule, channel]
            segments = np.array(lines.get_segments())
            np.testing.assert_array_equal(segments[:, 0], [(0, i) for i in range(N_CTX)])
            np.testing.assert_array_equal(segments[:, 1], [(1, 2)] * N_CTX)
            np.testing.assert_allclose(np.asarray(lines.get_linewidth()), scale * abs(signed))
            found = [to_hex(colour).upper() for colour in np.asarray(lines.get_color())]
            assert found == [POSITIVE if value > 0 else NEGATIVE for value in signed]
    texts = [text.get_text() for text in fig.legends[0].texts]
    assert f"widest edge {abs(CONTRIBUTION).max():.3g} logit" in texts


def test_targets_are_outlined_and_marked(fig: Figure) -> None:
    for rule, ax in enumerate(titled(fig, "direct")):
        nodes = {c.get_gid(): c for c in ax.collections if isinstance(c, PathCollection)}
        outlined = nodes["nodes-outlined"]
        assert np.asarray(outlined.get_offsets())[:, 1].tolist() == [*TARGETS[rule], 4]
        colours = [to_hex(c).upper() for c in np.asarray(outlined.get_edgecolor())]
        assert colours == [TARGET] * len(TARGETS[rule]) + ["#000000"]
        assert len(np.asarray(nodes["nodes"].get_offsets())) == N_CTX - len(colours)
    for rule, ax in enumerate(bar_panels(fig)):
        assert [np.asarray(line.get_xdata()).tolist() for line in ax.lines if line.get_gid() == "targets-x"] == [
            TARGETS[rule]
        ]


def test_many_bars_get_a_panel_a_channel() -> None:
    many = np.ones((1, 3, 60))
    fig = plot_effective_attention(
        many,
        many,
        many,
        many,
        by_src=many[:, 0],
        by_dest=many[:, 1],
        flips=many,
        sides=NAMES,
        channels=NAMES,
        targets=[[7]],
    )
    panels = bar_panels(fig)
    assert [ax.get_ylabel().split("\n")[0] for ax in panels] == NAMES
    for ax in panels:
        (bars,) = [c for c in ax.containers if isinstance(c, BarContainer)]
        assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx(range(60))


def test_what_is_nan_is_left_out_and_zero_draws_no_edge() -> None:
    mean = MEAN.copy()
    mean[0, 0, 1] = np.nan
    fig = plot_effective_attention(
        mean,
        LOW,
        HIGH,
        0 * MEAN,
        by_src=BY_SRC,
        by_dest=BY_DEST,
        flips=FLIPS,
        sides=SIDES,
        channels=NAMES,
        targets=TARGETS,
    )
    fig.draw_without_rendering()
    bars = next(c for c in bar_panels(fig)[0].containers if isinstance(c, BarContainer))
    assert [round(bar.get_x()) for bar in bars] == [0, 2, 3, 4]
    assert not np.asarray(edges(titled(fig, "head 0")[0]).get_linewidth()).any()


def test_node_labels_stay_apart_and_targets_come_first() -> None:
    placed = node_labels(200, [136, 137, 138, 199], gap=10)
    assert {136, 137, 138, 199} <= set(placed)
    assert min(np.diff(sorted(placed.values()))) >= 10 - 1e-9
    assert min(placed.values()) >= 0
    assert max(placed.values()) <= 199
    assert placed[137] == pytest.approx(137)  # the three give way to either side
    assert placed[136] < placed[137] < placed[138]
    assert len(node_labels(200, list(range(100)), gap=20)) <= 10
    assert spread([], 1, 5) == []
    assert spread([0], 3, 0) == [0]


@pytest.mark.usefixtures("unchecked")
def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="low along src has length 4, but mean along src has 5"):
        plot_effective_attention(
            MEAN,
            LOW[..., :4],
            HIGH,
            CONTRIBUTION,
            by_src=BY_SRC,
            by_dest=BY_DEST,
            flips=FLIPS,
            sides=SIDES,
            channels=NAMES,
            targets=TARGETS,
        )
    with pytest.raises(ValueError, match="channels has length 2, but mean along channel has 3"):
        plot_effective_attention(
            MEAN,
            LOW,
            HIGH,
            CONTRIBUTION,
            by_src=BY_SRC,
            by_dest=BY_DEST,
            flips=FLIPS,
            sides=SIDES,
            channels=NAMES[:2],
            targets=TARGETS,
        )
    with pytest.raises(ValueError, match="sides has length 3, but flips along side has 4"):
        plot_effective_attention(
            MEAN,
            LOW,
            HIGH,
            CONTRIBUTION,
            by_src=BY_SRC,
            by_dest=BY_DEST,
            flips=FLIPS,
            sides=SIDES[:3],
            channels=NAMES,
            targets=TARGETS,
        )
    with pytest.raises(ValueError, match="channels is the string 'abc'"):
        plot_effective_attention(
            MEAN,
            LOW,
            HIGH,
            CONTRIBUTION,
            by_src=BY_SRC,
            by_dest=BY_DEST,
            flips=FLIPS,
            sides=SIDES,
            channels="abc",
            targets=TARGETS,
        )
    with pytest.raises(ValueError, match="contribution has dtype complex128, but real numbers are expected"):
        plot_effective_attention(
            MEAN,
            LOW,
            HIGH,
            MEAN + 1j,
            by_src=BY_SRC,
            by_dest=BY_DEST,
            flips=FLIPS,
            sides=SIDES,
            channels=NAMES,
            targets=TARGETS,
        )
