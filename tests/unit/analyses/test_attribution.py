"""Attribution beside exact effects, in groups of pairs, over the cells asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import attribution
from analyses.activation_patching import draw_groups
from analyses.runs import Run
from analyses.sweeps import SweepOptions
from interp.errors import BoolensError
from interp.hooks import run as run_model
from interp.patching import patch_positions_from
from tasks import SparseAnd

V, Z, PATTERN = (f"blocks.0.attn.hook_{name}" for name in ("v", "z", "pattern"))
GRADIENT, INTEGRATED = 0, 1


@pytest.mark.parametrize("name", ["sparse", "rule", "mlp", "linear"])
def test_the_exact_effects_are_those_of_patching(name: str, analysed: Callable, result_of: Callable) -> None:
    run, result = analysed(name), result_of(name, "attribution")["result"]
    h = len(result["hooks"]) - 1
    for g, (pairs, _) in enumerate(draw_groups(run).values()):
        patched = patch_positions_from(run.model, pairs.corrupted, pairs.clean, result["hooks"][h])
        change = (patched - run_model(run.model, pairs.corrupted)[0]).double().mean(dim=1)
        np.testing.assert_allclose(result["exact"][0][h][g], change, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sparse", "rule"])
def test_where_the_logit_is_linear_estimates_are_exact(name: str, result_of: Callable[[str, str], Any]) -> None:
    result = result_of(name, "attribution")["result"]
    estimate, error, gap = (np.array(result[part]) for part in ("estimate", "error", "gap"))
    for hook in (V, Z, PATTERN):
        h = result["hooks"].index(hook)
        np.testing.assert_allclose(error[:, :, h], 0, atol=1e-4)
        np.testing.assert_allclose(gap[:, :, h], 0, atol=1e-3)
    k = result["hooks"].index("blocks.0.attn.hook_k")
    assert error[GRADIENT, 0, k].max() > 1  # and where it is not, they are not
    assert gap[INTEGRATED, 0, k].max() < 0.2 * gap[GRADIENT, 0, k].max()
    assert (np.array(result["low"]) <= estimate + 1e-9).all()
    assert (estimate <= np.array(result["high"]) + 1e-9).all()


@pytest.mark.parametrize("name", ["sparse", "rule"])
def test_terms_and_paths_add_up(name: str, analysed: Callable, result_of: Callable) -> None:
    run, result = analysed(name), result_of(name, "attribution")["result"]
    structure = result["structure"]
    assert structure["routes"] == ["q", "k", "v", "qk", "qv", "kv", "qkv"]
    assert structure["direct_gap"] < 1e-3
    for rule in range(run.task.n_rules):
        mean = run_model(run.model, run.inputs(rule))[0].mean().item()
        assert np.sum(structure["direct"][rule]) + structure["bias"] == pytest.approx(mean, rel=1e-4, abs=1e-4)
    paths = np.array(structure["paths"])
    np.testing.assert_allclose(paths.sum(axis=(1, 2)), structure["path_total"], rtol=1e-3, atol=1e-3)
    embed = np.array(result["exact"])[0, result["hooks"].index("hook_embed")]
    np.testing.assert_allclose(structure["path_total"], embed.sum(axis=-1), rtol=1e-3, atol=1e-3)


def test_without_attention_there_is_no_structure(result_of: Callable[[str, str], Any]) -> None:
    for name in ("mlp", "linear"):
        assert result_of(name, "attribution")["result"]["structure"] is None


def test_a_bit_that_values_alone_carry(weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
    """Queries and keys do not depend on bits: the effect, the bit's weight of 8, goes through v alone."""
    run = write_run(tmp_path / "run", weighing_model([8, 1, 8, 1], 12.5), SparseAnd(4, (0, 2)))
    result = attribution.compute(run, SweepOptions(hooks=("embed",), modes=("denoise", "noise")))
    np.testing.assert_allclose(result.exact[:, 0, 0], [[8, 0, 0, 0], [-8, 0, 0, 0]], atol=1e-9)
    assert result.structure is not None
    np.testing.assert_allclose(result.structure.paths[:2, :, 0], [[0, 0, 8, 0, 0, 0, 0]] * 2, atol=1e-9)


def test_maps_and_metrics(analysed: Callable[[str], Run]) -> None:
    run = analysed("sparse")
    options = SweepOptions(hooks=("pattern",), kinds=("gradient",), metric="probability", over=("head", "dest", "src"))
    result = attribution.compute(run, options)
    assert result.exact.shape == (1, 1, 5, 2, 9, 9)
    assert result.estimate.shape == (1, 1, 1, 5, 2, 9, 9)
    assert (np.abs(result.exact) <= 1).all()
    assert list(result.to_rows().columns)[4:7] == ["head", "dest", "src"]
    with pytest.raises(BoolensError, match="metric 'accuracy' has no gradient; choose one of logit, probability, loss"):
        attribution.compute(run, SweepOptions(metric="accuracy"))
