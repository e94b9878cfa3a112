"""Scores of every method and fractions recovered, worked out on paper for attention models with weights set by hand."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.attention import effective_attention
from interp.config import AttentionConfig
from interp.hooks import run
from interp.interventions import UnchangedWarning, patch, remove_each_key
from interp.models import HookedAttention
from interp.patching import patch_positions_from, recovered
from interp.recovery import attention_method_scores, flip_scores, rank
from interp.tables import attention_tables, expected_flip_effect
from tests.hand_set import hand_set

PATTERN, Q, K, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("pattern", "q", "k", "v", "z"))


def assert_equal(actual: Tensor | np.ndarray, expected: Any) -> None:
    def numbers(value: Any) -> Any:
        return [numbers(v) for v in value] if isinstance(value, Sequence) else float(value)

    np.testing.assert_allclose(np.asarray(actual), numbers(expected), rtol=0, atol=1e-12)


class TestQuarters:
    """T = 3: q = 1, 0, 2 by position, exp(k) = 2**bit, v = 1, 0, 2 by position + 10 · bit, readout 1, -1, 3.

    On 010 query 0's pattern is 1/4, 1/2, 1/4, query 1's 1/3, 1/3, 1/3 and query 2's 1/6, 4/6, 1/6; on 000 all are 1/3.
    """

    CLEAN, CORRUPTED = torch.tensor([[0, 1, 0]]), torch.tensor([[0, 0, 0]])

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

    def fractions(self, model: HookedAttention, hook: str) -> np.ndarray:
        clean, corrupted = (run(model, x)[0].numpy() for x in (self.CLEAN, self.CORRUPTED))
        rows = patch_positions_from(model, self.CORRUPTED, self.CLEAN, hook).numpy()
        return recovered(rows[:, 0], corrupted.repeat(3), clean.repeat(3))

    def test_clean_and_corrupted(self, model: HookedAttention) -> None:
        _, cache = run(model, self.CLEAN, record=[PATTERN])
        assert_equal(cache[PATTERN][0, 0], [[F(1, 4), F(1, 2), F(1, 4)], [F(1, 3)] * 3, [F(1, 6), F(4, 6), F(1, 6)]])
        z = [F(1, 4) * 1 + F(1, 2) * 10 + F(1, 4) * 2, F(1 + 10 + 2, 3), F(1, 6) * 1 + F(4, 6) * 10 + F(1, 6) * 2]
        assert 1 * z[0] - 1 * z[1] + 3 * z[2] == F(275, 12)
        assert_equal(run(model, self.CLEAN)[0], [F(275, 12)])
        assert_equal(run(model, self.CORRUPTED)[0], [1 * 1 - 1 * 1 + 3 * 1])

    WHOLE = F(275, 12) - 3

    def test_embeddings_bring_back_everything_at_the_flipped_position(self, model: HookedAttention) -> None:
        assert_equal(self.fractions(model, "hook_embed"), [0, 1, 0])

    def test_values(self, model: HookedAttention) -> None:
        patched = (1 - 1 + 3) * F(1 + 10 + 2, 3)  # patterns of 000
        assert_equal(self.fractions(model, V), [0, (patched - 3) / self.WHOLE, 0])
        assert (patched - 3) / self.WHOLE == F(120, 239)

    def test_keys(self, model: HookedAttention) -> None:
        patched = 1 * (F(1, 4) * 1 + F(1, 4) * 2) - 1 * F(1 + 0 + 2, 3) + 3 * (F(1, 6) * 1 + F(1, 6) * 2)
        assert_equal(self.fractions(model, K), [0, (patched - 3) / self.WHOLE, 0])
        assert (patched - 3) / self.WHOLE == F(-21, 239)

    def test_rows_of_the_pattern(self, model: HookedAttention) -> None:
        by_row = [1 * (F(1 + 2, 4) - 1), 0, 3 * (F(1 + 2, 6) - 1)]
        assert_equal(self.fractions(model, PATTERN), [part / self.WHOLE for part in by_row])
        assert sum(by_row) / self.WHOLE == F(-21, 239)  # together what the key does

    def test_z(self, model: HookedAttention) -> None:
        by_row = [1 * (F(23, 4) - 1), -1 * (F(13, 3) - 1), 3 * (F(43, 6) - 1)]
        assert sum(by_row) == self.WHOLE
        assert_equal(self.fractions(model, Z), [part / self.WHOLE for part in by_row])

    def test_queries_do_not_differ(self, model: HookedAttention) -> None:
        with pytest.warns(UnchangedWarning, match="hook_q changes no activation on these 1 inputs"):
            assert_equal(self.fractions(model, Q), [0, 0, 0])

    def test_removing_each_key(self, model: HookedAttention) -> None:
        # values 1, 10, 2; the two keys left share 1/3 : 2/3, 1/2 : 1/2 and 1/5 : 4/5 by query
        without_0 = 1 * F(2 * 10 + 1 * 2, 3) - 1 * F(10 + 2, 2) + 3 * F(4 * 10 + 1 * 2, 5)
        without_1 = (1 - 1 + 3) * F(1 + 2, 2)
        without_2 = 1 * F(1 * 1 + 2 * 10, 3) - 1 * F(1 + 10, 2) + 3 * F(1 * 1 + 4 * 10, 5)
        assert_equal(remove_each_key(model, self.CLEAN)[:, 0], [without_0, without_1, without_2])
        scores = attention_method_scores(model, self.CLEAN)
        effects = [abs(without - F(275, 12)) for without in (without_0, without_1, without_2)]
        assert_equal(scores["ablation"], effects)
        assert_equal(scores["attention"], [F(1, 3) * (F(1, 4) + F(1, 3) + F(1, 6)), F(1, 2), F(1, 4)])

    def test_flipping_each_bit(self, model: HookedAttention, all_inputs: Callable[[int], Tensor]) -> None:
        assert_equal(flip_scores(model, self.CLEAN)[1], F(275, 12) - 3)
        weights = expected_flip_effect(attention_tables(model, torch.float64), all_inputs(3)).detach()
        torch.testing.assert_close(flip_scores(model, all_inputs(3)), weights)


class TestKeysSelect:
    """The AND of bits 0 and 2: every query gives keys 0, 1, 2 the weights 8/17, 1/17, 8/17; values are the bits.

    Readouts sum to 17, so the logit is 8 · x0 + 1 · x1 + 8 · x2 - 25/2.
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

    def test_scores(self, model: HookedAttention, all_inputs: Callable[[int], Tensor]) -> None:
        x = all_inputs(3)
        scores = attention_method_scores(model, x)
        assert_equal(scores["attention"], [F(8, 17), F(1, 17), F(8, 17)])
        assert_equal(scores["effective-attention"], [8, 1, 8])
        assert_equal(scores["contribution"], [F(8 * 8, 4), F(1, 4), F(8 * 8, 4)])  # a fair bit's variance is 1/4
        assert_equal(flip_scores(model, x), [8, 1, 8])
        assert_equal(expected_flip_effect(attention_tables(model), x).detach(), [8, 1, 8])
        whole = [8 * x0 + x1 + 8 * x2 for x0 in (0, 1) for x1 in (0, 1) for x2 in (0, 1)]
        left = {
            0: [17 * F(x1 + 8 * x2, 9) for x0 in (0, 1) for x1 in (0, 1) for x2 in (0, 1)],
            1: [17 * F(8 * x0 + 8 * x2, 16) for x0 in (0, 1) for x1 in (0, 1) for x2 in (0, 1)],
            2: [17 * F(8 * x0 + x1, 9) for x0 in (0, 1) for x1 in (0, 1) for x2 in (0, 1)],
        }
        expected = [sum(abs(a - b) for a, b in zip(left[pos], whole, strict=True)) / F(8) for pos in range(3)]
        assert_equal(scores["ablation"], expected)
        assert expected == [4, F(1, 2), 4]

    def test_contributions_are_variances_under_any_distribution(self, model: HookedAttention) -> None:
        x = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 1], [0, 0, 1]])  # ones: 3/4, 1/4, all
        variances = [8 * 8 * F(3, 4) * F(1, 4), F(1, 4) * F(3, 4), 0]
        assert_equal(attention_method_scores(model, x)["contribution"], variances)


class TestQueriesSelect:
    """The AND of bits 1 and 3 of five, by a model whose attention never looks at them more than at other bits.

    Keys 0 and 4 have value 1, the others 0, whatever their bits. A query whose bit is 0 attends evenly; one whose bit
    is 1 gives keys 0 and 4 8/19 each and the others 1/19. So its z is 2/5 or 16/19. Only queries 1 and 3 are read,
    with 95 each: 38 or 80. The logit is their sum - 139: -63, -21 or 21.
    """

    @pytest.fixture
    def model(self) -> HookedAttention:
        sink = [[0, 1], [0, 0], [0, 0], [0, 0], [0, 1]]
        return hand_set(
            AttentionConfig(n_ctx=5, d_model=2, d_head=1, bias=True),
            W_E=[[0, 0], [1, 0]],
            W_pos=sink,
            W_Q=[[[1], [0]]],
            W_K=[[[0], [math.log(8)]]],
            W_V=[[[0], [1]]],
            W_readout=[[[0]], [[95]], [[0]], [[95]], [[0]]],
            b_readout=-139,
        )

    def test_is_right_on_every_input(self, model: HookedAttention, all_inputs: Callable[[int], Tensor]) -> None:
        x = all_inputs(5)
        logits, cache = run(model, x, record=[PATTERN])
        assert_equal(logits, [[-63, -21, 21][int(row[1] + row[3])] for row in x])
        assert_equal(cache[PATTERN][0, 0], [[F(1, 5)] * 5] * 5)
        assert_equal(cache[PATTERN][-1, 0], [[F(8, 19), F(1, 19), F(1, 19), F(1, 19), F(8, 19)]] * 5)

    def test_scores(self, model: HookedAttention, all_inputs: Callable[[int], Tensor]) -> None:
        x = all_inputs(5)
        scores = attention_method_scores(model, x)
        on_sink, on_other = (F(1, 5) + F(8, 19)) / 2, (F(1, 5) + F(1, 19)) / 2
        assert_equal(scores["attention"], [on_sink, on_other, on_other, on_other, on_sink])
        assert_equal(scores["effective-attention"], [59, 24, 24, 24, 59])
        assert (190 * on_sink, 190 * on_other) == (59, 24)
        # On key 0 two independent terms, each 95/5 or 95 · 8/19: half the difference is the standard deviation
        variance = 2 * (F(95 * 8, 19) / 2 - F(95, 5) / 2) ** 2
        assert_equal(scores["contribution"], [variance, 0, 0, 0, variance])
        assert variance == F(441, 2)
        # Without key 0: z is 1/4 or 8/11, both below 2/5 and 16/19. Without key 1, 2 or 3: 2/4 or 16/18, both above.
        without_sink = 95 * (F(2, 5) - F(1, 4)) + 95 * (F(16, 19) - F(8, 11))
        without_other = 95 * (F(2, 4) - F(2, 5)) + 95 * (F(16, 18) - F(16, 19))
        assert_equal(scores["ablation"], [without_sink, without_other, without_other, without_other, without_sink])
        assert (without_sink, without_other) == (F(1107, 44), F(251, 18))
        flips = [0, 42, 0, 42, 0]
        assert_equal(flip_scores(model, x), flips)
        assert_equal(expected_flip_effect(attention_tables(model), x).detach(), flips)

    def test_only_patching_and_the_weights_find_the_targets(
        self, model: HookedAttention, all_inputs: Callable[[int], Tensor]
    ) -> None:
        scores = {**attention_method_scores(model, all_inputs(5)), "patching": flip_scores(model, all_inputs(5))}
        tops = {method: set(rank(s.numpy(), range(5), 2).top) for method, s in scores.items()}
        assert tops.pop("patching") == {1, 3}
        assert len(tops) == 4
        assert all(top == {0, 4} for top in tops.values())

    def test_a_query_carries_its_bit(self, model: HookedAttention) -> None:
        clean, corrupted = torch.tensor([[1, 1, 0, 1, 0]]), torch.tensor([[1, 0, 0, 1, 0]])
        for hook in (Q, PATTERN, Z, "hook_embed"):
            rows = patch_positions_from(model, corrupted, clean, hook)
            assert_equal(rows[:, 0], [-21, 21, -21, -21, -21])
        for hook in (K, V):
            with pytest.warns(UnchangedWarning):
                assert_equal(patch_positions_from(model, corrupted, clean, hook)[:, 0], [-21] * 5)

    def test_a_zeroed_z_leaves_the_bias(self, model: HookedAttention) -> None:
        x = torch.tensor([[1, 1, 1, 1, 1]])
        zero = torch.zeros(1, 5, 1, 1)
        assert_equal(run(model, x, [patch(Z, zero)])[0], [-139])
        assert_equal(run(model, x, [patch(Z, zero, pos=1)])[0], [80 - 139])

    def test_effective_attention_needs_the_right_side(self, model: HookedAttention) -> None:
        """All its effective attention is on the sinks; on the wrong side of the pattern it would be even."""
        _, cache = run(model, torch.tensor([[1, 1, 1, 1, 1]]), record=[PATTERN])
        readout = model.W_readout.detach()
        right = effective_attention(cache[PATTERN], readout)[0, 0, :, 0]
        wrong = effective_attention(cache[PATTERN].mT, readout)[0, 0, :, 0]
        assert_equal(right, [2 * 95 * F(8, 19), 10, 10, 10, 2 * 95 * F(8, 19)])
        assert_equal(wrong, [2 * 95 * F(1, 19)] * 5)
