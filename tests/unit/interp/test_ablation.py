"""What ablated activations are replaced by: zeros, means over the whole reference, other inputs' activations."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from interp.ablation import ABLATION_KINDS, AblationKind, ablation, derangement
from interp.config import LinearConfig, MLPConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import UnchangedWarning, ZeroAblate, intervene
from interp.models import HookedAttention, HookedLinear, HookedMLP

V, Z, EMBED, LOGIT = "blocks.0.attn.hook_v", "blocks.0.attn.hook_z", "hook_embed", "hook_logit"
X = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
REFERENCE = torch.tensor([[0, 0, 0, 0, 0], [1, 0, 1, 0, 1], [1, 1, 1, 1, 0]])


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


def put(model: Any, x: Tensor, hook: str, kind: AblationKind, reference: Tensor = REFERENCE, seed: int = 0) -> Tensor:
    """What stands at the hook when all of it is ablated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)  # positions are the same in every input
        step = ablation(kind, hook, reference=reference, seed=seed, rows="keep")
        return intervene(model, x, step, record=[hook])[1][hook]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestDerangement:
    @pytest.mark.parametrize("n", range(2, 51))
    def test_is_a_permutation_without_a_fixed_point(self, n: int) -> None:
        for seed in range(5):
            source = derangement(n, generator(seed))
            assert sorted(source.tolist()) == list(range(n))
            assert not (source == torch.arange(n)).any()

    def test_every_source_is_equally_likely(self) -> None:
        source = generator(1)
        drawn = torch.stack([derangement(5, source) for _ in range(2000)])
        for i in range(5):
            counts = torch.bincount(drawn[:, i], minlength=5)
            assert counts[i] == 0
            # 2000 / 4 each, with a standard deviation of sqrt(2000 · 1/4 · 3/4), about 19
            assert all(abs(int(c) - 500) < 90 for j, c in enumerate(counts) if j != i)

    def test_two_swap(self) -> None:
        assert derangement(2, generator()).tolist() == [1, 0]

    @pytest.mark.parametrize("n", [0, 1])
    def test_there_must_be_something_else_to_take(self, n: int) -> None:
        with pytest.raises(BoolensError, match=f"resample ablation needs at least 2 inputs, got {n}"):
            derangement(n, generator())

    def test_the_generator_decides(self) -> None:
        a, b, c = (derangement(20, generator(seed)) for seed in (3, 3, 4))
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


class TestValues:
    def test_zero(self, model: HookedAttention) -> None:
        for hook in model.hook_names:
            values = put(model, X, hook, "zero")
            assert not values.any()
            assert values.shape == run(model, X, record=[hook])[1][hook].shape

    @pytest.mark.parametrize("n", [1, 2])
    def test_mean_is_that_of_the_whole_reference_whatever_the_batch(self, n: int, model: HookedAttention) -> None:
        for hook in model.hook_names:
            values = put(model, X[:n], hook, "mean")
            rows = [run(model, row[None], record=[hook])[1][hook] for row in REFERENCE]
            torch.testing.assert_close(values, torch.cat(rows).mean(dim=0).expand_as(values), msg=hook)
            assert values.shape == (n, *rows[0].shape[1:])

    def test_mean_is_per_position_and_head(self, model: HookedAttention) -> None:
        values = put(model, X, V, "mean")[0]
        flat = values.flatten(0, 1)  # 5 positions, 3 heads: all 15 means differ
        assert len(flat.unique(dim=0)) == 15
        # ones at position 0 twice in three
        expected = (2 * model.W_E[1] + model.W_E[0]) / 3 + model.W_pos[0]
        weight, bias = (model.get_parameter(f"blocks.0.attn.{name}_V")[1] for name in "Wb")
        torch.testing.assert_close(values[0, 1], (expected @ weight + bias).detach())

    def test_mean_of_bits_as_numbers(self) -> None:
        for model in (HookedLinear(LinearConfig(n_ctx=5)), HookedMLP(MLPConfig(n_ctx=5, d_mlp=13))):
            values = put(model, X, EMBED, "mean")
            torch.testing.assert_close(values, torch.tensor([[2 / 3, 1 / 3, 2 / 3, 1 / 3, 1 / 3]] * 2))

    def test_resample_takes_rows_of_x(self, model: HookedAttention) -> None:
        x = torch.cat([X, REFERENCE])
        source = derangement(5, generator(8))
        for hook in model.hook_names:
            values = put(model, x, hook, "resample", seed=8)
            assert torch.equal(values, run(model, x, record=[hook])[1][hook][source])
        assert not (source == torch.arange(5)).any()

    def test_an_empty_reference(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match="mean ablation needs a reference set, and this one is empty"):
            put(model, X, Z, "mean", REFERENCE[:0])

    def test_resampling_one_input(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match="needs at least 2 inputs, got 1"):
            put(model, X[:1], Z, "resample")

    @pytest.mark.usefixtures("unchecked")
    def test_an_unknown_kind(self, model: HookedAttention) -> None:
        unknown: AblationKind = "knockout"  # pyright: ignore[reportAssignmentType]
        with pytest.raises(BoolensError, match=r"'knockout' is not known; choose one of .*'zero', 'mean', 'resample'"):
            put(model, X, Z, unknown)

    @pytest.mark.parametrize("kind", ABLATION_KINDS)
    def test_an_unknown_hook(self, kind: AblationKind, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match="no hook point 'hook_logits'; near names: hook_logit"):
            put(model, X, "hook_logits", kind)


class TestBiases:
    """Ablation replaces activations, not parameters."""

    def test_a_bias_that_enters_after_the_hook_stays(self, model: HookedAttention) -> None:
        logits, _ = intervene(model, X, ZeroAblate(Z))
        assert model.b_readout is not None
        assert model.b_readout.item() != 0
        assert torch.equal(logits, model.b_readout.detach().expand(2))

    def test_a_bias_that_entered_before_is_replaced(self, model: HookedAttention) -> None:
        assert model.get_parameter("blocks.0.attn.b_V").any()
        cache = intervene(model, X, ZeroAblate(V), record=[Z])[1]
        assert not cache[Z].any()

    def test_the_embedding_s_mean_leaves_the_position_s(self, model: HookedAttention) -> None:
        resid = "blocks.0.hook_resid_pre"
        cache = intervene(model, X, ZeroAblate(EMBED), record=[resid])[1]
        torch.testing.assert_close(cache[resid], model.W_pos.detach().expand(2, 5, 11))


@pytest.mark.parametrize(("hook", "forgets"), [(EMBED, True), ("blocks.0.hook_resid_pre", True), (Z, True), (V, False)])
def test_mean_ablation_everywhere(hook: str, forgets: bool, model: HookedAttention) -> None:
    """With mean values the pattern still depends on the input; with mean embeddings or mean z nothing does."""
    logits, _ = intervene(model, X, ablation("mean", hook, reference=REFERENCE))
    assert torch.isclose(logits[0], logits[1]).item() == forgets


@pytest.mark.parametrize("kind", ABLATION_KINDS)
def test_leaves_no_trace(kind: AblationKind, model: HookedAttention) -> None:
    model.train()
    before, random = run(model, X)[0], torch.get_rng_state()
    put(model, X, Z, kind)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert sum(len(point.fwd_hooks) for point in model.hook_points()) == 0
    assert torch.equal(run(model, X)[0], before)
