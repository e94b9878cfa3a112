"""Metrics, effects and fractions of a difference: by hand, by definition, and where they are undefined."""

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from interp.effects import METRICS, Metric, effects, fractions, score
from interp.errors import BoolensError
from interp.patching import UndefinedWarning

LABELS = torch.tensor([True, False, True, False])
CLEAN = torch.tensor([2.0, -1.0, 0.0, 3.0])
E = math.exp


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("logit", [2, 1, 0, -3]),
        ("probability", [1 / (1 + E(-2)), 1 / (1 + E(-1)), 1 / 2, 1 / (1 + E(3))]),
        ("loss", [math.log(1 + E(-2)), math.log(1 + E(-1)), math.log(2), math.log(1 + E(3))]),
        ("accuracy", [1, 1, 0, 0]),  # a logit of 0 says False
    ],
)
def test_metrics_by_hand(metric: Metric, expected: list[float]) -> None:
    np.testing.assert_allclose(score(CLEAN, LABELS, metric), expected, rtol=1e-12)
    cells = torch.stack([CLEAN, -CLEAN, CLEAN]).unsqueeze(1)
    assert score(cells, LABELS, metric).shape == (3, 1, 4)
    np.testing.assert_allclose(score(cells, LABELS, metric)[2, 0], expected, rtol=1e-12)


def test_loss_is_minus_log_probability_also_far_out() -> None:
    logits = torch.tensor([700.0, -700.0, 1e-9, -5])
    np.testing.assert_allclose(score(logits, LABELS, "loss"), [0, 0, math.log(2), math.log(1 + E(-5))], atol=1e-9)
    np.testing.assert_allclose(score(-logits, LABELS, "loss")[:2], [700, 700])


class TestEffects:
    ABLATED = torch.stack([CLEAN, torch.tensor([1.0, -1.0, 5.0, -4.0])])

    def test_are_the_clean_metric_less_the_ablated(self) -> None:
        estimate = effects(CLEAN, self.ABLATED, LABELS, "logit", generator())
        assert estimate.value.tolist() == [0, (1 + 0 - 5 - 7) / 4]
        assert effects(CLEAN, self.ABLATED, LABELS, "accuracy", generator()).value.tolist() == [0, (2 - 4) / 4]
        assert estimate.low[0] == estimate.high[0] == 0
        assert -7 <= estimate.low[1] < estimate.value[1] < estimate.high[1] <= 1

    def test_what_hurts_raises_the_loss_alone(self) -> None:
        hurt = torch.stack([CLEAN - 5 * (2.0 * LABELS - 1)])
        signs = {metric: effects(CLEAN, hurt, LABELS, metric, generator()).value[0] > 0 for metric in METRICS}
        assert signs == {"logit": True, "probability": True, "loss": False, "accuracy": True}

    def test_the_generator_decides_the_interval_alone(self) -> None:
        a, b, c = (effects(CLEAN, self.ABLATED, LABELS, "loss", generator(s), n_resamples=50) for s in (1, 1, 2))
        assert a.value.tolist() == c.value.tolist()
        assert a.low.tolist() == b.low.tolist()
        assert a.low.tolist() != c.low.tolist()

    def test_intervals_hold_the_truth_about_as_often_as_they_say(self) -> None:
        truth, held, source = 0.3, 0, torch.Generator().manual_seed(0)
        for seed in range(200):
            change = torch.randn(60, generator=source, dtype=torch.float64) + truth
            estimate = effects(change, torch.zeros(60), torch.ones(60).bool(), "logit", generator(seed), level=0.9)
            held += int(estimate.low <= truth <= estimate.high)
        assert 165 <= held <= 194  # 180, standard deviation 4, a percentile interval of 60 a little short


class TestFractions:
    CORRUPTED = torch.tensor([-1.0, 1.0, -2.0, 4.0])
    PATCHED = torch.tensor([[0.5, 0.0, -1.0, 0.0], [2.0, -1.0, 0.0, 3.0], [-1.0, 1.0, -2.0, 4.0]])

    def test_by_hand(self) -> None:
        """Towards the right label: clean 2, 1, 0, -3; corrupted -1, -1, -2, -4; patched 0.5, 0, -1, 0."""
        clean, corrupted, patched = (2 + 1 + 0 - 3) / 4, (-1 - 1 - 2 - 4) / 4, (0.5 + 0 - 1 + 0) / 4
        args = (self.PATCHED, CLEAN, self.CORRUPTED, LABELS, "logit")
        denoise, noise = (fractions(*args, mode, generator()) for mode in ("denoise", "noise"))
        np.testing.assert_allclose(denoise.value, [(patched - corrupted) / (clean - corrupted), 1, 0])
        np.testing.assert_allclose(noise.value, [(clean - patched) / (clean - corrupted), 0, 1])

    @pytest.mark.parametrize("metric", METRICS)
    def test_are_ratios_of_means_with_joint_resamples(self, metric: Metric) -> None:
        """Where a patch brings back half of every pair's difference there is nothing to be uncertain about."""
        source = torch.Generator().manual_seed(3)
        labels = torch.rand(40, generator=source) < 0.5
        sign = 2.0 * labels - 1
        clean = sign * (2 + torch.rand(40, generator=source))
        corrupted = -sign * (1 + torch.rand(40, generator=source))
        ends = [score(run, labels, metric).mean() for run in (clean, corrupted)]
        for patched, fraction in ((clean, 1), (corrupted, 0)):
            estimate = fractions(patched[None], clean, corrupted, labels, metric, "denoise", generator())
            np.testing.assert_allclose([estimate.value, estimate.low, estimate.high], fraction, atol=1e-12)
        half = (clean + corrupted) / 2
        estimate = fractions(half[None], clean, corrupted, labels, metric, "denoise", generator())
        mean = score(half, labels, metric).mean()
        np.testing.assert_allclose(estimate.value, (mean - ends[1]) / (ends[0] - ends[1]))
        assert (estimate.low <= estimate.value).all()
        assert (estimate.value <= estimate.high).all()
        if metric == "logit":
            np.testing.assert_allclose([estimate.low, estimate.high], 0.5)

    def test_no_difference_no_fraction(self) -> None:
        with pytest.warns(UndefinedWarning, match="3 of 3 fractions are undefined") as caught:
            estimate = fractions(self.PATCHED, CLEAN, CLEAN, LABELS, "logit", "denoise", generator())
        assert len(caught) == 1
        assert np.isnan([estimate.value, estimate.low, estimate.high]).all()

    def test_an_undefined_resample_leaves_the_interval_undefined(self) -> None:
        """Accuracies that differ on one pair of four: some resamples do not hold it."""
        corrupted = CLEAN.clone()
        corrupted[0] = -1
        with pytest.warns(UndefinedWarning):
            estimate = fractions(self.PATCHED, CLEAN, corrupted, LABELS, "accuracy", "denoise", generator())
        assert np.isfinite(estimate.value).all()
        assert np.isnan(estimate.low).all()
        assert np.isnan(estimate.high).all()

    def test_defined_ones_come_without_a_warning(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x = torch.tensor([[1.0, -1.0]])
            labels = torch.tensor([True, False])
            fractions(x, 2 * x[0], -x[0], labels, "logit", "noise", generator())


@pytest.mark.usefixtures("unchecked")
class TestErrors:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"metric": "bits"}, "metric 'bits' is not known; choose one of ('logit', 'probability', "),
            ({"mode": "denoising"}, "mode 'denoising' is not known; choose one of ('denoise', 'noise')"),
            ({"labels": LABELS[:3]}, "4 logits a cell and 3 labels; give one label an input"),
            ({"level": 1.0}, "4 inputs, 1000 resamples, level 1.0; need at least one of each and a level in (0, 1)"),
            ({"n_resamples": 0}, "4 inputs, 0 resamples"),
        ],
    )  # fmt: skip
    def test_of_fractions(self, change: dict[str, Any], message: str) -> None:
        given: dict[str, Any] = {
            "patched": -CLEAN[None], "clean": CLEAN, "corrupted": -CLEAN, "labels": LABELS, "metric": "logit",
            "mode": "noise", "generator": generator(), **change,
        }  # fmt: skip
        with pytest.raises(BoolensError, match=re.escape(message)):
            fractions(**given)

    def test_no_inputs(self) -> None:
        nothing = torch.zeros(0)
        with pytest.raises(BoolensError, match="0 samples"):
            effects(nothing, nothing[None], nothing.bool(), "logit", generator())
        with pytest.raises(BoolensError, match="0 inputs"):
            fractions(nothing[None], nothing, nothing, nothing.bool(), "logit", "noise", generator())
