"""Patching between pairs, and the fraction recovered."""

import math
import re
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch

from interp.config import LinearConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.interventions import UnchangedWarning, patch, positional_hooks
from interp.models import HookedAttention, HookedLinear
from interp.patching import UndefinedWarning, patch_positions_from, recovered

V, Z = "blocks.0.attn.hook_v", "blocks.0.attn.hook_z"
CLEAN = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
CORRUPTED = torch.tensor([[0, 1, 0, 0, 1], [1, 1, 1, 0, 0], [1, 1, 0, 1, 1]])
"""The bit at position 2 differs."""


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> HookedAttention:
    return random_attention(5, n_heads=2, d_head=7, d_model=11, d_value=4, bias=True, init_std=0.5)


class TestPatchPositionsFrom:
    def test_is_each_position_s_own_patch(self, model: HookedAttention) -> None:
        for hook in positional_hooks(model.hook_names):
            if hook == "hook_pos_embed":
                continue
            source = run(model, CLEAN, record=[hook])[1][hook]
            rows = patch_positions_from(model, CORRUPTED, CLEAN, hook)
            assert rows.shape == (5, 3)
            for pos in range(5):
                expected, _ = run(model, CORRUPTED, [patch(hook, source, pos=pos)])
                torch.testing.assert_close(rows[pos], expected, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("hook", ["hook_embed", "blocks.0.hook_resid_pre"])
    def test_embeddings_differ_at_the_flipped_position_only(self, hook: str, model: HookedAttention) -> None:
        clean, corrupted = run(model, CLEAN)[0], run(model, CORRUPTED)[0]
        rows = patch_positions_from(model, CORRUPTED, CLEAN, hook)
        torch.testing.assert_close(rows[2], clean, rtol=1e-12, atol=1e-12)
        for pos in (0, 1, 3, 4):
            assert torch.equal(rows[pos], corrupted)

    def test_denoising_and_noising_a_linear_model(self) -> None:
        linear = HookedLinear(LinearConfig(n_ctx=5))
        with torch.no_grad():
            linear.W.copy_(torch.tensor([1.0, 2, 4, 8, 16]))
        clean, corrupted = run(linear, CLEAN)[0], run(linear, CORRUPTED)[0]
        assert clean.tolist() == [22, 3, 31]
        denoised = patch_positions_from(linear, CORRUPTED, CLEAN, "hook_embed")
        assert (denoised - corrupted).tolist() == [[0, 0, 0], [0, 0, 0], [4, -4, 4], [0, 0, 0], [0, 0, 0]]
        noised = patch_positions_from(linear, CLEAN, CORRUPTED, "hook_embed")
        assert (noised - clean).tolist() == [[0, 0, 0], [0, 0, 0], [-4, 4, -4], [0, 0, 0], [0, 0, 0]]

    def test_of_z_fractions_add_up_to_one(self, model: HookedAttention) -> None:
        """The logit is a sum over queries: what single z patches bring back adds up to the whole difference."""
        clean, corrupted = (run(model, x)[0].numpy() for x in (CLEAN, CORRUPTED))
        rows = patch_positions_from(model, CORRUPTED, CLEAN, Z).numpy()
        fractions = recovered(rows, np.broadcast_to(corrupted, rows.shape), np.broadcast_to(clean, rows.shape))
        np.testing.assert_allclose(fractions.sum(axis=0), 1, rtol=1e-9)

    @pytest.mark.parametrize("hook", ["hook_embed", V, Z])
    def test_a_run_into_itself_changes_no_bit_and_says_so(self, hook: str, model: HookedAttention) -> None:
        with pytest.warns(UnchangedWarning, match=f"at {hook} changes no activation on these 3 inputs"):
            rows = patch_positions_from(model, CLEAN, CLEAN, hook)
        assert torch.equal(rows, run(model, CLEAN)[0].expand(5, 3))

    def test_position_embeddings_are_the_same_in_every_run(self, model: HookedAttention) -> None:
        with pytest.warns(UnchangedWarning, match="hook_pos_embed"):
            patch_positions_from(model, CORRUPTED, CLEAN, "hook_pos_embed")

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(("n_into", "n_source"), [(3, 2), (1, 3), (3, 1)])
    def test_numbers_of_inputs_that_differ(self, n_into: int, n_source: int, model: HookedAttention) -> None:
        message = f"inputs of shapes ({n_into}, 5) and ({n_source}, 5); pairs must match row by row"
        with pytest.raises(BoolensError, match=re.escape(message)):
            patch_positions_from(model, CLEAN[:n_into], CORRUPTED[:n_source], Z)

    def test_an_unknown_hook(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match=r"no hook point 'hook_z'; near names: .*blocks.0.attn.hook_z"):
            patch_positions_from(model, CLEAN, CORRUPTED, "hook_z")

    def test_a_hook_without_positions(self, model: HookedAttention) -> None:
        with pytest.raises(BoolensError, match=r"hook_logit has axes .'batch',., so no 'pos' axis"):
            patch_positions_from(model, CLEAN, CORRUPTED, "hook_logit")


class TestRecovered:
    def test_is_0_at_the_corrupted_and_1_at_the_clean_value(self) -> None:
        corrupted, clean = np.array([-3.0, 2, 5]), np.array([5.0, -2, 4.5])
        assert recovered(corrupted, corrupted, clean).tolist() == [0, 0, 0]
        assert recovered(clean, corrupted, clean).tolist() == [1, 1, 1]
        # (1 + 3) / 8, (3 - 2) / -4, (6 - 5) / -0.5
        assert recovered(np.array([1.0, 3, 6]), corrupted, clean).tolist() == [0.5, -0.25, -2]

    def test_a_zero_denominator_is_undefined_and_warned_about(self) -> None:
        patched, corrupted, clean = np.array([1.0, 2, 3, 4]), np.array([1.0, 1, 3, 0]), np.array([1.0, 3, 3, 4])
        message = "2 of 4 fractions are undefined: clean and corrupted do not differ there"
        with pytest.warns(UndefinedWarning, match=message):
            fractions = recovered(patched, corrupted, clean)
        np.testing.assert_array_equal(fractions, [math.nan, 0.5, math.nan, 1])

    def test_defined_fractions_come_without_a_warning(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            recovered(np.array([1.0]), np.array([0.0]), np.array([1e-300]))

    def test_shapes_are_broadcast(self) -> None:
        patched = np.arange(6.0).reshape(2, 3)
        fractions = recovered(patched, np.zeros(3), np.array([1.0, 2, 4]))
        assert fractions.tolist() == [[0, 0.5, 0.5], [3, 2, 1.25]]

    def test_single_precision_is_divided_in_double(self) -> None:
        one, three = np.array([1], dtype=np.float32), np.array([3], dtype=np.float32)
        assert recovered(one, np.zeros_like(one), three).tolist() == [1 / 3]

    def test_undefined_input_stays_undefined(self) -> None:
        assert np.isnan(recovered(np.array([math.nan]), np.array([0.0]), np.array([1.0]))).all()
