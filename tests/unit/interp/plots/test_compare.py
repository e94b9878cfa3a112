"""What plot_comparison draws is what it was given."""

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from interp.plots import Measure, SampleSizes, plot_comparison
from interp.plots.compare import share
from interp.plots.legends import kind_look

N_DENSITIES, N_TRAININGS, N_ARCHITECTURES, N_SEEDS = 2, 2, 3, 5
DRAW = np.random.default_rng(4)
TRIED = (10, 20, 40)


def measure(low: float, high: float) -> Measure:
    values = DRAW.uniform(low, high, (N_DENSITIES, N_TRAININGS, N_ARCHITECTURES, N_SEEDS))
    return Measure(values, values.mean(-1), values.mean(-1) - 0.01, values.mean(-1) + 0.02)


ACCURACY, BALANCED, LOSS = measure(0.7, 1), measure(0.5, 1), measure(0.1, 1)
MAJORITY = np.linspace(0.5, 0.58, N_DENSITIES * N_SEEDS).reshape(N_DENSITIES, N_SEEDS)
PER_SEED = np.array([[10, 10, 20, 10, 20], [40, np.inf, np.inf, np.inf, 40], [20, 20, 40, 20, 10]], float)
SAMPLE_SIZES = SampleSizes(
    TRIED, PER_SEED, np.array([10, np.inf, 20]), np.array([0.0, 40, 10]), np.array([20, np.inf, 40])
)


def draw(sizes: SampleSizes | None = SAMPLE_SIZES, accuracy: Measure = ACCURACY) -> Figure:
    return plot_comparison(
        accuracy, BALANCED, LOSS, MAJORITY, densities=["sparse", "dense"], trainings=["short", "long"],
        architectures=["attention", "MLP", "linear"], parameters=[104, 16385, 31], n_train=1000, n_valid=500,
        sample_sizes=sizes,
    )  # fmt: skip


def test_points_means_and_intervals_are_the_arrays() -> None:
    fig = draw(None)
    assert len(fig.axes) == 4
    for axes, values in ((fig.axes[:2], ACCURACY), (fig.axes[2:], LOSS)):
        for d, ax in enumerate(axes):
            by_label = {str(line.get_label()): line for line in ax.lines}
            ends = [np.array(c.get_segments()) for c in ax.collections if hasattr(c, "get_segments")]  # pyright: ignore[reportAttributeAccessIssue]
            for k in range(N_TRAININGS):
                seeds, mean = by_label[f"_seeds {k}"], by_label[f"_mean {k}"]
                np.testing.assert_array_equal(seeds.get_ydata(), values.values[d, k].ravel())
                nearest = np.asarray(seeds.get_xdata()).round()
                np.testing.assert_array_equal(nearest, np.repeat(np.arange(N_ARCHITECTURES), N_SEEDS))
                np.testing.assert_array_equal(mean.get_ydata(), values.mean[d, k])
                np.testing.assert_array_equal(ends[k][:, 0, 1], values.low[d, k])
                np.testing.assert_array_equal(ends[k][:, 1, 1], values.high[d, k])
                np.testing.assert_array_equal(ends[k][:, 0, 0], mean.get_xdata())
                assert (mean.get_color(), mean.get_marker()) == kind_look(k)


def test_accuracy_stands_beside_balanced_and_majority() -> None:
    for d, ax in enumerate(draw(None).axes[:2]):
        (line,) = [line for line in ax.lines if line.get_gid() == "majority"]
        np.testing.assert_allclose(np.asarray(line.get_ydata()), MAJORITY[d].mean())
        written = [text.get_text() for text in ax.texts]
        assert written == [f"{mean:.3f}" for mean in ACCURACY.mean[d].ravel()]
        for k in range(N_TRAININGS):
            (line,) = [line for line in ax.lines if line.get_label() == f"_balanced {k}"]
            np.testing.assert_array_equal(line.get_ydata(), BALANCED.mean[d, k])


def test_axes_say_what_they_show() -> None:
    fig = draw()
    assert [ax.get_ylabel() for ax in fig.axes[:4]] == ["validation accuracy (share)", "", "validation loss (nats)", ""]
    assert [ax.get_yscale() for ax in fig.axes[:4]] == ["linear", "linear", "log", "log"]
    assert fig.axes[0].get_ylim() == fig.axes[1].get_ylim()
    assert fig.axes[2].get_ylim() == fig.axes[3].get_ylim()
    ticks = [text.get_text() for text in fig.axes[2].get_xticklabels()]
    assert ticks == ["attention\n104\nparameters", "MLP\n16,385\nparameters", "linear\n31\nparameters"]
    assert "1,000 training and 500 validation samples" in fig.axes[0].get_title()
    assert [text.get_text() for text in fig.legends[0].texts][:2] == ["short", "long"]


def test_sample_sizes_beyond_the_largest_stand_apart() -> None:
    ax = draw().axes[4]
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["10", "> 40", "20"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["10", "40", "> 40"]
    beyond = ax.get_xticks()[-1]
    for row in range(N_ARCHITECTURES):
        (median,) = [line for line in ax.lines if line.get_label() == f"_median {row}"]
        assert np.asarray(median.get_xdata()).tolist() == [min(SAMPLE_SIZES.median[row], beyond)]
        points = np.concatenate(
            [np.asarray(line.get_xdata(), float) for line in ax.lines if line.get_label() == f"_seeds {row}"]
        )
        grid = np.array([*TRIED, beyond])
        nearest = grid[np.abs(np.log(points[:, None] / grid)).argmin(1)]
        np.testing.assert_array_equal(np.sort(nearest), np.sort(np.minimum(PER_SEED[row], beyond)))


def test_no_text_covers_another(seen_texts: Callable[[Figure], list[tuple[str, list[float]]]]) -> None:
    for fig in (draw(), draw(None)):
        boxes = seen_texts(fig)
        for i, (one, a) in enumerate(boxes):
            assert a[0] >= -1, one
            assert a[2] <= fig.bbox.width + 1, one
            for other, b in boxes[:i]:
                apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 1 or b[3] <= a[1] + 1
                assert apart, (one, a, other, b)


def test_arrays_that_disagree_are_refused() -> None:
    wrong = Measure(ACCURACY.values[:, :1], ACCURACY.mean[:, :1], ACCURACY.low[:, :1], ACCURACY.high[:, :1])
    with pytest.raises(ValueError, match="make them agree on training"):
        draw(accuracy=wrong)
    sizes = SampleSizes(TRIED, PER_SEED + 1, SAMPLE_SIZES.median, SAMPLE_SIZES.low, SAMPLE_SIZES.high)
    with pytest.raises(ValueError, match="11, which is not among those tried"):
        draw(sizes)


def test_a_mean_below_one_is_never_written_as_one() -> None:
    assert [share(mean) for mean in (1.0, 0.99981, 0.99999, 0.9036)] == ["1.000", "0.9998", "0.9999", "0.904"]
