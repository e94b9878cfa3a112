"""Does the model use exactly the target indices, do the methods agree, and what is the verdict?

For each rule and method of `interp.recovery`: a score a position, the positions on top, and a permutation p-value
over index sets, corrected by Holm over all rules and methods. Where several rules share the verdict, a method's joint
p-value is that of the product of its p-values over tuples of index sets.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from analyses.heads import Heads, find_heads
from analyses.results import Rows
from analyses.runs import Run
from analyses.scores import scores_of_rule, weights_method
from analyses.selection_side import why_missed
from analyses.verdict import Accuracy, Verdict, judge, measure_accuracy
from interp.plots import plot_target_recovery
from interp.recovery import METHODS, Ranking, rank
from interp.seeds import numpy_generator
from interp.selection import auroc, precision_at
from interp.statistics import holm, joint_p_value, permutation_test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.flips import FlipEffects

NAME = "target-recovery"


@dataclass(frozen=True)
class TargetRecovery:
    """Scores and their ranking; rule positions are NaN in scores and left out of rankings.

    Attributes:
        p_value, p_holm: of each rule and method; joint, joint_holm: of each method over all rules.
        p_exact: whether every permutation test of a rule enumerated all index sets.
        auroc, precision: of the scores for the targets.
        weights: of each rule, `weights` with its interval; () without attention.
        weights_method: how it was computed: 'exact' or 'sampled' with the number of inputs.
        heads: the same findings of every head by itself, of a model with several.
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
    auroc: Float[np.ndarray, "rule method"]
    precision: Float[np.ndarray, "rule method"]
    weights: "tuple[FlipEffects, ...]"
    weights_method: str
    heads: Heads | None
    accuracy: Accuracy
    verdict: Verdict
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        rules = []
        for r, targets in enumerate(self.targets):
            methods = {name: self._method(r, m) for m, name in enumerate(self.methods)}
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

    def _method(self, r: int, m: int) -> dict[str, Any]:
        name = self.methods[m]
        found = {
            "scores": self.scores[r, m],
            "top": self.rankings[r][m].top,
            "match": bool(self.match[r, m]),
            "tie": self.rankings[r][m].tie,
            "auroc": self.auroc[r, m],
            "precision": self.precision[r, m],
            "p_value": self.p_value[r, m],
            "p_holm": self.p_holm[r, m],
        }
        if name == "weights" and self.weights[r].separated is not None:
            ends = np.stack([self.weights[r].low, self.weights[r].high], axis=1)
            found |= {"interval": ends, "separated": self.weights[r].separated}
        if self.heads and name in self.heads.methods:
            found["heads"] = self.heads.to_json(r, name)
        return found

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
    methods = tuple(m for m in METHODS if m in per_rule[0].by_method)
    scores = np.array([[of_rule.by_method[m] for m in methods] for of_rule in per_rule])
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
    pairs = [[(scores[r, m], t, task.candidates) for m in range(len(methods))] for r, t in enumerate(task.targets)]
    weights = tuple(of_rule.weights for of_rule in per_rule if of_rule.weights)
    heads = find_heads(task, [of_rule.by_head for of_rule in per_rule], generator)
    how = weights_method(weights)
    accuracy = measure_accuracy(run)
    why = partial(why_missed, run)
    verdict = judge(run, accuracy, methods, rankings, match, joint, how.startswith("exact"), heads, why)
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
        auroc=np.array([[auroc(*pair) for pair in row] for row in pairs]),
        precision=np.array([[precision_at(*pair) for pair in row] for row in pairs]),
        weights=weights,
        weights_method=how,
        heads=heads,
        accuracy=accuracy,
        verdict=verdict,
        targets=task.targets,
        rule_positions=task.rule_positions,
    )


def plot(result: TargetRecovery) -> "Figure":
    low, high = np.full((2, *result.scores.shape), np.nan)
    for r, effects in enumerate(result.weights):
        if effects.separated is not None:
            low[r, result.methods.index("weights")], high[r, result.methods.index("weights")] = (
                effects.low,
                effects.high,
            )
    return plot_target_recovery(
        result.scores,
        methods=result.methods,
        top=[[ranking.top for ranking in row] for row in result.rankings],
        match=result.match,
        p_value=result.p_value,
        targets=result.targets,
        rule_positions=result.rule_positions,
        low=low,
        high=high,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
