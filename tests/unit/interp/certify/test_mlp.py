"""GELU between two lines, intervals under a limit, and what an MLP's side refuses."""

from typing import Any

import numpy as np
import pytest
import torch

from interp.certify.branch import Budget, climb_from, prove
from interp.certify.gelu import BEND, gelu, line_above, line_below, slope, touches
from interp.certify.mlp import MLPSide, intervals
from interp.certify.side import MOST
from interp.config import MLPConfig
from interp.errors import BoolensError
from interp.models import HookedMLP
from tests.unit.interp.certify.certify_cases import all_inputs, all_logits, inside, n_counted, random_box, random_model

ENDS = np.array([-40.0, -9.0, -3.0, -BEND, -1.41, -0.7518, -0.1, 0.0, 0.3, 1.0, BEND, 1.42, 2.0, 5.0, 30.0])


def line(which: Any, low: float, high: float, p: float) -> tuple[float, float]:
    return which(touches(), low, high, gelu(low), gelu(high), slope(low), slope(high), p)


def pairs() -> list[tuple[float, float]]:
    random = np.sort(np.random.default_rng(0).normal(0, 2.5, (150, 2)), axis=1)
    return [(a, b) for a in ENDS for b in ENDS if a <= b] + [(float(a), float(b)) for a, b in random]


def test_lines_hold_over_the_whole_interval() -> None:
    for low, high in pairs():
        z = np.linspace(low, high, 401)
        curve = np.array([gelu(each) for each in z])
        for p in (low, 0.7 * low + 0.3 * high, (low + high) / 2, high, low - 3, 1.5):
            for which, sign in ((line_above, 1), (line_below, -1)):
                s, c = line(which, low, high, p)
                gap = sign * (s * z + c - curve)
                assert gap.min() >= -1e-13 * (1 + abs(low) + abs(high))


def test_lines_are_tight() -> None:
    """At a point they are within 1e-4 of the envelope: the best convex combination of the curve around the point."""
    for low, high in np.sort(np.random.default_rng(1).normal(0, 3, (60, 2)), axis=1):
        z = np.linspace(low, high, 161)
        curve = np.array([gelu(each) for each in z])
        p = low + 0.37 * (high - low)
        left, right = z[z < p], z[z >= p]
        share = (right[None] - p) / (right[None] - left[:, None])
        chords = share * curve[z < p][:, None] + (1 - share) * curve[z >= p][None]
        for which, envelope in ((line_above, chords.max()), (line_below, chords.min())):
            s, c = line(which, low, high, p)
            assert s * p + c == pytest.approx(envelope, abs=1e-4 + 0.4 * (z[1] - z[0]) ** 2)


def test_intervals_are_the_extremes_among_inputs_with_so_many_counted_bits() -> None:
    n_ctx, generator = 7, np.random.default_rng(2)
    x = all_inputs(n_ctx)
    for seed in range(40):
        model = random_model("mlp", n_ctx, seed)
        assert isinstance(model, HookedMLP)
        fixed, counted, limit = random_box(n_ctx, generator)
        side = MLPSide(model, False, counted)
        base, low, high = np.empty((3, 13))
        intervals(side.neurons, fixed, limit, base, low, high)
        allowed = inside(x, fixed) & (n_counted(x, counted, fixed < 0) <= limit)
        pre = (x @ side.weights.W_in + side.weights.b_in)[allowed]
        np.testing.assert_allclose(low, pre.min(axis=0), atol=1e-13)
        np.testing.assert_allclose(high, pre.max(axis=0), atol=1e-13)


def test_climbing_ends_where_no_single_flip_helps() -> None:
    model = random_model("mlp", 8, 4)
    side, fixed = MLPSide(model, True, np.zeros(8, dtype=np.int8)), np.array([-1, 1, -1, -1, 0, -1, -1, -1])  # pyright: ignore[reportArgumentType]
    starts = np.where(fixed < 0, np.random.default_rng(0).integers(2, size=(5, 8)), fixed)
    reached, logit = side.climb(starts, fixed)
    assert inside(reached, fixed).all()
    logits, number = -all_logits(model), 2 ** np.arange(7, -1, -1)
    for bits, value, start in zip(reached, logit, starts, strict=True):
        assert value == pytest.approx(logits[bits @ number])
        assert value >= logits[start @ number]
        assert all(logits[(bits @ number) ^ number[k]] <= value + 1e-12 for k in np.flatnonzero(fixed < 0))


def test_proofs_over_2_to_the_26_inputs_end() -> None:
    """A network with one neuron that computes the AND of three bits, among ten of small random weights."""
    n_ctx, targets = 26, [2, 9, 20]
    generator = torch.Generator().manual_seed(0)
    model = HookedMLP(MLPConfig(n_ctx, d_mlp=11)).double().requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1, generator=generator)
        model.mlp.W_in[:, 0] = 0
        model.mlp.W_in[targets, 0] = 4
        model.mlp.b_in[0] = -10  # 2 at three ones, else at most −2
        model.mlp.W_out[0] = 4
        model.mlp.W_out[1:] *= 0.5
        model.mlp.b_out.fill_(-4)
    fixed = np.full(n_ctx, -1, dtype=np.int8)
    for label, bits in ((True, (1, 1, 1)), (False, (0, -1, -1)), (False, (1, 0, -1)), (False, (1, 1, 0))):
        box = fixed.copy()
        box[targets] = bits
        side = MLPSide(model, label, np.zeros(n_ctx, dtype=np.int8))
        assert prove(side, [box], Budget(2000)).proven
        assert climb_from(side, box, np.random.default_rng(0), 5).counterexample is None
    wrong = prove(MLPSide(model, True, np.zeros(n_ctx, dtype=np.int8)), [fixed], Budget(2000), MOST)
    assert wrong.counterexample is not None
    assert float(model(torch.as_tensor(wrong.counterexample[None]))) < 0


def test_weights_that_are_not_finite_are_refused() -> None:
    model = HookedMLP(MLPConfig(3, d_mlp=2))
    with torch.no_grad():
        model.mlp.W_in[1, 1] = torch.inf
    with pytest.raises(BoolensError, match="the largest weight is inf: nothing can be said"):
        MLPSide(model, False, np.zeros(3, dtype=np.int8))
