"""Which heads find the targets: each head's scores, their ranking, and permutation tests, Holm-corrected."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp.recovery import Ranking, rank
from interp.statistics import holm, permutation_test
from tasks import Task


@dataclass(frozen=True)
class Heads:
    """Scores of each head by itself; rule positions are NaN.

    Attributes:
        p_holm: adjusted over all rules, methods and heads here.
    """

    methods: tuple[str, ...]
    scores: Float[np.ndarray, "rule method head pos"]
    rankings: tuple[tuple[tuple[Ranking, ...], ...], ...]
    match: Bool[np.ndarray, "rule method head"]
    p_value: Float[np.ndarray, "rule method head"]
    p_holm: Float[np.ndarray, "rule method head"]

    def to_json(self, rule: int, method: str) -> list[dict[str, Any]]:
        """One entry a head."""
        m = self.methods.index(method)
        return [
            {
                "scores": self.scores[rule, m, head],
                "top": ranking.top,
                "match": bool(self.match[rule, m, head]),
                "tie": ranking.tie,
                "p_value": self.p_value[rule, m, head],
                "p_holm": self.p_holm[rule, m, head],
            }
            for head, ranking in enumerate(self.rankings[rule][m])
        ]

    def sentences(self, where: Sequence[str]) -> tuple[str, ...]:
        """For each rule, named by `where`, which heads have exactly the targets on top."""
        said = []
        for r, rule in enumerate(where):
            found = []
            for m, method in enumerate(self.methods):
                heads = np.flatnonzero(self.match[r, m])
                if len(heads):
                    found.append(
                        f"{', '.join(map(str, heads))} by {method} (p after Holm {self.p_holm[r, m, heads].max():.2g})"
                    )
            missing = [method for m, method in enumerate(self.methods) if not self.match[r, m].any()]
            none = f"none by {' or '.join(missing)}" if missing else ""
            said.append(f"Heads with exactly the targets on top{rule}: {'; '.join(filter(None, [*found, none]))}.")
        return tuple(said)


def find_heads(
    task: Task, by_rule: Sequence[dict[str, Float[np.ndarray, "head pos"]]], generator: np.random.Generator
) -> Heads | None:
    """The findings of every head by every method, or None without scores of single heads."""
    methods = tuple(by_rule[0])
    if not methods:
        return None
    scores = np.array([[of_rule[m] for m in methods] for of_rule in by_rule])
    scores[..., list(task.rule_positions)] = np.nan
    rankings = tuple(
        tuple(tuple(rank(s, task.candidates, len(targets)) for s in of_method) for of_method in of_rule)
        for of_rule, targets in zip(scores, task.targets, strict=True)
    )
    match = np.array(
        [
            [[set(k.top) == set(targets) and not k.tie for k in row] for row in of_rule]
            for of_rule, targets in zip(rankings, task.targets, strict=True)
        ]
    )
    p_value = np.array(
        [
            [[permutation_test(s, targets, task.candidates, generator).p_value for s in row] for row in of_rule]
            for of_rule, targets in zip(scores, task.targets, strict=True)
        ]
    )
    return Heads(methods, scores, rankings, match, p_value, holm(p_value))
