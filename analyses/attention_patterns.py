"""Where does attention look, for True and for False inputs?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from analyses.results import Rows, strongest
from analyses.runs import Run
from interp.hooks import run as run_model
from interp.plots import plot_attention_patterns, plot_query_attention
from interp.recovery import PATTERN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "attention-patterns"


@dataclass(frozen=True)
class AttentionPatterns:
    """Patterns over the analysis inputs of each rule.

    Attributes:
        per_sample: pattern onto src, averaged over dest.
        label, rule: of each input.
        mean, sd: of per_sample over the inputs of a rule; over src the mean sums to 1.
        heatmap: mean pattern; rows (dest) sum to 1 over src. A [CLS] transformer has one, and its own key last in src.
    """

    per_sample: Float[np.ndarray, "batch head src"]
    label: Bool[np.ndarray, " batch"]
    rule: Int[np.ndarray, " batch"]
    mean: Float[np.ndarray, "rule head src"]
    sd: Float[np.ndarray, "rule head src"]
    heatmap: Float[np.ndarray, "rule head dest src"]
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        names = ("targets", "rule_positions", "mean", "sd", "heatmap")
        return {"n_inputs": len(self.label), **{name: getattr(self, name) for name in names}}

    def to_rows(self) -> Rows:
        rows = []
        for (rule, head, src), mean in np.ndenumerate(self.mean):
            of_rule = self.per_sample[self.rule == rule, head, src]
            labels = self.label[self.rule == rule]
            by_label = [of_rule[labels == y].mean() if (labels == y).any() else np.nan for y in (True, False)]
            rows.append((rule, head, src, src in self.targets[rule], mean, self.sd[rule, head, src], *by_label))
        return Rows(["rule", "head", "src", "is_target", "mean", "sd", "mean_when_true", "mean_when_false"], rows)


def applies(run: Run) -> bool:
    return run.has_attention


def compute(run: Run) -> AttentionPatterns:
    per_sample, heatmap, labels, rules = [], [], [], []
    for rule in range(run.task.n_rules):
        x = run.inputs(rule)
        pattern = run_model(run.model, x, record=[PATTERN])[1][PATTERN].double()
        per_sample.append(pattern.mean(dim=2))
        heatmap.append(pattern.mean(dim=0))
        labels.append(run.task.label(x))
        rules.append(run.task.rule(x))
    return AttentionPatterns(
        per_sample=torch.cat(per_sample).numpy(),
        label=torch.cat(labels).numpy(),
        rule=torch.cat(rules).numpy(),
        mean=torch.stack([p.mean(dim=0) for p in per_sample]).numpy(),
        sd=torch.stack([p.std(dim=0, correction=1) for p in per_sample]).numpy(),
        heatmap=torch.stack(heatmap).numpy(),
        targets=run.task.targets,
        rule_positions=run.task.rule_positions,
    )


def plot(result: AttentionPatterns) -> "Figure":
    shown = strongest(result.mean)
    if result.heatmap.shape[2] == 1:
        return plot_query_attention(
            result.per_sample, result.label, result.rule, result.mean, result.sd, heads=shown, targets=result.targets,
            rule_positions=result.rule_positions,
        )  # fmt: skip
    return plot_attention_patterns(
        result.per_sample[:, shown],
        result.label,
        result.rule,
        result.mean[:, shown],
        result.sd[:, shown],
        result.heatmap[:, shown],
        heads=shown,
        targets=result.targets,
        rule_positions=result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
