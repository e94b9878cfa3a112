"""The markers behind plot_ablation and the images behind plot_patching."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from interp.plots import plot_ablation, plot_patching

N_HOOKS, N_KINDS, N_CTX = 4, 3, 7
DRAW = np.random.default_rng(2)
EFFECT = DRAW.normal(size=(N_HOOKS, N_KINDS, N_CTX))
EFFECT[1] = np.nan
EFFECT[2, 1, 3] = np.nan
LOW, HIGH = EFFECT - 0.5, EFFECT + 0.25
HOOKS, KINDS = [f"hook_{number}" for number in range(N_HOOKS)], ["zero", "mean", "resample"]
TARGETS = [[1, 3], [5]]

RECOVERED = DRAW.uniform(-0.5, 0.5, size=(2, 5, 3, N_CTX))
DIRECTIONS, PATCHED, GROUPS = ["denoise", "noise"], list("abcde"), ["target 1", "target 3", "rule bit"]


def patching(recovered: np.ndarray) -> Figure:
    return plot_patching(recovered, directions=DIRECTIONS, hooks=PATCHED, groups=GROUPS, targets=TARGETS)


def test_markers_are_the_effects_in_the_legends_look() -> None:
    fig = plot_ablation(EFFECT, LOW, HIGH, hooks=HOOKS, kinds=KINDS, targets=TARGETS, rule_positions=[6], unit="u")
    assert [ax.get_title() for ax in fig.axes] == HOOKS
    handles = dict(zip([t.get_text() for t in fig.legends[0].texts], fig.legends[0].legend_handles, strict=True))
    assert "rule 0: targets 1, 3; rule 1: target 5" in handles
    for hook, ax in enumerate(fig.axes):
        assert ax.get_ylabel() == ("effect, clean − ablated\n(u)" if hook % 3 == 0 else "")
        marks = {line.get_gid(): np.asarray(line.get_xdata()).tolist() for line in ax.lines if line.get_gid()}
        assert marks == {"targets-x": [1, 3, 5], "rule_positions-x": [6]}
        if hook == 1:
            assert [text.get_text() for text in ax.texts] == ["does not apply"]
            continue
        assert not ax.texts
        intervals = [c for c in ax.collections if isinstance(c, LineCollection)]
        for kind, name in enumerate(KINDS):
            (line,) = [line for line in ax.lines if line.get_label() == f"_kind {kind}"]
            known = np.flatnonzero(np.isfinite(EFFECT[hook, kind]))
            np.testing.assert_array_equal(np.asarray(line.get_xdata()).round(), known)
            np.testing.assert_allclose(np.asarray(line.get_ydata()), EFFECT[hook, kind, known])
            ends = np.array(intervals[kind].get_segments())
            np.testing.assert_allclose(ends[:, 0, 1], LOW[hook, kind, known])
            np.testing.assert_allclose(ends[:, 1, 1], HIGH[hook, kind, known])
            np.testing.assert_allclose(ends[:, 0, 0], np.asarray(line.get_xdata()))
            look = handles[name]
            assert line.get_color() == look.get_color()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            assert line.get_marker() == look.get_marker()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        assert any(np.asarray(line.get_ydata()).tolist() == [0, 0] for line in ax.lines)  # the zero line


def test_a_panel_of_one_rule_marks_that_rules_targets_alone() -> None:
    fig = plot_ablation(EFFECT, LOW, HIGH, hooks=HOOKS, kinds=KINDS, targets=TARGETS, panel_rules=[0, 1, 1, 0])
    marks = [np.asarray(line.get_xdata()).tolist() for ax in fig.axes for line in ax.lines if line.get_gid()]
    assert marks == [[1, 3], [5], [5], [1, 3]]
    places = [ax.get_subplotspec() for ax in fig.axes]
    assert [(p.rowspan.start, p.colspan.start) for p in places if p] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
    ]  # rules in turn
    with pytest.raises(ValueError, match="panel_rules has length 2, but effect along hook has 4"):
        plot_ablation(EFFECT, LOW, HIGH, hooks=HOOKS, kinds=KINDS, targets=TARGETS, panel_rules=[0, 1])


def test_at_most_three_hooks_stand_in_a_row_on_one_scale() -> None:
    fig = plot_ablation(EFFECT, LOW, HIGH, hooks=HOOKS, kinds=KINDS, targets=TARGETS)
    places = [ax.get_subplotspec() for ax in fig.axes]
    assert [(p.rowspan.start, p.colspan.start) for p in places if p] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert len({ax.get_ylim() for ax in fig.axes}) == 1


def test_a_kind_that_is_alone_in_its_panel_stands_on_its_position_and_one_that_is_nowhere_has_no_legend() -> None:
    effect = np.full((2, 4, N_CTX), np.nan)
    effect[0, :2], effect[1, 3] = EFFECT[0, :2], EFFECT[0, 2]
    fig = plot_ablation(effect, effect, effect, hooks=["a", "b"], kinds=[*KINDS, "remove key"], targets=TARGETS)
    assert [t.get_text() for t in fig.legends[0].texts][:4] == ["zero", "mean", "remove key", "95 % interval"]
    (alone,) = [line for line in fig.axes[1].lines if str(line.get_label()).startswith("_kind")]
    np.testing.assert_array_equal(alone.get_xdata(), range(N_CTX))


def test_patching_images_are_group_by_position_in_direction_rows_and_hook_columns() -> None:
    fig = patching(RECOVERED)
    panels = {ax.get_title(): ax for ax in fig.axes if ax.images}
    assert len(panels) == 10
    for d, direction in enumerate(DIRECTIONS):
        for h, hook in enumerate(PATCHED):
            ax = panels[f"{hook}\n{direction}"]
            (image,) = ax.images
            np.testing.assert_array_equal(np.asarray(image.get_array()), RECOVERED[d, h])
            assert tuple(image.get_extent()) == (-0.5, N_CTX - 0.5, 2.5, -0.5)
            place = ax.get_subplotspec()
            assert place is not None
            assert (place.rowspan.start, place.colspan.start) == (h // 3 * 2 + d, h % 3)
            assert [np.asarray(line.get_xdata()).tolist() for line in ax.lines] == [[1, 3, 5]]
            labels = [text.get_text() for text in ax.get_yticklabels()]
            assert ax.get_ylabel() == ("changed bit" if h % 3 == 0 else "")
            assert labels == (GROUPS if h % 3 == 0 else [""] * 3)
            assert bool(ax.get_xlabel()) == (d == 1 and h > 1)  # once below each column
            assert list(ax.get_yticks()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("low", "high", "extend"), [(0, 1, "neither"), (-1.5, 1, "min"), (0, 2, "max"), (-2, 2, "both")]
)
def test_the_colour_scale_is_symmetric_and_arrows_say_what_lies_outside(low: float, high: float, extend: str) -> None:
    recovered = RECOVERED.copy()
    recovered[0, 0, 0, :2] = low, high
    fig = patching(recovered)
    images = [image for ax in fig.axes for image in ax.images]
    assert {image.get_clim() for image in images} == {(-1, 1)}
    middle = images[0].to_rgba(np.array([0.0]))[0, :3]
    assert middle.min() > 0.95  # white where nothing is recovered
    red, blue = images[0].to_rgba(np.array([0.9, -0.9]))[:, [0, 2]]
    assert red[0] > red[1]
    assert blue[1] > blue[0]
    (bar,) = [ax for ax in fig.axes if not ax.images]
    assert bar.get_ylabel() == "fraction of the clean − corrupted\nlogit difference"
    colorbar = getattr(bar, "_colorbar")  # noqa: B009
    assert (colorbar.extend, colorbar.vmin, colorbar.vmax) == (extend, -1, 1)


def test_undefined_cells_are_seen_through_to_the_hatching_that_the_legend_explains() -> None:
    recovered = RECOVERED.copy()
    recovered[1, 2, 0, 4] = np.nan
    fig = patching(recovered)
    (legend,) = fig.legends
    (patch,) = [p for p in legend.get_patches() if p.get_label() == "undefined (NaN)"]
    ax = next(ax for ax in fig.axes if ax.get_title() == "c\nnoise")
    assert ax.images[0].to_rgba(np.array([[np.nan]]))[0, 0, 3] == 0
    (ground,) = [p for p in ax.patches if p.get_hatch()]
    assert (ground.get_hatch(), ground.get_facecolor()) == (patch.get_hatch(), patch.get_facecolor())
    bands = [p for p in ax.patches if not p.get_hatch()]
    assert all(band.get_zorder() < ground.get_zorder() < ax.images[0].get_zorder() for band in bands)
    assert not [p for p in patching(RECOVERED).legends[0].get_patches() if p.get_hatch()]


@pytest.mark.usefixtures("unchecked")
def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="high along kind has length 2, but effect along kind has 3"):
        plot_ablation(EFFECT, LOW, HIGH[:, :2], hooks=HOOKS, kinds=KINDS, targets=TARGETS)
    with pytest.raises(ValueError, match="hooks has length 3, but effect along hook has 4"):
        plot_ablation(EFFECT, LOW, HIGH, hooks=HOOKS[:3], kinds=KINDS, targets=TARGETS)
    with pytest.raises(ValueError, match="kinds has length 4, but effect along kind has 3"):
        plot_ablation(EFFECT, LOW, HIGH, hooks=HOOKS, kinds=HOOKS, targets=TARGETS)
    with pytest.raises(ValueError, match="hooks has length 5, but recovered along hook has 4"):
        patching(RECOVERED[:, :4])
    with pytest.raises(ValueError, match="groups has length 3, but recovered along group has 2"):
        patching(RECOVERED[:, :, :2])
    with pytest.raises(ValueError, match="directions has length 2, but recovered along direction has 1"):
        patching(RECOVERED[:1])
