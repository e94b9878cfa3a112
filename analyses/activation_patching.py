"""Which activations carry one target bit, or the rule bit, to the answer?

Clean and corrupted inputs differ in that one bit, and the label with it. Denoising puts a clean activation into the
corrupted run and asks what fraction of the logit difference comes back; noising puts a corrupted one into the clean run
and asks what fraction is lost. As a control, the same for bits that are no targets, in logits (there is no difference
to be a fraction of).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float

from analyses.results import Rows
from analyses.runs import Run
from interp.hooks import run as run_model
from interp.interventions import positional_hooks
from interp.patching import patch_positions_from, recovered
from interp.plots import plot_patching
from interp.seeds import torch_generator
from tasks import Conjunction, Pairs, TaskError, draw_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "activation-patching"
DIRECTIONS = ("denoise", "noise")
N_PAIRS = 64
"""Pairs a group."""
SAME_OR_REPEATED = ("hook_pos_embed", "blocks.0.hook_resid_pre")
"""Left out: position embeddings do not differ between clean and corrupted, and so resid_pre patches what embed does."""


@dataclass(frozen=True)
class ActivationPatching:
    """Means over the pairs of each group.

    Attributes:
        groups: which bit differs between clean and corrupted, e.g. 'target 3' or 'rule bit 10 (rule 0)'.
        fraction: denoise: (patched − corrupted) / (clean − corrupted); noise: (clean − patched) / (clean − corrupted);
            of means over pairs; NaN for controls and where the model does not tell clean from corrupted.
        change: mean absolute change of the logit by the patch, logit.
        difference: mean of clean − corrupted logits, [group].
    """

    groups: tuple[str, ...]
    hooks: tuple[str, ...]
    fraction: Float[np.ndarray, "direction hook group pos"]
    change: Float[np.ndarray, "direction hook group pos"]
    difference: Float[np.ndarray, " group"]
    is_control: tuple[bool, ...]
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        names = ("groups", "hooks", "is_control", "difference", "fraction", "change", "targets", "rule_positions")
        return {"n_pairs": N_PAIRS, "directions": DIRECTIONS, **{n: getattr(self, n) for n in names}}

    def to_rows(self) -> Rows:
        rows = [
            (DIRECTIONS[d], self.hooks[h], self.groups[g], pos, fraction, self.change[d, h, g, pos], self.difference[g])
            for (d, h, g, pos), fraction in np.ndenumerate(self.fraction)
        ]
        columns = ["direction", "hook", "group", "pos", "fraction", "absolute_change", "logit_difference"]
        return Rows(columns, rows)


def applies(run: Run) -> bool:
    return isinstance(run.task, Conjunction)


def compute(run: Run) -> ActivationPatching:
    model = run.model
    groups = draw_groups(run)
    clean = torch.cat([pairs.clean for pairs, _ in groups.values()])
    corrupted = torch.cat([pairs.corrupted for pairs, _ in groups.values()])
    clean_logit, corrupted_logit = run_model(model, clean)[0], run_model(model, corrupted)[0]
    hooks = [h for h in positional_hooks(model.hook_names) if h not in SAME_OR_REPEATED]
    shape = (len(DIRECTIONS), len(hooks), len(groups), run.task.n_ctx)
    fraction, change = np.full(shape, np.nan), np.full(shape, np.nan)
    is_control = tuple(control for _, control in groups.values())

    def by_group(per_pair: torch.Tensor) -> np.ndarray:
        return per_pair.double().unflatten(-1, (len(groups), N_PAIRS)).mean(dim=-1).numpy()

    start, end = by_group(corrupted_logit), by_group(clean_logit)
    told_apart = (end != start) & ~np.array(is_control)
    for h, hook in enumerate(hooks):
        for d, (into, source, before) in enumerate(
            ((corrupted, clean, corrupted_logit), (clean, corrupted, clean_logit))
        ):
            patched = patch_positions_from(model, into, source, hook)
            change[d, h] = by_group((patched - before).abs()).T
            back = recovered(by_group(patched)[:, told_apart], start[told_apart], end[told_apart])
            fraction[d, h, told_apart] = (back if d == 0 else 1 - back).T
    return ActivationPatching(
        tuple(groups),
        tuple(hooks),
        fraction,
        change,
        end - start,
        is_control,
        run.task.targets,
        run.task.rule_positions,
    )


def draw_groups(run: Run) -> dict[str, tuple[Pairs, bool]]:
    """N_PAIRS pairs for each bit that matters and, as controls (True), for bits that do not; by the group's name."""
    task = cast(Conjunction, run.task)
    groups: dict[str, tuple[Pairs, bool]] = {}

    def draw(name: str, kind: Any, rule: int, position: int | None, control: bool = False) -> None:
        generator = torch_generator(run.seed, "pairs", len(groups))
        groups[name] = (draw_pairs(task, kind, N_PAIRS, generator, rule=rule, position=position), control)

    for rule, targets in enumerate(task.targets):
        of_rule = f" (rule {rule})" if task.rule_positions else ""
        for target in targets:
            draw(f"target {target}{of_rule}", "target", rule, target)
        for position in task.rule_positions:
            try:
                draw(f"rule bit {position}{of_rule}", "rule", rule, position)
            except TaskError:
                continue  # no input changes its label with this bit: the other rule's targets are all among this one's
        if len(targets) < len(task.candidates):
            draw(f"non-targets{of_rule}", "non-target", rule, None, control=True)
    return groups


def plot(result: ActivationPatching) -> "Figure":
    shown = [g for g, control in enumerate(result.is_control) if not control]
    return plot_patching(
        result.fraction[:, :, shown],
        directions=("denoise: fraction recovered", "noise: fraction lost"),
        hooks=result.hooks,
        groups=[result.groups[g] for g in shown],
        targets=result.targets,
        rule_positions=result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
