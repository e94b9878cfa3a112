"""target-recovery's contract, and its scores, rankings and p-values recomputed."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import scores as scores_module
from analyses import target_recovery as analysis
from analyses import variable_creation
from analyses.heads import find_heads
from analyses.runs import Run
from analyses.scores import weights_effects, weights_method
from interp import HookedAttention
from interp.recovery import attention_method_scores, flip_scores, head_scores
from interp.selection import auroc
from interp.statistics import holm
from tasks import RuleAnd, SparseAnd

WITH_ATTENTION = ["attention", "effective-attention", "contribution", "ablation", "patching", "weights"]
PER_HEAD = ["attention", "effective-attention", "contribution"]
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
        for method, found in rule["methods"].items():
            more = {"heads"} if name == "sparse" and method in PER_HEAD else set()
            more |= {"interval", "separated"} if (name, method) == ("tutorial", "weights") else set()
            assert found.keys() == {"scores", "top", "match", "tie", "auroc", "precision", "p_value", "p_holm"} | more
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

    @pytest.mark.parametrize(("n_ctx", "exact"), [(22, True), (23, False)])
    def test_exact_up_to_twenty_two_bits(
        self, n_ctx: int, exact: bool, weighing_model: Callable, write_run: Callable, tmp_path: Path
    ) -> None:
        """The logit is the sum of weight · bit: a flip changes it by the bit's weight, whatever the input."""
        weights = np.linspace(1, 3, n_ctx).tolist()
        run = write_run(tmp_path / "run", weighing_model(weights, 40.0), SparseAnd(n_ctx, (n_ctx - 2, n_ctx - 1)))
        effects = weights_effects(run, run.model, 0)
        np.testing.assert_allclose(effects.mean, weights, rtol=1e-9)
        assert weights_method((effects,)).startswith("exact" if exact else "sampled")
        assert (effects.n_inputs == 2**22) == exact
        assert (effects.separated is None) == exact

    def test_the_rule_bits_do_not_count(self, random_attention: Callable, write_run: Callable, tmp_path: Path) -> None:
        task = RuleAnd(24, ((0, 3), (1,), (2,), (4, 5)))
        run = write_run(tmp_path / "run", random_attention(24), task)
        effects = weights_effects(run, run.model, 2)
        assert weights_method((effects,)) == "exact: all inputs of the rule"
        assert effects.n_inputs == 2**22
        assert np.flatnonzero(np.isnan(effects.mean)).tolist() == [22, 23]

    def test_sampled_with_an_interval(self, result_of: Callable[[str, str], Any]) -> None:
        result = result_of("tutorial", "target-recovery")["result"]
        assert result["weights_method"] == "sampled: 16384 inputs a rule, intervals that hold together at 95 %"
        (rule,) = result["rules"]
        found = rule["methods"]["weights"]
        assert found["match"]
        assert found["separated"]
        low, high = np.array(found["interval"]).T
        assert (low < found["scores"]).all()
        assert (high > found["scores"]).all()
        others = [pos for pos in range(30) if pos not in rule["targets"]]
        assert low[rule["targets"]].min() > high[others].max()
        patched = np.array(rule["methods"]["patching"]["scores"])
        np.testing.assert_allclose(patched[rule["targets"]], np.array(found["scores"])[rule["targets"]], rtol=0.2)


def test_aurocs_and_precisions_are_those_of_the_scores(result_of: Callable[[str, str], Any]) -> None:
    for rule in result_of("rule", "target-recovery")["result"]["rules"]:
        for found in rule["methods"].values():
            scores = np.array([np.nan if s is None else s for s in found["scores"]])
            assert found["auroc"] == auroc(scores, rule["targets"], range(10))
            assert found["precision"] == len(set(found["top"]) & set(rule["targets"])) / 2


class TestHeads:
    def test_each_by_itself(self, analysed: Callable[[str], Run], result_of: Callable[[str, str], Any]) -> None:
        run, (rule,) = analysed("sparse"), result_of("sparse", "target-recovery")["result"]["rules"]
        scores = head_scores(run.model, run.inputs(0))  # pyright: ignore[reportArgumentType]
        p_values, p_holm = [], []
        for method in PER_HEAD:
            found = rule["methods"][method]["heads"]
            np.testing.assert_allclose([head["scores"] for head in found], scores[method], rtol=1e-4, atol=1e-7)
            for head in found:
                assert head["top"] == np.argsort(-np.array(head["scores"]), kind="stable")[:4].tolist()
                assert head["match"] == (set(head["top"]) == set(rule["targets"]))
                p_values.append(head["p_value"])
                p_holm.append(head["p_holm"])
        assert len(p_values) == 3 * 2
        assert p_holm == holm(np.array(p_values)).tolist()

    def test_the_sentence_names_those_that_find_the_targets(self) -> None:
        """Of three heads, the second finds both targets by attention, none does by contribution."""
        scores = np.zeros((3, 7))
        scores[1, [2, 5]] = 1
        by_head = {"attention": scores + np.arange(7) / 100, "contribution": np.tile(np.arange(7.0), (3, 1))}
        found = find_heads(SparseAnd(7, (2, 5)), [by_head], np.random.default_rng(0))
        assert found is not None
        assert found.match.tolist() == [[[False, True, False], [False] * 3]]
        assert found.p_value[0, 0, 1] == 1 / 21
        assert found.p_holm[0, 0, 1] == pytest.approx(6 / 21)
        assert found.sentences([" under rule 3"]) == (
            "Heads with exactly the targets on top under rule 3: 1 by attention (p after Holm 0.29); "
            "none by contribution.",
        )

    def test_rule_positions_are_left_out(self) -> None:
        task = RuleAnd(5, ((0, 2), (1, 3)))
        by_head = {"attention": np.array([[3.0, 1, 3, 1, 9], [1, 2, 1, 2, 9]])}
        found = find_heads(task, [by_head, by_head], np.random.default_rng(0))
        assert found is not None
        assert found.match.tolist() == [[[True, False]], [[False, True]]]
        assert np.isnan(found.scores[..., 4]).all()

    def test_of_a_model_with_one_there_are_none(self) -> None:
        assert find_heads(SparseAnd(7, (2, 5)), [{}], np.random.default_rng(0)) is None


def test_scores_are_computed_once_a_run(analysed: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = Run(analysed("rule").path), []
    original = scores_module.flip_scores
    monkeypatch.setattr(scores_module, "flip_scores", lambda *given: calls.append(0) or original(*given))
    first = analysis.compute(run)
    variable_creation.compute(run)
    again = analysis.compute(run)
    assert len(calls) == run.task.n_rules
    np.testing.assert_array_equal(first.scores, again.scores)
    analysis.compute(Run(run.path))
    assert len(calls) == 2 * run.task.n_rules


def test_sampled_permutations_say_so(weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
    """C(30, 9) is 14,307,150: too many to list."""
    weights = [50.0 if pos < 9 else 1.0 for pos in range(30)]
    run = write_run(tmp_path / "run", weighing_model(weights, 435.0), SparseAnd(30, tuple(range(9))))
    result = analysis.compute(run)
    assert not result.p_exact
    assert result.p_value[0, result.methods.index("patching")] == 1 / 50_001
    assert result.verdict.verdict == "created"
