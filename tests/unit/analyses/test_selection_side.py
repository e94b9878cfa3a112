"""Which side the targets act on, for models built to act on one, in some rows, on both or on none."""

import math
from collections.abc import Callable
from fractions import Fraction as F
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses.runs import Run
from analyses.selection_side import READ, SelectionSide, selection_sides, why_missed
from interp.config import AttentionConfig
from interp.models import HookedAttention
from interp.recovery import attention_method_scores, flip_scores
from tasks import RuleAnd, SparseAnd, Task
from tests.hand_set import hand_set

TARGETS = (1, 4)


@pytest.fixture
def make(write_run: Callable[..., Run], tmp_path: Path) -> Callable[..., Run]:
    return lambda model, task=None: write_run(tmp_path / "run", model, task or SparseAnd(7, TARGETS))


def only(run: Run) -> SelectionSide:
    (side,) = selection_sides(run)
    return side


def row_model(strong: float, weak: float) -> HookedAttention:
    """Rows of the targets 1 and 4 give the targets 8 times the weight of others, other rows an eighth; values are bits.

    So a target has 8/21 of a target's row and 1/42 of another's, other positions 1/21 and 8/42.
    """
    code = [math.log(8) * (1 if pos in TARGETS else 0) for pos in range(7)]
    return hand_set(
        AttentionConfig(n_ctx=7, d_model=3, d_head=1, bias=True),
        W_E=[[0, 0, 0], [0, 0, 1]],
        W_pos=[[c, 1 if c else -1, 0] for c in code],
        W_Q=[[[0], [1], [0]]],
        W_K=[[[1], [0], [0]]],
        W_V=[[[0], [0], [1]]],
        W_readout=[[[strong if c else weak]] for c in code],
        b_readout=-1.0,
    )


class TestKeys:
    def test_read_in_all_rows(self, make: Callable[..., Run], weighing_model: Callable) -> None:
        """The logit is linear: a flip changes it by its weight, by the value alone."""
        side = only(make(weighing_model([1, 40, 1, 1, 40, 1, 1], 62.5)))
        assert (side.kind, side.target_sides) == ("keys", ("key", "key"))
        assert list(side.shares.values()) == pytest.approx([0, 1, 0])
        np.testing.assert_allclose(side.flips, [[0] * 7, [1, 40, 1, 1, 40, 1, 1], [0] * 7], atol=1e-10)
        assert side.readout_ratio == pytest.approx(1)
        assert [side.attention, side.read_attention] == pytest.approx([80 / 85] * 2)
        assert side.uniform == 2 / 7
        np.testing.assert_allclose(side.by_bit, np.array([[1, 40, 1, 1, 40, 1, 1]] * 2) / 85)
        assert side.by_bit_match == (True, True)
        assert side.read_match
        assert side.why("effective-attention") == ""

    def test_read_in_the_targets_rows(self, make: Callable[..., Run]) -> None:
        """Mean attention has 1/7 · (2 · 8/21 + 5 · 1/42) on each target, less than an even 1/7."""
        run = make(row_model(21, 0))
        side = only(run)
        assert (side.kind, side.target_sides) == ("keys in target rows", ("key", "key"))
        np.testing.assert_allclose(side.flips, [[0] * 7, [2, 16, 2, 2, 16, 2, 2], [0] * 7], atol=1e-10)
        assert math.isinf(side.readout_ratio)
        on_one = F(1, 7) * (2 * F(8, 21) + 5 * F(1, 42))
        assert on_one < F(1, 7)
        assert side.attention == pytest.approx(float(2 * on_one))
        assert side.read_attention == pytest.approx(16 / 21)
        assert side.by_bit_match == (False, False)
        why = side.why("attention")
        assert why.startswith(
            "the targets act as keys (100 % of what their flips change), but in their own rows: only "
        )
        assert "it has 0.25 on the targets, 0.76 with rows weighed by the readout, 0.29 if spread evenly" in why
        assert "onto keys whose bit" not in why
        assert side.why("effective-attention") == ""
        assert why_missed(run, "attention", [0]) == f" T{why[1:]}."
        assert why_missed(run, "ablation", [0]) == ""

    @pytest.mark.parametrize(("strong", "kind"), [(READ - 0.01, "keys"), (READ + 0.01, "keys in target rows")])
    def test_the_threshold_of_the_readout(self, strong: float, kind: str, make: Callable[..., Run]) -> None:
        side = only(make(row_model(21 * strong, 21)))
        assert side.readout_ratio == pytest.approx(strong)
        assert side.flips.sum(axis=0)[list(TARGETS)] == pytest.approx(2 * 8 * strong + 5 * 0.5)
        assert side.kind == kind

    def test_the_ratio_does_not_depend_on_how_scale_is_shared_out(self, make: Callable[..., Run]) -> None:
        """A second head reads its values evenly, with values 1000 times as large and readouts as much smaller."""
        sides = []
        for scale in (1.0, 1000.0):
            model = hand_set(
                AttentionConfig(n_ctx=7, d_model=2, n_heads=2, d_head=1),
                W_E=[[0, 0], [0, 1]],
                W_V=[[[0], [1]], [[0], [scale]]],
                W_readout=[[[3.0 * (pos in TARGETS)], [1 / scale]] for pos in range(7)],
            )
            sides.append(only(make(model)).readout_ratio)
        assert sides == pytest.approx([4, 4])


class TestQueries:
    def test_by_queries_alone(self, make: Callable[..., Run], asking_model: Callable) -> None:
        run = make(asking_model(7, TARGETS, (0, 6)))
        side = only(run)
        assert (side.kind, side.target_sides) == ("queries", ("query", "query"))
        assert list(side.shares.values()) == pytest.approx([1, 0, 0])
        change = 10 * float(F(16, 21) - F(2, 7))
        np.testing.assert_allclose(side.flips[0], [change * (pos in TARGETS) for pos in range(7)], rtol=1e-6, atol=1e-9)
        assert math.isinf(side.readout_ratio)
        assert side.by_bit_match == (False, False)
        for method in ("attention", "effective-attention"):
            assert why_missed(run, method, [0]) == (
                " The targets act as queries: their own queries carry 100 % of what their flips change (their keys and "
                "values 0 %) and only their rows are read, so the pattern onto src is about something else."
            )

    @staticmethod
    def two_sided(asked: float) -> HookedAttention:
        """Head 0 weighs bit 4 with 40 and others with 1; in head 1, query 1 gives 6 8/14 if its bit is 1, else 1/7."""
        return hand_set(
            AttentionConfig(n_ctx=7, d_model=3, n_heads=2, d_head=1, bias=True),
            W_E=[[0, 0, 0], [1, 0, 0]],
            W_pos=[[0, int(pos == 4), int(pos == 6)] for pos in range(7)],
            W_Q=[[[0], [0], [0]], [[1], [0], [0]]],
            b_Q=[[1], [0]],
            W_K=[[[0], [math.log(40)], [0]], [[0], [0], [math.log(8)]]],
            W_V=[[[1], [0], [0]], [[0], [0], [1]]],
            W_readout=[[[46 / 7], [asked * (pos == 1)]] for pos in range(7)],
            b_readout=-70,
        )

    def test_one_by_query_one_by_key(self, make: Callable[..., Run]) -> None:
        side = only(make(self.two_sided(100)))
        assert (side.kind, side.target_sides) == ("both", ("query", "key"))
        query, key = 100 * (F(8, 14) - F(1, 7)), 1 + 40
        whole = query + key
        assert list(side.shares.values()) == pytest.approx([float(query / whole), float(key / whole), 0])
        assert side.why("attention") == (
            "the targets do not act by one side (1 as query, 4 as key; by queries 51 %, by keys and values 49 %)"
        )

    @pytest.mark.parametrize(("by_query", "target_side", "kind"), [(0.98, "key", "keys"), (1.02, "query", "both")])
    def test_the_larger_half_decides(
        self, by_query: float, target_side: str, kind: str, make: Callable[..., Run]
    ) -> None:
        """As key, bit 1 changes the logit by 1."""
        side = only(make(self.two_sided(by_query * 7 / 3)))
        assert side.flips[:2, 1] == pytest.approx([by_query, 1])
        assert (side.kind, side.target_sides) == (kind, (target_side, "key"))


class TestNeither:
    def test_other_positions_are_used(self, make: Callable[..., Run], weighing_model: Callable) -> None:
        side = only(make(weighing_model([1, 1, 40, 1, 1, 40, 1], 62.5)))
        assert side.kind == "neither"
        assert list(side.shares.values()) == pytest.approx([0, 1, 0])
        assert side.why("attention") == ""

    def test_a_constant_has_no_shares(self, make: Callable[..., Run]) -> None:
        side = only(make(hand_set(AttentionConfig(n_ctx=7, d_model=2, bias=True), b_readout=3)))
        assert side.kind == "neither"
        assert all(math.isnan(share) for share in side.shares.values())
        assert math.isnan(side.readout_ratio)
        assert side.attention == pytest.approx(2 / 7)

    def test_without_others_there_is_no_ratio(self, make: Callable[..., Run], weighing_model: Callable) -> None:
        side = only(make(weighing_model([3, 5], 7.0), SparseAnd(2, (0, 1))))
        assert math.isnan(side.readout_ratio)
        assert (side.kind, side.attention) == ("keys", pytest.approx(1))


def test_attention_by_bit_is_the_mean_over_inputs_with_that_bit(
    make: Callable[..., Run], random_attention: Callable[..., HookedAttention]
) -> None:
    run = make(random_attention(7, n_heads=3, d_head=4, d_model=11, seed=5))
    x, side = run.inputs(0), only(run)
    flips = flip_scores(run.model, x)
    np.testing.assert_allclose(side.flips.sum(axis=0), flips.numpy(), rtol=1e-9)
    for bit in (0, 1):
        for pos in range(7):
            chosen = x[x[:, pos] == bit]
            mean: Any = attention_method_scores(run.model, chosen)["attention"][pos]  # pyright: ignore[reportArgumentType]
            assert side.by_bit[bit, pos] == pytest.approx(mean.item())


def test_each_rule_has_its_own_side(make: Callable[..., Run], selecting_model: Callable) -> None:
    """The rule bit's row, the only one read, looks at either rule's targets as keys; it is not among the targets."""
    task: Task = RuleAnd(9, ((1, 4), (2, 6)))
    run = make(selecting_model(9, ((1, 4), (2, 6))), task)
    sides = selection_sides(run)
    assert [side.kind for side in sides] == ["keys", "keys"]
    assert [side.readout_ratio for side in sides] == [0, 0]
    assert [side.rule for side in sides] == [0, 1]
    for side in sides:
        assert list(side.shares.values()) == pytest.approx([0, 1, 0])
        assert side.read_attention == pytest.approx(1, abs=1e-6)
        assert side.flips[0, 8] == pytest.approx(side.flips[:, 8].sum())  # the rule bit acts as query
    assert [side.read_match for side in sides] == [True, True]
    why = why_missed(run, "attention", [0])  # most bits are 1, and their rows look at rule 1's targets
    assert why.startswith(
        " Under rule 0 the targets act as keys (100 % of what their flips change), but in the rows that "
    )
    assert f"it has {sides[0].attention:.2f} on the targets, 1.00 with rows weighed by the readout, 0.22 if" in why
    assert sides[0].attention < 0.5
    assert why_missed(run, "attention", [0, 1]).count(" Under rule ") == 2
    assert why_missed(run, "effective-attention", [0, 1]) == ""
