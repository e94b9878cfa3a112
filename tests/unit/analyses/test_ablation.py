"""Effects of ablations: their sign, their reference, and the interventions that they are made of."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import ablation
from analyses.runs import Run
from analyses.sweeps import SweepOptions
from interp import AttentionConfig, HookedAttention
from interp.errors import BoolensError
from interp.hooks import run as run_model
from interp.interventions import RemoveKey, UnchangedWarning, intervene, patch, positional_hooks, remove_each_key
from tasks import SparseAnd

V, Z = "blocks.0.attn.hook_v", "blocks.0.attn.hook_z"
ZERO, MEAN, RESAMPLE, REMOVE = range(4)


def inputs_and_sign(run: Run, rule: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = run.inputs(rule)
    return x, torch.where(run.task.label(x), 1.0, -1.0)


@pytest.mark.parametrize("name", ["sparse", "rule", "tutorial"])
def test_removing_keys_is_the_intervention_s(name: str, analysed: Callable[[str], Run], result_of: Callable) -> None:
    run, result = analysed(name), result_of(name, "ablation")["result"]
    assert result["kinds"] == ["zero", "mean", "resample", "remove key"]
    assert result["hooks"][-1] == "remove key"
    assert set(result["whole"]) == {*result["hooks"]} - {"remove key"}
    for rule in range(run.task.n_rules):
        x, sign = inputs_and_sign(run, rule)
        clean, removed = run_model(run.model, x)[0], remove_each_key(run.model, x)
        effect = (sign * (clean - removed)).double().mean(dim=1)
        np.testing.assert_allclose(result["effect"][rule][-1][REMOVE], effect, rtol=1e-5, atol=1e-5)
        change = (clean - removed).abs().double().mean(dim=1)
        np.testing.assert_allclose(result["absolute"][rule][-1][REMOVE], change, rtol=1e-5, atol=1e-5)
        right = ((clean > 0) == (sign > 0)).double().mean()
        still = ((removed > 0) == (sign > 0)).double().mean(dim=1)
        np.testing.assert_allclose(result["accuracy"][rule][-1][REMOVE], right - still, atol=1e-9)


@pytest.mark.parametrize("name", ["sparse", "rule", "mlp"])
def test_every_hook_with_positions_and_no_other(name: str, analysed: Callable[[str], Run], result_of: Callable) -> None:
    run, result = analysed(name), result_of(name, "ablation")["result"]
    removed = ["remove key"] if run.has_attention else []
    assert result["hooks"] == positional_hooks(run.model.hook_names) + removed
    effect = np.array(result["effect"], dtype=float)
    assert effect.shape == (run.task.n_rules, len(result["hooks"]), 4, run.task.n_ctx)
    n = len(positional_hooks(run.model.hook_names))
    assert np.isfinite(effect[:, :n, :REMOVE]).all()
    assert np.isnan(effect[:, :n, REMOVE]).all()
    assert np.isnan(effect[:, n:, :REMOVE]).all()


def test_zero_and_mean_of_z(analysed: Callable[[str], Run], result_of: Callable) -> None:
    """Recomputed from z itself; the mean is over the inputs of both rules."""
    run, result = analysed("rule"), result_of("rule", "ablation")["result"]
    h = result["hooks"].index(Z)
    everything = torch.cat([run.inputs(rule) for rule in range(2)])
    mean = run_model(run.model, everything, record=[Z])[1][Z].mean(dim=0)
    weight: Any = run.model.W_readout
    for rule in range(2):
        x, sign = inputs_and_sign(run, rule)
        z = run_model(run.model, x, record=[Z])[1][Z]
        for kind, lost in ((ZERO, z), (MEAN, z - mean)):
            terms = (lost * weight.detach()).sum(dim=(2, 3))
            np.testing.assert_allclose(
                result["effect"][rule][h][kind], (sign[:, None] * terms).mean(dim=0), rtol=1e-4, atol=1e-4
            )


def test_whole_replaces_all_positions_at_once(analysed: Callable[[str], Run], result_of: Callable) -> None:
    run, result = analysed("sparse"), result_of("sparse", "ablation")["result"]
    x, sign = inputs_and_sign(run, 0)
    clean = run_model(run.model, x)[0]
    zeroed = run_model(run.model, x, [patch(Z, torch.zeros(1, 9, 2, 2))])[0]
    assert result["whole"][Z]["zero"] == pytest.approx((sign * (clean - zeroed)).mean().item(), rel=1e-5)
    assert set(result["whole"][Z]) == {"zero", "mean", "resample"}


def test_intervals_hold_the_effect(result_of: Callable[[str, str], Any]) -> None:
    for name in ("rule", "linear"):
        result = result_of(name, "ablation")["result"]
        low, effect, high = (np.array(result[part], dtype=float) for part in ("low", "effect", "high"))
        finite = np.isfinite(effect)
        assert (low[finite] <= effect[finite] + 1e-9).all()
        assert (effect[finite] <= high[finite] + 1e-9).all()
        assert (low[finite] < high[finite]).any()


class TestSign:
    """effect = metric(clean) - metric(ablated) of the logit towards the right label: what helps is positive."""

    @pytest.fixture
    def run(self, weighing_model: Callable, write_run: Callable, tmp_path: Path) -> Run:
        # logit = 8 · x0 + x1 + 8 · x2 - 25/2, right on all inputs
        return write_run(tmp_path / "run", weighing_model([8, 1, 8], 12.5), SparseAnd(3, (0, 2)))

    def test_losing_a_target_hurts(self, run: Run) -> None:
        result = ablation.compute(run, SweepOptions(hooks=("hook_embed", V)))
        for hook, kind in ((V, MEAN), (V, RESAMPLE), ("hook_embed", MEAN)):
            effect = result.effect[0, result.hooks.index(hook), kind]
            assert (effect[[0, 2]] > 0.5).all(), hook
            assert (np.abs(effect[1]) < effect[[0, 2]] / 4).all(), hook
            lost = result.accuracy[0, result.hooks.index(hook), kind]
            assert (lost[[0, 2]] > 0.1).all(), hook
            assert lost[1] == 0

    def test_of_the_logit_itself(self, run: Run) -> None:
        """Zeroing the value of bit i takes weight · bit from the logit: a loss where True, a gain where False."""
        result = ablation.compute(run, SweepOptions(hooks=(V,)))
        assert result.hooks == (V,)
        x, sign = inputs_and_sign(run, 0)
        expected = [(sign * w * x[:, i]).mean().item() for i, w in enumerate((8, 1, 8))]
        np.testing.assert_allclose(result.effect[0, 0, ZERO], expected, rtol=1e-9)
        np.testing.assert_allclose(result.absolute[0, 0, ZERO], (x * torch.tensor([8.0, 1, 8])).mean(dim=0), rtol=1e-9)

    def test_a_harmful_bit_is_better_lost(self, weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
        """Bit 1 pushes False inputs over the threshold: without it the model is right more often."""
        run = write_run(tmp_path / "run", weighing_model([8, 8, 8], 12.5), SparseAnd(3, (0, 2)))
        result = ablation.compute(run, SweepOptions(hooks=(V,)))
        x, sign = inputs_and_sign(run, 0)
        right = ((run.model(x) > 0) == (sign > 0)).double().mean().item()
        assert right < 0.9
        assert result.accuracy[0, 0, ZERO, 1] == pytest.approx(right - 1)

    def test_what_is_the_same_in_every_input_has_no_effect(self, run: Run) -> None:
        with pytest.warns(UnchangedWarning, match="hook_pos_embed changes no activation on these 256 inputs"):
            result = ablation.compute(run, SweepOptions(hooks=("hook_pos_embed",)))
        for array in (result.effect, result.low, result.high, result.absolute, result.accuracy):
            assert (array[0, 0, RESAMPLE] == 0).all()
            np.testing.assert_allclose(array[0, 0, MEAN], 0, atol=1e-12)


def test_an_unknown_hook(analysed: Callable[[str], Run]) -> None:
    with pytest.raises(BoolensError, match=r"no hook point 'hook_zz'; near names"):
        ablation.compute(analysed("linear"), SweepOptions(hooks=("hook_zz",)))


def test_a_single_key_is_not_removed(write_run: Callable, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", HookedAttention(AttentionConfig(n_ctx=1, init_std=1.0)), SparseAnd(1, (0,)))
    with pytest.warns(UnchangedWarning):  # of one key the pattern is 1
        result = ablation.compute(run)
    assert "remove key" not in result.hooks
    assert result.effect.shape == (1, len(result.hooks), 4, 1)
    with pytest.raises(BoolensError, match="has no keys to remove over pos; choose another kind or over"):
        ablation.compute(run, SweepOptions(kinds=("remove key",)))


class TestOptions:
    def test_maps_of_a_pattern_add_up_and_agree_with_rows(self, analysed: Callable[[str], Run]) -> None:
        """The logit is linear in the pattern: zeroing a row is zeroing its cells."""
        run = analysed("sparse")
        options = SweepOptions(hooks=("pattern",), kinds=("zero",), over=("head", "dest", "src"))
        cells, rows = (ablation.compute(run, o) for o in (options, replace(options, over=("head", "pos"))))
        assert cells.effect.shape == (1, 1, 1, 2, 9, 9)
        assert cells.hooks == ("blocks.0.attn.hook_pattern",)
        np.testing.assert_allclose(cells.effect.sum(axis=-1), rows.effect, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(cells.effect.sum(), cells.whole[cells.hooks[0]]["zero"], rtol=1e-4, atol=1e-4)
        assert list(cells.to_rows().columns)[3:7] == ["head", "dest", "src", "is_target"]
        assert len(cells.to_rows().rows) == 2 * 9 * 9

    @pytest.mark.parametrize("metric", ["probability", "loss", "accuracy"])
    def test_metrics(self, metric: str, analysed: Callable[[str], Run]) -> None:
        run = analysed("linear")
        result = ablation.compute(run, SweepOptions(kinds=("zero",), metric=metric))  # pyright: ignore
        x, sign = inputs_and_sign(run, 0)
        of = {
            "probability": torch.sigmoid,
            "loss": lambda signed: -torch.nn.functional.logsigmoid(signed),
            "accuracy": lambda signed: (signed > 0).double(),
        }[metric]
        for pos in range(x.shape[1]):
            without = x.clone()
            without[:, pos] = 0
            expected = (of(sign * run.model(x)) - of(sign * run.model(without))).mean().item()
            assert result.effect[0, 0, 0, pos] == pytest.approx(expected, abs=1e-5)
        if metric == "accuracy":
            np.testing.assert_allclose(result.effect, result.accuracy)

    def test_optimal_constants_hurt_least(self, analysed: Callable[[str], Run]) -> None:
        options = SweepOptions(kinds=("zero", "mean", "optimal"), metric="loss")
        result = ablation.compute(analysed("linear"), options)
        lost = -result.effect[0, 0]  # the loss that is added
        assert result.kinds == ("zero", "mean", "optimal")
        assert (lost[2] <= lost[:2].min(axis=0) + 1e-6).all()
        assert (lost[2] < lost[:2].min(axis=0)).any()

    def test_keys_of_a_head_for_one_query(self, analysed: Callable[[str], Run]) -> None:
        run = analysed("sparse")
        result = ablation.compute(run, SweepOptions(kinds=("remove key",), over=("head", "dest", "src")))
        assert (result.hooks, result.whole) == (("remove key",), {})
        x, sign = inputs_and_sign(run, 0)
        removed, _ = intervene(run.model, x, RemoveKey(src=4, dest=7, head=1))
        expected = (sign * (run.model(x) - removed)).mean().item()
        assert result.effect[0, 0, 0, 1, 7, 4] == pytest.approx(expected, rel=1e-4, abs=1e-6)

    def test_what_cannot_be(self, analysed: Callable[[str], Run]) -> None:
        run = analysed("sparse")
        for options, message in (
            ({"hooks": ("embed",), "over": ("head",)}, r"hook_embed has axes .*, so no 'head' axis"),
            ({"kinds": ("noise",)}, "kind 'noise' is not known; choose from zero, mean, resample, optimal, remove key"),
            ({"kinds": ("remove key",), "over": ("head",)}, "has no keys to remove over head"),
        ):
            with pytest.raises(BoolensError, match=message):
                ablation.compute(run, SweepOptions(**options))  # pyright: ignore
        with pytest.raises(BoolensError, match="no hook point of this model has the axes head; choose another over"):
            ablation.compute(analysed("mlp"), SweepOptions(over=("head",)))
