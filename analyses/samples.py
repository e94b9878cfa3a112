"""What do the inputs look like, and how does the model answer them?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from analyses.results import Rows
from analyses.runs import Run
from interp.hooks import run as run_model
from interp.plots import plot_samples
from interp.seeds import torch_generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "samples"
N_SHOWN = 24


@dataclass(frozen=True)
class Samples:
    """Attributes: x, label, rule, logit: inputs drawn from the task's distribution; p_true: P(label = True), exact."""

    x: Int[np.ndarray, "sample pos"]
    label: Bool[np.ndarray, " sample"]
    rule: Int[np.ndarray, " sample"]
    logit: Float[np.ndarray, " sample"]
    p_true: float
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "targets": self.targets,
            "rule_positions": self.rule_positions,
            "p_true": self.p_true,
            "x": self.x,
            "label": self.label,
            "rule": self.rule,
            "logit": self.logit,
        }

    def to_rows(self) -> Rows:
        columns = ["sample", "rule", "label", "logit", *(f"x{i}" for i in range(self.x.shape[1]))]
        cells = zip(self.rule, self.label.astype(int), self.logit, self.x, strict=True)
        return Rows(columns, [(i, r, y, z, *x) for i, (r, y, z, x) in enumerate(cells)])


def applies(run: Run) -> bool:
    return True


def compute(run: Run, n: int = N_SHOWN) -> Samples:
    """n inputs from the task's distribution with the model's logits."""
    x = run.task.sample(n, torch_generator(run.seed, "analysis", run.task.n_rules))
    logit, _ = run_model(run.model, x)
    return Samples(
        x=x.numpy(),
        label=run.task.label(x).numpy(),
        rule=run.task.rule(x).numpy(),
        logit=logit.double().numpy(),
        p_true=run.task.p_true,
        targets=run.task.targets,
        rule_positions=run.task.rule_positions,
    )


def plot(result: Samples) -> "Figure":
    return plot_samples(
        result.x,
        result.label,
        targets=result.targets,
        rule_positions=result.rule_positions,
        rule=result.rule if result.rule_positions else None,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
