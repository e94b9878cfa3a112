"""Every analysis of a trained [CLS] transformer, against what its definition says."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from analyses.abstraction import SEARCHED
from analyses.results import MOST_SHOWN, NAMES, strongest
from analyses.runs import Run
from interp.hooks import run as run_model
from interp.interventions import remove_key
from interp.recovery import PATTERN

RUNS = ("cls", "cls-rule")


def result(run: Run, name: str) -> dict[str, Any]:
    return json.loads((run.path / "analyses" / name / "result.json").read_text())["result"]


@pytest.mark.parametrize("name", RUNS)
def test_all_analyses_apply(analysed: Callable[[str], Run], name: str) -> None:
    run = analysed(name)
    done = {path.parent.name for path in run.path.glob("analyses/*/result.json")}
    left_out = {"formation"} if name == "cls-rule" else set()  # it has no snapshots
    assert done == set(NAMES) - left_out
    for analysis in done:
        assert (run.path / "analyses" / analysis / "figure.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", RUNS)
def test_the_verdict_and_every_method(analysed: Callable[[str], Run], name: str) -> None:
    run = analysed(name)
    found = result(run, "target-recovery")
    assert found["accuracy"]["valid"] == 1.0
    assert found["verdict"] == "created"
    assert found["weights_method"].startswith("exact")
    for r, rule in enumerate(found["rules"]):
        methods = rule["methods"]
        x = run.inputs(r)
        clean, cache = run_model(run.model, x, record=[PATTERN])
        onto = cache[PATTERN].mean(dim=(0, 1, 2))
        assert onto.sum().item() == pytest.approx(1)
        candidates = run.task.candidates

        def same(got: list[Any], truth: torch.Tensor, where: Any = candidates) -> None:
            np.testing.assert_allclose([got[i] for i in where], truth[list(where)].numpy(), rtol=1e-3, atol=1e-5)

        same(methods["attention"]["scores"], onto)
        flips, removed = [], []
        for pos in range(run.task.n_ctx):
            turned = x.clone()
            turned[:, pos] = 1 - turned[:, pos]
            flips.append((run.model(turned) - clean).abs().mean().item())
            removed.append((run_model(run.model, x, [remove_key(pos)])[0] - clean).abs().mean().item())
        same(methods["patching"]["scores"], torch.tensor(flips))
        same(methods["ablation"]["scores"], torch.tensor(removed))
        every = run.task.enumerate()
        every = every[run.task.rule(every) == r]
        share = run.task.log_probability(every).exp()
        share = share / share.sum()
        truth = []
        for pos in range(run.task.n_ctx):
            turned = every.clone()
            turned[:, pos] = 1 - turned[:, pos]
            truth.append(((run.model(turned) - run.model(every)).abs() * share).sum().item())
        same(methods["weights"]["scores"], torch.tensor(truth))


def test_terms_of_the_bits_and_what_is_beside_them_are_the_logit(analysed: Callable[[str], Run]) -> None:
    run = analysed("cls-rule")
    found = result(run, "effective-attention")
    assert found["logit_error"] < 1e-4
    for r in range(2):
        mean = run.model(run.inputs(r)).mean().item()
        assert np.sum(found["contribution"][r]) + found["beside"][r]["mean"] == pytest.approx(mean, abs=1e-3)
        assert found["selection"][r]["kind"] in ("keys", "neither")
        assert found["selection"][r]["by_dest"] == []
    assert np.isnan(np.array(found["by_dest"], dtype=float)).all()
    assert np.array(found["mean"]).shape == (2, 5, 8)


def test_cells_that_a_hook_has_not_are_undefined(analysed: Callable[[str], Run]) -> None:
    run = analysed("cls")
    found = result(run, "ablation")
    effect = np.array(found["effect"], dtype=float)  # rule hook kind pos
    assert effect.shape[-1] == 14
    for h, hook in enumerate(found["hooks"]):
        kind = found["kinds"].index("remove key" if hook == "remove key" else "zero")
        there = np.isfinite(effect[0, h, kind])
        whole = hook.rsplit(".", 1)[-1] in ("hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_k", "hook_v")
        assert there.all() == (whole or hook == "remove key"), hook
        assert there[-1]
    patched = result(run, "activation-patching")
    fraction = np.array(patched["fraction"], dtype=float)  # direction hook group pos
    z = patched["hooks"].index("blocks.0.attn.hook_z")
    shown = [g for g, control in enumerate(patched["is_control"]) if not control]
    assert np.isnan(fraction[:, z][..., :-1]).all()
    np.testing.assert_allclose(fraction[:, z, shown, -1], 1, atol=1e-4)  # all that the input does passes through z
    searched = np.array(result(run, "abstraction")["search"], dtype=float)
    assert searched.shape[::2] == (len(SEARCHED), 14)
    assert np.isnan(searched[SEARCHED.index("blocks.0.attn.hook_z"), :, :-1]).all()


def test_circuits_are_the_scores_of_the_one_query(analysed: Callable[[str], Run]) -> None:
    run = analysed("cls-rule")
    found = result(run, "circuits")
    table = np.array(found["qk"]["table"])[:, 0, 0] + np.array(found["qk"]["row_mean"])[:, 0, 0, None, None]
    x = run.inputs(0)[:7]
    scores = run_model(run.model, x, record=["blocks.0.attn.hook_attn_scores"])[1]["blocks.0.attn.hook_attn_scores"]
    for row in range(7):
        own = table[:, np.arange(8), x[row].numpy()]
        np.testing.assert_allclose(own, scores[row, :, 0, :-1].numpy(), rtol=1e-4, atol=1e-5)
    rows = (run.path / "analyses" / "circuits" / "data.csv").read_text().splitlines()
    assert len(rows) == 1 + found["rows"]["written"] == 1 + 2 * 5 * 8 * 2
    assert ",[CLS]," in rows[1]


def test_formation_measures_attention(analysed: Callable[[str], Run]) -> None:
    run = analysed("cls")
    measures = result(run, "formation")["measures"]
    on_targets = measures["attention-on-targets"]["values"]
    assert on_targets[0] == pytest.approx(3 / 14, abs=0.01)  # spread over the bits and [CLS]
    assert on_targets[-1] > 0.6
    assert all(0 <= value <= 1 for value in measures["attention-entropy"]["values"])
    assert measures["attention-entropy"]["values"][0] > 0.99


def test_a_figure_shows_the_heads_that_differ_most() -> None:
    values = np.zeros((2, 6, 5))
    for channel, size in enumerate((0.0, 5, 1, 4, 2, 3)):
        values[:, channel, channel % 5] = size
    assert strongest(values) == [1, 3, 4, 5]
    assert len(strongest(values)) == MOST_SHOWN
    assert strongest(values[:, :3]) == [0, 1, 2]
    assert all(a < b for a, b in pairwise(strongest(values)))
