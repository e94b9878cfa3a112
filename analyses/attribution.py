"""How good are gradients as a stand-in for patching, and by which terms and paths does a bit reach the logit?

Pairs of inputs differ in one bit, as in activation-patching. Each cell's patch is estimated from gradients (attribution
patching; integrated gradients) and set beside its exact effect. For attention models the logit is also split into what
each head moves from each src (direct logit attribution), and a bit's effect into the paths by which it gets there:
through queries, keys, values, and what two or three of them do only together.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from analyses.activation_patching import MISSING, N_PAIRS, SAME_OR_REPEATED, applies, draw_groups
from analyses.results import Rows
from analyses.runs import Run
from analyses.sweeps import MODES, SweepOptions, in_parts, levelled
from interp.attribution import attribution_patching, integrated_gradients, pair_values
from interp.errors import BoolensError
from interp.hooks import run as run_model
from interp.interventions import Patch, positional_hooks, sweep
from interp.plots import plot_attribution
from interp.seeds import numpy_generator
from interp.statistics import bootstrap_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.models import HookedAttention

__all__ = ["MISSING", "NAME", "Attribution", "Structure", "applies", "compute", "plot"]

NAME = "attribution"
KINDS = ("gradient", "integrated gradients")
METRICS = {"logit": lambda logits: logits, "probability": torch.sigmoid, "loss": lambda logits: softplus(-logits)}
"""Of logits of pairs whose clean label is True."""


@dataclass(frozen=True)
class Structure:
    """How an attention model's logit is made up.

    Attributes:
        direct: mean over a rule's analysis inputs of what each head moves from each src to the logit.
        bias: the term that no src has.
        direct_gap: largest |sum of the terms − logit|.
        routes: ways from the embedding into a head.
        paths: mean change of the logit by each route when the corrupted bit becomes the clean one, summed over dest.
        path_total: the same by all routes.
    """

    direct: Float[np.ndarray, "rule head src"]
    bias: float
    direct_gap: float
    routes: tuple[str, ...]
    paths: Float[np.ndarray, "group route head"]
    path_total: Float[np.ndarray, " group"]


@dataclass(frozen=True)
class Attribution:
    """Means over the pairs of each group, of changes metric(patched) − metric(unpatched).

    Attributes:
        groups: which bit differs between clean and corrupted.
        kinds: of estimate.
        modes: 'denoise' puts clean activations into the corrupted run, 'noise' the reverse.
        metric: 'logit', 'probability' or 'loss'.
        over: the axes of the cells.
        exact: the effect of patching each cell.
        estimate, low, high: the estimate of it, with its 95 % bootstrap interval over pairs.
        error: mean over pairs of |estimate − exact|.
        gap: mean of |sum of the estimates − effect of patching all cells|, the completeness gap.
        structure: None for other than HookedAttention.
    """

    groups: tuple[str, ...]
    hooks: tuple[str, ...]
    kinds: tuple[str, ...]
    modes: tuple[str, ...]
    metric: str
    over: tuple[str, ...]
    exact: Float[np.ndarray, "mode hook group *cell"]
    estimate: Float[np.ndarray, "kind mode hook group *cell"]
    low: Float[np.ndarray, "kind mode hook group *cell"]
    high: Float[np.ndarray, "kind mode hook group *cell"]
    error: Float[np.ndarray, "kind mode hook group *cell"]
    gap: Float[np.ndarray, "kind mode hook group"]
    structure: Structure | None
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        names = (
            "groups",
            "hooks",
            "kinds",
            "modes",
            "metric",
            "over",
            "exact",
            "estimate",
            "low",
            "high",
            "error",
            "gap",
        )
        structure = None if self.structure is None else vars(self.structure)
        rest = {n: getattr(self, n) for n in (*names, "targets", "rule_positions")}
        return {"n_pairs": N_PAIRS, **rest, "structure": structure}

    def to_rows(self) -> Rows:
        rows = []
        for k, m, h, g, *cell in np.ndindex(self.estimate.shape):
            arrays = (self.estimate, self.low, self.high, self.error)
            numbers = (self.exact[m, h, g, *cell], *(a[k, m, h, g, *cell] for a in arrays))
            rows.append((self.kinds[k], self.modes[m], self.hooks[h], self.groups[g], *cell, *numbers))
        measured = ["exact", "estimate", "low", "high", "mean_absolute_error"]
        return Rows(["kind", "mode", "hook", "group", *self.over, *measured], rows)


def compute(run: Run, options: SweepOptions | None = None) -> Attribution:
    """Estimate every cell's patch at each hook (by default every position, denoising).

    Raises:
        BoolensError: the metric is accuracy, which has no gradient.
    """
    options, model = options or SweepOptions(), run.model
    if options.metric not in METRICS:
        raise BoolensError(f"metric {options.metric!r} has no gradient; choose one of {', '.join(METRICS)}")
    kinds, modes = options.chosen("kinds", KINDS), options.chosen("modes", MODES, ("denoise",))
    groups = draw_groups(run)
    clean, corrupted = (torch.cat([getattr(p, name) for p, _ in groups.values()]) for name in ("clean", "corrupted"))
    default = (h for h in positional_hooks(model.hook_names) if h not in SAME_OR_REPEATED)
    hooks = options.hooks_of(model.hook_names, default)
    reader = METRICS[options.metric]

    def by_group(values: Tensor) -> Float[np.ndarray, "group *cell pair"]:
        return np.moveaxis(values.double().unflatten(-1, (len(groups), N_PAIRS)).numpy(), -2, 0)

    def bounds(values: Float[np.ndarray, "pair cell"]) -> tuple[np.ndarray, np.ndarray]:
        return bootstrap_mean(values, numpy_generator(run.seed, "statistics"))

    exact, estimate, low, high, error, gap = ([[] for _ in modes] for _ in range(6))
    for m, mode in enumerate(modes):
        for hook in hooks:
            x, values = pair_values(model, clean, corrupted, hook, mode)  # pyright: ignore[reportArgumentType]
            patched = sweep(model, x, Patch(hook, values=values, rows="keep"), options.over)
            true = by_group(reader(patched) - reader(run_model(model, x)[0]))
            exact[m].append(true.mean(axis=-1))
            found = [ESTIMATES[kind](model, x, hook, values, options.over, logit=reader) for kind in kinds]
            each = [by_group(one.estimate) for one in found]
            estimate[m].append([one.mean(axis=-1) for one in each])
            ends = [in_parts(bounds, one) for one in each]
            low[m].append([end[0] for end in ends])
            high[m].append([end[1] for end in ends])
            error[m].append([np.abs(one - true).mean(axis=-1) for one in each])
            gap[m].append([np.abs(by_group(one.gap)).mean(axis=-1) for one in found])
    n_axes = len(options.over)
    level = (
        [levelled([np.array(kind) for kind in of_mode], n_axes) for of_mode in a] for a in (estimate, low, high, error)
    )
    kind_first = (np.moveaxis(np.array(a), 2, 0) for a in (*level, gap))
    structure = structure_of(run, clean, corrupted, len(groups)) if run.architecture == "attention" else None
    return Attribution(
        groups=tuple(groups),
        hooks=tuple(hooks),
        kinds=kinds,
        modes=modes,
        metric=options.metric,
        over=options.over,
        exact=np.array([levelled(of_mode, n_axes) for of_mode in exact]),
        **dict(zip(("estimate", "low", "high", "error", "gap"), kind_first, strict=True)),
        structure=structure,
        targets=run.task.targets,
        rule_positions=run.task.rule_positions,
    )


ESTIMATES: dict[str, Any] = dict(zip(KINDS, (attribution_patching, integrated_gradients), strict=True))


def structure_of(run: Run, clean: Tensor, corrupted: Tensor, n_groups: int) -> Structure:
    """Direct terms over the analysis inputs of each rule, and the paths of each group's bit."""
    from interp.direct_attribution import direct_logit_attribution
    from interp.paths import ROUTES, path_effects

    model: HookedAttention = run.model  # pyright: ignore[reportAssignmentType]
    terms = [direct_logit_attribution(model, run.inputs(rule)) for rule in range(run.task.n_rules)]
    paths = path_effects(model, corrupted, clean)
    per_pair = paths.effects.sum(dim=2).double().unflatten(-1, (n_groups, N_PAIRS))
    return Structure(
        direct=np.stack([one.by_src.mean(dim=0).numpy() for one in terms]),
        bias=float(terms[0].bias),
        direct_gap=max(float(one.gap.abs().max()) for one in terms),
        routes=ROUTES,
        paths=per_pair.mean(dim=-1).permute(2, 0, 1).numpy(),
        path_total=paths.total.double().unflatten(0, (n_groups, N_PAIRS)).mean(dim=1).numpy(),
    )


def plot(result: Attribution) -> "Figure":
    n_modes, n_hooks = result.exact.shape[:2]
    of_mode = [f"{mode}, " if n_modes > 1 else "" for mode in result.modes]
    structure = result.structure
    return plot_attribution(
        result.exact.reshape(n_modes * n_hooks, -1),
        result.estimate.reshape(len(result.kinds), n_modes * n_hooks, -1),
        panels=[f"{mode}{hook}" for mode in of_mode for hook in result.hooks],
        kinds=result.kinds,
        unit=result.metric,
        paths=None if structure is None else structure.paths.sum(axis=-1),
        groups=result.groups,
        routes=() if structure is None else structure.routes,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
