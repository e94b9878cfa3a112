"""Gradients, integrals, terms and paths worked out on paper for a model with two positions.

One head, scores 0, so both patterns are 1/2; values 1 and 5 by position; readouts 2 and 3. Each row reads 3, the logit
is 2 · 3 + 3 · 3 = 15. With its score on src 1 at log 3 a row's pattern is 1/4, 3/4 and it reads 4.
"""

import math
from fractions import Fraction as F
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.attribution import attribution_patching, integrated_gradients
from interp.config import AttentionConfig
from interp.direct_attribution import direct_logit_attribution
from interp.models import HookedAttention
from interp.paths import ROUTES, Path, patch_path, path_effects
from tests.hand_set import hand_set

SCORES = "blocks.0.attn.hook_attn_scores"
X = torch.zeros(1, 2, dtype=torch.int64)


@pytest.fixture
def model() -> HookedAttention:
    return hand_set(AttentionConfig(n_ctx=2, d_model=1), W_pos=[[1], [5]], W_V=[[[1]]], W_readout=[[[2]], [[3]]])


def close(actual: Tensor, expected: Any) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


class TestScores:
    """A row's read is 1 + 4 · p with p = sigmoid(score 1 − score 0), slope 4 · p · (1 − p) = 1 at p = 1/2."""

    LOG3 = math.log(3)

    def values(self, dest: int, src: int) -> Tensor:
        values = torch.zeros(1, 1, 2, 2, dtype=torch.float64)
        values[0, 0, dest, src] = self.LOG3
        return values

    def test_first_order(self, model: HookedAttention) -> None:
        attribution = attribution_patching(model, X, SCORES, self.values(0, 1), ("dest", "src"))
        close(attribution.estimate[..., 0], [[0, 2 * self.LOG3], [0, 0]])
        assert attribution.exact is not None
        close(attribution.exact[..., 0], [[0, 2 * (4 - 3)], [0, 0]])
        close(attribution.error[0, 1], [2 * self.LOG3 - 2])
        attribution = attribution_patching(model, X, SCORES, self.values(1, 0), ("dest", "src"))
        close(attribution.estimate[..., 0], [[0, 0], [-3 * self.LOG3, 0]])
        close(attribution.whole, [3 * (2 - 3)])

    def test_integral(self, model: HookedAttention) -> None:
        attribution = integrated_gradients(model, X, SCORES, self.values(0, 1), ("dest", "src"))
        close(attribution.estimate[..., 0], [[0, 2 * (4 - 3)], [0, 0]])

    def test_integral_shares_what_two_cells_do_together(self, model: HookedAttention) -> None:
        """Both scores of row 0 rise by log 3: together nothing changes. Along that path the slopes stay ±1."""
        attribution = integrated_gradients(model, X, SCORES, self.values(0, 0) + self.values(0, 1), ("dest", "src"))
        close(attribution.estimate[..., 0], [[-2 * self.LOG3, 2 * self.LOG3], [0, 0]])
        close(attribution.whole, [0])
        assert attribution.exact is not None
        close(attribution.exact[..., 0], [[2 * (2 - 3), 2 * (4 - 3)], [0, 0]])


def test_terms_of_the_logit(model: HookedAttention) -> None:
    terms = direct_logit_attribution(model, X)
    close(
        terms.cells[0, 0], [[float(2 * F(1, 2) * 1), float(2 * F(1, 2) * 5)], [float(3 * F(1, 2)), float(3 * F(5, 2))]]
    )
    close(terms.by_src[0, 0], [2.5, 12.5])
    close(terms.by_dest[0, 0], [6, 9])
    close(terms.logit, [15])
    close(terms.bias, 0)


class TestPaths:
    """The bit at src 1 raises its key by log 3 and its value from 5 to 9; queries are 1.

    Values alone: each row reads (1 + 9)/2 = 5. Keys alone: 1/4 · 1 + 3/4 · 5 = 4. Both: 1/4 · 1 + 3/4 · 9 = 7. Of the 4
    that both change, values make 2, keys 1, and 1 comes of both together.
    """

    @pytest.fixture
    def model(self) -> HookedAttention:
        return hand_set(
            AttentionConfig(n_ctx=2, d_model=2, d_head=1, bias=True),
            W_E=[[0, 0], [0, 1]],
            W_pos=[[1, 0], [5, 0]],
            b_Q=[[1]],
            W_K=[[[0], [math.log(3)]]],
            W_V=[[[1], [4]]],
            W_readout=[[[2]], [[3]]],
            b_readout=-7,
        )

    FLIPPED = torch.tensor([[0, 1]])

    def test_one_path(self, model: HookedAttention) -> None:
        before = 2 * 3 + 3 * 3 - 7
        close(model(X).detach(), [before])
        for into, read in (("v", 5), ("k", 4), ("kv", 7), ("q", 3), ("qkv", 7)):
            close(patch_path(model, X, self.FLIPPED, Path(into)), [2 * read + 3 * read - 7])
            close(patch_path(model, X, self.FLIPPED, Path(into, dest=1)), [2 * 3 + 3 * read - 7])
        close(patch_path(model, X, self.FLIPPED, Path("kv", pos=0)), [before])

    def test_all_paths(self, model: HookedAttention) -> None:
        paths = path_effects(model, X, self.FLIPPED)
        reads = dict(zip(ROUTES, (0, 1, 2, 0, 0, 1, 0), strict=True))
        close(paths.effects[:, 0, :, 0], [[2 * read, 3 * read] for read in reads.values()])
        close(paths.total, [5 * 4])
