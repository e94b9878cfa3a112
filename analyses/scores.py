"""Every method's scores on a run, under one rule; computed once, and kept with the run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from jaxtyping import Float

from analyses.runs import Run
from interp.recovery import attention_method_scores, flip_scores, head_scores
from interp.seeds import torch_generator

if TYPE_CHECKING:
    from interp.flips import FlipEffects
    from interp.models import HookedAttention, HookedCls

EXACT_UP_TO = 22
"""Up to this many free bits `weights` is exact: 2**22 inputs take 0.2 s and 32 MiB a rule with one head."""
LEVEL = 0.95
"""Of the intervals where `weights` is sampled, for all positions of a rule together."""


@dataclass(frozen=True)
class RuleScores:
    """Attributes: by_method: [pos]; by_head: [head, pos], of models with several; weights: with its interval."""

    by_method: dict[str, Float[np.ndarray, " pos"]]
    by_head: dict[str, Float[np.ndarray, "head pos"]]
    weights: "FlipEffects | None"


def scores_of_rule(run: Run, rule: int, *, looks: int | None = None) -> RuleScores:
    """Every method's scores under a rule; the same object for every analysis of this Run.

    `looks` are those of `interp.flips.sampled_flip_effects`, all by default.
    """
    return run.once(("scores", rule, looks), lambda: _scores_of_rule(run, rule, looks))


def _scores_of_rule(run: Run, rule: int, looks: int | None) -> RuleScores:
    x = run.inputs(rule)
    scores = {"patching": flip_scores(run.model, x).double().numpy()}
    if not run.has_attention:
        return RuleScores(scores, {}, None)
    model = cast("HookedAttention | HookedCls", run.model)
    scores |= {name: s.double().numpy() for name, s in attention_method_scores(model, x).items()}
    weights = weights_effects(run, model, rule, looks)
    heads = head_scores(model, x) if model.cfg.n_heads > 1 else {}
    by_head = {name: s.double().numpy() for name, s in heads.items()}
    return RuleScores({**scores, "weights": weights.mean}, by_head, weights)


def weights_effects(
    run: Run, model: "HookedAttention | HookedCls", rule: int, looks: int | None = None
) -> "FlipEffects":
    """The expected change by a flip, from float64 tables: exact where all inputs are in reach, else sampled."""
    import torch

    from interp.flips import LOOKS, exact_flip_effects, sampled_flip_effects
    from interp.tables import attention_tables

    task = run.task
    generator = torch_generator(run.seed, "analysis", rule, 1)

    def draw(n: int) -> torch.Tensor:
        return task.sample(n, generator, rule=rule)

    s = len(task.targets[rule])
    x = [0] * task.n_ctx
    for position, bit in zip(task.rule_positions, task.rule_bits(rule), strict=True):
        x[position] = bit
    if run.is_cls:
        from interp.cls_flips import cls_flip_effects

        chance = task.bit_probability if task.ON_ALL_INPUTS else None
        return cls_flip_effects(
            cast("HookedCls", model), draw, x, task.candidates, chance, s, level=LEVEL, looks=looks or LOOKS
        )
    with torch.no_grad():
        tables = attention_tables(cast("HookedAttention", model), torch.float64)
    if len(task.candidates) <= EXACT_UP_TO and task.ON_ALL_INPUTS:
        return exact_flip_effects(tables, x, task.candidates, task.bit_probability)
    return sampled_flip_effects(tables, draw, x, task.candidates, s, level=LEVEL, looks=looks or LOOKS)


def weights_method(effects: "tuple[FlipEffects, ...]") -> str:
    """How `weights` was computed, from those of every rule: 'exact ...', 'sampled ...' or 'does not apply'."""
    if not effects:
        return "does not apply"
    if effects[0].separated is None:
        return "exact: all inputs of the rule"
    sizes = sorted({e.n_inputs for e in effects})
    return f"sampled: {' to '.join(map(str, sizes))} inputs a rule, intervals that hold together at {100 * LEVEL:g} %"
