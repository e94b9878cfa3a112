"""The cells, frames and labels behind plot_samples."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from interp.plots import plot_samples

X = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
LABELS = np.array([True, False, True])


def frames(fig: Figure) -> set[tuple[float, float, float, float]]:
    """(left, top, right, bottom) of each frame, in cells."""
    (outlines,) = [c for c in fig.axes[0].collections if isinstance(c, PolyCollection)]
    boxes = [np.asarray(path.vertices) for path in outlines.get_paths()]
    assert all(len(np.unique(box, axis=0)) == 4 for box in boxes)
    return {(*box.min(0), *box.max(0)) for box in boxes}


def test_cell_i_is_at_index_i_and_one_is_black() -> None:
    fig = plot_samples(X, LABELS, targets=[[1, 3]])
    inputs, column = fig.axes
    (image,) = inputs.images
    np.testing.assert_array_equal(np.asarray(image.get_array()), X)
    assert tuple(image.get_extent()) == (-0.5, 4.5, 2.5, -0.5)
    assert (inputs.get_xlim(), inputs.get_ylim()) == ((-0.5, 4.5), (2.5, -0.5))
    assert image.to_rgba(np.array([0.0, 1.0]))[:, :3].tolist() == [[1, 1, 1], [0, 0, 0]]
    (labels,) = column.images
    np.testing.assert_array_equal(np.asarray(labels.get_array())[:, 0], LABELS)
    assert labels.to_rgba(np.array([0.0, 1.0]))[:, :3].tolist() == [[1, 1, 1], [0, 0, 0]]
    assert column.get_ylim() == inputs.get_ylim()
    assert [text.get_text() for text in column.get_xticklabels()] == ["label"]


def test_legend_says_what_black_means() -> None:
    (legend,) = plot_samples(X, LABELS, targets=[[1]]).legends
    colours = {t.get_text(): p.get_facecolor()[:3] for t, p in zip(legend.texts, legend.get_patches(), strict=False)}
    assert colours["1 (True)"] == (0, 0, 0)
    assert colours["0 (False)"] == (1, 1, 1)


def test_without_a_rule_the_frame_spans_all_rows() -> None:
    assert frames(plot_samples(X, LABELS, targets=[[1, -2]])) == {(0.5, -0.5, 1.5, 2.5), (2.5, -0.5, 3.5, 2.5)}


def test_each_row_has_its_own_rules_targets_framed() -> None:
    fig = plot_samples(X, LABELS, targets=[[0, 2], [3]], rule_positions=[4], rule=np.array([1, 0, 0]))
    assert frames(fig) == {(2.5, -0.5, 3.5, 0.5), (-0.5, 0.5, 0.5, 2.5), (1.5, 0.5, 2.5, 2.5)}
    marks = {line.get_gid(): list(np.asarray(line.get_xdata())) for line in fig.axes[0].lines}
    assert marks == {"targets-x": [0, 2, 3], "rule_positions-x": [4]}


@pytest.mark.usefixtures("unchecked")
def test_lengths_and_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="labels along sample has length 2, but x along sample has 3"):
        plot_samples(X, LABELS[:2], targets=[[1]])
    with pytest.raises(ValueError, match="rule along sample has length 2, but x along sample has 3"):
        plot_samples(X, LABELS, targets=[[1], [2]], rule=np.array([0, 1]))
    with pytest.raises(ValueError, match="rule is missing, but targets names 2 rules"):
        plot_samples(X, LABELS, targets=[[1], [2]])
    with pytest.raises(ValueError, match="rule holds 0 to 2, but targets names rules 0 to 1"):
        plot_samples(X, LABELS, targets=[[1], [2]], rule=np.array([0, 1, 2]))
    with pytest.raises(ValueError, match=r"x has shape \(5,\), but 2 axes are expected \(sample pos\)"):
        plot_samples(X[0], LABELS, targets=[[1]])
    with pytest.raises(ValueError, match="x holds values other than True and False"):
        plot_samples(2 * X, LABELS, targets=[[1]])
    with pytest.raises(ValueError, match="one sequence a rule is expected"):
        plot_samples(X, LABELS, targets=[1])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"targets\[0\] holds 5, but positions run from 0 to 4"):
        plot_samples(X, LABELS, targets=[[5]])
    with pytest.raises(ValueError, match="x along sample has length 0"):
        plot_samples(X[:0], LABELS[:0], targets=[[1]])
