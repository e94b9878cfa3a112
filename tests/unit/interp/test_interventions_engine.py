"""How the general engine works: where one backward pass gives all cells, and what memory the passes take."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from interp.errors import BoolensError
from interp.hooks import LogitDifference, run
from interp.interventions import Patch, ZeroAblate, intervene, sweep, sweeps
from interp.interventions.cells import Footprint, footprint
from interp.interventions.linear import downstream_gradient
from interp.models import HookedAttention
from tests.unit.interp.foreign_models import Gated, Transformer

EMBED = "hook_embed"
Q, V, SCORES, PATTERN, Z = (f"blocks.0.attn.hook_{name}" for name in ("q", "v", "attn_scores", "pattern", "z"))
X = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
OTHER = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 0, 1, 1]])
LOGIT = LogitDifference()


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    """Batch 2, head 3, pos 5, d_head 7, d_model 11, d_value 4."""
    return random_attention(5, n_heads=3, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


class TestAffine:
    """Where one backward pass gives all cells, and where it must not."""

    def test_is_read_off_the_graph(self, model: HookedAttention) -> None:
        affine = {V, PATTERN, Z, "hook_logit"}
        for hook in model.hook_names:
            assert (downstream_gradient(model, X, hook) is not None) == (hook in affine), hook
        for hook in Transformer(5).hook_dict:
            assert downstream_gradient(Transformer(5), X, hook, LOGIT) is None

    def test_is_the_derivative(self, model: HookedAttention) -> None:
        gradient = downstream_gradient(model, X, Z)
        assert gradient is not None
        torch.testing.assert_close(gradient, model.W_readout.detach().expand(2, 5, 3, 4))

    @pytest.mark.parametrize(("gate", "seen"), [("none", True), ("sign", True), ("detached", True), ("product", False)])
    def test_dependence_that_autograd_does_not_see(self, gate: str, seen: bool) -> None:
        """The graph alone would take a comparison or a detached factor for affine: a run of the edits tells."""
        model = Gated(gate)
        x = torch.tensor([[0, 1, 1], [1, 0, 1]])
        assert (downstream_gradient(model, x, EMBED) is not None) == seen
        values = torch.tensor([[3.0, -4.0, -5.0], [-6.0, 7.0, 8.0]], dtype=torch.float64)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sweeps, "AFFINE_RUNS", 0)
            result = sweep(model, x, Patch(EMBED, values=values))
        for pos in range(3):
            expected, _ = intervene(model, x, Patch(EMBED, values=values, pos=pos))
            torch.testing.assert_close(result[pos], expected, rtol=1e-12, atol=1e-12)

    def test_leaves_gradients_alone(self, model: HookedAttention) -> None:
        model(X).sum().backward()
        before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        sweep(model, X, Patch(PATTERN, source=OTHER, rows="keep"), ("head", "dest", "src"), engine="general")
        assert before
        assert all(torch.equal(before[n], p.grad) for n, p in model.named_parameters() if p.grad is not None)
        assert torch.is_grad_enabled()

    def test_in_inference_mode(self, model: HookedAttention) -> None:
        expected = sweep(model, X, Patch(PATTERN, source=OTHER, rows="keep"), ("head", "dest", "src"))
        with torch.inference_mode():
            result = sweep(model, X, Patch(PATTERN, source=OTHER, rows="keep"), ("head", "dest", "src"))
        torch.testing.assert_close(result, expected)


class LiveBytes(TorchDispatchMode):
    """The most bytes that tensors made inside have held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.most = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and (storage := tensor.untyped_storage())._cdata not in known:
                self.live += (size := storage.nbytes())
                self.most = max(self.most, self.live)
                weakref.finalize(storage, self.free, size)
        return out

    def free(self, size: int) -> None:
        self.live -= size


class TestMemory:
    @pytest.fixture
    def wide(self, random_attention: Callable[..., HookedAttention]) -> HookedAttention:
        return random_attention(17, n_heads=3, d_head=7, d_model=11, d_value=4, dtype=torch.float32)

    @pytest.fixture
    def pairs(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        x, other = torch.randint(2, (2, 60, 17), generator=generator)
        return x, other

    def test_footprint_is_the_sizes_of_the_activations(self, wide: HookedAttention, pairs: Any) -> None:
        _, cache = run(wide, pairs[0], record=wide.hook_names)
        total = sum(activation.numel() * 4 for activation in cache.values())
        assert footprint(wide, pairs[0], PATTERN) == Footprint(total // 60, 3 * 17 * 17 * 4)
        assert footprint(wide, pairs[0], Q) == Footprint(total // 60, 17 * 3 * 7 * 4)

    @pytest.mark.parametrize("hook", [EMBED, Q, V, SCORES, PATTERN])
    @pytest.mark.parametrize("budget", [2**20, 2**22])
    def test_stays_within_the_budget(self, hook: str, budget: int, wide: HookedAttention, pairs: Any) -> None:
        x, other = pairs
        step, over = Patch(hook, source=other, rows="keep"), ("head", "src") if "s" in hook[17:20] else ("pos",)
        whole = sweep(wide, x, step, over, engine="general")
        with LiveBytes() as memory:
            result = sweep(wide, x, step, over, engine="general", budget=budget)
        torch.testing.assert_close(result, whole, rtol=1e-4, atol=1e-4)
        results = 2 * result.numel() * 4  # the parts and the whole: not counted
        assert budget / 20 < memory.most - results <= budget, memory.most / budget

    def test_a_budget_below_one_input_s_needs(self, wide: HookedAttention, pairs: Any) -> None:
        with pytest.raises(BoolensError, match=r"a budget of 1000 bytes is too small: one input takes \d+"):
            sweep(wide, pairs[0], ZeroAblate(Q), budget=1000, engine="general")
