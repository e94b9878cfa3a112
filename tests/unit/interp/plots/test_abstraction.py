"""The maps, dots, bars and numbers behind plot_abstraction."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from interp.plots import plot_abstraction
from interp.plots.style import CATEGORICAL

DRAW = np.random.default_rng(7)
IIA = DRAW.random((2, 3, 4))
IIA[1, 2, 1] = np.nan
BASELINES = DRAW.random((3, 3))
SEARCH = DRAW.random((5, 3, 11))
ALONG = DRAW.random((2, 2, 3))
ALONG[1, 0, 1] = np.nan
RECOVERED = np.array([0.93, -4.5, np.nan, -0.25])
ACCURACY = np.array([0.99, 0.8, 0.5, 0.7])


def drawn(**changed: Any) -> Figure:
    arguments = {
        "iia": IIA, "baselines": BASELINES, "search": SEARCH, "alignment": ALONG, "alignment_low": ALONG - 0.1,
        "alignment_high": ALONG + 0.05, "recovered": RECOVERED, "recovered_low": RECOVERED - 0.05,
        "recovered_high": RECOVERED + 0.02, "accuracy": ACCURACY, "sources": ["any", "minimal"],
        "variables": ["rule", "and", "target 3"], "sites": ["own bits", "blocks.0.attn.hook_q", "z", "hook_logit"],
        "hooks": [f"blocks.0.attn.hook_{name}" for name in "qkvzr"], "aligned": ["rule", "and"],
        "aligned_hooks": ["hook_embed", "blocks.0.attn.hook_z"], "directions": ["learned", "untrained", "random"],
        "hypotheses": ["a", "b", "c", "d"], "targets": [[3], [2, 6]], "rule_positions": [10],
    }  # fmt: skip
    return plot_abstraction(**{**arguments, **changed})


def panel(fig: Figure, title: str) -> Any:
    (ax,) = [ax for ax in fig.findobj(match=lambda artist: hasattr(artist, "get_title")) if ax.get_title() == title]  # pyright: ignore[reportAttributeAccessIssue]
    return ax


def test_whole_sites_and_baselines() -> None:
    fig = drawn()
    for s, source in enumerate(("any", "minimal")):
        ax = panel(fig, f"whole sites, {source} source")
        shown = np.concatenate([IIA[s], BASELINES.T], axis=1)
        (image,) = ax.images
        np.testing.assert_allclose(np.ma.filled(image.get_array(), np.nan), shown - 0.5)
        assert image.get_clim() == (-0.5, 0.5)
        names = [label.get_text() for label in ax.get_xticklabels()]
        assert names == ["own bits", "q", "z", "logit", "unpatched", "one label", "source's label"]
        written = {text.get_position(): text.get_text() for text in ax.texts}
        assert written == {(c, r): f"{v:.2f}" for (r, c), v in np.ndenumerate(shown) if np.isfinite(v)}
    assert [label.get_text() for label in panel(fig, "whole sites, any source").get_yticklabels()] == [
        "rule", "and", "target 3",
    ]  # fmt: skip


def test_single_positions() -> None:
    fig = drawn()
    for h, hook in enumerate("qkvzr"):
        ax = panel(fig, f"one position of {hook}")
        np.testing.assert_allclose(ax.images[0].get_array(), SEARCH[h] - 0.5)
        marks = {line.get_gid(): np.asarray(line.get_xdata()).tolist() for line in ax.lines if line.get_gid()}
        assert marks == {"targets-x": [2, 3, 6], "rule_positions-x": [10]}
    assert len([ax for ax in fig.axes if ax.get_title().startswith("one position")]) == 5


def test_directions() -> None:
    ax = panel(drawn(), "one direction of a site's activation")
    lines = [line for line in ax.lines if str(line.get_label()).startswith("_direction")]
    for k, (line, intervals) in enumerate(zip(lines, ax.collections, strict=True)):
        expected = ALONG[..., k].ravel()
        np.testing.assert_allclose(np.asarray(line.get_ydata(), float), expected)
        assert line.get_color() == CATEGORICAL[k]
        ends = np.array([segment[:, 1] for segment in intervals.get_segments()])
        known = expected[np.isfinite(expected)]
        np.testing.assert_allclose(ends, np.column_stack([known - 0.1, known + 0.05]))
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == ["rule\nembed", "and\nembed", "rule\nz", "and\nz"]


def test_scrubbing_bars_are_cut_and_their_numbers_are_not() -> None:
    ax = panel(drawn(), "scrubbing, by hypothesis")
    assert [bar.get_width() for bar in ax.patches] == [0.93, -1, 0, -0.25]
    assert [text.get_text() for text in ax.texts] == [
        "a: 0.93 (accuracy 0.990)", "b: −4.5 (accuracy 0.800)", "c: undefined (accuracy 0.500)",
        "d: −0.25 (accuracy 0.700)",
    ]  # fmt: skip
    ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(ends, [[0.88, 0.95], [-0.3, -0.23]])


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="variables has length 2, but iia along variable has 3"):
        drawn(variables=["rule", "and"])
    with pytest.raises(ValueError, match="BASELINES has length 3, but baselines along baseline has 2"):
        drawn(baselines=BASELINES[:2])
    with pytest.raises(ValueError, match="hypotheses has length 3, but recovered along hypothesis has 4"):
        drawn(hypotheses=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"targets\[0\] holds 11, but positions run from 0 to 10"):
        drawn(targets=[[11], [2]])
