"""The curves and bars behind plot_gain_attention."""

import numpy as np
import pytest
from matplotlib.container import BarContainer

from interp.plots import plot_gain_attention

Q1, Q2, X = np.random.default_rng(4).normal(size=(3, 6))
WEIGHTS = np.array([0.1, 0.3, 0.2, 0.15, 0.05, 0.2])


def test_the_panels_show_patterns_weights_and_output() -> None:
    fig = plot_gain_attention(Q1, Q2, WEIGHTS, X, 0.375, z1=1.5, z2=-2)
    patterns, middle, below = fig.axes
    for line, q, label in zip(patterns.lines, (Q1, Q2), ("q₁, gain z₁ = 1.5", "q₂, gain z₂ = -2"), strict=True):
        np.testing.assert_array_equal(np.asarray(line.get_xdata()), range(6))
        np.testing.assert_array_equal(np.asarray(line.get_ydata()), q)
        assert line.get_label() == label
    for ax, heights in ((middle, WEIGHTS), (below, X)):
        (bars,) = [c for c in ax.containers if isinstance(c, BarContainer)]
        np.testing.assert_allclose([bar.get_height() for bar in bars], heights)
        assert [bar.get_x() + bar.get_width() / 2 for bar in bars] == pytest.approx(range(6))
        assert ax.get_xlim() == (-0.5, 5.5)
    (output,) = [line for line in below.lines if line.get_label() == "output y = w · x = 0.375"]
    assert np.asarray(output.get_ydata()).tolist() == [0.375, 0.375]


@pytest.mark.usefixtures("unchecked")
def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(
        ValueError, match="weights along pos has length 5, but q1 along pos has 6; make them agree on pos"
    ):
        plot_gain_attention(Q1, Q2, WEIGHTS[:5], X, 0.0, z1=0, z2=0)
