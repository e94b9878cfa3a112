"""Does the model use exactly the target indices, do the methods agree, and what is the verdict?

For each rule and method of `interp.recovery`: a score a position, the positions on top, and a permutation p-value
over index sets, corrected by Holm over all rules and methods. Where several rules share the verdict, a method's joint
p-value is that of the product of its p-values over tuples of index sets.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Bool, Float

from analyses.results import Rows
from analyses.runs import Run
from analyses.verdict import Accuracy, Verdict, judge, measure_accuracy
from interp.plots import plot_target_recovery
from interp.recovery import METHODS, Ranking, attention_method_scores, flip_scores, rank
from interp.seeds import numpy_generator
from interp.statistics import holm, joint_p_value, permutation_test
from interp.tables import attention_tables, expected_flip_effect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.models import HookedAttention

NAME = "target-recovery"
ENUMERATE_UP_TO = 12
"""Up to this many free bits, `weights` is the exact expectation over all inputs."""
N_WEIGHTS = 1024
"""Inputs a rule that `weights` samples above that."""


@dataclass(frozen=True)
class TargetRecovery:
    """Scores and their ranking; rule positions are NaN in scores and left out of rankings.

    Attributes:
        p_value, p_holm: of each rule and method; joint, joint_holm: of each method over all rules.
        p_exact: whether every permutation test of a rule enumerated all index sets.
        weights_method: how `weights` was computed: 'exact' or 'sampled' with the number of inputs.
    """

    methods: tuple[str, ...]
    scores: Float[np.ndarray, "rule method pos"]
    rankings: tuple[tuple[Ranking, ...], ...]
    match: Bool[np.ndarray, "rule method"]
    p_value: Float[np.ndarray, "rule method"]
    p_holm: Float[np.ndarray, "rule method"]
    joint: Float[np.ndarray, " method"]
    joint_holm: Float[np.ndarray, " method"]
    p_exact: bool
    weights_method: str
    accuracy: Accuracy
    verdict: Verdict
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        rules = []
        for r, targets in enumerate(self.targets):
            methods = {
                name: {
                    "scores": self.scores[r, m],
                    "top": self.rankings[r][m].top,
                    "match": bool(self.match[r, m]),
                    "tie": self.rankings[r][m].tie,
                    "p_value": self.p_value[r, m],
                    "p_holm": self.p_holm[r, m],
                }
                for m, name in enumerate(self.methods)
            }
            rules.append({"rule": r if self.rule_positions else None, "targets": targets, "methods": methods})
        joint = {name: {"p_value": self.joint[m], "p_holm": self.joint_holm[m]} for m, name in enumerate(self.methods)}
        return {
            "rules": rules,
            "joint": joint,
            "p_exact": self.p_exact,
            "weights_method": self.weights_method,
            "accuracy": self.accuracy.to_json(),
            **self.verdict.to_json(),
        }

    def to_rows(self) -> Rows:
        columns = ["rule", "method", "pos", "is_target", "in_top", "score"]
        rows = [
            (r, self.methods[m], pos, pos in self.targets[r], pos in self.rankings[r][m].top, score)
            for (r, m, pos), score in np.ndenumerate(self.scores)
        ]
        return Rows(columns, rows)


def applies(run: Run) -> bool:
    return True


def compute(run: Run) -> TargetRecovery:
    task = run.task
    per_rule = [scores_of_rule(run, rule) for rule in range(task.n_rules)]
    methods = tuple(m for m in METHODS if m in per_rule[0][0])
    scores = np.array([[by_method[m] for m in methods] for by_method, _ in per_rule])
    scores[..., list(task.rule_positions)] = np.nan
    rankings = tuple(
        tuple(rank(scores[r, m], task.candidates, len(targets)) for m in range(len(methods)))
        for r, targets in enumerate(task.targets)
    )
    match = np.array(
        [[set(k.top) == set(t) and not k.tie for k in row] for row, t in zip(rankings, task.targets, strict=True)]
    )
    generator = numpy_generator(run.seed, "statistics")
    tests = [
        [permutation_test(scores[r, m], targets, task.candidates, generator) for m in range(len(methods))]
        for r, targets in enumerate(task.targets)
    ]
    p_value = np.array([[t.p_value for t in row] for row in tests])
    joint = np.array([joint_p_value([row[m] for row in tests], generator)[0] for m in range(len(methods))])
    accuracy = measure_accuracy(run)
    return TargetRecovery(
        methods=methods,
        scores=scores,
        rankings=rankings,
        match=match,
        p_value=p_value,
        p_holm=holm(p_value),
        joint=joint,
        joint_holm=holm(joint),
        p_exact=all(t.exact for row in tests for t in row),
        weights_method=per_rule[0][1],
        accuracy=accuracy,
        verdict=judge(run, accuracy, methods, rankings, match, joint, per_rule[0][1].startswith("exact")),
        targets=task.targets,
        rule_positions=task.rule_positions,
    )


def scores_of_rule(run: Run, rule: int) -> tuple[dict[str, np.ndarray], str]:
    """Every method's scores under a rule, and how `weights` was computed."""
    x = run.inputs(rule)
    scores = {"patching": flip_scores(run.model, x)}
    how = "does not apply"
    if run.has_attention:
        model = cast("HookedAttention", run.model)
        scores |= attention_method_scores(model, x)
        scores["weights"], how = weights_scores(run, model, rule)
    return {name: s.double().numpy() for name, s in scores.items()}, how


def weights_scores(run: Run, model: "HookedAttention", rule: int) -> tuple[Any, str]:
    """The expected change by a flip, from float64 tables: exact where all inputs can be listed, else sampled."""
    import torch

    task = run.task
    with torch.no_grad():
        tables = attention_tables(model, torch.float64)
        if task.n_ctx - len(task.rule_positions) > ENUMERATE_UP_TO:
            return expected_flip_effect(tables, run.inputs(rule, N_WEIGHTS)), f"sampled: {N_WEIGHTS} inputs a rule"
        x = task.enumerate()
        x = x[task.rule(x) == rule]
        probability = task.log_probability(x).exp() * task.n_rules
        return expected_flip_effect(tables, x, probability), "exact: all inputs of the rule"


def plot(result: TargetRecovery) -> "Figure":
    return plot_target_recovery(
        result.scores,
        methods=result.methods,
        top=[[ranking.top for ranking in row] for row in result.rankings],
        match=result.match,
        p_value=result.p_value,
        targets=result.targets,
        rule_positions=result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
