"""Attention models with weights set by hand, whose every number is worked out on paper here, as fractions.

F(1, 4) is one quarter. exp of a score of log 2 is 2, so a pattern's row is that exponent over the row's sum.
"""

import math
from collections.abc import Sequence
from fractions import Fraction as F
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.attention import contributions, effective_attention
from interp.config import AttentionConfig
from interp.hooks import run
from interp.models import HookedAttention
from interp.tables import attention_tables, expected_flip_effect, table_logits
from tests.hand_set import hand_set

SCORES, PATTERN, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("attn_scores", "pattern", "v", "z"))


def assert_equal(actual: Tensor, expected: Any) -> None:
    def numbers(value: Any) -> Any:
        return [numbers(v) for v in value] if isinstance(value, Sequence) else float(value)

    torch.testing.assert_close(
        actual.detach(), torch.tensor(numbers(expected), dtype=torch.float64), rtol=0, atol=1e-13
    )


def without_key(key: int) -> tuple[str, Any]:
    """An edit that removes a key: its scores become -inf, so the others share its weight."""

    def edit(scores: Tensor, hook: Any) -> Tensor:
        scores = scores.clone()
        scores[..., key] = -torch.inf
        return scores

    return SCORES, edit


class TestOneHead:
    """T = 3, d_model = 2: embeddings are (a, bit) with a = 1, 0, 2 at positions 0, 1, 2.

    q = a, k = bit · log 2, v = a + 10 · bit, readout 1, -1, 3. So exp(score) is 2**bit for query 0, 1 for query 1
    and 4**bit for query 2.
    """

    @pytest.fixture
    def model(self) -> HookedAttention:
        return hand_set(
            AttentionConfig(n_ctx=3, d_model=2, d_head=1),
            W_E=[[0, 0], [0, 1]],
            W_pos=[[1, 0], [0, 0], [2, 0]],
            W_Q=[[[1], [0]]],
            W_K=[[[0], [math.log(2)]]],
            W_V=[[[1], [10]]],
            W_readout=[[[1]], [[-1]], [[3]]],
        )

    def test_one_bit(self, model: HookedAttention) -> None:
        logits, cache = run(model, torch.tensor([[1, 0, 0]]), record=model.hook_names)
        log2 = math.log(2)
        assert_equal(cache[SCORES], [[[[log2, 0, 0], [0, 0, 0], [2 * log2, 0, 0]]]])
        pattern = [
            [F(2, 4), F(1, 4), F(1, 4)],
            [F(1, 3), F(1, 3), F(1, 3)],
            [F(4, 6), F(1, 6), F(1, 6)],
        ]
        assert_equal(cache[PATTERN], [[pattern]])
        assert_equal(cache[V], [[[[1 + 10]], [[0]], [[2]]]])
        z = [F(2, 4) * 11 + F(1, 4) * 2, F(11 + 0 + 2, 3), F(4, 6) * 11 + F(1, 6) * 2]
        assert z == [6, F(13, 3), F(23, 3)]
        assert_equal(cache[Z], [[[[value]] for value in z]])
        assert_equal(logits, [1 * 6 - 1 * F(13, 3) + 3 * F(23, 3)])
        assert_equal(logits, [F(74, 3)])

    def test_effective_attention_and_contributions(self, model: HookedAttention) -> None:
        _, cache = run(model, torch.tensor([[1, 0, 0]]), record=[PATTERN, V])
        effective = effective_attention(cache[PATTERN], model.W_readout)
        on_0 = 1 * F(1, 2) - 1 * F(1, 3) + 3 * F(2, 3)
        on_others = 1 * F(1, 4) - 1 * F(1, 3) + 3 * F(1, 6)
        assert (on_0, on_others) == (F(13, 6), F(5, 12))
        assert_equal(effective, [[[[on_0], [on_others], [on_others]]]])
        parts = [on_0 * 11, on_others * 0, on_others * 2]
        assert sum(parts) == F(74, 3)
        assert_equal(contributions(effective, cache[V]), [[parts]])
        # The readout on the wrong side weighs each query's row by the readout of its keys, and misses the logit.
        swapped = effective_attention(cache[PATTERN].mT, model.W_readout)
        rows = [
            F(2, 4) * 1 - F(1, 4) * 1 + F(1, 4) * 3,
            F(1, 3) * 1 - F(1, 3) * 1 + F(1, 3) * 3,
            F(4, 6) * 1 - F(1, 6) * 1 + F(1, 6) * 3,
        ]
        assert_equal(swapped, [[[[row] for row in rows]]])
        assert rows[0] * 11 + rows[1] * 0 + rows[2] * 2 != F(74, 3)

    @pytest.mark.parametrize(
        ("bits", "rows"),
        [
            ((0, 0, 0), [[F(1, 3)] * 3, [F(1, 3)] * 3, [F(1, 3)] * 3]),
            ((1, 1, 0), [[F(2, 5), F(2, 5), F(1, 5)], [F(1, 3)] * 3, [F(4, 9), F(4, 9), F(1, 9)]]),
            ((0, 1, 1), [[F(1, 5), F(2, 5), F(2, 5)], [F(1, 3)] * 3, [F(1, 9), F(4, 9), F(4, 9)]]),
            ((0, 0, 1), [[F(1, 4), F(1, 4), F(2, 4)], [F(1, 3)] * 3, [F(1, 6), F(1, 6), F(4, 6)]]),
            ((1, 1, 1), [[F(1, 3)] * 3, [F(1, 3)] * 3, [F(1, 3)] * 3]),
        ],
    )
    def test_other_inputs(self, model: HookedAttention, bits: tuple[int, int, int], rows: list[list[F]]) -> None:
        x = torch.tensor([bits])
        logits, cache = run(model, x, record=[PATTERN])
        assert_equal(cache[PATTERN], [[rows]])
        values = [1 + 10 * bits[0], 0 + 10 * bits[1], 2 + 10 * bits[2]]
        z = [sum(p * v for p, v in zip(row, values, strict=True)) for row in rows]
        logit = 1 * z[0] - 1 * z[1] + 3 * z[2]
        assert_equal(logits, [logit])
        assert_equal(table_logits(attention_tables(model), x), [logit])

    def test_tables(self, model: HookedAttention) -> None:
        tables = attention_tables(model)
        log2 = math.log(2)
        rows = [[a * bit * log2 for _ in range(3) for bit in (0, 1)] for a in (1, 1, 0, 0, 2, 2)]
        assert_equal(tables.scores, [rows])
        assert_equal(tables.value, [[[1], [11], [0], [10], [2], [12]]])
        assert_equal(tables.readout, [[[1]], [[-1]], [[3]]])
        assert tables.bias == 0

    def test_removing_a_key_renormalises_the_rest(self, model: HookedAttention) -> None:
        x = torch.tensor([[1, 1, 0]])
        before, _ = run(model, x)
        logits, cache = run(model, x, [without_key(0)], record=[PATTERN])
        rows = [[0, F(2, 3), F(1, 3)], [0, F(1, 2), F(1, 2)], [0, F(4, 5), F(1, 5)]]
        assert_equal(cache[PATTERN], [[rows]])
        # v = 11, 10, 2
        left = 1 * (F(2, 3) * 10 + F(1, 3) * 2) - 1 * F(10 + 2, 2) + 3 * (F(4, 5) * 10 + F(1, 5) * 2)
        whole = 1 * F(2 * 11 + 2 * 10 + 2, 5) - 1 * F(11 + 10 + 2, 3) + 3 * F(4 * 11 + 4 * 10 + 2, 9)
        assert (whole, left) == (F(149, 5), F(398, 15))
        assert_equal(before, [whole])
        assert_equal(logits, [left])
        assert_equal(before - logits, [F(49, 15)])
        assert_equal(run(model, x)[0], [whole])

    def test_setting_the_pattern_to_zero_does_not_renormalise(self, model: HookedAttention) -> None:
        def zero_key_0(pattern: Tensor, hook: Any) -> None:
            pattern[..., 0] = 0

        logits, _ = run(model, torch.tensor([[1, 1, 0]]), [(PATTERN, zero_key_0)])
        assert_equal(logits, [1 * F(2 * 10 + 2, 5) - 1 * F(10 + 2, 3) + 3 * F(4 * 10 + 2, 9)])


class TestTwoHeadsWithBiases:
    """T = 2, d_model = 1, the residual stream is the bit; d_value = 2.

    Head 0: q = 1, k = bit · log 3, v = (bit + 1, 2 · bit).
    Head 1: q = 1, k = 5 for both, so attention is even; v = (0, 1 - 4 · bit).
    Readout of (head 0, head 1): position 0 (1, 0), (0, 1); position 1 (0, 1), (5, 2); bias 1/2.
    """

    @pytest.fixture
    def model(self) -> HookedAttention:
        return hand_set(
            AttentionConfig(n_ctx=2, d_model=1, n_heads=2, d_head=1, d_value=2, bias=True),
            W_E=[[0], [1]],
            b_Q=[[1], [1]],
            W_K=[[[math.log(3)]], [[0]]],
            b_K=[[0], [5]],
            W_V=[[[1, 2]], [[0, -4]]],
            b_V=[[1, 0], [0, 1]],
            W_readout=[[[1, 0], [0, 1]], [[0, 1], [5, 2]]],
            b_readout=0.5,
        )

    def test_one_input(self, model: HookedAttention) -> None:
        logits, cache = run(model, torch.tensor([[1, 0]]), record=model.hook_names)
        assert_equal(cache[PATTERN], [[[[F(3, 4), F(1, 4)]] * 2, [[F(1, 2), F(1, 2)]] * 2]])
        assert_equal(cache[V], [[[[2, 2], [0, -3]], [[1, 0], [0, 1]]]])
        z_0 = [F(3, 4) * 2 + F(1, 4) * 1, F(3, 4) * 2 + F(1, 4) * 0]
        z_1 = [0, F(-3 + 1, 2)]
        assert_equal(cache[Z], [[[z_0, z_1], [z_0, z_1]]])
        at_0 = 1 * F(7, 4) + 0 * F(3, 2) + 0 * 0 + 1 * -1
        at_1 = 0 * F(7, 4) + 1 * F(3, 2) + 5 * 0 + 2 * -1
        assert at_0 + at_1 + F(1, 2) == F(3, 4)
        assert_equal(logits, [F(3, 4)])
        effective = effective_attention(cache[PATTERN], model.W_readout)
        head_0 = [[F(3, 4) * 1, F(3, 4) * 1], [F(1, 4) * 1, F(1, 4) * 1]]
        head_1 = [[F(0 + 5, 2), F(1 + 2, 2)], [F(0 + 5, 2), F(1 + 2, 2)]]
        assert_equal(effective, [[head_0, head_1]])
        parts = [
            [F(3, 4) * 2 + F(3, 4) * 2, F(1, 4) * 1 + F(1, 4) * 0],
            [F(5, 2) * 0 + F(3, 2) * -3, F(5, 2) * 0 + F(3, 2) * 1],
        ]
        assert_equal(contributions(effective, cache[V]), [parts])
        assert sum(map(sum, parts)) + F(1, 2) == F(3, 4)

    def test_every_logit(self, model: HookedAttention) -> None:
        # head 0's z, summed with its readout, then head 1's (the readout's 1 + 2 times z), then the bias
        expected = [
            (1 + 0) + 3 * F(1 + 1, 2) + F(1, 2),  # 00
            (F(1 + 3 * 2, 4) + F(0 + 3 * 2, 4)) + 3 * F(1 - 3, 2) + F(1, 2),  # 01
            (F(3 * 2 + 1, 4) + F(3 * 2 + 0, 4)) + 3 * F(-3 + 1, 2) + F(1, 2),  # 10
            (2 + 2) + 3 * F(-3 - 3, 2) + F(1, 2),  # 11
        ]
        x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
        assert_equal(model(x), expected)
        assert_equal(table_logits(attention_tables(model), x), expected)

    def test_zeroing_a_head_leaves_the_other_and_the_bias(self, model: HookedAttention) -> None:
        def zero_head_1(z: Tensor, hook: Any) -> None:
            z[:, :, 1] = 0

        logits, _ = run(model, torch.tensor([[1, 0]]), [(Z, zero_head_1)])
        assert_equal(logits, [F(7, 4) + F(3, 2) + F(1, 2)])


class TestAnd:
    """The AND of bits 0 and 2 of three, right on all 8 inputs by construction.

    Every query gives keys 0, 1, 2 the weights 8/17, 1/17, 8/17; values are the bits; readouts 3, 4, 10 sum to 17.
    So the logit is 8 · x0 + 1 · x1 + 8 · x2 - 25/2, above 0 only where both targets are 1.
    """

    @pytest.fixture
    def model(self) -> HookedAttention:
        return hand_set(
            AttentionConfig(n_ctx=3, d_model=2, d_head=1, bias=True),
            W_E=[[0, 0], [0, 1]],
            W_pos=[[math.log(8), 0], [0, 0], [math.log(8), 0]],
            b_Q=[[1]],
            W_K=[[[1], [0]]],
            W_V=[[[0], [1]]],
            W_readout=[[[3]], [[4]], [[10]]],
            b_readout=-12.5,
        )

    X = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]])
    BOTH = (False, False, False, False, False, True, False, True)

    def test_is_right_on_every_input(self, model: HookedAttention) -> None:
        logits, cache = run(model, self.X, record=[PATTERN])
        assert_equal(cache[PATTERN], [[[[F(8, 17), F(1, 17), F(8, 17)]] * 3]] * 8)
        sums = [0, 8, 1, 1 + 8, 8, 8 + 8, 8 + 1, 8 + 1 + 8]
        assert_equal(logits, [s - F(25, 2) for s in sums])
        assert (logits > 0).tolist() == list(self.BOTH)

    def test_removing_a_target_s_key_breaks_it(self, model: HookedAttention) -> None:
        logits, cache = run(model, self.X, [without_key(0)], record=[PATTERN])
        assert_equal(cache[PATTERN][0, 0, 1], [0, F(1, 9), F(8, 9)])
        sums = [0, 8, 1, 9, 0, 8, 1, 9]
        assert_equal(logits, [17 * F(s, 9) - F(25, 2) for s in sums])
        assert (logits > 0).tolist() == [False, True, False, True, False, True, False, True]

    def test_removing_the_other_key_keeps_it_right(self, model: HookedAttention) -> None:
        logits, _ = run(model, self.X, [without_key(1)])
        sums = [0, 1, 0, 1, 1, 2, 1, 2]
        assert_equal(logits, [17 * F(s, 2) - F(25, 2) for s in sums])
        assert (logits > 0).tolist() == list(self.BOTH)

    def test_flips_change_the_logit_by_the_weights(self, model: HookedAttention) -> None:
        tables = attention_tables(model)
        assert_equal(expected_flip_effect(tables, self.X), [8, 1, 8])
        p = torch.tensor([0.7, 0.2, 0.9], dtype=torch.float64)
        probability = torch.where(self.X == 1, p, 1 - p).prod(dim=1)
        assert_equal(expected_flip_effect(tables, self.X, probability), [8, 1, 8])


def test_expected_flip_effect_weighs_inputs_by_their_probability() -> None:
    """T = 2, only query 0 reads: exp(score) is 2**bit and v = bit, so the logit is 2/3 · 9 where one bit is set."""
    model = hand_set(
        AttentionConfig(n_ctx=2, d_model=1, d_head=1, bias=True),
        W_E=[[0], [1]],
        b_Q=[[1]],
        W_K=[[[math.log(2)]]],
        W_V=[[[1]]],
        W_readout=[[[9]], [[0]]],
    )
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert_equal(model(x), [0, 6, 6, 9])
    # P(bit = 1) is 1/4 at position 0, 1/2 at position 1; a flip of 0 changes 6 beside a 0, 3 beside a 1
    probability = torch.tensor([3 / 8, 3 / 8, 1 / 8, 1 / 8], dtype=torch.float64)
    effects = expected_flip_effect(attention_tables(model), x, probability)
    assert_equal(effects, [F(1, 2) * 6 + F(1, 2) * 3, F(3, 4) * 6 + F(1, 4) * 3])
