"""What does the answer lose when one position's activation is taken away?

`effect = metric(clean) − metric(ablated)`, per rule, hook, kind and cell; the metric is by default the logit towards
the right label (logit where the label is True, −logit where it is False), so a positive effect says that the ablation
hurts. Mean, resample and optimal ablation use all analysis inputs of all rules as their reference.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from analyses.results import Rows
from analyses.runs import Run
from analyses.sweeps import SweepOptions, all_cells, in_parts, place_of, plot_cells
from interp.ablation import ABLATION_KINDS, ablation
from interp.effects import score
from interp.errors import BoolensError
from interp.hooks import run as run_model
from interp.interventions import SCORES, AtHook, OptimalAblate, RemoveKey, positional_hooks, sweep
from interp.plots import plot_ablation
from interp.seeds import derive_seed, numpy_generator
from interp.statistics import bootstrap_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "ablation"
REMOVE = "remove key"
OPTIMAL = "optimal"
KINDS = (*ABLATION_KINDS, REMOVE)
"""By default; with --kind also OPTIMAL."""


@dataclass(frozen=True)
class Ablation:
    """Effects over the analysis inputs of each rule; NaN where a kind does not apply to a hook, or a hook has no such
    position: a [CLS] transformer has n_ctx + 1, of which some hooks have only the last, [CLS]'s own.

    Attributes:
        hooks: hook points; the last, for attention models, is the key itself, removed and the rest renormalised.
        kinds: of ablation.
        metric: what the effects are of (`interp.effects`).
        over: the axes whose cells are ablated one at a time.
        effect, low, high: mean effect on the metric, with its 95 % bootstrap interval over inputs.
        absolute: mean absolute change of the logit.
        accuracy: accuracy(clean) − accuracy(ablated).
        whole: the effect when all cells are replaced at once (None for removing keys).
    """

    hooks: tuple[str, ...]
    kinds: tuple[str, ...]
    metric: str
    over: tuple[str, ...]
    effect: Float[np.ndarray, "rule hook kind *cell"]
    low: Float[np.ndarray, "rule hook kind *cell"]
    high: Float[np.ndarray, "rule hook kind *cell"]
    absolute: Float[np.ndarray, "rule hook kind *cell"]
    accuracy: Float[np.ndarray, "rule hook kind *cell"]
    whole: dict[str, dict[str, float]]
    n_inputs: int
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        names = ("kinds", "metric", "over", "hooks", "whole", "effect", "low", "high", "absolute", "accuracy")
        return {
            "n_inputs": self.n_inputs,
            **{n: getattr(self, n) for n in (*names, "targets", "rule_positions")},
        }

    def to_rows(self) -> Rows:
        arrays = (self.effect, self.low, self.high, self.absolute, self.accuracy)
        rows = []
        for (r, h, k, *cell), effect in np.ndenumerate(self.effect):
            if np.isfinite(effect):
                target = [cell[-1] in self.targets[r]] if self.over[-1] != "head" else []
                at = (r, h, k, *cell)
                rows.append((r, self.hooks[h], self.kinds[k], *cell, *target, *(a[at] for a in arrays)))
        is_target = ["is_target"] if self.over[-1] != "head" else []
        measured = ["effect", "low", "high", "absolute_change", "accuracy_lost"]
        return Rows(["rule", "hook", "kind", *self.over, *is_target, *measured], rows)


def applies(run: Run) -> bool:
    return True


def compute(run: Run, options: SweepOptions | None = None) -> Ablation:
    """Ablate each cell at each hook (by default every position at every hook point that has them) in each way."""
    options = options or SweepOptions()
    model, task = run.model, run.task
    x = torch.cat([run.inputs(rule) for rule in range(task.n_rules)])
    labels, rules = task.label(x), task.rule(x).numpy()
    clean, _ = run_model(model, x)
    kinds = options.chosen("kinds", (*ABLATION_KINDS, OPTIMAL, REMOVE), KINDS)
    replacing = [kind for kind in kinds if kind != REMOVE]
    hooks = options.hooks_of(model.hook_names, positional_hooks(model.hook_names)) if replacing else []

    def replaced(kind: str, hook: str) -> AtHook:
        if kind == OPTIMAL:
            return OptimalAblate(hook, reference=x, labels=labels, rows="keep")
        return ablation(kind, hook, seed=derive_seed(run.seed, "resample"), rows="keep")  # pyright: ignore[reportArgumentType]

    ablated: dict[tuple[str, str], Tensor] = {}
    whole: dict[str, dict[str, float]] = {}
    for hook in hooks:
        whole[hook] = {}
        for kind in replacing:
            ablated[hook, kind] = sweep(model, x, replaced(kind, hook), options.over)
            everywhere = sweep(model, x, replaced(kind, hook), over=())
            change = score(clean, labels, options.metric) - score(everywhere, labels, options.metric)
            whole[hook][kind] = float(change.mean())
    asked = REMOVE in options.kinds or (REMOVE in kinds and not options.hooks)
    if asked and SCORES in model.hook_names and task.n_ctx > 1 and {"pos", "src"} & set(options.over):
        ablated[REMOVE, REMOVE] = sweep(model, x, RemoveKey(), options.over)
        hooks.append(REMOVE)
    if not ablated:
        raise BoolensError(
            f"{run.path} has no keys to remove over {', '.join(options.over)}; choose another kind or over"
        )
    cells = all_cells(logits.shape[:-1] for logits in ablated.values())
    shape = (task.n_rules, len(hooks), len(kinds), *cells)
    effect, low, high, absolute, accuracy = (np.full(shape, np.nan) for _ in range(5))
    for (hook, kind), logits in ablated.items():
        where, place = (hooks.index(hook), kinds.index(kind)), place_of(logits.shape[:-1], cells)
        lost = score(clean, labels, options.metric) - score(logits, labels, options.metric)
        wrong = score(clean, labels, "accuracy") - score(logits, labels, "accuracy")
        change = (logits - clean).abs().double().numpy()
        for rule in range(task.n_rules):
            here, at = rules == rule, (rule, *where, *place)
            effect[at], absolute[at], accuracy[at] = (a[..., here].mean(axis=-1) for a in (lost, change, wrong))
            low[at], high[at] = in_parts(partial(interval, run.seed, rule), lost[..., here])
    return Ablation(
        tuple(hooks), kinds, options.metric, options.over, effect, low, high, absolute, accuracy, whole, len(x),
        task.targets, task.rule_positions,
    )  # fmt: skip


def interval(seed: int, rule: int, lost: Float[np.ndarray, "batch cell"]) -> tuple[np.ndarray, np.ndarray]:
    """The bootstrap interval of every cell's mean, from the same resamples however many cells are asked for."""
    return bootstrap_mean(lost, numpy_generator(seed, "statistics", rule))


def plot(result: Ablation) -> "Figure":
    n_rules, unit = len(result.targets), result.metric
    if result.over == ("pos",):
        effect, low, high = (
            rearrange(a, "rule hook kind pos -> (hook rule) kind pos") for a in (result.effect, result.low, result.high)
        )
        panels = [f"{hook}, rule {r}" if n_rules > 1 else hook for hook in result.hooks for r in range(n_rules)]
        return plot_ablation(
            effect, low, high, hooks=panels, kinds=result.kinds, targets=result.targets, unit=unit,
            rule_positions=result.rule_positions, panel_rules=[r for _ in result.hooks for r in range(n_rules)],
        )  # fmt: skip
    return plot_cells(
        {
            (f"{hook}, {kind}" if hook != kind else hook, r): result.effect[r, h, k]
            for h, hook in enumerate(result.hooks)
            for k, kind in enumerate(result.kinds)
            for r in range(n_rules)
            if np.isfinite(result.effect[r, h, k]).any()
        },
        result.over,
        f"effect, clean − ablated ({unit})",
        result.targets,
        result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
