"""The points, error bars and images behind plot_attention_patterns."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from interp.plots import plot_attention_patterns

N_BATCH, N_RULES, N_HEADS, N_CTX = 13, 2, 3, 5
DRAW = np.random.default_rng(0)
SAMPLES = DRAW.dirichlet(np.ones(N_CTX), (N_BATCH, N_HEADS))
LABELS = DRAW.random(N_BATCH) < 0.5
RULE = np.arange(N_BATCH) % N_RULES
HEATMAP = DRAW.dirichlet(np.ones(N_CTX), (N_RULES, N_HEADS, N_CTX))
MEAN = np.stack([SAMPLES[rule == RULE].mean(0) for rule in range(N_RULES)])
SD = np.stack([SAMPLES[rule == RULE].std(0) for rule in range(N_RULES)])
TARGETS = [[0, 2], [3]]


@pytest.fixture(scope="module")
def fig() -> Figure:
    return plot_attention_patterns(SAMPLES, LABELS, RULE, MEAN, SD, HEATMAP, targets=TARGETS, rule_positions=[4])


def panel(fig: Figure, rule: int, head: int, side: int) -> Axes:
    return fig.axes[2 * (rule * N_HEADS + head) + side]


def points(ax: Axes, label: bool) -> PathCollection:
    (found,) = [c for c in ax.collections if isinstance(c, PathCollection) and c.get_gid() == f"samples-{label}"]
    return found


def cells(rule: int, label: bool, head: int) -> list[tuple[int, float]]:
    chosen = SAMPLES[(rule == RULE) & (label == LABELS), head]
    return sorted((src, float(value)) for sample in chosen for src, value in enumerate(sample))


@pytest.mark.parametrize("label", [False, True])
def test_points_are_the_samples_in_their_cell_in_the_legends_colour(fig: Figure, label: bool) -> None:
    (legend,) = fig.legends
    handles = dict(zip([text.get_text() for text in legend.texts], legend.legend_handles, strict=True))
    colour = handles["label True (right)" if label else "label False (left)"].get_color()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    for rule, head in np.ndindex(N_RULES, N_HEADS):
        drawn = points(panel(fig, rule, head, 0), label)
        offsets = np.asarray(drawn.get_offsets())
        found = sorted((round(x), y) for x, y in offsets.tolist())
        assert found == cells(rule, label, head)
        aside = offsets[:, 0] - offsets[:, 0].round()
        assert (aside > 0).all() if label else (aside < 0).all()
        assert abs(aside).max() < 0.5
        assert {to_hex(c) for c in np.atleast_2d(drawn.get_facecolor())} == {to_hex(colour)}


def test_mean_and_sd_stand_at_the_position(fig: Figure) -> None:
    for rule, head in np.ndindex(N_RULES, N_HEADS):
        (bars,) = [c for c in panel(fig, rule, head, 0).containers if isinstance(c, ErrorbarContainer)]
        line, _, (spread,) = bars.lines
        assert line is not None
        np.testing.assert_allclose(np.asarray(line.get_xdata()), np.arange(N_CTX))
        np.testing.assert_allclose(np.asarray(line.get_ydata()), MEAN[rule, head])
        ends = np.array(spread.get_segments())
        np.testing.assert_allclose(ends[:, 0, 1], (MEAN - SD)[rule, head])
        np.testing.assert_allclose(ends[:, 1, 1], (MEAN + SD)[rule, head])


def test_heatmaps_are_dest_by_src_square_and_on_one_scale_from_zero(fig: Figure) -> None:
    for rule, head in np.ndindex(N_RULES, N_HEADS):
        ax = panel(fig, rule, head, 1)
        (image,) = ax.images
        np.testing.assert_array_equal(np.asarray(image.get_array()), HEATMAP[rule, head])
        assert tuple(image.get_extent()) == (-0.5, N_CTX - 0.5, N_CTX - 0.5, -0.5)
        assert image.get_clim() == (0, HEATMAP.max())
        assert ax.get_aspect() == 1
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("position (src)", "position (dest)")
        (inset,) = ax.child_axes
        assert inset.get_ylabel() == "attention probability"


def test_each_row_marks_its_own_rules_targets(fig: Figure) -> None:
    for rule, head in np.ndindex(N_RULES, N_HEADS):
        left, right = panel(fig, rule, head, 0), panel(fig, rule, head, 1)
        assert left.get_title().startswith(f"head {head}, rule {rule}: target")
        for ax, which in ((left, "x"), (right, "x"), (right, "y")):
            marks = {line.get_gid(): line for line in ax.lines}
            data = {gid: (line.get_xdata() if which == "x" else line.get_ydata()) for gid, line in marks.items()}
            assert np.asarray(data[f"targets-{which}"]).tolist() == TARGETS[rule]
            assert np.asarray(data[f"rule_positions-{which}"]).tolist() == [4]


def test_many_points_become_an_image() -> None:
    for n_batch, rasterized in ((50, False), (51, True)):
        many = np.full((n_batch, 1, 100), 0.01)
        flat = np.full((1, 1, 100), 0.01)
        label, rule = np.arange(n_batch) % 2 == 0, np.zeros(n_batch, int)
        fig = plot_attention_patterns(many, label, rule, flat, flat, np.full((1, 1, 100, 100), 0.01), targets=[[7]])
        assert points(fig.axes[0], True).get_rasterized() is rasterized
        assert fig.axes[0].get_title() == "head 0, target 7"


def test_a_rule_without_samples_is_left_empty() -> None:
    mean, sd = MEAN.copy(), SD.copy()
    mean[1], sd[1] = np.nan, np.nan
    fig = plot_attention_patterns(SAMPLES, LABELS, 0 * RULE, mean, sd, HEATMAP, targets=TARGETS)
    assert len(np.asarray(points(panel(fig, 1, 0, 0), True).get_offsets())) == 0
    assert panel(fig, 1, 0, 0).get_ylim()[1] == pytest.approx(1.06 * max(SAMPLES.max(), np.nanmax(mean + sd)))
    fig.draw_without_rendering()


def test_a_model_with_one_query_has_one_row() -> None:
    fig = plot_attention_patterns(SAMPLES, LABELS, RULE, MEAN, SD, HEATMAP[:, :, :1], targets=TARGETS)
    ax = panel(fig, 0, 0, 1)
    assert tuple(ax.images[0].get_extent()) == (-0.5, N_CTX - 0.5, 0.5, -0.5)
    assert [line.get_gid() for line in ax.lines] == ["targets-x"]


@pytest.mark.usefixtures("unchecked")
def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="labels along batch has length 12, but per_sample along batch has 13"):
        plot_attention_patterns(SAMPLES, LABELS[1:], RULE, MEAN, SD, HEATMAP, targets=TARGETS)
    with pytest.raises(ValueError, match="sd along head has length 2, but per_sample along head has 3"):
        plot_attention_patterns(SAMPLES, LABELS, RULE, MEAN, SD[:, :2], HEATMAP, targets=TARGETS)
    with pytest.raises(ValueError, match="heatmap along src has length 4"):
        plot_attention_patterns(SAMPLES, LABELS, RULE, MEAN, SD, HEATMAP[..., :4], targets=TARGETS)
    with pytest.raises(ValueError, match="targets has length 1, but mean along rule has 2; make them agree on rule"):
        plot_attention_patterns(SAMPLES, LABELS, RULE, MEAN, SD, HEATMAP, targets=TARGETS[:1])
    with pytest.raises(ValueError, match="rule has dtype float64, but rule indices are integers"):
        plot_attention_patterns(SAMPLES, LABELS, RULE / 2, MEAN, SD, HEATMAP, targets=TARGETS)
