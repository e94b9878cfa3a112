"""Patterns over the analysis inputs: rows sum to 1, and means are those of the model's own patterns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import attention_patterns
from analyses.runs import Run
from interp.hooks import run as run_model
from tasks import SparseAnd

PATTERN = "blocks.0.attn.hook_pattern"
runs = pytest.mark.parametrize("name", ["sparse", "rule", "tutorial"])


@runs
def test_rows_sum_to_one(name: str, result_of: Callable[[str, str], Any]) -> None:
    result = result_of(name, "attention-patterns")["result"]
    heatmap, mean = np.array(result["heatmap"]), np.array(result["mean"])
    np.testing.assert_allclose(heatmap.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(mean.sum(axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(heatmap.mean(axis=2), mean, atol=1e-9)  # over dest
    assert not np.allclose(heatmap.sum(axis=2), 1, atol=1e-3)  # columns do not


@runs
def test_means_are_the_model_s(name: str, analysed: Callable[[str], Run]) -> None:
    run = analysed(name)
    result = attention_patterns.compute(run)
    n_heads = {"sparse": 2, "rule": 1, "tutorial": 1}[name]
    n_ctx, n_rules = run.task.n_ctx, run.task.n_rules
    assert result.per_sample.shape == (256 * n_rules, n_heads, n_ctx)
    assert result.heatmap.shape == (n_rules, n_heads, n_ctx, n_ctx)
    for rule in range(n_rules):
        x = run.inputs(rule)
        pattern = run_model(run.model, x, record=[PATTERN])[1][PATTERN].double().numpy()
        here = result.rule == rule
        assert here.sum() == 256
        np.testing.assert_allclose(result.per_sample[here], pattern.mean(axis=2), rtol=1e-12)
        np.testing.assert_allclose(result.heatmap[rule], pattern.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(result.mean[rule], pattern.mean(axis=(0, 2)), rtol=1e-9)
        np.testing.assert_allclose(result.sd[rule], pattern.mean(axis=2).std(axis=0, ddof=1), rtol=1e-9)
        assert (result.label[here] == run.task.label(x).numpy()).all()


def test_means_by_label(analysed: Callable[[str], Run]) -> None:
    result = attention_patterns.compute(analysed("rule"))
    columns, rows = result.to_rows().columns, result.to_rows().rows
    assert list(columns[-2:]) == ["mean_when_true", "mean_when_false"]
    for rule, head, src, *_, when_true, when_false in rows:
        chosen = result.rule == rule
        true, false = (result.per_sample[chosen & (result.label == y), head, src].mean() for y in (True, False))
        assert (when_true, when_false) == (pytest.approx(true), pytest.approx(false))


def test_a_label_that_never_occurs_has_no_mean(analysed: Callable[[str], Run]) -> None:
    one_sided = attention_patterns.AttentionPatterns(
        per_sample=np.full((2, 1, 3), 1 / 3),
        label=np.array([False, False]),
        rule=np.array([0, 0]),
        mean=np.full((1, 1, 3), 1 / 3),
        sd=np.zeros((1, 1, 3)),
        heatmap=np.full((1, 1, 3, 3), 1 / 3),
        targets=((1,),),
        rule_positions=(),
    )
    for *_, when_true, when_false in one_sided.to_rows().rows:
        assert np.isnan(when_true)
        assert when_false == pytest.approx(1 / 3)


def test_the_heatmap_s_rows_are_queries(weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
    """Queries 0 and 2 prefer keys 0 and 2, queries 1 and 3 none."""
    model = weighing_model([8, 1, 8, 1], 12.5)
    with torch.no_grad():
        model.attn.b_Q.zero_()
        model.attn.W_Q.copy_(torch.tensor([[[1.0], [0.0]]]))  # q = log weight
    run = write_run(tmp_path / "run", model, SparseAnd(4, (0, 2)))
    heatmap = attention_patterns.compute(run).heatmap[0, 0]
    np.testing.assert_allclose(heatmap[[1, 3]], 1 / 4)
    assert (heatmap[np.ix_([0, 2], [0, 2])] > 0.4).all()
