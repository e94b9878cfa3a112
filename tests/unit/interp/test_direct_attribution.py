"""The logit's terms add up to it, head by head and position by position."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.attention import contributions, effective_attention
from interp.direct_attribution import PATTERN, V, direct_logit_attribution
from interp.errors import BoolensError
from interp.hooks import run
from interp.models import HookedAttention
from tests.unit.interp.exact_cases import CONFIGS, SIZES, Build, Z, bits, put_in_cell


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
@pytest.mark.parametrize(SIZES, CONFIGS)
def test_terms_and_bias_are_the_logit(
    n_ctx: int,
    batch: int,
    fields: Any,
    dtype: torch.dtype,
    atol: float,
    random_attention: Build,
    all_inputs: Callable[[int], Tensor],
) -> None:
    for seed, std in ((0, 0.3), (1, 0.6)):
        model = random_attention(n_ctx, seed=seed, dtype=dtype, **fields, init_std=std)
        x = all_inputs(n_ctx)
        terms = direct_logit_attribution(model, x)
        assert terms.cells.shape == (2**n_ctx, model.cfg.n_heads, n_ctx, n_ctx)
        assert terms.cells.dtype == dtype
        logit = model(x).detach()
        assert torch.equal(terms.logit, logit)
        for parts in (terms.cells.sum(dim=(1, 2, 3)), terms.by_src.sum(dim=(1, 2)), terms.by_dest.sum(dim=(1, 2))):
            torch.testing.assert_close(parts + terms.bias, logit, rtol=0, atol=atol)
        assert terms.gap.abs().max() <= atol
        assert terms.bias == (0 if model.b_readout is None else model.b_readout)


@pytest.fixture
def model(random_attention: Build) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


X = bits(2, 5, 1)


def test_each_dest_and_head_is_what_zeroing_its_z_takes_away(model: HookedAttention) -> None:
    terms = direct_logit_attribution(model, X)
    zero = torch.zeros(1, 5, 3, 4)
    for head in range(3):
        for dest in range(5):
            ablated = run(model, X, [put_in_cell(Z, zero, ("pos", "head"), (dest, head))])[0]
            torch.testing.assert_close(terms.by_dest[:, head, dest], terms.logit - ablated)


def test_each_src_and_head_is_what_zeroing_its_value_takes_away(model: HookedAttention) -> None:
    terms = direct_logit_attribution(model, X)
    _, cache = run(model, X, record=[PATTERN, V])
    effective = effective_attention(cache[PATTERN], model.W_readout.detach())
    torch.testing.assert_close(terms.by_src, contributions(effective, cache[V]))
    for head in range(3):
        for src in range(5):
            ablated = run(model, X, [put_in_cell(V, torch.zeros(1, 5, 3, 4), ("pos", "head"), (src, head))])[0]
            torch.testing.assert_close(terms.by_src[:, head, src], terms.logit - ablated)


def test_the_value_s_bias_enters_by_the_readout_alone(model: HookedAttention) -> None:
    """Patterns sum to 1, so b_V adds readout[dest] · b_V at each dest, whatever the input; without it, that is gone."""
    terms = direct_logit_attribution(model, X)
    bias = model.attn.get_parameter("b_V").detach().clone()
    with torch.no_grad():
        model.attn.get_parameter("b_V").zero_()
    share = (model.W_readout.detach() * bias).sum(dim=-1).T
    without = direct_logit_attribution(model, X)
    torch.testing.assert_close(terms.by_dest - without.by_dest, share.expand(2, 3, 5))
    cells = run(model, X, record=[PATTERN])[1][PATTERN] * share[..., None]
    torch.testing.assert_close(terms.cells - without.cells, cells)


def test_other_hooks_show_in_the_gap(model: HookedAttention) -> None:
    assert direct_logit_attribution(model, X).gap.abs().max() < 1e-11
    model.add_hook(Z, lambda activation, hook: activation * 2)
    terms = direct_logit_attribution(model, X)
    torch.testing.assert_close(terms.gap, -terms.cells.sum(dim=(1, 2, 3)))


def test_inputs_are_checked(model: HookedAttention) -> None:
    with pytest.raises(BoolensError, match="this model takes integers"):
        direct_logit_attribution(model, torch.zeros(2, 6, dtype=torch.int64))
