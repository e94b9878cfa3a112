"""What an AND task's causal model claims that each path of an attention model needs, and how much of the loss is left.

=================  =====================  =====================  ===========================================
hypothesis         the pattern needs      the values need        it says
=================  =====================  =====================  ===========================================
selected bits      rule, selected bits    rule, selected bits    only the selected bits matter
every target       rule, all targets      rule, all targets      the other rules' targets matter too
rule selects       rule, selected bits    selected bits          the rule moves the selection, nothing else
fixed selection    rule                   selected bits          and nothing but the rule moves it
shuffled targets   rule, other bits       rule, other bits       wrong: as many bits that are no targets
=================  =====================  =====================  ===========================================

Without rule bits, 'every target' and 'rule selects' are 'selected bits', and left out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.scrubbing import Scrubbed, scrub_exactly, scrub_sampled
from interp.seeds import numpy_generator, torch_generator
from tasks import Conjunction

if TYPE_CHECKING:
    from interp.models import HookedAttention

EXACT_UP_TO = 11
"""Up to this n_ctx, all inputs and all that the paths may be given are enumerated, if the logit is linear in both."""
N_SAMPLED = 2048
"""Inputs drawn above that."""

Sets = Sequence[Sequence[int]]


def hypotheses(task: Conjunction, generator: torch.Generator) -> dict[str, tuple[Sets, Sets]]:
    """For each hypothesis and rule, the positions that the pattern and the values need.

    Args:
        task: the task.
        generator: draws the shuffled targets, without the true ones as far as there are others; where every position
            is a target there is no wrong set, and no such hypothesis.
    """
    rule = task.rule_positions
    selected = [(*rule, *targets) for targets in task.targets]
    found: dict[str, tuple[Sets, Sets]] = {"selected bits": (selected, selected)}
    if rule:
        every = [tuple(sorted({*rule, *(i for t in task.targets for i in t)}))] * task.n_rules
        found |= {"every target": (every, every), "rule selects": (selected, task.targets)}
    found["fixed selection"] = ([rule] * task.n_rules, task.targets)
    shuffled = []
    for targets in task.targets:
        order = [task.candidates[i] for i in torch.randperm(len(task.candidates), generator=generator).tolist()]
        order.sort(key=lambda i: i in targets)  # stable: targets last
        shuffled.append((*rule, *order[: len(targets)]))
    if all(set(wrong) != set(right) for wrong, right in zip(shuffled, selected, strict=True)):
        found["shuffled targets"] = (shuffled, shuffled)
    return found


def needed_bits(task: Conjunction, x: Int[Tensor, "batch pos"], sets: Sets) -> Bool[Tensor, "batch pos"]:
    """Which bits of each input are in the set of the rule in force."""
    by_rule = torch.zeros(task.n_rules, task.n_ctx, dtype=torch.bool)
    for rule, positions in enumerate(sets):
        by_rule[rule, list(positions)] = True
    return by_rule[task.rule(x)]


def scrub(model: "HookedAttention", task: Conjunction, seed: int) -> dict[str, Scrubbed]:
    """Every hypothesis of `hypotheses` on a model, exactly or on a sample.

    Warns:
        UndefinedWarning: the model is no better than the base rate.
    """
    claims = hypotheses(task, torch_generator(seed, "resample"))

    def masks(x: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [(needed_bits(task, x, a), needed_bits(task, x, b)) for a, b in claims.values()]

    if task.n_ctx <= EXACT_UP_TO and model.cfg.architecture == "attention":
        x = task.enumerate()
        found = scrub_exactly(model, x, task.label(x), task.bit_probability, masks(x), task.p_true)
    else:
        x, *fresh = (task.sample(N_SAMPLED, torch_generator(seed, "resample", i)) for i in range(3))
        bootstrap = numpy_generator(seed, "statistics", 1)
        found = scrub_sampled(model, x, task.label(x), (fresh[0], fresh[1]), masks(x), task.p_true, bootstrap)
    return dict(zip(claims, found, strict=True))
