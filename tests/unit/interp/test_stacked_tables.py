"""A stack's tables, set by hand: every path through them against a float64 softmax, input by input."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp import stacked_tables
from interp.stacked_tables import (
    TABLES,
    Bits,
    StackedTables,
    largest_score,
    smallest_sum,
    tables_gradient,
    tables_logits,
)

K, N_HEADS, N_CTX = 3, 2, 4
AllInputs = Callable[[int], Tensor]
PRECISIONS = [(torch.float32, 200.0, 1e-4), (torch.float64, 1000.0, 1e-11)]
"""Type, size of the extreme scores, tolerance. A score of 400 has a rounding error of 1.5e-5 in float32."""


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stack_tables(
    d_value: int = 1,
    *,
    dtype: torch.dtype = torch.float64,
    n_models: int = K,
    n_ctx: int = N_CTX,
    seed: int = 0,
    zero: Tensor | None = None,
    growth: Tensor | None = None,
    hi_is_one: Tensor | None = None,
) -> StackedTables:
    """Tables from the scores on the bits 0, `zero` [model, head, 2, dest, src], and those on the bits 1 less these.

    `growth` is [model, head, 2, dest]; hi is bit 1 for both query bits unless `hi_is_one` [2, model] says otherwise.
    """
    zero = draw(seed, n_models, N_HEADS, 2, n_ctx, n_ctx) if zero is None else zero
    growth = draw(seed + 1, n_models, N_HEADS, 2, n_ctx) if growth is None else growth
    value, step = draw(seed + 2, n_models, N_HEADS, d_value, n_ctx), draw(seed + 3, n_models, N_HEADS, d_value)
    hi_is_one = torch.ones(2, n_models, dtype=torch.bool) if hi_is_one is None else hi_is_one
    one = hi_is_one.T[:, None, :]
    tables = {
        "lo": torch.where(one[..., None, None], zero, zero + growth[..., None]),
        "log_ratio": torch.where(one[..., None], growth, -growth),
        "value": torch.where(one[:, :, None, :, None], value[:, :, :, None], (value + step[..., None])[:, :, :, None]),
        "step": torch.where(one[:, :, None], step[..., None], -step[..., None]),
        "readout": draw(seed + 4, n_models, N_HEADS, d_value, n_ctx),
        "bias": draw(seed + 5, n_models),
    }
    return StackedTables(**{name: table.to(dtype) for name, table in tables.items()}, hi_is_one=hi_is_one)


def reference_logits(t: dict[str, Tensor], hi_is_one: Tensor, x: Tensor) -> Tensor:
    """Input by input, query by query, in float64 with torch's softmax."""
    rows = []
    for m in range(len(x)):
        for bits in x[m].tolist():
            logit = t["bias"][m]
            for dest, u in enumerate(bits):
                hi = torch.tensor(bits) == int(hi_is_one[u, m])
                scores = t["lo"][m, :, u, dest] + t["log_ratio"][m, :, u, dest, None] * hi
                value = t["value"][m, :, :, u] + t["step"][m, :, :, u, None] * hi
                z = (scores.softmax(dim=-1)[:, None] * value).sum(dim=-1)
                logit = logit + (t["readout"][m, :, :, dest] * z).sum()
            rows.append(logit)
    return torch.stack(rows).unflatten(0, (len(x), -1))


def inputs(all_inputs: AllInputs, n_models: int = K) -> tuple[Tensor, Tensor]:
    """All inputs in another order for each model, and labels."""
    orders = [torch.randperm(2**N_CTX, generator=torch.Generator().manual_seed(m)) for m in range(n_models)]
    x = torch.stack([all_inputs(N_CTX)[order] for order in orders])
    return x, (x.sum(dim=-1) > 2).double()


def reference(tables: StackedTables, x: Tensor, y: Tensor) -> list[Tensor]:
    """The logits and every table's gradient of the mean binary cross-entropy, in float64."""
    leaves = {name: getattr(tables, name).double().requires_grad_() for name in TABLES}
    logits = reference_logits(leaves, tables.hi_is_one, x)
    loss = binary_cross_entropy_with_logits(logits, y, reduction="none").mean(dim=1).sum()
    return [logits.detach(), *torch.autograd.grad(loss, list(leaves.values()))]


def ours(tables: StackedTables, bits: Bits, y: Tensor) -> list[Tensor]:
    return [tables_logits(tables, bits), *tables_gradient(tables, bits, y.to(tables.lo))]


def check(tables: StackedTables, x: Tensor, y: Tensor, atol: float) -> None:
    found = ours(tables, Bits(x, tables.lo.dtype), y)
    for name, mine, theirs in zip(("logits", *TABLES), found, reference(tables, x, y), strict=True):
        assert mine.dtype == tables.lo.dtype, name
        assert mine.isfinite().all(), name
        error = ((mine.double() - theirs).abs() / (1 + theirs.abs())).max().item()
        assert error <= atol, f"{name}: {error}"


class Paths:
    """The models that were computed in float64, and those through a softmax, one entry a pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plain: list[int] = []
        self.wide: list[list[int]] = []
        self.softmax: list[int] = []
        forward, widened, softmax_pass = stacked_tables.forward, Bits.widened, stacked_tables._softmax_pass

        def count_forward(part: StackedTables, *rest: Any) -> Any:
            self.plain.append(len(part.lo))
            return forward(part, *rest)

        def count_widened(bits: Bits, models: list[int]) -> Bits:
            self.wide.append(models)
            return widened(bits, models)

        def count_softmax(part: StackedTables, x: Tensor) -> Any:
            self.softmax.append(len(x))
            return softmax_pass(part, x)

        monkeypatch.setattr(stacked_tables, "forward", count_forward)
        monkeypatch.setattr(Bits, "widened", count_widened)
        monkeypatch.setattr(stacked_tables, "_softmax_pass", count_softmax)


def growths(*sizes: float) -> Tensor:
    """log-ratios of one model a size; of both signs, so that no choice of hi makes all of them positive."""
    signs = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64).expand(N_HEADS, 2, N_CTX)
    return torch.stack([size * signs for size in sizes])


@pytest.mark.parametrize("hi", [(1, 1), (1, 0), (0, 1), (0, 0)])
@pytest.mark.parametrize("d_value", [1, 5])
class TestWhicheverBitIsHi:
    def test_the_result_is_right(self, d_value: int, hi: tuple[int, int], all_inputs: AllInputs) -> None:
        hi_is_one = torch.tensor(hi)[:, None].expand(2, K).bool()
        x, y = inputs(all_inputs)
        for dtype, atol in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
            check(stack_tables(d_value, dtype=dtype, hi_is_one=hi_is_one), x, y, atol)

    def test_the_logits_are_the_same(self, d_value: int, hi: tuple[int, int], all_inputs: AllInputs) -> None:
        x, _ = inputs(all_inputs)
        mixed = torch.tensor([hi, hi[::-1], (0, 1)]).T.bool()
        both = [tables_logits(stack_tables(d_value, hi_is_one=h), Bits(x, torch.float64)) for h in (None, mixed)]
        torch.testing.assert_close(*both, rtol=0, atol=1e-13)


class TestPaths:
    def test_of_float32(self, monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs) -> None:
        paths, (x, y) = Paths(monkeypatch), inputs(all_inputs)
        check(stack_tables(dtype=torch.float32, growth=growths(1, 12, 50)), x, y, 3e-5)
        assert paths.plain == [3, 2, 3, 2]  # once for the logits, once for the gradient
        assert paths.wide == [[1, 2], [1, 2]]
        assert paths.softmax == [1, 1]

    def test_of_float64(self, monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs) -> None:
        paths, (x, y) = Paths(monkeypatch), inputs(all_inputs)
        check(stack_tables(growth=growths(1, 9, 50)), x, y, 1e-11)
        assert paths.plain == [3, 3]
        assert paths.wide == []
        assert paths.softmax == [1, 1]

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
    def test_each_model_gets_its_own_answer(
        self, order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs
    ) -> None:
        paths, (x, y) = Paths(monkeypatch), inputs(all_inputs)
        growth = growths(*[(1.0, 12.0, 50.0)[i] for i in order])
        check(stack_tables(5, dtype=torch.float32, growth=growth), x, y, 3e-5)
        assert paths.wide == [sorted((order.index(1), order.index(2)))] * 2

    @pytest.mark.parametrize("at_a_time", [1, 2, 3])
    def test_a_few_models_at_a_time(
        self, at_a_time: int, monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs
    ) -> None:
        monkeypatch.setattr(stacked_tables, "AT_A_TIME", at_a_time)
        x, y = inputs(all_inputs, 5)
        tables = stack_tables(dtype=torch.float32, n_models=5, growth=growths(50, 1, 12, 2, 13))
        check(tables, x, y, 3e-5)

    def test_the_limit_in_float32(self, monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs) -> None:
        x, y = inputs(all_inputs)
        around = [
            -torch.tensor(smallest_sum(torch.float32, torch.float32, precise=True)).log().item() + d
            for d in (-0.1, 0.1)
        ]
        paths = Paths(monkeypatch)
        check(stack_tables(dtype=torch.float32, growth=growths(1, *around)), x, y, 1e-4)
        assert paths.wide == [[2], [2]]

    @pytest.mark.parametrize(("dtype", "size", "atol"), PRECISIONS)
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_a_common_offset_takes_no_slower_one(
        self, sign: int, dtype: torch.dtype, size: float, atol: float, monkeypatch: Any, all_inputs: AllInputs
    ) -> None:
        paths, zero = Paths(monkeypatch), draw(0, K, N_HEADS, 2, N_CTX, N_CTX) + sign * size
        check(stack_tables(dtype=dtype, zero=zero, growth=growths(1, 1, 1)), *inputs(all_inputs), atol)
        assert paths.plain == [3, 3]
        assert (paths.wide, paths.softmax) == ([], [])

    def test_sums_that_rounding_made_negative(self) -> None:
        """Σ lo − Σ lo for one query of one input: a little below 0 in some models, with every other sum near 1."""
        n_models, n_ctx = 40, 11
        growth = torch.zeros(n_models, N_HEADS, 2, n_ctx, dtype=torch.float64)
        growth[:, 1, 1, 2] = -60
        x = torch.ones(n_models, 1, n_ctx, dtype=torch.int64)
        for dtype, atol in ((torch.float32, 1e-4), (torch.float64, 1e-11)):
            tables = stack_tables(dtype=dtype, n_models=n_models, n_ctx=n_ctx, growth=growth)
            check(tables, x, x[:, :, 0].double(), atol)


@pytest.mark.parametrize(("dtype", "size", "atol"), PRECISIONS)
class TestExtremeScores:
    @pytest.mark.parametrize("sign", [-1, 1])
    @pytest.mark.parametrize("hi", [0, 1])
    @pytest.mark.parametrize("key", range(N_CTX))
    def test_a_key_that_dominates_while_absent(
        self, key: int, hi: int, sign: int, dtype: torch.dtype, size: float, atol: float, all_inputs: AllInputs
    ) -> None:
        """One bit at `key` is at size, the other at -size; a common step makes the others differ as much."""
        zero = draw(0, K, N_HEADS, 2, N_CTX, N_CTX)
        zero[..., key] += size if sign < 0 else -size
        growth = sign * 2 * size + draw(1, K, N_HEADS, 2, N_CTX)
        hi_is_one = torch.full((2, K), bool(hi))
        check(stack_tables(dtype=dtype, zero=zero, growth=growth, hi_is_one=hi_is_one), *inputs(all_inputs), atol)

    @pytest.mark.parametrize("d_value", [1, 5])
    def test_scores_far_on_both_sides(
        self, d_value: int, dtype: torch.dtype, size: float, atol: float, all_inputs: AllInputs
    ) -> None:
        for seed in range(4):
            generator = torch.Generator().manual_seed(seed)
            zero, growth = draw(seed, K, N_HEADS, 2, N_CTX, N_CTX), draw(seed + 9, K, N_HEADS, 2, N_CTX)
            zero += size * torch.randint(-1, 2, zero.shape, generator=generator)
            growth += size * torch.randint(-1, 2, growth.shape, generator=generator)
            hi_is_one = torch.randint(0, 2, (2, K), generator=generator).bool()
            tables = stack_tables(d_value, dtype=dtype, zero=zero, growth=growth, hi_is_one=hi_is_one)
            check(tables, *inputs(all_inputs), atol)

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_an_extreme_neighbour_or_offset_changes_nothing(
        self, sign: int, dtype: torch.dtype, size: float, atol: float, all_inputs: AllInputs
    ) -> None:
        x, y = inputs(all_inputs)
        zero, growth = draw(0, K, N_HEADS, 2, N_CTX, N_CTX), draw(1, K, N_HEADS, 2, N_CTX)
        alone = ours(stack_tables(dtype=dtype, zero=zero, growth=growth), Bits(x, dtype), y)
        zero[1] += sign * size  # the same for every key: the softmax is what it was
        zero[2, ..., 0] += size
        growth[2] = -3 * size
        together = ours(stack_tables(dtype=dtype, zero=zero, growth=growth), Bits(x, dtype), y)
        for before, after in zip(alone, together, strict=True):
            torch.testing.assert_close(after[0], before[0], rtol=0, atol=atol / 10)
            torch.testing.assert_close(after[1], before[1], rtol=0, atol=atol)
        check(stack_tables(dtype=dtype, zero=zero, growth=growth), x, y, atol)

    def test_around_the_largest_score(
        self, dtype: torch.dtype, size: float, atol: float, all_inputs: AllInputs
    ) -> None:
        for spread in (largest_score(dtype) * 0.99, largest_score(dtype) * 1.01, largest_score(dtype) * 2.1, size):
            zero = torch.zeros(K, N_HEADS, 2, N_CTX, N_CTX, dtype=torch.float64)
            zero[..., 1] = spread
            zero[..., 2] = -spread
            check(stack_tables(dtype=dtype, zero=zero), *inputs(all_inputs), atol)
            for growth in (spread, -spread, 2 * spread):
                shape = (K, N_HEADS, 2, N_CTX)
                growths = torch.full(shape, growth, dtype=torch.float64)
                check(stack_tables(dtype=dtype, growth=growths), *inputs(all_inputs), atol)


def test_a_model_that_is_not_finite_leaves_the_others_alone(all_inputs: AllInputs) -> None:
    x, y = inputs(all_inputs)
    for bad in (float("nan"), float("inf")):
        tables = stack_tables(dtype=torch.float32)
        expected = reference(tables, x, y)
        tables.lo[1, 0, 0, 0, 0] = bad
        for mine, theirs in zip(ours(tables, Bits(x, torch.float32), y), expected, strict=True):
            torch.testing.assert_close(mine[[0, 2]].double(), theirs[[0, 2]], rtol=1e-5, atol=1e-5)
        assert tables_logits(tables, Bits(x, torch.float32))[1].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_leaks_from_one_call_to_the_next(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, all_inputs: AllInputs
) -> None:
    monkeypatch.setattr(stacked_tables, "AT_A_TIME", 2)  # passes of 2 models and of 1
    x, y = inputs(all_inputs)
    some_one = torch.tensor([[1, 0, 1], [0, 0, 1]]).bool()
    cases = [
        stack_tables(dtype=dtype),
        stack_tables(dtype=dtype, seed=20, growth=growths(1, 12, 50), hi_is_one=some_one),
        stack_tables(dtype=dtype, seed=30, growth=growths(50, 2, 1)),
        stack_tables(5, dtype=dtype, seed=40, growth=growths(12, 50, 50)),
        stack_tables(dtype=dtype, seed=50, zero=300 * draw(7, K, N_HEADS, 2, N_CTX, N_CTX), hi_is_one=~some_one),
        stack_tables(dtype=dtype, seed=60, growth=growths(float("inf"), 1, 1)),
    ]
    fresh = [ours(tables, Bits(x, dtype), y) for tables in cases]
    bits = Bits(x, dtype)
    order = [0, 1, 0, 2, 1, 5, 3, 4, 3, 0, 5, 4, 2]
    reused = [ours(cases[i], bits, y) for i in order]
    for i, result in zip(order, reused, strict=True):  # after the last call: results are no views of the memory
        for mine, theirs in zip(result, fresh[i], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    assert not any(torch.equal(fresh[0][0], fresh[i][0]) for i in (1, 2, 3, 4))


def test_tables_are_not_written_to(all_inputs: AllInputs) -> None:
    x, y = inputs(all_inputs)
    tables = stack_tables(dtype=torch.float32, growth=growths(1, 12, 50))
    before = {name: getattr(tables, name).clone() for name in TABLES}
    ours(tables, Bits(x, torch.float32), y)
    for name, table in before.items():
        assert torch.equal(getattr(tables, name), table)
        assert not getattr(tables, name).requires_grad
