"""The pure functions of interp/attention.py against formulas, loops and torch's own attention."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp.attention import (
    attention_scores,
    contributions,
    effective_attention,
    gain_attention,
    scaled_dot_product_attention,
    self_attention,
    sinusoidal_encoding,
)
from interp.errors import BoolensError


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def exercise_1() -> tuple[Tensor, Tensor]:
    """x and q of the tutorial's Exercise 1."""
    x = torch.linspace(0, 2 * math.pi, 20, dtype=torch.float64).sin() + 0.1 * normal(20)
    q1 = 1 - torch.linspace(-3, 7, 20, dtype=torch.float64).sigmoid()
    q2 = torch.linspace(-7, 3, 20, dtype=torch.float64).sigmoid()
    return x, torch.stack([q1 / q1.sum(), q2 / q2.sum()])


def entropy(w: Tensor) -> float:
    return -(w * w.log()).sum().item()


def test_shapes_are_checked_in_these_tests() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        effective_attention(torch.zeros(2, 3, 5, 5), torch.zeros(4, 3, 1))


class TestGainAttention:
    @pytest.mark.parametrize("z", [(0.0, 0.0), (30.0, 0.0), (0.0, 80.0), (50.0, 50.0), (-20.0, 40.0)])
    def test_is_the_formula(self, z: tuple[float, float]) -> None:
        x, q = exercise_1()
        weights, y = gain_attention(x, q, torch.tensor(z, dtype=torch.float64))
        raised = [math.exp(z[0] * q[0, j] + z[1] * q[1, j]) for j in range(20)]
        expected = [r / sum(raised) for r in raised]
        torch.testing.assert_close(weights.tolist(), expected, rtol=1e-12, atol=0)
        assert y.item() == pytest.approx(sum(w * float(v) for w, v in zip(expected, x, strict=True)), rel=1e-12)

    def test_no_gain_spreads_evenly(self) -> None:
        x, q = exercise_1()
        weights, y = gain_attention(x, q, torch.zeros(2, dtype=torch.float64))
        torch.testing.assert_close(weights, torch.full((20,), 1 / 20, dtype=torch.float64))
        torch.testing.assert_close(y, x.mean())

    @pytest.mark.parametrize("direction", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
    def test_larger_gains_are_sparser(self, direction: tuple[float, float]) -> None:
        x, q = exercise_1()
        unit = torch.tensor(direction, dtype=torch.float64)
        entropies = [entropy(gain_attention(x, q, gain * unit)[0]) for gain in (0, 5, 20, 80, 320, 1280)]
        assert entropies[0] == pytest.approx(math.log(20))
        assert all(low < high - 1e-4 for high, low in itertools.pairwise(entropies))

    def test_each_gain_attends_where_its_pattern_is(self) -> None:
        x, q = exercise_1()
        strong = 1000 * torch.eye(2, dtype=torch.float64)
        assert [int(gain_attention(x, q, z)[0].argmax()) for z in strong] == [0, 19]

    def test_batches_keep_their_axes(self) -> None:
        x, q, z = normal(2, 3, 5), normal(4, 5, seed=1), normal(2, 3, 4, seed=2)
        weights, y = gain_attention(x, q, z)
        assert weights.shape == (2, 3, 5)
        assert y.shape == (2, 3)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
        alone = gain_attention(x[1, 2], q, z[1, 2])
        torch.testing.assert_close((weights[1, 2], y[1, 2]), alone)

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        ("x", "q", "z"), [((20,), (2, 19), (2,)), ((20,), (2, 20), (3,)), ((4, 20), (20, 2), (2,))]
    )
    def test_shapes_that_do_not_fit(self, x: tuple[int, ...], q: tuple[int, ...], z: tuple[int, ...]) -> None:
        with pytest.raises(BoolensError, match="do not fit") as error:
            gain_attention(normal(*x), normal(*q), normal(*z))
        assert all(str(shape) in str(error.value) for shape in (x, q, z))


class TestDotProducts:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("batch", [(), (2,), (2, 3), (0,), (1,)])
    def test_agrees_with_torch(self, batch: tuple[int, ...], dtype: torch.dtype) -> None:
        q, k, v = (
            normal(*batch, *shape, seed=seed, dtype=dtype) for seed, shape in enumerate([(4, 7), (5, 7), (5, 6)])
        )
        ours = scaled_dot_product_attention(q, k, v)
        assert ours.shape == (*batch, 4, 6)
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, torch.nn.functional.scaled_dot_product_attention(q, k, v))

    @pytest.mark.parametrize(("pos", "d_head", "d_model"), [(5, 7, 11), (5, 13, 4), (1, 3, 2), (6, 1, 1)])
    def test_self_attention_keeps_the_shape(self, pos: int, d_head: int, d_model: int) -> None:
        x = normal(pos, d_model)
        W_Q, W_K, W_V = (normal(d_model, width, seed=width + 1) for width in (d_head, d_head, d_model))
        W_K = W_K.flip(0)
        out = self_attention(x, W_Q, W_K, W_V)
        assert out.shape == (pos, d_model)
        scores = [[sum((x[i] @ W_Q) * (x[j] @ W_K)) / math.sqrt(d_head) for j in range(pos)] for i in range(pos)]
        for row, dest in zip(scores, out, strict=True):
            raised = [math.exp(s) for s in row]
            expected = sum(r / sum(raised) * (x[j] @ W_V) for j, r in enumerate(raised))
            torch.testing.assert_close(dest, expected)

    def test_self_attention_of_a_batch_with_narrow_values(self) -> None:
        x, weights = normal(2, 5, 11), (normal(11, 7), normal(11, 7, seed=1), normal(11, 4, seed=2))
        out = self_attention(x, *weights)
        assert out.shape == (2, 5, 4)
        torch.testing.assert_close(out[1], self_attention(x[1], *weights))

    def test_scores_are_scaled_products(self) -> None:
        q, k = normal(2, 5, 3, 7), normal(2, 5, 3, 7, seed=1)
        scores = attention_scores(q, k)
        assert scores.shape == (2, 3, 5, 5)
        assert scores[1, 2, 3, 4].item() == pytest.approx((q[1, 3, 2] @ k[1, 4, 2]).item() / math.sqrt(7))
        assert scores[0, 1, 4, 0].item() == pytest.approx((q[0, 4, 1] @ k[0, 0, 1]).item() / math.sqrt(7))

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(("k", "v"), [((5, 8), (5, 6)), ((5, 7), (4, 6))])
    def test_shapes_that_do_not_fit(self, k: tuple[int, int], v: tuple[int, int]) -> None:
        with pytest.raises(BoolensError, match=r"do not fit: q \(4, 7\), k") as error:
            scaled_dot_product_attention(normal(4, 7), normal(*k), normal(*v))
        assert str(k) in str(error.value)
        assert str(v) in str(error.value)


class TestSinusoidalEncoding:
    @pytest.mark.parametrize("n_ctx", [1, 2, 5, 30])
    @pytest.mark.parametrize("d_model", [1, 2, 3, 7, 8, 11])
    def test_is_the_paper_s(self, n_ctx: int, d_model: int) -> None:
        expected = torch.zeros(n_ctx, d_model)
        for pos in range(n_ctx):
            for i in range(0, d_model, 2):
                angle = pos / 10000 ** (i / d_model)
                expected[pos, i] = math.sin(angle)
                if i + 1 < d_model:
                    expected[pos, i + 1] = math.cos(angle)
        encoding = sinusoidal_encoding(n_ctx, d_model)
        assert encoding.dtype == torch.get_default_dtype()
        torch.testing.assert_close(encoding, expected, rtol=0, atol=1e-7)

    def test_positions_differ(self) -> None:
        encoding = sinusoidal_encoding(200, 2)
        distance = torch.cdist(encoding[None], encoding[None])[0] + torch.eye(200)
        assert distance.min() > 1e-3

    @pytest.mark.parametrize(("n_ctx", "d_model"), [(0, 2), (5, 0), (-1, 3)])
    def test_empty_sizes(self, n_ctx: int, d_model: int) -> None:
        with pytest.raises(BoolensError, match=f"n_ctx = {n_ctx}, d_model = {d_model}; both must be at least 1"):
            sinusoidal_encoding(n_ctx, d_model)


class TestEffectiveAttention:
    def test_sums_over_dest(self) -> None:
        pattern, readout = normal(2, 3, 5, 5).softmax(dim=-1), normal(5, 3, 4, seed=1)
        effective = effective_attention(pattern, readout)
        assert effective.shape == (2, 3, 5, 4)
        for b, h, s, d in [(0, 0, 0, 0), (1, 2, 4, 3), (1, 0, 3, 2)]:
            expected = sum(readout[dest, h, d] * pattern[b, h, dest, s] for dest in range(5))
            torch.testing.assert_close(effective[b, h, s, d], expected)

    def test_contributions_sum_over_d_value(self) -> None:
        effective, value = normal(2, 3, 5, 4), normal(2, 5, 3, 4, seed=1)
        contribution = contributions(effective, value)
        assert contribution.shape == (2, 3, 5)
        torch.testing.assert_close(contribution[1, 2, 3], (effective[1, 2, 3] * value[1, 3, 2]).sum())

    @pytest.mark.parametrize("bias", [False, True])
    @pytest.mark.parametrize(
        ("n_ctx", "n_heads", "d_value"), [(1, 1, 1), (1, 3, 4), (4, 1, 1), (5, 1, 4), (5, 3, 1), (6, 3, 4)]
    )
    def test_contributions_add_up_to_every_logit(
        self,
        n_ctx: int,
        n_heads: int,
        d_value: int,
        bias: bool,
        all_inputs: Callable[[int], Tensor],
        random_attention: Callable[..., Any],
    ) -> None:
        model = random_attention(n_ctx, d_model=11, d_head=7, n_heads=n_heads, d_value=d_value, bias=bias)
        logits, cache = model.run_with_cache(all_inputs(n_ctx))
        pattern, value = cache["blocks.0.attn.hook_pattern"], cache["blocks.0.attn.hook_v"]
        contribution = contributions(effective_attention(pattern, model.W_readout), value)
        assert contribution.shape == (2**n_ctx, n_heads, n_ctx)
        constant = model.b_readout if bias else 0
        torch.testing.assert_close(contribution.sum(dim=(1, 2)) + constant, logits, rtol=1e-12, atol=1e-12)
        # The tutorial's graph has the readout on the other side, and that is not the logit.
        swapped = contributions(effective_attention(pattern.transpose(2, 3), model.W_readout), value)
        if n_ctx > 1:
            assert (swapped.sum(dim=(1, 2)) + constant - logits).abs().min() > 1e-6
