"""Effective attention × value is the logit, on the right side of the pattern, for models of any scale."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import effective_attention as analysis
from analyses.runs import Run
from interp import AttentionConfig, HookedAttention
from interp.attention import effective_attention
from tasks import SparseAnd

runs = pytest.mark.parametrize("name", ["sparse", "rule", "tutorial"])


@runs
def test_contributions_and_bias_are_the_logit(name: str, analysed: Callable[[str], Run], result_of: Callable) -> None:
    run, result = analysed(name), result_of(name, "effective-attention")["result"]
    assert 0 < result["logit_error"] < 1e-4
    model: Any = run.model
    bias = 0.0 if model.b_readout is None else model.b_readout.item()
    assert (bias != 0) == (name == "sparse")
    for rule in range(run.task.n_rules):
        logits = model(run.inputs(rule)).detach().double()
        total = np.sum(result["contribution"][rule])
        assert total + bias == pytest.approx(logits.mean().item(), abs=1e-4)
    assert result["n_inputs"] == 256 * run.task.n_rules


@runs
def test_intervals_hold_the_mean(name: str, result_of: Callable[[str, str], Any]) -> None:
    result = result_of(name, "effective-attention")["result"]
    low, mean, high = (np.array(result[part]) for part in ("low", "mean", "high"))
    assert (low <= mean).all()
    assert (mean <= high).all()
    assert (low < high).any()
    np.testing.assert_allclose(result["strength"], np.abs(mean).sum(axis=1))


def test_channels_are_heads_and_value_dimensions(result_of: Callable[[str, str], Any]) -> None:
    by_name = {name: result_of(name, "effective-attention")["result"]["channels"] for name in ("sparse", "rule")}
    assert by_name["rule"] == ["head 0"]
    assert by_name["sparse"] == ["head 0, value 0", "head 0, value 1", "head 1, value 0", "head 1, value 1"]


def test_variances_by_key_and_by_query(analysed: Callable[[str], Run]) -> None:
    run = analysed("rule")
    result = analysis.compute(run)
    model: Any = run.model
    for rule in range(2):
        x = run.inputs(rule)
        with torch.no_grad():
            resid = model.W_E[x] + model.W_pos
            q, k, v = (resid @ getattr(model.attn, f"W_{name}")[0] for name in "QKV")
            pattern = (q @ k.mT / 2**0.5).softmax(dim=-1)
            terms = model.W_readout[:, 0] * pattern * v[:, :, 0][:, None, :]  # [batch, dest, src]
        np.testing.assert_allclose(result.by_src[rule], terms.sum(dim=1).var(dim=0, correction=0), rtol=1e-3)
        np.testing.assert_allclose(result.by_dest[rule], terms.sum(dim=2).var(dim=0, correction=0), rtol=1e-3)


def test_selection_is_as_many_as_targets_without_the_rule_bit(result_of: Callable[[str, str], Any]) -> None:
    result = result_of("rule", "effective-attention")["result"]
    for r, chosen in enumerate(result["selection"]):
        assert (chosen["rule"], chosen["targets"]) == (r, [[3, 9], [4, 6]][r])
        for key, scores in (("effective_attention", "strength"), ("by_src", "by_src"), ("by_dest", "by_dest")):
            order = np.argsort(-np.array(result[scores][r][:10]))[:2]
            assert chosen[key] == sorted(order.tolist())


def test_the_side_on_which_a_model_selects(
    asking_model: Callable[..., HookedAttention], weighing_model: Callable, write_run: Callable, tmp_path: Path
) -> None:
    """Keys carry the targets in one model, queries in the other."""
    task = SparseAnd(7, (1, 4))
    by_key = write_run(tmp_path / "key", weighing_model([1, 40, 1, 1, 40, 1, 1], 62.5), task)
    by_query = write_run(tmp_path / "query", asking_model(7, (1, 4), (0, 6)), task)
    (keys,) = analysis.compute(by_key).to_json()["selection"]
    (queries,) = analysis.compute(by_query).to_json()["selection"]
    assert (keys["by_src"], queries["by_src"]) == ([1, 4], [0, 6])
    assert queries["by_dest"] == [1, 4]
    assert queries["effective_attention"] == [0, 6]
    assert (keys["kind"], queries["kind"]) == ("keys", "queries")
    assert queries["shares"]["query"] == pytest.approx(1)


@runs
def test_flips_by_side_add_up_to_what_patching_finds(name: str, analysed: Callable[[str], Run], result_of: Any) -> None:
    result = result_of(name, "effective-attention")["result"]
    assert list(result["flips"]) == ["query", "key", "together"]
    whole = np.sum(list(result["flips"].values()), axis=0)
    rules = result_of(name, "target-recovery")["result"]["rules"]
    free = [i for i in range(whole.shape[1]) if i not in analysed(name).task.rule_positions]
    for r, rule in enumerate(rules):
        patching = np.array(rule["methods"]["patching"]["scores"], dtype=float)
        np.testing.assert_allclose(whole[r, free], patching[free], rtol=1e-3, atol=1e-4)
        assert result["selection"][r]["kind"] in ("keys", "keys in target rows", "queries", "both")
    with (analysed(name).path / "analyses" / "effective-attention" / "data.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        by_side = [float(row[f"flip_{side}"]) for side in result["flips"]]
        assert sum(by_side) == pytest.approx(whole[int(row["rule"]), int(row["src"])])


@runs
def test_the_wrong_orientation_is_noticed(
    name: str, analysed: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "effective_attention", lambda pattern, w: effective_attention(pattern.mT, w))
    with pytest.raises(ArithmeticError, match=r"contributions miss the logit by .*; the orientation .* is wrong"):
        analysis.compute(analysed(name))


def test_a_wrong_sum_over_queries_is_noticed(analysed: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "dest_contributions", lambda z, w: (z * w.flip(0)).sum(dim=(2, 3)))
    with pytest.raises(ArithmeticError, match="contributions miss the logit"):
        analysis.compute(analysed("rule"))


@pytest.mark.parametrize("scale", [1.0, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_values_are_no_error_of_orientation(
    scale: float,
    dtype: torch.dtype,
    random_attention: Callable[..., HookedAttention],
    write_run: Callable,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    model = random_attention(5, seed=3, dtype=dtype)
    with torch.no_grad():
        model.get_parameter("blocks.0.attn.W_V").mul_(scale)
    run = write_run(tmp_path / "run", model, SparseAnd(5, (1, 3)))
    analysis.compute(run)
    monkeypatch.setattr(analysis, "effective_attention", lambda pattern, w: effective_attention(pattern.mT, w))
    with pytest.raises(ArithmeticError):
        analysis.compute(run)


def test_applies_to_attention_only(analysed: Callable[[str], Run]) -> None:
    assert [analysis.applies(analysed(name)) for name in ("sparse", "rule", "mlp", "linear")] == [True, True] + [
        False
    ] * 2


def test_one_head_and_one_value_keep_their_axes(write_run: Callable, tmp_path: Path) -> None:
    model = HookedAttention(AttentionConfig(n_ctx=1, init_std=1.0))
    result = analysis.compute(write_run(tmp_path / "run", model, SparseAnd(1, (0,))))
    assert result.mean.shape == (1, 1, 1)
    assert result.by_src.shape == result.by_dest.shape == (1, 1)
