"""The bars, dots and titles behind plot_target_recovery."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from interp.plots import plot_target_recovery
from interp.plots.recovery import p_text
from interp.plots.style import NEUTRAL, TARGET

N_RULES, N_METHODS, N_CTX = 2, 3, 7
SCORES = np.random.default_rng(3).uniform(0.1, 1, size=(N_RULES, N_METHODS, N_CTX))
SCORES[:, 1] *= 1000
SCORES[..., 6] = np.nan
METHODS = ["attention", "weights", "of my own"]
TOP = [[[1, 3], [1, 3], [0, 2]], [[5], [4], [5]]]
MATCH = np.array([[True, True, False], [True, False, True]])
P_VALUE = np.array([[0.012, 2.5e-5, np.nan], [1.0, 0.5, 0.25]])
TARGETS = [[1, 3], [5]]


def recovery(**changed: object) -> Figure:
    arguments = {
        "scores": SCORES, "methods": METHODS, "top": TOP, "match": MATCH, "p_value": P_VALUE, "targets": TARGETS,
        "rule_positions": [6],
    }  # fmt: skip
    return plot_target_recovery(**{**arguments, **changed})  # pyright: ignore[reportArgumentType]


def test_bars_are_the_scores_and_targets_are_green() -> None:
    fig = recovery()
    assert len(fig.axes) == N_RULES * N_METHODS
    for ax in fig.axes:
        place = ax.get_subplotspec()
        assert place is not None
        method, rule = place.rowspan.start, place.colspan.start
        (bars,) = [c for c in ax.containers if isinstance(c, BarContainer)]
        centres = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        assert centres == pytest.approx(range(6))  # without the rule position
        np.testing.assert_allclose([bar.get_height() for bar in bars], SCORES[rule, method, :6])
        colours = [to_hex(bar.get_facecolor()).upper() for bar in bars]
        assert colours == [TARGET if position in TARGETS[rule] else NEUTRAL for position in range(6)]
        (dots,) = [line for line in ax.lines if line.get_label() == "_top"]
        np.testing.assert_array_equal(np.asarray(dots.get_xdata()), TOP[rule][method])
        np.testing.assert_allclose(np.asarray(dots.get_ydata()), SCORES[rule, method, TOP[rule][method]])
        marks = {line.get_gid(): np.asarray(line.get_xdata()).tolist() for line in ax.lines if line.get_gid()}
        assert marks == {"targets-x": TARGETS[rule], "rule_positions-x": [6]}
        low, high = ax.get_ylim()
        assert low == 0
        assert 1 < high / np.nanmax(SCORES[rule, method]) < 1.3  # each panel has its own scale


def test_dots_stand_above_their_bars() -> None:
    ax = recovery().axes[0]
    (dots,) = [line for line in ax.lines if line.get_label() == "_top"]
    bar_tops = ax.transData.transform(np.column_stack([np.asarray(dots.get_xdata()), np.asarray(dots.get_ydata())]))
    raised = dots.get_transform().transform(
        np.column_stack([np.asarray(dots.get_xdata()), np.asarray(dots.get_ydata())])
    )
    np.testing.assert_allclose(raised - bar_tops, [[0, 4 * ax.figure.dpi / 72]] * 2)


def test_titles_tell_the_verdict_and_the_labels_the_unit() -> None:
    fig = recovery()
    titles = [ax.get_title() for ax in fig.axes]  # method by method
    assert titles == [
        "attention\ntargets on top, p = 0.012", "attention\ntargets on top, p = 1",
        "weights\ntargets on top, p = 2.5×10⁻⁵", "weights\nmissed, p = 0.5",
        "of my own\nmissed, p undefined", "of my own\ntargets on top, p = 0.25",
    ]  # fmt: skip
    assert [ax.get_ylabel() for ax in fig.axes[::2]] == ["score\n(probability)", "score\n(logit)", "score\n(own unit)"]
    assert [text.get_text() for ax in fig.axes for text in ax.texts] == ["rule 0: targets 1, 3", "rule 1: target 5"]


def test_legend_colours_are_the_bars() -> None:
    (legend,) = recovery().legends
    colours = {p.get_label(): to_hex(p.get_facecolor()).upper() for p in legend.get_patches()}
    assert colours == {"score of a target": TARGET, "other score": NEUTRAL}


@pytest.mark.parametrize(
    ("p_value", "text"),
    [(0.0012, "p = 0.0012"), (1 / 161700, "p = 6.2×10⁻⁶"), (0.00099, "p = 9.9×10⁻⁴"), (0.05, "p = 0.05"), (0, "p = 0")],
)
def test_p_is_readable(p_value: float, text: str) -> None:
    assert p_text(p_value) == text


def test_a_position_may_have_a_negative_score() -> None:
    ax = recovery(scores=-SCORES).axes[0]
    (dots,) = [line for line in ax.lines if line.get_label() == "_top"]
    assert np.asarray(dots.get_ydata()).tolist() == [0, 0]
    assert ax.get_ylim()[0] < -np.nanmax(SCORES[0, 0])


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="methods has length 2, but scores along method has 3"):
        recovery(methods=METHODS[:2])
    with pytest.raises(ValueError, match="top has length 1, but scores along rule has 2"):
        recovery(top=TOP[:1])
    with pytest.raises(ValueError, match=r"top\[1\] has length 2, but scores along method has 3"):
        recovery(top=[TOP[0], TOP[1][:2]])
    with pytest.raises(ValueError, match=r"top\[0\]\[0\] holds 7, but positions run from 0 to 6"):
        recovery(top=[[[7], [1], [1]], TOP[1]])
    with pytest.raises(ValueError, match=r"top\[0\]\[1\] holds \[6\], whose scores are NaN"):
        recovery(top=[[[1], [6], [1]], TOP[1]])
    with pytest.raises(ValueError, match="match along method has length 2"):
        recovery(match=MATCH[:, :2])
    with pytest.raises(ValueError, match="p_value along rule has length 1, but scores along rule has 2"):
        recovery(p_value=P_VALUE[:1])
    with pytest.raises(ValueError, match=r"p_value holds 1\.5, but probabilities run from 0 to 1"):
        recovery(p_value=P_VALUE + 0.5)
    with pytest.raises(ValueError, match="targets has length 3, but scores along rule has 2"):
        recovery(targets=[*TARGETS, [0]])


def test_without_a_rule_many_methods_go_on_in_a_second_column() -> None:
    methods, scores = ["a", "b", "c", "d", "e"], np.arange(35.0).reshape(1, 5, 7)
    fig = recovery(
        scores=scores, methods=methods, top=[[[6]] * 5], match=np.ones((1, 5), bool), p_value=np.full((1, 5), 0.5),
        targets=[[6]], rule_positions=[],
    )  # fmt: skip
    assert [text.get_text() for text in fig.legends[0].texts][-1] == "target 6"
    for ax in fig.axes:
        place = ax.get_subplotspec()
        assert place is not None
        method = place.rowspan.start + 3 * place.colspan.start
        assert ax.get_title().split("\n")[0] == methods[method]
        np.testing.assert_allclose([bar.get_height() for bar in ax.containers[0]], scores[0, method])  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues]
        assert bool(ax.get_xlabel()) == (method in (2, 4))


def test_intervals_stand_where_there_are_any() -> None:
    low, high = np.full((2, N_RULES, N_METHODS, N_CTX), np.nan)
    low[1, 1, :6], high[1, 1, :6] = SCORES[1, 1, :6] - 30, SCORES[1, 1, :6] + 50
    fig = recovery(low=low, high=high)
    for ax in fig.axes:
        place = ax.get_subplotspec()
        assert place is not None
        lines = [c for c in ax.collections if c.get_gid() == "interval"]
        assert len(lines) == ((place.rowspan.start, place.colspan.start) == (1, 1))
        for collection in lines:
            ends = np.array([path.vertices for path in collection.get_paths()])
            np.testing.assert_allclose(ends[:, 0], np.column_stack([range(6), low[1, 1, :6]]))
            np.testing.assert_allclose(ends[:, 1], np.column_stack([range(6), high[1, 1, :6]]))
            (dots,) = [line for line in ax.lines if line.get_label() == "_top"]
            np.testing.assert_allclose(np.asarray(dots.get_ydata()), high[1, 1, TOP[1][1]])  # above the interval
    (legend,) = fig.legends
    assert "95 % interval, all positions together" in [text.get_text() for text in legend.get_texts()]
    (legend,) = recovery().legends
    assert not any("interval" in text.get_text() for text in legend.get_texts())
