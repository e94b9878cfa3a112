"""Ranking of scores, and each method's scores against brute force over all inputs."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.config import AttentionConfig, LinearConfig, MLPConfig
from interp.errors import BoolensError
from interp.models import AnyModel, HookedAttention, HookedLinear, build_model
from interp.recovery import METHODS, Ranking, attention_method_scores, flip_scores, rank
from interp.tables import attention_tables, expected_flip_effect
from tasks import RuleAnd, SparseAnd

NAN = math.nan


class TestRank:
    @pytest.mark.parametrize(
        ("scores", "s", "top", "tie"),
        [
            ([1, 5, 3, 4], 1, (1,), False),
            ([1, 5, 3, 4], 2, (1, 3), False),
            ([1, 5, 3, 4], 4, (1, 3, 2, 0), False),
            ([-1, -5, -3], 2, (0, 2), False),
            # equal scores at the border are a tie, the lower position first; above or below it they are not
            ([3, 5, 3, 4], 3, (1, 3, 0), True),
            ([3, 5, 3, 4], 2, (1, 3), False),
            ([3, 5, 5, 4], 2, (1, 2), False),
            ([3, 5, 5, 4], 1, (1,), True),
            ([0, 0, 0], 2, (0, 1), True),
            ([0, 0, 0], 3, (0, 1, 2), False),
            # equal to 1e-9 of the largest
            ([1, 1 + 1e-12, 0], 1, (1,), True),
            ([1, 1 + 1e-6, 0], 1, (1,), False),
            ([1e6, 1, 1 + 1e-6], 2, (0, 2), True),
            ([1e-20, 2e-20, 0], 1, (1,), False),
        ],
    )
    def test_top_and_tie(self, scores: list[float], s: int, top: tuple[int, ...], tie: bool) -> None:
        assert rank(np.array(scores, dtype=float), range(len(scores)), s) == Ranking(top, tie)

    def test_only_candidates_are_ranked(self) -> None:
        scores = np.array([9, 1, NAN, 3, 9, 2])
        assert rank(scores, (1, 3, 5), 2) == Ranking((3, 5), False)
        assert rank(scores, (5, 1, 3), 1) == Ranking((3,), False)

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_an_undefined_score_leaves_the_ranking_open(self, bad: float) -> None:
        assert rank(np.array([1.0, bad, 3]), range(3), 1).tie
        assert rank(np.array([1.0, NAN, 3]), range(3), 2).top == (2, 0)

    @pytest.mark.parametrize("s", [0, -1, 4])
    def test_as_many_as_there_are(self, s: int) -> None:
        with pytest.raises(BoolensError, match=f"{s} positions asked for among 3 candidates"):
            rank(np.zeros(5), (0, 2, 4), s)


@torch.no_grad()
def logit_by_hand(model: HookedAttention, bits: Sequence[int], without: int | None = None) -> float:
    """The logit of one input, in Python, query by query; with a key left out of every softmax."""
    attn = model.attn
    resid = [model.W_E[bit] + model.W_pos[pos] for pos, bit in enumerate(bits)]
    keys = [pos for pos in range(len(bits)) if pos != without]
    total = 0.0 if model.b_readout is None else model.b_readout.item()
    for head in range(model.cfg.n_heads):

        def project(name: str, pos: int, head: int = head) -> Tensor:
            bias = getattr(attn, f"b_{name}")
            out = resid[pos] @ getattr(attn, f"W_{name}")[head]
            return out if bias is None else out + bias[head]

        for dest in range(len(bits)):
            scores = [float(project("Q", dest) @ project("K", src)) / math.sqrt(model.cfg.d_head) for src in keys]
            weights = [math.exp(score) for score in scores]
            for weight, src in zip(weights, keys, strict=True):
                total += weight / sum(weights) * float(project("V", src) @ model.W_readout[dest, head])
    return total


def flipped(bits: Sequence[int], pos: int) -> list[int]:
    return [1 - bit if i == pos else bit for i, bit in enumerate(bits)]


class TestScores:
    @pytest.fixture
    def model(self, random_attention: Callable[..., HookedAttention]) -> HookedAttention:
        return random_attention(4, n_heads=2, d_head=3, d_model=5, d_value=3, bias=True, seed=1)

    def test_every_method_has_one_score_a_position(self, model: HookedAttention, all_inputs: Callable) -> None:
        x = all_inputs(4)
        scores = {**attention_method_scores(model, x), "patching": flip_scores(model, x)}
        assert {*scores, "weights"} == set(METHODS)
        assert all(s.shape == (4,) and (s >= 0).all() for s in scores.values())

    def test_patching_is_the_change_by_a_flip(self, model: HookedAttention, all_inputs: Callable) -> None:
        inputs = all_inputs(4).tolist()
        expected = [
            sum(abs(logit_by_hand(model, flipped(bits, pos)) - logit_by_hand(model, bits)) for bits in inputs) / 16
            for pos in range(4)
        ]
        np.testing.assert_allclose(flip_scores(model, all_inputs(4)).numpy(), expected, rtol=1e-9)

    def test_ablation_is_the_change_by_removing_the_key(self, model: HookedAttention, all_inputs: Callable) -> None:
        inputs = all_inputs(4).tolist()
        expected = [
            sum(abs(logit_by_hand(model, bits, without=pos) - logit_by_hand(model, bits)) for bits in inputs) / 16
            for pos in range(4)
        ]
        scores = attention_method_scores(model, all_inputs(4))["ablation"]
        np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-9)

    def test_attention_sums_to_one(self, model: HookedAttention, all_inputs: Callable) -> None:
        assert float(attention_method_scores(model, all_inputs(4))["attention"].sum()) == pytest.approx(1)

    def test_contribution_is_a_variance_of_what_adds_up_to_the_logit(self, all_inputs: Callable) -> None:
        """Without queries' and keys' weights attention is even, so contributions are independent of each other."""
        model = HookedAttention(AttentionConfig(n_ctx=4, init_std=1.0)).double().eval()
        with torch.no_grad():
            model.get_parameter("blocks.0.attn.W_Q").zero_()
        x = all_inputs(4)
        scores = attention_method_scores(model, x)
        assert float(scores["contribution"].sum()) == pytest.approx(float(model(x).detach().var(correction=0)))
        np.testing.assert_allclose(scores["attention"].numpy(), 1 / 4)

    def test_one_key_cannot_be_removed(self, random_attention: Callable[..., HookedAttention]) -> None:
        scores = attention_method_scores(random_attention(1), torch.tensor([[0], [1]]))
        assert set(scores) == {"attention", "effective-attention", "contribution"}
        assert scores["attention"].tolist() == [1.0]

    @pytest.mark.parametrize("cfg", [MLPConfig(n_ctx=5, d_mlp=13), LinearConfig(n_ctx=5)], ids=["mlp", "linear"])
    def test_patching_needs_no_attention(self, cfg: MLPConfig | LinearConfig, all_inputs: Callable) -> None:
        model: AnyModel = build_model(cfg).double().eval()
        x = all_inputs(5)
        expected = []
        for pos in range(5):
            other = x.clone()
            other[:, pos] = 1 - other[:, pos]
            expected.append((model(other) - model(x)).abs().mean().item())
        np.testing.assert_allclose(flip_scores(model, x).numpy(), expected, rtol=1e-9)

    def test_patching_of_a_linear_model_is_its_weights(self) -> None:
        model = HookedLinear(LinearConfig(n_ctx=3)).double()
        with torch.no_grad():
            model.W.copy_(torch.tensor([1.0, -2, 0]))
        assert flip_scores(model, torch.tensor([[0, 1, 1], [1, 1, 0]])).tolist() == [1, 2, 0]

    def test_gradients_and_modes_stay(self, model: HookedAttention, all_inputs: Callable) -> None:
        model.train()
        scores = {**attention_method_scores(model, all_inputs(4)), "patching": flip_scores(model, all_inputs(4))}
        assert model.training
        assert not any(s.requires_grad for s in scores.values())


class TestWeights:
    @pytest.mark.parametrize(
        "task", [SparseAnd(6, (1, 4), p=0.3), RuleAnd(6, ((0, 3), (1,)), p=0.6)], ids=["sparse", "rule"]
    )
    def test_exact_weights_are_patching_over_all_inputs(
        self, task: SparseAnd | RuleAnd, random_attention: Callable[..., HookedAttention]
    ) -> None:
        model = random_attention(6, n_heads=2, d_value=3)
        x = task.enumerate()
        probability = task.log_probability(x).exp()
        changes = torch.stack([flip_scores(model, row[None]) for row in x])
        assert float(probability.sum()) == pytest.approx(1)
        weights = expected_flip_effect(attention_tables(model), x, probability).detach()
        torch.testing.assert_close(weights, probability @ changes)

    def test_even_probabilities_are_a_mean(
        self, random_attention: Callable[..., HookedAttention], all_inputs: Callable
    ) -> None:
        model, x = random_attention(5), all_inputs(5)
        torch.testing.assert_close(
            expected_flip_effect(attention_tables(model), x).detach(), flip_scores(model, x), rtol=1e-9, atol=1e-12
        )
