"""The measures of formation recomputed input by input, lock-ons and orders by hand."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from interp import BoolensError, HookedAttention, attention_tables
from interp.formation import (
    attention_measures,
    flip_scores_of,
    label_measures,
    lock_on,
    order_of_events,
    precision,
    with_flips,
)
from interp.hooks import run
from interp.recovery import flip_scores
from interp.selection import auroc_of_labels
from interp.statistics import clopper_pearson

PATTERN = "blocks.0.attn.hook_pattern"
NAN = math.nan


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    sizes = {"n_heads": 3, "d_head": 7, "d_model": 11, "d_value": 2}
    return random_attention(5, bias=True, init_std=0.6, **sizes).requires_grad_(False)


class TestLabels:
    def test_auroc_counts_pairs_and_ties_half(self) -> None:
        draw = np.random.default_rng(4)
        scores, y = draw.integers(0, 6, 31).astype(float), draw.random(31) < 0.4
        pairs = [(a > b) + 0.5 * (a == b) for a in scores[y] for b in scores[~y]]
        assert auroc_of_labels(scores, y) == pytest.approx(np.mean(pairs))
        assert auroc_of_labels(-scores, y) == pytest.approx(1 - np.mean(pairs))

    @pytest.mark.parametrize("label", [True, False])
    def test_auroc_of_one_class_is_undefined(self, label: bool) -> None:
        assert math.isnan(auroc_of_labels(np.arange(3.0), np.full(3, label)))

    def test_accuracy_and_loss(self) -> None:
        logit, y = torch.tensor([2.0, -1.0, 0.0, 3.0]), torch.tensor([True, False, True, False])
        found = label_measures(logit, y)
        assert found["valid-accuracy"] == 0.5  # a logit of 0 says False
        losses = [math.log1p(math.exp(-2)), math.log1p(math.exp(-1)), math.log(2), math.log1p(math.exp(3))]
        assert found["valid-loss"] == pytest.approx(np.mean(losses))
        assert found["logit-auroc"] == 0.5  # of (2, 0) over (-1, 3)


class TestAttention:
    def test_each_measure_input_by_input(self, model: Any, all_inputs: Callable) -> None:
        x = all_inputs(5)[:7]
        is_target = torch.zeros(7, 5, dtype=torch.bool)
        is_target[:3, [1, 4]] = True
        is_target[3:, [0]] = True
        pattern = run(model, x, record=[PATTERN])[1][PATTERN]
        entropy, mass, share = [], [], []
        for i in range(7):
            targets = is_target[i].nonzero()[:, 0].tolist()
            effective = np.zeros(5)
            for h in range(3):
                for dest in range(5):
                    row = pattern[i, h, dest]
                    entropy.append(-sum(float(p * math.log(p)) for p in row) / math.log(5))
                    mass.append(sum(float(row[src]) for src in targets))
                for d in range(2):
                    effective += np.abs((model.W_readout[:, h, d] @ pattern[i, h]).numpy())
            share.append(effective[targets].sum() / effective.sum())
        found = attention_measures(attention_tables(model), x, is_target)
        assert found["attention-entropy"] == pytest.approx(np.mean(entropy))
        assert found["attention-on-targets"] == pytest.approx(np.mean(mass))
        assert found["effective-on-targets"] == pytest.approx(np.mean(share))

    def test_uniform_attention(self, model: Any, all_inputs: Callable) -> None:
        model.attn.W_K.zero_()
        is_target = torch.tensor([0, 1, 0, 1, 0]).bool().expand(32, -1)
        found = attention_measures(attention_tables(model), all_inputs(5), is_target)
        assert found == pytest.approx(
            {"attention-entropy": 1, "attention-on-targets": 2 / 5, "effective-on-targets": 2 / 5}
        )

    def test_one_position_has_no_entropy(self, random_attention: Callable) -> None:
        tables = attention_tables(random_attention(1).requires_grad_(False))
        found = attention_measures(tables, torch.tensor([[0], [1]]), torch.ones(2, 1, dtype=torch.bool))
        assert math.isnan(found["attention-entropy"])
        assert found["attention-on-targets"] == found["effective-on-targets"] == 1


class TestPatching:
    def test_flips_stand_behind_the_inputs(self) -> None:
        x = torch.tensor([[0, 1, 1], [1, 0, 1]])
        expected = [[0, 1, 1], [1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 0, 0]]
        assert with_flips(x).tolist() == expected

    def test_scores_are_those_of_patching_the_embedding(self, model: Any, all_inputs: Callable) -> None:
        x = all_inputs(5)[5:11]
        found = flip_scores_of(model(with_flips(x)), 5)
        torch.testing.assert_close(found, flip_scores(model, x), rtol=1e-10, atol=1e-12)
        assert found.min() > 1e-3

    @pytest.mark.parametrize(
        ("scores", "expected"),
        [
            ([9, 1, 8, 2, 7], 1.0),
            ([9, 8, 1, 2, 7], 2 / 3),
            ([0, 5, 0, 5, 0], 1 / 3),
            ([1, 1, 1, 1, 1], 1 / 3),  # ties count against the targets
            ([0, 0, 0, 0, 0], 1 / 3),
            ([1.00009, 1, 1.00009, 1, 1.00009], 1 / 3),
            ([1.00011, 1, 1.00011, 1, 1.00011], 1.0),
        ],
    )
    def test_precision(self, scores: list[float], expected: float) -> None:
        assert precision(np.array(scores, dtype=float), [0, 2, 4], range(5)) == pytest.approx(expected)

    def test_precision_leaves_out_what_is_no_candidate(self) -> None:
        assert precision(np.array([9.0, 3, 2, 1]), [1, 2], [1, 2, 3]) == 1


class TestLockOn:
    @pytest.mark.parametrize(
        ("values", "step"),
        [
            ([0, 0, 10, 10, 10], 4),
            ([0, 9.01, 8.9, 9.1, 10], 6),  # in, out, and in for good
            ([0, 9, 9.5, 10, 10], 2),  # the border belongs to the band
            ([0, 20, 11, 10, 10], 4),  # the range is that of the whole run
            ([0, 1, 2, 3, 10], NAN),  # there only at the end
            ([5, 5, 5, 5, 5], NAN),  # never changes
            ([0, NAN, 10, 10, 10], NAN),
            ([10, 0, 10, 10, 10], 4),
        ],
    )
    def test_by_hand(self, values: list[float], step: float) -> None:
        assert lock_on([0, 2, 4, 6, 8], np.array(values, dtype=float)) == pytest.approx(step, nan_ok=True)

    def test_units_and_sign_do_not_matter(self) -> None:
        values = np.random.default_rng(1).random(23).cumsum()
        steps = list(range(0, 230, 10))
        assert lock_on(steps, values, 0.25) == lock_on(steps, 3 - 7 * values, 0.25) < 220
        assert lock_on(steps, values, 0.5) < lock_on(steps, values, 0.25)

    def test_a_value_in_the_band_from_the_start_locks_on_at_step_0(self) -> None:
        assert lock_on([0, 1, 2, 3], np.array([1.0, 0.0, 1.0, 0.5]), 0.6) == 0

    @pytest.mark.usefixtures("unchecked")
    def test_what_does_not_fit_is_refused(self) -> None:
        with pytest.raises(BoolensError, match=r"2 steps, 3 values, band 0\.1; give one value a step"):
            lock_on([0, 1], np.zeros(3))
        with pytest.raises(BoolensError, match=r"band 1; give one value a step and a band in \(0, 1\)"):
            lock_on([0, 1], np.zeros(2), 1)


def test_order_of_events_by_hand() -> None:
    at = np.array([[1, 2, 3], [2, 2, NAN], [5, 4, 6], [1, 3, NAN]])
    order = order_of_events(at)
    assert order.before.tolist() == [[0, 2, 2], [1, 0, 2], [0, 0, 0]]
    assert order.tied.tolist() == [[4, 1, 0], [1, 4, 0], [0, 0, 2]]
    assert order.of.tolist() == [[4, 4, 2], [4, 4, 2], [2, 2, 2]]
    assert (order.low[0, 1], order.high[0, 1]) == clopper_pearson(2, 4)
    assert (order.low[1, 2], order.high[1, 2]) == clopper_pearson(2, 2)


def test_events_that_never_happen_together_have_no_order() -> None:
    order = order_of_events(np.array([[1, NAN], [NAN, 2]]))
    assert (order.before[0, 1], order.of[0, 1], order.low[0, 1], order.high[0, 1]) == (0, 0, 0, 1)
