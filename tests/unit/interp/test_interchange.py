"""Agreement with expected labels against runs made by hand, and its intervals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from interp.errors import BoolensError
from interp.hooks import run
from interp.interchange import Site, interchange_agreement, share
from interp.statistics import clopper_pearson

EMBED, PATTERN, Z = "hook_embed", "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_z"
N_CTX, N = 5, 23


@pytest.fixture
def inputs() -> Any:
    generator = torch.Generator().manual_seed(3)
    base, source = torch.randint(0, 2, (2, N, N_CTX), generator=generator)
    return base, source, torch.rand(N, generator=generator) < 0.5


@pytest.mark.parametrize(("hook", "positions"), [(EMBED, (1, 3)), (Z, None), (Z, (0, 4))])
def test_a_site_patched_by_hand(hook: str, positions: Any, inputs: Any, random_attention: Callable) -> None:
    model = random_attention(N_CTX, n_heads=3, d_model=7, d_value=2, bias=True)
    base, source, expected = inputs
    put = run(model, source, record=[hook])[1][hook]

    def edit(activation: torch.Tensor, hook: Any) -> torch.Tensor:
        activation = activation.clone()
        where = list(range(N_CTX)) if positions is None else list(positions)
        activation[:, where] = put[:, where]
        return activation

    by_hand = (run(model, base, [(hook, edit)])[0] > 0) == expected
    (found,) = interchange_agreement(model, base, source, expected, [Site(hook, pos=positions)])
    assert found.tolist() == by_hand.tolist()
    assert 0 < found.mean() < 1


def test_many_sites_are_each_one_s_own(inputs: Any, random_attention: Callable) -> None:
    model = random_attention(N_CTX, n_heads=3, d_model=7, d_value=2, bias=True)
    sites = [Site(EMBED, pos=(1, 3)), Site(PATTERN), Site(PATTERN, ("head",)), Site(Z, pos=(4, 0)), Site(Z, ("pos",))]
    base, source, expected = inputs
    found = interchange_agreement(model, base, source, expected, sites)
    assert [agreed.shape for agreed in found] == [(N,), (N,), (3, N), (N,), (N_CTX, N)]
    alone = [interchange_agreement(model, base, source, expected, [site])[0].tolist() for site in sites]
    assert [agreed.tolist() for agreed in found] == alone
    assert len({str(labels) for labels in alone}) == len(sites)


def test_every_position_at_once(inputs: Any, random_attention: Callable) -> None:
    model = random_attention(N_CTX, n_heads=3, d_model=7)
    base, source, expected = inputs
    (found,) = interchange_agreement(model, base, source, expected, [Site(EMBED, ("pos",))])
    assert found.shape == (N_CTX, N)
    for pos in range(N_CTX):
        (alone,) = interchange_agreement(model, base, source, expected, [Site(EMBED, pos=pos)])
        assert found[pos].tolist() == alone.tolist()


def test_a_run_into_itself_gives_the_model_s_own_labels(inputs: Any, random_attention: Callable) -> None:
    """And no warning that nothing has changed: there it is an answer."""
    model = random_attention(N_CTX)
    base, _, expected = inputs
    (found,) = interchange_agreement(model, base, base, expected, [Site("hook_logit")])
    assert found.tolist() == ((run(model, base)[0] > 0) == expected).tolist()


def test_shares_have_exact_intervals() -> None:
    agreed = np.zeros((3, 2, 8), bool)
    agreed[1, 0, :6] = agreed[2, 1] = True
    found = share(agreed)
    assert found.n == 8
    np.testing.assert_array_equal(found.value, [[0, 0], [0.75, 0], [0, 1]])
    for cell, count in np.ndenumerate(agreed.sum(-1)):
        assert (found.low[cell], found.high[cell]) == clopper_pearson(int(count), 8)
    assert share(agreed, level=0.5).high[0, 0] < found.high[0, 0]


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused(inputs: Any, random_attention: Callable) -> None:
    model = random_attention(N_CTX)
    base, source, expected = inputs
    with pytest.raises(BoolensError, match="23 pairs, 22 expected labels; give at least one pair, a label each"):
        interchange_agreement(model, base, source, expected[1:], [Site(Z)])
    with pytest.raises(BoolensError, match="0 pairs, 0 expected labels"):
        interchange_agreement(model, base[:0], source[:0], expected[:0], [Site(Z)])
    with pytest.raises(BoolensError, match="pairs must match row by row"):
        interchange_agreement(model, base, source[1:], expected, [Site(Z)])
