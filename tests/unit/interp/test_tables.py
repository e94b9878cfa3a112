"""The exact tables against the model itself, against a float64 softmax where scores are extreme, and by brute force."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.config import AttentionConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.models import HookedAttention
from interp.tables import Tables, attention_tables, columns, expected_flip_effect, safe_shift, table_logits

# n_ctx, then fields of AttentionConfig
CONFIGS: list[tuple[int, dict[str, Any]]] = [
    (1, {}),
    (1, {"n_heads": 3, "d_value": 4, "bias": True}),
    (2, {"d_head": 1}),
    (3, {"d_head": 7, "bias": True}),
    (4, {"n_heads": 3, "d_value": 4}),
    (5, {"d_model": 11, "n_heads": 3, "d_head": 7, "d_value": 4}),
    (5, {"d_model": 11, "n_heads": 3, "d_head": 7, "d_value": 4, "bias": True}),
    (6, {"d_model": 4, "positions": "sinusoidal"}),
    (6, {"d_model": 5, "n_heads": 2, "positions": "sinusoidal", "bias": True}),
    (7, {"d_model": 1, "d_head": 3, "d_value": 2}),
    (8, {"d_model": 3, "n_heads": 2, "d_value": 3, "bias": True}),
    (8, {}),
]
Build = Callable[..., HookedAttention]
AllInputs = Callable[[int], Tensor]


def random_tables(
    n_ctx: int, n_heads: int = 3, d_value: int = 4, std: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Tables:
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    generator = torch.Generator().manual_seed(seed)
    scores = std * draw(n_heads, 2 * n_ctx, 2 * n_ctx)
    return Tables(scores, draw(n_heads, 2 * n_ctx, d_value), draw(n_ctx, n_heads, d_value), draw())


def reference_logits(tables: Tables, x: Tensor) -> Tensor:
    """Input by input, query by query, in float64 with torch's softmax."""
    scores, value, readout = (t.double() for t in (tables.scores, tables.value, tables.readout))
    logits = []
    for bits in x.tolist():
        present = [2 * pos + bit for pos, bit in enumerate(bits)]
        logit = tables.bias.double()
        for head in range(len(scores)):
            for dest, query in enumerate(present):
                z = scores[head, query, present].softmax(dim=0) @ value[head, present]
                logit = logit + readout[dest, head] @ z
        logits.append(logit)
    return torch.stack(logits)


class TestTables:
    def test_columns_interleave_bits(self) -> None:
        assert columns(torch.tensor([[0, 0, 0], [1, 1, 1], [0, 1, 0]])).tolist() == [[0, 2, 4], [1, 3, 5], [0, 3, 4]]
        assert columns(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3)

    @pytest.mark.parametrize(("n_ctx", "fields"), CONFIGS)
    def test_entries_are_what_the_hooks_see(
        self, n_ctx: int, fields: dict[str, Any], random_attention: Build, all_inputs: AllInputs
    ) -> None:
        model, x = random_attention(n_ctx, **fields), all_inputs(n_ctx)
        tables = attention_tables(model)
        assert tables.n_ctx == n_ctx
        names = ["blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_v"]
        _, cache = run(model, x, record=names)
        for row, column in enumerate(columns(x)):
            torch.testing.assert_close(tables.scores[:, column[:, None], column], cache[names[0]][row])
            torch.testing.assert_close(tables.value[:, column].transpose(0, 1), cache[names[1]][row])
        assert torch.equal(tables.readout, model.W_readout)
        assert tables.bias == (0 if model.b_readout is None else model.b_readout)

    def test_precision_is_the_weights_or_the_one_asked_for(self, random_attention: Build) -> None:
        model = random_attention(3, bias=True, dtype=torch.float32)
        for dtype, expected in ((None, torch.float32), (torch.float64, torch.float64)):
            tables = attention_tables(model, dtype)
            fields = (tables.scores, tables.value, tables.readout, tables.bias)
            assert {field.dtype for field in fields} == {expected}
        close = torch.testing.assert_close
        close(attention_tables(model, torch.float64).scores, attention_tables(model.double()).scores, rtol=0, atol=0)


class TestTableLogits:
    @pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
    @pytest.mark.parametrize(("n_ctx", "fields"), CONFIGS)
    def test_are_the_model_s(
        self,
        n_ctx: int,
        fields: dict[str, Any],
        dtype: torch.dtype,
        atol: float,
        random_attention: Build,
        all_inputs: AllInputs,
    ) -> None:
        x = all_inputs(n_ctx)
        for seed in range(3):
            model = random_attention(n_ctx, seed=seed, **fields)
            exact = model(x)
            logits = table_logits(attention_tables(model.to(dtype)), x)
            assert logits.shape == (2**n_ctx,)
            assert logits.dtype == dtype
            # against the logits' own size: with d_model = 11 and weights of std 1 they reach hundreds
            scale = max(1.0, exact.abs().max().item())
            torch.testing.assert_close(logits, model(x), rtol=0, atol=atol * scale)

    @pytest.mark.parametrize(("n_ctx", "fields"), CONFIGS)
    def test_gradients_are_the_model_s(
        self, n_ctx: int, fields: dict[str, Any], random_attention: Build, all_inputs: AllInputs
    ) -> None:
        model, x = random_attention(n_ctx, **fields), all_inputs(n_ctx)
        weight = torch.randn(len(x), generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        names, parameters = zip(*model.named_parameters(), strict=True)
        by_model = torch.autograd.grad(model(x) @ weight, parameters)
        by_tables = torch.autograd.grad(table_logits(attention_tables(model), x) @ weight, parameters)
        assert "blocks.0.attn.W_Q" in names
        for name, ours, expected in zip(names, by_tables, by_model, strict=True):
            scale = max(1.0, expected.abs().max().item())
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-11 * scale, msg=lambda m, n=name: f"{n}: {m}")

    @pytest.mark.parametrize("batch", [0, 1])
    @pytest.mark.parametrize("std", [1.0, 1000.0])
    def test_small_batches_keep_their_axis(self, batch: int, std: float) -> None:
        tables = random_tables(5, std=std)
        assert safe_shift(tables.scores)[1] == (std == 1)
        x = torch.tensor([[0, 1, 1, 0, 1]])[:batch]
        assert table_logits(tables, x).shape == (batch,)
        if batch:
            torch.testing.assert_close(table_logits(tables, x), reference_logits(tables, x))

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
    @pytest.mark.usefixtures("unchecked")
    def test_any_integer_type(self, dtype: torch.dtype, all_inputs: AllInputs) -> None:
        x = all_inputs(3)
        for std in (1.0, 1000.0):
            tables = random_tables(3, std=std)
            assert torch.equal(table_logits(tables, x.to(dtype)), table_logits(tables, x))
            assert torch.equal(expected_flip_effect(tables, x.to(dtype)), expected_flip_effect(tables, x))


class TestExtremeScores:
    @pytest.mark.parametrize(("dtype", "size", "atol"), [(torch.float32, 200.0, 1e-5), (torch.float64, 1000.0, 1e-12)])
    @pytest.mark.parametrize("key", range(8))
    def test_a_key_that_dominates_while_absent(
        self, key: int, dtype: torch.dtype, size: float, atol: float, all_inputs: AllInputs
    ) -> None:
        x = all_inputs(4)
        tables = random_tables(4, dtype=dtype)
        tables.scores[:, :, key] += size
        assert not safe_shift(tables.scores)[1]
        logits = table_logits(tables, x)
        assert logits.isfinite().all()
        torch.testing.assert_close(logits.double(), reference_logits(tables, x), rtol=0, atol=atol)

    @pytest.mark.parametrize(("dtype", "size", "atol"), [(torch.float32, 200.0, 1e-5), (torch.float64, 1000.0, 1e-12)])
    def test_scores_far_on_both_sides(
        self, dtype: torch.dtype, size: float, atol: float, all_inputs: AllInputs
    ) -> None:
        x = all_inputs(4)
        for seed in range(5):
            tables = random_tables(4, seed=seed, dtype=dtype)
            sign = torch.randint(-1, 2, tables.scores.shape, generator=torch.Generator().manual_seed(seed))
            tables.scores.add_(size * sign)
            logits = table_logits(tables, x)
            assert logits.isfinite().all()
            torch.testing.assert_close(logits.double(), reference_logits(tables, x), rtol=0, atol=atol)

    @pytest.mark.parametrize(("dtype", "size", "atol"), [(torch.float32, 200.0, 1e-5), (torch.float64, 1000.0, 1e-12)])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_a_common_offset_changes_nothing(
        self, sign: int, dtype: torch.dtype, size: float, atol: float, all_inputs: AllInputs
    ) -> None:
        x, tables = all_inputs(4), random_tables(4, dtype=dtype)
        offset = Tables(tables.scores + sign * size, tables.value, tables.readout, tables.bias)
        assert safe_shift(offset.scores)[1]
        torch.testing.assert_close(table_logits(offset, x).double(), reference_logits(offset, x), rtol=0, atol=atol)

    @pytest.mark.parametrize(("spread", "safe"), [(44.0, True), (44.9, False), (80.0, False), (90.0, False)])
    def test_both_ways_agree_around_the_limit(self, spread: float, safe: bool, all_inputs: AllInputs) -> None:
        x = all_inputs(4)
        tables = random_tables(4, std=0.0, dtype=torch.float32)
        tables.scores[:, :, 3] = spread  # log of the largest float32, halved, is 44.36
        tables.scores[:, :, 4] = -spread
        assert safe_shift(tables.scores)[1] == safe
        torch.testing.assert_close(table_logits(tables, x).double(), reference_logits(tables, x), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("spread", [40.0, 200.0])
    def test_gradients_stay_finite_and_right(self, spread: float, all_inputs: AllInputs) -> None:
        x, tables = all_inputs(3), random_tables(3, dtype=torch.float32)
        tables.scores[:, :, 3] += spread

        def gradient(logits: Callable[[Tables, Tensor], Tensor], dtype: torch.dtype) -> Tensor:
            scores = tables.scores.to(dtype).requires_grad_()
            rest = (t.to(dtype) for t in (tables.value, tables.readout, tables.bias))
            return torch.autograd.grad(logits(Tables(scores, *rest), x).sum(), scores)[0].double()

        ours = gradient(table_logits, torch.float32)
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, gradient(reference_logits, torch.float64), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("std", [0.0, 1.0, 10.0, 100.0])
    @pytest.mark.parametrize("n_ctx", [1, 2, 7])
    def test_safe_shift_keeps_every_denominator_at_least_one(
        self, n_ctx: int, std: float, dtype: torch.dtype, all_inputs: AllInputs
    ) -> None:
        for seed in range(3):
            scores = random_tables(n_ctx, std=std, seed=seed, dtype=dtype).scores
            shift, safe = safe_shift(scores)
            assert shift.shape == (3, 2 * n_ctx, 1)
            present = torch.stack([(scores - shift)[:, :, column] for column in columns(all_inputs(n_ctx))])
            assert present.double().exp().sum(dim=-1).min() >= 1
            # as large as it may be: for some input the largest present key is at the shift
            assert torch.equal(present.amax(dim=-1).amin(dim=0), torch.zeros(3, 2 * n_ctx, dtype=dtype))
            if safe:
                assert (scores - shift).exp().sum(dim=-1).max() < torch.finfo(dtype).max ** 0.6
            assert safe or std > 1
            assert not safe or (std, dtype) != (100, torch.float32)


class TestExpectedFlipEffect:
    @pytest.mark.parametrize("fields", [{}, {"n_heads": 3, "d_value": 4, "d_model": 11, "bias": True}])
    @pytest.mark.parametrize("n_ctx", [1, 2, 6])
    def test_is_the_expectation_over_all_inputs(
        self, n_ctx: int, fields: dict[str, Any], random_attention: Build, all_inputs: AllInputs
    ) -> None:
        model, x = random_attention(n_ctx, **fields), all_inputs(n_ctx)
        p = torch.linspace(0.1, 0.8, n_ctx, dtype=torch.float64)
        probability = torch.where(x == 1, p, 1 - p).prod(dim=1)
        assert probability.sum().item() == pytest.approx(1)
        logits = dict(zip(map(tuple, x.tolist()), model(x).tolist(), strict=True))
        expected = []
        for pos in range(n_ctx):
            flipped = {bits: (*bits[:pos], 1 - bits[pos], *bits[pos + 1 :]) for bits in logits}
            changes = [abs(logits[flipped[bits]] - logits[bits]) for bits in logits]
            expected.append(sum(c * q for c, q in zip(changes, probability.tolist(), strict=True)))
        effect = expected_flip_effect(attention_tables(model), x, probability)
        torch.testing.assert_close(effect, torch.tensor(expected, dtype=torch.float64))
        evenly = expected_flip_effect(attention_tables(model), x)
        if n_ctx > 1:
            assert (evenly - effect).abs().max() > 1e-6
        torch.testing.assert_close(
            evenly, expected_flip_effect(attention_tables(model), x, torch.full((2**n_ctx,), 0.5**n_ctx))
        )

    def test_of_one_input(self) -> None:
        tables, x = random_tables(3), torch.tensor([[0, 1, 1]])
        flipped = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 0]])
        expected = (reference_logits(tables, flipped) - reference_logits(tables, x)).abs()
        torch.testing.assert_close(expected_flip_effect(tables, x), expected)
        assert x.tolist() == [[0, 1, 1]]

    def test_of_a_bit_that_does_not_matter(self, random_attention: Build, all_inputs: AllInputs) -> None:
        model = random_attention(4)
        with torch.no_grad():
            model.W_E[1] = model.W_E[0]
        torch.testing.assert_close(
            expected_flip_effect(attention_tables(model), all_inputs(4)), torch.zeros(4, dtype=torch.float64)
        )

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(("n_inputs", "n_probabilities"), [(0, None), (4, 3), (4, 1), (0, 0)])
    def test_sizes_that_do_not_fit(self, n_inputs: int, n_probabilities: int | None, all_inputs: AllInputs) -> None:
        probability = None if n_probabilities is None else torch.ones(n_probabilities)
        shown = n_inputs if n_probabilities is None else n_probabilities
        with pytest.raises(BoolensError, match=f"{n_inputs} inputs, {shown} probabilities; give at least one"):
            expected_flip_effect(random_tables(2), all_inputs(2)[:n_inputs], probability)


def test_the_default_initialisation_too(all_inputs: AllInputs) -> None:
    model = HookedAttention(AttentionConfig(n_ctx=8))
    torch.testing.assert_close(table_logits(attention_tables(model), all_inputs(8)), model(all_inputs(8)))
