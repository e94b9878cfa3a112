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
from analyses.sweeps import MODES, SweepOptions, levelled, plot_cells
from interp.effects import fractions, score
from interp.hooks import run as run_model
from interp.interventions import Patch, positional_hooks, sweep
from interp.plots import plot_patching
from interp.seeds import numpy_generator, torch_generator
from tasks import Conjunction, Pairs, TargetFunction, TaskError, draw_pairs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "activation-patching"
MISSING = "pairs need labels of inputs with one bit changed, which a table lacks; target-recovery patches without them"
N_PAIRS = 64
"""Pairs a group."""
SAME_OR_REPEATED = ("hook_pos_embed", "blocks.0.hook_resid_pre")
"""Left out: position embeddings do not differ between clean and corrupted, and so resid_pre patches what embed does."""


@dataclass(frozen=True)
class ActivationPatching:
    """Means over the pairs of each group.

    Attributes:
        groups: which bit differs between clean and corrupted, e.g. 'target 3' or 'rule bit 10 (rule 0)'.
        directions: 'denoise', 'noise'.
        metric: what the fractions are of (`interp.effects`), towards the clean input's label.
        over: the axes whose cells are patched one at a time.
        fraction, low, high: denoise: (patched − corrupted) / (clean − corrupted); noise: (clean − patched) / (clean −
            corrupted); of means over pairs, with its 95 % bootstrap interval over pairs; NaN for controls and where the
            model does not tell clean from corrupted.
        change: mean absolute change of the metric by the patch.
        difference: mean of clean − corrupted, [group].
    """

    groups: tuple[str, ...]
    hooks: tuple[str, ...]
    directions: tuple[str, ...]
    metric: str
    over: tuple[str, ...]
    fraction: Float[np.ndarray, "direction hook group *cell"]
    low: Float[np.ndarray, "direction hook group *cell"]
    high: Float[np.ndarray, "direction hook group *cell"]
    change: Float[np.ndarray, "direction hook group *cell"]
    difference: Float[np.ndarray, " group"]
    is_control: tuple[bool, ...]
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        names = (
            "groups",
            "hooks",
            "directions",
            "metric",
            "over",
            "is_control",
            "difference",
            "fraction",
            "low",
            "high",
        )
        return {"n_pairs": N_PAIRS, **{n: getattr(self, n) for n in (*names, "change", "targets", "rule_positions")}}

    def to_rows(self) -> Rows:
        arrays = (self.fraction, self.low, self.high, self.change)
        rows = [
            (
                self.directions[d],
                self.hooks[h],
                self.groups[g],
                *cell,
                *(a[d, h, g, *cell] for a in arrays),
                self.difference[g],
            )
            for d, h, g, *cell in np.ndindex(self.fraction.shape)
        ]
        measured = ["fraction", "low", "high", "absolute_change", "difference"]
        return Rows(["direction", "hook", "group", *self.over, *measured], rows)


def applies(run: Run) -> bool:
    return isinstance(run.task, Conjunction | TargetFunction)


def compute(run: Run, options: SweepOptions | None = None) -> ActivationPatching:
    """Patch each cell at each hook in both directions."""
    options, model = options or SweepOptions(), run.model
    directions = options.chosen("modes", MODES)
    groups = draw_groups(run)
    clean = torch.cat([pairs.clean for pairs, _ in groups.values()])
    corrupted = torch.cat([pairs.corrupted for pairs, _ in groups.values()])
    labels = torch.cat([pairs.clean_label for pairs, _ in groups.values()])
    ends = [run_model(model, x)[0] for x in (clean, corrupted)]
    default = (h for h in positional_hooks(model.hook_names) if h not in SAME_OR_REPEATED)
    hooks = options.hooks_of(model.hook_names, default)
    is_control = tuple(control for _, control in groups.values())
    whole, none = (score(end, labels, options.metric).reshape(len(groups), N_PAIRS) for end in ends)
    difference = (whole - none).mean(axis=1)
    per_direction = []
    for mode in directions:
        into, source, before = (corrupted, clean, ends[1]) if mode == "denoise" else (clean, corrupted, ends[0])
        per_hook = []
        for hook in hooks:
            patched = sweep(model, into, Patch(hook, source=source, rows="keep"), options.over)
            moved = np.abs(score(patched, labels, options.metric) - score(before, labels, options.metric))
            per_group = []
            for g, control in enumerate(is_control):
                here = slice(g * N_PAIRS, (g + 1) * N_PAIRS)
                change = moved[..., here].mean(axis=-1)
                estimate = [np.full_like(change, np.nan)] * 3
                if difference[g] != 0 and not control:
                    generator = numpy_generator(run.seed, "statistics", g)
                    whole, none, truth = (part[here] for part in (*ends, labels))
                    found = fractions(patched[..., here], whole, none, truth, options.metric, mode, generator)
                    estimate = [found.value, found.low, found.high]
                per_group.append([*estimate, change])
            per_hook.append(np.array(per_group))
        per_direction.append(levelled(per_hook, len(options.over)))
    fraction, low, high, change = np.moveaxis(np.array(per_direction), 3, 0)
    return ActivationPatching(
        tuple(groups), tuple(hooks), directions, options.metric, options.over, fraction, low, high, change, difference,
        is_control, run.task.targets, run.task.rule_positions,
    )  # fmt: skip


def draw_groups(run: Run) -> dict[str, tuple[Pairs, bool]]:
    """N_PAIRS pairs for each bit that matters and, as controls (True), for bits that do not; by the group's name."""
    task = cast("Conjunction | TargetFunction", run.task)
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
    if result.over == ("pos",):
        names = {"denoise": "denoise: fraction recovered", "noise": "noise: fraction lost"}
        return plot_patching(
            result.fraction[:, :, shown], directions=[names[d] for d in result.directions], hooks=result.hooks,
            groups=[result.groups[g] for g in shown], targets=result.targets, rule_positions=result.rule_positions,
            unit=result.metric,
        )  # fmt: skip
    cells = {
        (f"{direction}, {hook}, {result.groups[g]}", 0): result.fraction[d, h, g]
        for d, direction in enumerate(result.directions)
        for h, hook in enumerate(result.hooks)
        for g in shown
    }
    label = f"fraction of the clean − corrupted difference ({result.metric})"
    return plot_cells(
        cells, result.over, label, [sorted({i for t in result.targets for i in t})], result.rule_positions
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
