"""The images behind plot_maps, and the points behind plot_attribution."""

import numpy as np
import pytest

from interp.errors import BoolensError
from interp.plots import plot_attribution, plot_maps

DRAW = np.random.default_rng(3)
MAPS = DRAW.normal(size=(3, 5, 7))
TITLES = ["a", "b", "c"]


def test_images_are_the_values_on_one_scale() -> None:
    targets, maps = [[1, 3], [4]], DRAW.normal(size=(3, 7, 7))
    maps[1, 2, 3] = np.nan
    fig = plot_maps(maps, titles=TITLES, row="dest", column="src", label="u", targets=targets, rule_positions=[6])
    panels = [ax for ax in fig.axes if ax.images]
    assert [ax.get_title() for ax in panels] == TITLES
    limit = np.nanmax(np.abs(maps))
    for ax, values in zip(panels, maps, strict=True):
        np.testing.assert_array_equal(np.ma.filled(ax.images[0].get_array(), np.nan), values)  # pyright: ignore
        assert ax.images[0].get_clim() == (-limit, limit)
        marks = {line.get_gid(): np.asarray(line.get_xdata()).tolist() for line in ax.lines if line.get_gid()}
        assert marks["targets-x"] == [1, 3, 4]
        assert marks["rule_positions-x"] == [6]
        assert {"targets-y"} <= marks.keys()
    assert "undefined (NaN)" in [text.get_text() for text in fig.legends[0].texts]


def test_a_panel_of_one_rule_marks_that_rules_targets_alone() -> None:
    fig = plot_maps(
        MAPS, titles=TITLES, row="head", column="pos", label="u", targets=[[1], [4]], panel_rules=[1, 0, 1]
    )  # fmt: skip
    marks = [np.asarray(line.get_xdata()).tolist() for ax in fig.axes for line in ax.lines if line.get_gid()]
    assert marks == [[4], [1], [4]]
    assert [ax.get_ylabel() for ax in fig.axes if ax.images] == ["head"] * 3


def test_named_rows_without_positions() -> None:
    names = ["q, zero", "k, zero", "v, zero", "z, zero", "z, mean"]
    fig = plot_maps(MAPS[:1], titles=[""], row="", column="head", label="u", targets=[[9]], row_names=names)
    (ax,) = (ax for ax in fig.axes if ax.images)
    assert [label.get_text() for label in ax.get_yticklabels()] == names
    assert ax.get_xlabel() == "head"
    assert not [line for line in ax.lines if line.get_gid()]


def test_what_does_not_fit() -> None:
    with pytest.raises(BoolensError, match="titles has length 2, but values along panel has 3"):
        plot_maps(MAPS, titles=["a", "b"], row="dest", column="src", label="u", targets=[[1]])
    with pytest.raises(BoolensError, match=r"targets\[0\] holds 7, but positions run from 0 to 6"):
        plot_maps(MAPS, titles=TITLES, row="dest", column="src", label="u", targets=[[7]])


def test_estimates_over_exact_effects_and_paths() -> None:
    exact, estimate = DRAW.normal(size=(2, 11)), DRAW.normal(size=(3, 2, 11))
    paths, routes = DRAW.normal(size=(4, 7)), ["q", "k", "v", "qk", "qv", "kv", "qkv"]
    kinds, groups = ["gradient", "integrated", "x"], ["target 1", "target 2", "rule bit 3", "non-targets"]
    fig = plot_attribution(
        exact, estimate, panels=["q", "k"], kinds=kinds, unit="logit", paths=paths, groups=groups, routes=routes
    )  # fmt: skip
    *panels, beside = fig.axes
    assert [ax.get_title() for ax in panels] == ["q", "k", "paths of the bit, embed → z → logit"]
    assert [text.get_text() for text in getattr(beside.get_legend(), "get_texts")()] == groups  # noqa: B009
    assert not any(ax.get_legend() for ax in panels)  # which would lie over the lines
    for panel, ax in enumerate(fig.axes[:2]):
        low, high = ax.get_xlim()
        assert ax.get_ylim() == (low, high)  # equal is the diagonal
        assert low < min(exact[panel].min(), estimate[:, panel].min())
        assert high > max(exact[panel].max(), estimate[:, panel].max())
        for kind in range(3):
            (line,) = [line for line in ax.lines if line.get_label() == f"_kind {kind}"]
            np.testing.assert_array_equal(line.get_xdata(), exact[panel])
            np.testing.assert_array_equal(line.get_ydata(), estimate[kind, panel])
    lines = {str(line.get_label()): line for line in fig.axes[2].lines}
    for name, values in zip(groups, paths, strict=True):
        np.testing.assert_array_equal(lines[name].get_ydata(), values)
    assert len(plot_attribution(exact, estimate, panels=["q", "k"], kinds=kinds, unit="logit").axes) == 2
