"""Removed keys against one hooked run a cell, against the slow loop, and in expectation by brute force."""

import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.errors import BoolensError
from interp.exact_keys import exact_remove_key, expected_removal_effect
from interp.hooks import run
from interp.interventions import remove_each_key
from interp.models import HookedAttention
from interp.tables import attention_tables
from tests.peak_memory import peak_bytes
from tests.unit.interp.exact_cases import CONFIGS, SIZES, Build, Z, bits, extreme_scores, hooked_removal, with_scores

OVERS = (("src",), ("head", "src"), ("dest", "src"), ("head", "dest", "src"))
MORE_KEYS = [case for case in CONFIGS if case[0] > 1]
AllInputs = Callable[[int], Tensor]


@pytest.fixture
def model(random_attention: Build) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


class TestExactRemoveKey:
    @pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 1e-6)])
    @pytest.mark.parametrize(SIZES, MORE_KEYS)
    def test_is_one_hooked_run_a_cell(
        self, n_ctx: int, batch: int, fields: Any, dtype: torch.dtype, atol: float, random_attention: Build
    ) -> None:
        model, x = random_attention(n_ctx, dtype=dtype, **fields), bits(batch, n_ctx, 4)
        for over in OVERS:
            exact, plain = exact_remove_key(model, x, over), hooked_removal(model, x, over)
            assert exact.shape == plain.shape
            assert exact.dtype == dtype
            torch.testing.assert_close(exact, plain, rtol=0, atol=atol * max(1.0, plain.abs().max().item()) * 10)

    def test_is_the_slow_loop(self, model: HookedAttention) -> None:
        x = bits(4, 5, 8)
        torch.testing.assert_close(exact_remove_key(model, x), remove_each_key(model, x))

    @pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
    def test_extreme_scores(self, dtype: torch.dtype, rtol: float, random_attention: Build) -> None:
        for seed in range(4):
            model, x = with_scores(random_attention, extreme_scores(seed)).to(dtype), bits(3, 6, seed)
            for over in OVERS:
                exact, plain = exact_remove_key(model, x, over), hooked_removal(model, x, over)
                scale = max(1.0, plain.abs().max().item())
                torch.testing.assert_close(exact, plain, rtol=rtol, atol=rtol * scale * 10)

    def test_pos_is_src_and_axes_come_in_the_order_asked_for(self, model: HookedAttention) -> None:
        x = bits(2, 5, 8)
        cells = exact_remove_key(model, x, ("head", "dest", "src"))
        assert torch.equal(exact_remove_key(model, x, ("head", "pos")), exact_remove_key(model, x, ("head", "src")))
        for order in itertools.permutations(range(3)):
            over = [("head", "dest", "src")[i] for i in order]
            assert torch.equal(exact_remove_key(model, x, over), cells.permute(*order, 3))

    def test_a_small_budget_gives_the_same_and_is_kept(self, random_attention: Build) -> None:
        model, x = random_attention(17, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True), bits(20, 17, 3)
        for over in OVERS:
            whole = exact_remove_key(model, x, over)
            with pytest.raises(BoolensError, match="bytes is too small") as raised:
                exact_remove_key(model, x, over, budget=1)
            _, result, work = (int(number) for number in re.findall(r"\b\d+\b", str(raised.value)))
            assert result == whole.numel() * 8
            budget = result + work
            peak = peak_bytes(partial(exact_remove_key, model, x, over, budget=budget))
            assert result < peak <= budget + 60_000
            torch.testing.assert_close(exact_remove_key(model, x, over, budget=budget), whole, rtol=1e-12, atol=1e-12)

    def test_errors(self, model: HookedAttention, random_attention: Build) -> None:
        x = bits(2, 5, 8)
        for over in ((), ("head",), ("head", "dest")):
            with pytest.raises(
                BoolensError, match=re.escape(f"over = {over} names no key to remove; add 'pos' or 'src'")
            ):
                exact_remove_key(model, x, over)
        with pytest.raises(BoolensError, match="names 'src' twice"):
            exact_remove_key(model, x, ("pos", "src"))
        with pytest.raises(BoolensError, match="no 'd_head' axis"):
            exact_remove_key(model, x, ("pos", "d_head"))
        with pytest.raises(
            BoolensError, match="removing the only key leaves nothing to attend to; n_ctx must be at least 2"
        ):
            exact_remove_key(random_attention(1), bits(2, 1, 0))
        model.add_hook(Z, lambda activation, hook: activation * 2)
        with pytest.raises(BoolensError, match="which the exact engine would not run"):
            exact_remove_key(model, x)


class TestExpectedRemovalEffect:
    @pytest.mark.parametrize(("n_ctx", "fields"), [(n_ctx, fields) for n_ctx, _, fields in MORE_KEYS])
    def test_over_all_inputs(self, n_ctx: int, fields: Any, random_attention: Build, all_inputs: AllInputs) -> None:
        model, x = random_attention(n_ctx, **fields), all_inputs(n_ctx)
        one = torch.linspace(0.2, 0.9, n_ctx, dtype=torch.float64)
        probability = torch.where(x == 1, one, 1 - one).prod(dim=1)
        torch.testing.assert_close(probability.sum().item(), 1.0)
        tables, logit = attention_tables(model), run(model, x)[0]
        for over in OVERS:
            change = (hooked_removal(model, x, over) - logit).abs()
            torch.testing.assert_close(expected_removal_effect(tables, x, probability, over), change @ probability)
            torch.testing.assert_close(expected_removal_effect(tables, x, None, over), change.mean(dim=-1))

    def test_small_budgets_give_the_same(self, model: HookedAttention, all_inputs: AllInputs) -> None:
        tables, x = attention_tables(model), all_inputs(5)
        whole = expected_removal_effect(tables, x, None, ("head", "pos"))
        torch.testing.assert_close(expected_removal_effect(tables, x, None, ("head", "pos"), budget=30_000), whole)
        with pytest.raises(
            BoolensError, match="the budget of 1000 bytes is too small: the result takes 120 and the work"
        ):
            expected_removal_effect(tables, x, None, ("head", "pos"), budget=1000)

    def test_errors(self, model: HookedAttention, random_attention: Build, unchecked: None) -> None:
        tables = attention_tables(model)
        with pytest.raises(BoolensError, match="0 inputs, 0 probabilities; give at least one input"):
            expected_removal_effect(tables, bits(0, 5, 0))
        with pytest.raises(BoolensError, match="2 inputs, 3 probabilities"):
            expected_removal_effect(tables, bits(2, 5, 0), torch.ones(3))
        with pytest.raises(BoolensError, match="leaves nothing to attend to"):
            expected_removal_effect(attention_tables(random_attention(1)), bits(2, 1, 0))
