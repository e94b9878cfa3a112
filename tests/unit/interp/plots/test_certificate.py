"""The arrays behind the figures of certificates."""

import numpy as np
import pytest

from interp.errors import BoolensError
from interp.plots import plot_certificate, plot_certificates

INPUTS = np.array([[1, 0, 1, 1, 0, 1, 1], [0, 0, 1, 0, 0, 1, 0]])
SHARES = np.array([0.0, 0.0, 1e-4, 0.5])


def test_bits_as_given_and_shares_on_a_log_axis() -> None:
    fig = plot_certificate(
        INPUTS, SHARES, rows=["few", "worst"], change="zeros", harmless=1, targets=[[1, 4]], rule_positions=[6], n_ctx=7
    )
    above, below = fig.axes
    assert np.array_equal(np.asarray(above.images[0].get_array()), INPUTS)
    assert [label.get_text() for label in above.get_yticklabels()] == ["few", "worst"]
    assert [bar.get_height() for bar in below.containers[0]] == SHARES.tolist()
    assert (below.get_yscale(), below.get_xlabel()) == ("log", "zeros (count)")


@pytest.mark.parametrize(
    ("shares", "harmless", "said", "legend"),
    [
        (np.zeros(5), 4, "none is wrong", ["all right"]),
        (np.zeros(0), 4, "proven right with at most 4 zeros;\nnot all inputs counted", []),
        (np.zeros(0), -1, "no number of zeros proven right;\nnot all inputs counted", []),
    ],
)
def test_nothing_wrong_and_nothing_counted_are_told_apart(
    shares: np.ndarray, harmless: int, said: str, legend: list[str]
) -> None:
    none = np.zeros((0, 7), dtype=int)
    fig = plot_certificate(none, shares, rows=[], change="zeros", harmless=harmless, targets=[[1]], n_ctx=7)
    assert [text.get_text() for each in fig.legends for text in each.texts] == legend  # no target is marked
    assert any(said in text.get_text() for text in fig.axes[1].texts)
    assert "no wrong input found" in fig.axes[0].texts[0].get_text()


def test_bits_that_are_none_are_refused() -> None:
    with pytest.raises(BoolensError, match=r"inputs have shape \(2, 7\) for 1 names and 7 positions"):
        plot_certificate(INPUTS, SHARES, rows=["one"], change="zeros", harmless=0, targets=[[1]], n_ctx=7)
    with pytest.raises(BoolensError, match="give a row of 0 and 1 each"):
        plot_certificate(INPUTS * 2, SHARES, rows=["a", "b"], change="zeros", harmless=0, targets=[[1]], n_ctx=7)


def test_runs_of_one_accuracy_stand_side_by_side() -> None:
    upper = np.array([1e-4, 0.0, 1e-6])
    fig = plot_certificates(np.ones(3), upper, upper, np.array([3, 27, 9]), verdicts=["refuted"] * 3, change="zeros")
    left, right = fig.axes
    assert np.asarray(left.lines[0].get_xydata())[:, 0].tolist() == [2, 0, 1]
    assert [text.get_text() for text in fig.legends[0].texts] == ["refuted"]  # what there is, no more
    assert not any(tick % 1 for tick in left.get_xticks())
    assert left.get_xlabel() == right.get_xlabel() == "run (validation accuracy 1.000 in all)"


def test_one_dot_a_run_by_verdict_and_proven_ones_on_the_floor() -> None:
    accuracy, upper = np.array([0.99, 1.0, 1.0]), np.array([1e-4, 1e-6, 0.0])
    fig = plot_certificates(
        accuracy, upper / 2, upper, np.array([3, 9, 27]), verdicts=["refuted", "undecided", "verified"], change="zeros"
    )
    left, right = fig.axes
    assert [text.get_text() for text in fig.legends[0].texts] == [
        "verified", "refuted", "undecided", "between its bounds",
    ]  # fmt: skip
    assert len({str(line.get_marker()) for line in left.lines[:3]}) == 3
    dots = {line.get_label(): tuple(np.asarray(line.get_xydata())[0]) for line in left.lines[:3]}
    assert dots == {"verified": (1.0, 1e-7), "refuted": (0.99, 1e-4), "undecided": (1.0, 1e-6)}
    assert sorted(np.asarray(line.get_xydata())[0, 1] for line in right.lines) == [3, 9, 27]
