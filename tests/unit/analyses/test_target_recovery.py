"""target-recovery's contract, and its scores, rankings and p-values recomputed."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import target_recovery as analysis
from analyses.runs import Run
from interp import HookedAttention
from interp.recovery import attention_method_scores, flip_scores
from interp.statistics import holm
from interp.tables import attention_tables, expected_flip_effect
from tasks import RuleAnd, SparseAnd

WITH_ATTENTION = ["attention", "effective-attention", "contribution", "ablation", "patching", "weights"]
METHODS = {"sparse": WITH_ATTENTION, "rule": WITH_ATTENTION, "tutorial": WITH_ATTENTION}
METHODS |= {"mlp": ["patching"], "linear": ["patching"]}
runs = pytest.mark.parametrize("name", METHODS)


@runs
def test_the_contract(name: str, analysed: Callable[[str], Run], result_of: Callable[[str, str], Any]) -> None:
    task, result = analysed(name).task, result_of(name, "target-recovery")["result"]
    assert [rule["rule"] for rule in result["rules"]] == ([0, 1] if name == "rule" else [None])
    assert [rule["targets"] for rule in result["rules"]] == [list(t) for t in task.targets]
    for rule in result["rules"]:
        assert rule.keys() == {"rule", "targets", "methods"}
        assert list(rule["methods"]) == METHODS[name]
        for found in rule["methods"].values():
            assert found.keys() == {"scores", "top", "match", "tie", "p_value", "p_holm"}
            assert len(found["scores"]) == task.n_ctx
            assert len(found["top"]) == len(rule["targets"])
            assert {type(found["match"]), type(found["tie"])} == {bool}
            assert 0 < found["p_value"] <= found["p_holm"] <= 1
    assert {"valid", "majority", "balanced"} <= result["accuracy"].keys()
    assert result["verdict"] in ("created", "mixed", "not created")
    assert isinstance(result["sentence"], str)


@runs
def test_rule_positions_are_left_out(name: str, result_of: Callable[[str, str], Any]) -> None:
    for rule in result_of(name, "target-recovery")["result"]["rules"]:
        for found in rule["methods"].values():
            undefined = [pos for pos, score in enumerate(found["scores"]) if score is None]
            assert undefined == ([10] if name == "rule" else [])
            assert not set(undefined) & set(found["top"])


@runs
def test_tops_and_p_values_are_those_of_the_scores(name: str, result_of: Callable[[str, str], Any]) -> None:
    result = result_of(name, "target-recovery")["result"]
    assert result["p_exact"]
    for rule in result["rules"]:
        for found in rule["methods"].values():
            scores = {pos: score for pos, score in enumerate(found["scores"]) if score is not None}
            ranked = sorted(scores, key=lambda pos: -scores[pos])
            s = len(rule["targets"])
            assert found["top"] == ranked[:s]
            assert found["tie"] == (scores[ranked[s - 1]] == scores[ranked[s]])
            assert found["match"] == (set(found["top"]) == set(rule["targets"]) and not found["tie"])
            observed = sum(scores[t] for t in rule["targets"])
            sums = [sum(chosen) for chosen in itertools.combinations(scores.values(), s)]
            assert found["p_value"] == np.mean([total >= observed * (1 - 1e-9) for total in sums])
            if found["match"]:
                assert found["p_value"] == 1 / len(sums)


@runs
def test_p_values_are_corrected_over_rules_and_methods(name: str, result_of: Callable[[str, str], Any]) -> None:
    result = result_of(name, "target-recovery")["result"]
    found = [m for rule in result["rules"] for m in rule["methods"].values()]
    assert [m["p_holm"] for m in found] == pytest.approx(holm(np.array([m["p_value"] for m in found])).tolist())
    joint = list(result["joint"].values())
    assert list(result["joint"]) == METHODS[name]
    assert [m["p_holm"] for m in joint] == pytest.approx(holm(np.array([m["p_value"] for m in joint])).tolist())
    if name != "rule":
        assert [m["p_value"] for m in joint] == [m["p_value"] for m in found]


def test_two_rules_both_found_have_the_joint_p_of_both(result_of: Callable[[str, str], Any]) -> None:
    result = result_of("rule", "target-recovery")["result"]
    assert all(rule["methods"]["patching"]["match"] for rule in result["rules"])
    assert result["joint"]["patching"]["p_value"] == (1 / 45) * (1 / 45) == 1 / 2025


@pytest.mark.parametrize("name", ["sparse", "rule"])
def test_scores_are_recovery_s_on_the_inputs_of_the_rule(name: str, analysed: Callable, result_of: Callable) -> None:
    run, result = analysed(name), result_of(name, "target-recovery")["result"]
    n = len(run.task.candidates)
    for r, rule in enumerate(result["rules"]):
        x = run.inputs(r)
        assert (run.task.rule(x) == r).all()
        scores = {**attention_method_scores(run.model, x), "patching": flip_scores(run.model, x)}
        for method, expected in scores.items():
            np.testing.assert_allclose(rule["methods"][method]["scores"][:n], expected[:n], rtol=1e-4, atol=1e-6)


class TestWeights:
    @pytest.mark.parametrize("task", [SparseAnd(6, (1, 4), p=0.3), RuleAnd(6, ((0, 3), (1,)), p=0.8)])
    def test_exact_is_patching_over_all_inputs_with_the_task_s_probabilities(
        self, task: Any, random_attention: Callable[..., HookedAttention], write_run: Callable, tmp_path: Path
    ) -> None:
        run = write_run(tmp_path / "run", random_attention(6), task)
        result = analysis.compute(run)
        assert result.weights_method == "exact: all inputs of the rule"
        m = result.methods.index("weights")
        for rule in range(task.n_rules):
            x = task.enumerate()
            x = x[task.rule(x) == rule]
            free = x[:, list(task.candidates)].double()
            probability = (task.p**free * (1 - task.p) ** (1 - free)).prod(dim=1)  # rule bits given
            assert float(probability.sum()) == pytest.approx(1)
            expected = probability @ torch.stack([flip_scores(run.model, row[None]) for row in x])
            n = len(task.candidates)
            np.testing.assert_allclose(result.scores[rule, m, :n], expected[:n], rtol=1e-9)

    @pytest.mark.parametrize(("n_ctx", "exact"), [(12, True), (13, False)])
    def test_exact_up_to_twelve_bits(
        self, n_ctx: int, exact: bool, random_attention: Callable, write_run: Callable, tmp_path: Path
    ) -> None:
        run = write_run(tmp_path / "run", random_attention(n_ctx), SparseAnd(n_ctx, (1, 4)))
        scores, how = analysis.weights_scores(run, run.model, 0)
        assert how == ("exact: all inputs of the rule" if exact else "sampled: 1024 inputs a rule")
        sampled = expected_flip_effect(attention_tables(run.model), run.inputs(0, 1024)).detach()
        assert np.allclose(scores, sampled) != exact
        np.testing.assert_allclose(scores, sampled, rtol=0.2)

    def test_the_rule_bits_do_not_count(self, random_attention: Callable, write_run: Callable, tmp_path: Path) -> None:
        task = RuleAnd(14, ((0, 3), (1,), (2,), (4, 5)))
        run = write_run(tmp_path / "run", random_attention(14), task)
        assert analysis.weights_scores(run, run.model, 0)[1].startswith("exact")


def test_sampled_permutations_say_so(weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
    """C(30, 9) is 14,307,150: too many to list."""
    weights = [50.0 if pos < 9 else 1.0 for pos in range(30)]
    run = write_run(tmp_path / "run", weighing_model(weights, 435.0), SparseAnd(30, tuple(range(9))))
    result = analysis.compute(run)
    assert not result.p_exact
    assert result.p_value[0, result.methods.index("patching")] == 1 / 50_001
    assert result.verdict.verdict == "created"
