"""Upper bounds over boxes against the largest logit among all of their inputs."""

import numpy as np
import pytest
import torch

from interp.certify.side import MOST, RatioSide
from interp.certify.terms import Terms, attention_terms
from interp.models import HookedAttention
from tests.unit.interp.certify.certify_cases import (
    KINDS,
    all_inputs,
    all_logits,
    inside,
    n_counted,
    random_box,
    random_model,
    scale_scores,
    side_maker,
)

SPREADS = {
    "attention": (0.3, 1.0, 3.0),
    "sinusoidal": (1.0, 6.0),
    "heads": (0.5, 2.0),
    "mlp": (0.4, 2.0),
    "linear": (1.0,),
}


def largest(logits: np.ndarray, x: np.ndarray, box: tuple[np.ndarray, np.ndarray, int]) -> float:
    """Among the inputs of a box with at most `limit` counted bits at its free positions."""
    fixed, counted, limit = box
    allowed = inside(x, fixed) & (n_counted(x, counted, fixed < 0) <= limit)
    return float(logits[allowed].max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_ctx", [1, 3, 8])
def test_no_input_of_a_box_is_above_its_bound(kind: str, n_ctx: int) -> None:
    generator = np.random.default_rng(n_ctx)
    x = all_inputs(n_ctx)
    looseness = []
    for seed in range(12):
        model = random_model(kind, n_ctx, seed, SPREADS[kind][seed % len(SPREADS[kind])])
        logits, make_side = all_logits(model), side_maker(model)
        for _ in range(8):
            fixed, counted, limit = random_box(n_ctx, generator)
            label = bool(generator.integers(2))
            side = make_side(label, counted)
            (upper,), (best,), _ = side.bound(fixed[None], np.array([limit]))
            truth = largest(-logits if label else logits, x, (fixed, counted, limit))
            assert truth <= upper + side.slack
            assert inside(best[None], fixed).all()
            assert n_counted(best[None], counted, fixed < 0)[0] <= limit
            looseness.append((upper - truth) / np.ptp(logits) if len(x) > 2 else 0.0)
    assert np.median(looseness) < 0.15  # and they say something


@pytest.mark.parametrize("kind", KINDS)
def test_one_input_is_its_own_bound(kind: str) -> None:
    model = random_model(kind, 5, 3)
    x, logits = all_inputs(5).astype(np.int8), all_logits(model)
    side = side_maker(model)(False, np.zeros(5, dtype=np.int8))
    upper, best, _ = side.bound(x, np.zeros(len(x), dtype=np.int64))
    np.testing.assert_allclose(upper, logits, atol=side.slack, rtol=0)
    np.testing.assert_array_equal(best, x)
    np.testing.assert_allclose(side.logits(x), logits, atol=side.margin, rtol=0)


def test_a_single_query_of_known_bit_is_bounded_exactly() -> None:
    """N / D <= z + (N − z D) / D_max holds with equality at the maximiser, and nothing else is relaxed."""
    n_ctx, generator = 7, np.random.default_rng(0)
    x = all_inputs(n_ctx)
    for seed in range(40):
        model = random_model("attention", n_ctx, seed, 0.8)
        assert isinstance(model, HookedAttention)
        with torch.no_grad():
            model.W_readout[1:] = 0
        logits = all_logits(model)
        fixed, counted, limit = random_box(n_ctx, generator)
        fixed[0] = seed % 2
        side = RatioSide(attention_terms(model), False, counted)
        (upper,), (best,), _ = side.bound(fixed[None], np.array([limit]))
        assert len(side.terms.own) == 1
        assert upper == pytest.approx(largest(logits, x, (fixed, counted, limit)), abs=1e-9)
        assert side.logits(best[None])[0] == pytest.approx(upper, abs=1e-9)


def test_a_linear_model_is_bounded_exactly() -> None:
    generator = np.random.default_rng(1)
    x = all_inputs(9)
    for seed in range(40):
        model = random_model("linear", 9, seed)
        fixed, counted, limit = random_box(9, generator)
        (upper,), _, _ = side_maker(model)(True, counted).bound(fixed[None], np.array([limit]))
        assert upper == pytest.approx(largest(-all_logits(model), x, (fixed, counted, limit)), abs=1e-12)


@pytest.mark.parametrize("factor", [200.0, 1000.0])
def test_scores_hundreds_apart(factor: float) -> None:
    """Weights that no single scale fits: what is present in a box is what counts."""
    n_ctx, generator = 6, np.random.default_rng(2)
    x, n_wide = all_inputs(n_ctx), 0
    for seed in range(12):
        model = random_model("attention", n_ctx, seed, 1.0)
        assert isinstance(model, HookedAttention)
        scale_scores(model, factor)
        logits = all_logits(model)
        for _ in range(10):
            fixed, counted, limit = random_box(n_ctx, generator)
            side = RatioSide(attention_terms(model), False, counted)
            n_wide += int(side.signed.wide.any())
            (upper,), _, _ = side.bound(fixed[None], np.array([limit]))
            assert largest(logits, x, (fixed, counted, limit)) <= upper + side.slack
    assert n_wide > 20


@pytest.mark.parametrize("gap", [500.0, 730.0, 3000.0])
def test_logits_do_not_need_one_scale_for_all_inputs(gap: float) -> None:
    n_ctx, x = 6, all_inputs(6)
    for seed in range(8):
        model = random_model("attention", n_ctx, seed)
        assert isinstance(model, HookedAttention)
        scale_scores(model, gap / float(np.ptp(attention_terms(model).score, axis=(2, 3)).max()))
        side = RatioSide(attention_terms(model), False, np.full(n_ctx, -1))
        np.testing.assert_allclose(side.logits(x), all_logits(model), rtol=0, atol=max(side.margin, 1e-9))


def test_numbers_beyond_float64_bound_nothing() -> None:
    """Weights of e**640 times values of 1e60: a right bound would be 1e60, and infinity is one, too."""
    n_ctx = 4
    score, value = np.zeros((1, 2, n_ctx, 2)), np.full((1, n_ctx, 2), -1e60)
    score[..., 1, 1], score[..., 2, 1] = 640.5, 640.0
    value[:, 1, 1] = 1e60
    terms = Terms(score, value, np.array([-1]), np.zeros((n_ctx, 2)), 0.0, 1e-12)
    side = RatioSide(terms, False, np.full(n_ctx, -1))
    assert side.signed.wide.all()
    (upper,), _, _ = side.bound(np.full((1, n_ctx), -1, dtype=np.int8), np.array([MOST]))
    assert upper >= 1e60 * (1 - 1e-9)


def test_boxes_do_not_affect_each_other() -> None:
    generator = np.random.default_rng(4)
    for kind in KINDS:
        side = side_maker(random_model(kind, 6, 5))(True, generator.integers(-1, 2, size=6))
        boxes = np.stack([random_box(6, generator)[0] for _ in range(7)])
        limits = np.array([0, 1, 2, 3, MOST, 0, 5])
        together = side.bound(boxes, limits)
        for i in range(7):
            for one, many in zip(side.bound(boxes[i : i + 1], limits[i : i + 1]), together, strict=True):
                np.testing.assert_array_equal(one[0], many[i])
