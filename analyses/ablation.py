"""What does the answer lose when one position's activation is taken away?

`effect = metric(clean) − metric(ablated)`, per rule, hook, kind and position; the metric is the logit towards the right
label (logit where the label is True, −logit where it is False), so a positive effect says that the ablation hurts.
Mean and resample ablation use all analysis inputs of all rules as their reference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from analyses.results import Rows
from analyses.runs import Run
from interp.ablation import ABLATION_KINDS, ablation
from interp.hooks import run as run_model
from interp.interventions import positional_hooks, remove_each_key, sweep
from interp.plots import plot_ablation
from interp.seeds import derive_seed, numpy_generator
from interp.statistics import bootstrap_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "ablation"
REMOVE = "remove key"
KINDS = (*ABLATION_KINDS, REMOVE)


@dataclass(frozen=True)
class Ablation:
    """Effects over the analysis inputs of each rule; NaN where a kind does not apply to a hook.

    Attributes:
        hooks: hook points; the last, for attention models, is the key itself, removed and the rest renormalised.
        effect, low, high: mean effect on the logit towards the right label, with its 95 % bootstrap interval.
        absolute: mean absolute change of the logit.
        accuracy: accuracy(clean) − accuracy(ablated).
        whole: the effect when all positions are replaced at once (None for removing keys).
    """

    hooks: tuple[str, ...]
    effect: Float[np.ndarray, "rule hook kind pos"]
    low: Float[np.ndarray, "rule hook kind pos"]
    high: Float[np.ndarray, "rule hook kind pos"]
    absolute: Float[np.ndarray, "rule hook kind pos"]
    accuracy: Float[np.ndarray, "rule hook kind pos"]
    whole: dict[str, dict[str, float]]
    n_inputs: int
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        names = ("hooks", "whole", "effect", "low", "high", "absolute", "accuracy", "targets", "rule_positions")
        return {"n_inputs": self.n_inputs, "kinds": KINDS, **{n: getattr(self, n) for n in names}}

    def to_rows(self) -> Rows:
        arrays = (self.effect, self.low, self.high, self.absolute, self.accuracy)
        rows = [
            (r, self.hooks[h], KINDS[k], pos, pos in self.targets[r], *(a[r, h, k, pos] for a in arrays))
            for (r, h, k, pos), effect in np.ndenumerate(self.effect)
            if np.isfinite(effect)
        ]
        columns = [
            "rule",
            "hook",
            "kind",
            "pos",
            "is_target",
            "effect",
            "low",
            "high",
            "absolute_change",
            "accuracy_lost",
        ]
        return Rows(columns, rows)


def applies(run: Run) -> bool:
    return True


def compute(run: Run, hooks: Sequence[str] | None = None) -> Ablation:
    """Ablate each position at each hook (by default every hook point with a position axis) in each way."""
    model, task = run.model, run.task
    x = torch.cat([run.inputs(rule) for rule in range(task.n_rules)])
    sign = torch.where(task.label(x), 1.0, -1.0)
    rules = task.rule(x)
    clean, _ = run_model(model, x)
    chosen = positional_hooks(model.hook_names) if hooks is None else list(hooks)
    ablated: dict[tuple[str, str], Tensor] = {}
    whole: dict[str, dict[str, float]] = {}
    for hook in chosen:
        whole[hook] = {}
        for kind in ABLATION_KINDS:
            replaced = ablation(kind, hook, seed=derive_seed(run.seed, "resample"), rows="keep")
            ablated[hook, kind] = sweep(model, x, replaced)
            everywhere = sweep(model, x, replaced, over=())
            whole[hook][kind] = float((sign * (clean - everywhere)).mean())
    if run.has_attention and task.n_ctx > 1:
        ablated[REMOVE, REMOVE] = remove_each_key(model, x)
        chosen.append(REMOVE)
    shape = (task.n_rules, len(chosen), len(KINDS), task.n_ctx)
    effect, low, high, absolute, accuracy = (np.full(shape, np.nan) for _ in range(5))
    right = (clean > 0) == task.label(x)
    for (hook, kind), logits in ablated.items():
        where = (chosen.index(hook), KINDS.index(kind))
        lost = (sign * (clean - logits)).T.double().numpy()
        still_right = (logits > 0) == task.label(x)
        for rule in range(task.n_rules):
            here = rules == rule
            effect[rule, *where] = lost[here].mean(axis=0)
            low[rule, *where], high[rule, *where] = bootstrap_mean(
                lost[here], numpy_generator(run.seed, "statistics", rule)
            )
            absolute[rule, *where] = np.abs(lost[here]).mean(axis=0)
            accuracy[rule, *where] = (right[here].double().mean() - still_right[:, here].double().mean(dim=1)).numpy()
    return Ablation(
        tuple(chosen), effect, low, high, absolute, accuracy, whole, len(x), task.targets, task.rule_positions
    )


def plot(result: Ablation) -> "Figure":
    n_rules = len(result.targets)
    effect, low, high = (
        rearrange(a, "rule hook kind pos -> (hook rule) kind pos") for a in (result.effect, result.low, result.high)
    )
    panels = [f"{hook}, rule {r}" if n_rules > 1 else hook for hook in result.hooks for r in range(n_rules)]
    return plot_ablation(
        effect,
        low,
        high,
        hooks=panels,
        kinds=KINDS,
        targets=result.targets,
        rule_positions=result.rule_positions,
        panel_rules=[r for _ in result.hooks for r in range(n_rules)],
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
