"""Counted boxes against enumeration: histograms, the nearest and the worst wrong input."""

import numpy as np
import pytest
import torch

from interp.certify.count import Counted, count_box
from interp.certify.side import RatioSide
from interp.certify.terms import Terms, attention_terms
from interp.models import HookedAttention
from tests.unit.interp.certify.certify_cases import (
    KINDS,
    all_inputs,
    all_logits,
    inside,
    n_counted,
    output_bias,
    random_box,
    random_model,
    scale_scores,
    side_maker,
)


def check(found: Counted, x: np.ndarray, logits: np.ndarray, fixed: np.ndarray, counted: np.ndarray) -> None:
    """A box's count; `logits` are above 0 where wrong, none of them within rounding of 0."""
    n_free = int((fixed < 0).sum())
    wrong = inside(x, fixed) & (logits > 0)
    ones, changes = (x * (fixed < 0)).sum(axis=1), n_counted(x, counted, fixed < 0)
    truth = np.zeros((n_free + 1, n_free + 1), dtype=np.int64)
    np.add.at(truth, (ones[wrong], changes[wrong]), 1)
    np.testing.assert_array_equal(found.wrong, truth)
    assert not found.unresolved.any()
    if not wrong.any():
        assert found.fewest is None
        assert found.worst is None
        return
    assert found.fewest is not None
    assert found.worst is not None
    number = 2 ** np.arange(x.shape[1] - 1, -1, -1)
    assert wrong[found.fewest @ number]
    assert changes[found.fewest @ number] == changes[wrong].min()
    assert found.largest == pytest.approx(logits[wrong].max(), abs=1e-3)  # may have been read in float32
    assert logits[found.worst @ number] == pytest.approx(logits[wrong].max(), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_ctx", [1, 7, 11])
def test_every_wrong_input_of_a_box_is_counted(kind: str, n_ctx: int) -> None:
    generator = np.random.default_rng(n_ctx)
    x, n_wrong = all_inputs(n_ctx), 0
    for seed in range(10):
        model = random_model(kind, n_ctx, seed)
        logits = all_logits(model)
        if kind in ("mlp", "linear", "heads"):  # about half of the inputs on each side
            with torch.no_grad():
                output_bias(model).sub_(float(np.median(logits)) + 1e-7)
            logits = all_logits(model)
        make_side = side_maker(model)
        for turn in range(4):
            fixed, counted, _ = random_box(n_ctx, generator)
            if turn == 0:
                fixed[:] = -1
            label = bool(generator.integers(2))
            found = make_side(label, counted).count(fixed)
            assert isinstance(found, Counted)
            check(found, x, -logits if label else logits, fixed, counted)
            n_wrong += int(found.wrong.sum())
    assert n_wrong > 0


def test_three_groups_of_bits() -> None:
    """More free bits than the inner two groups hold, and terms whose own bit is in each."""
    n_ctx = 18
    fixed, counted, x = np.full(n_ctx, -1), np.resize([0, 1, -1], n_ctx), all_inputs(n_ctx)
    for kind, label in (("attention", False), ("heads", True), ("mlp", False)):
        model = random_model(kind, n_ctx, 1, 0.7)
        side = side_maker(model)(label, counted)
        found = side.count(fixed)
        assert isinstance(found, Counted)
        check(found, x, side.logits(x), fixed, counted)


@pytest.mark.parametrize("size", [1.0, 1e10])
def test_values_that_float32_does_not_hold_beside_their_weights(size: float) -> None:
    """Two keys of weight e**70 with values of opposite sign: in float32 the larger two numerators add up to NaN."""
    n_ctx = 6
    score, value = np.zeros((1, 2, n_ctx, 2)), np.full((1, n_ctx, 2), -size)
    score[..., 2, 1], score[..., 4, 1] = 70.5, 70.0
    value[:, 2, 1] = size
    terms = Terms(score, value, np.array([-1]), np.zeros((n_ctx, 2)), 0.0, 1e-12 * size)
    found = count_box(terms, np.full(n_ctx, -1), False, np.full(n_ctx, -1))
    assert isinstance(found, Counted)
    assert found.wrong.sum() == 2 ** (n_ctx - 1)  # those with the first of the two keys


@pytest.mark.parametrize("gap", [50.0, 700.0, 2000.0])
def test_scores_far_apart_are_split_or_counted_right(gap: float) -> None:
    """Beyond what one scale holds, `count` says where to split; the parts are then counted, to the last."""
    n_ctx, generator, n_splits = 6, np.random.default_rng(3), 0
    x = all_inputs(n_ctx)
    for seed in range(6):
        model = random_model("attention", n_ctx, seed)
        assert isinstance(model, HookedAttention)
        tables = attention_terms(model).score
        scale_scores(model, gap / float(np.ptp(tables, axis=(2, 3)).max()))
        logits, terms = all_logits(model), attention_terms(model)
        assert np.ptp(terms.score, axis=(2, 3)).max() == pytest.approx(gap)
        counted = generator.integers(-1, 2, size=n_ctx)
        boxes, total = [np.full(n_ctx, -1)], 0
        while boxes:
            fixed = boxes.pop()
            found = count_box(terms, fixed, False, counted)
            if isinstance(found, int):
                n_splits += 1
                assert fixed[found] < 0
                boxes += [np.where(np.arange(n_ctx) == found, bit, fixed) for bit in (0, 1)]
                continue
            check(found, x, logits, fixed, counted)
            total += 2 ** int((fixed < 0).sum())
        assert total == len(x)
    assert (n_splits > 0) == (gap > 1000)


@pytest.mark.parametrize("kind", ["heads", "mlp", "linear"])
def test_a_logit_within_rounding_is_neither_right_nor_wrong(kind: str) -> None:
    n_ctx = 6
    model = random_model(kind, n_ctx, 8)
    fixed, counted = np.full(n_ctx, -1), np.zeros(n_ctx, dtype=np.int64)
    with torch.no_grad():
        output_bias(model).sub_(float(all_logits(model)[37]))
    for label in (False, True):
        found = side_maker(model)(label, counted).count(fixed)
        assert isinstance(found, Counted)
        ones = int(all_inputs(n_ctx)[37].sum())
        assert found.unresolved.sum() == 1
        assert found.unresolved[ones, n_ctx - ones] == 1
        others = np.delete(all_logits(model), 37)
        assert found.wrong.sum() == ((others < 0) if label else (others > 0)).sum()


def test_float32_is_only_a_sieve() -> None:
    """Logits 1e-12 above or below 0 have float32's sum on either side, and are told apart all the same."""
    n_ctx = 7
    fixed, counted = np.full(n_ctx, -1), np.full(n_ctx, -1)
    for kind in ("heads", "mlp"):
        for seed in range(5):
            model = random_model(kind, n_ctx, seed, 0.3)
            logits = np.sort(all_logits(model))
            at = logits[64]
            for off in (1e-12, -1e-12):
                moved = random_model(kind, n_ctx, seed, 0.3)
                with torch.no_grad():
                    output_bias(moved).sub_(float(at) - off)
                side = side_maker(moved)(False, counted)
                assert side.margin < 5e-13
                found = side.count(fixed)
                assert isinstance(found, Counted)
                assert not found.unresolved.any()
                assert found.wrong.sum() == 128 - 64 - (off < 0)


def test_ratio_side_counts_by_its_label() -> None:
    model = random_model("attention", 5, 4)
    assert isinstance(model, HookedAttention)
    terms, counted, fixed = attention_terms(model), np.full(5, -1), np.full(5, -1)
    false, true = (RatioSide(terms, label, counted).count(fixed) for label in (False, True))
    assert isinstance(false, Counted)
    assert isinstance(true, Counted)
    assert false.wrong.sum() + true.wrong.sum() == 32
