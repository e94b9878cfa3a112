"""Does the model compute by the task's causal model, and where does it hold each variable?

Interchange interventions take a variable's value from a source input: the causal model says what the label then is,
and patching a site from the source's run into the base's run shows what the model says. Sources are any inputs, or
('minimal') the base input with no more than the variable's own bits from the source. Alignment learns a direction
for a variable, and scrubbing replaces all that the causal model calls irrelevant (see interp.interchange,
interp.alignment, interp.scrubbing).
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float

from analyses.results import Rows
from analyses.runs import Run
from analyses.scrubbing import scrub
from analyses.sweeps import levelled
from interp.alignment import Pairing, aligned_logits, learn_direction, pair_activations, random_directions
from interp.hooks import run as run_model
from interp.interchange import Site, interchange_agreement, share
from interp.models import build_model
from interp.plots import plot_abstraction
from interp.scrubbing import Scrubbed, entropy
from interp.seeds import torch_generator
from tasks import CausalModel, Conjunction, Interchanges, TaskError, draw_interchanges

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.models import HookedAttention

NAME = "abstraction"
MISSING = "it needs a model with attention to look at and a task that is an AND"
N_PAIRS = 256
"""Pairs a variable, at most; searches and directions are chosen on the first half and measured on the second."""
N_RANDOM = 20
"""Random directions that a learned one is compared with."""
EMBED, LOGIT = "hook_embed", "hook_logit"
Q, K, PATTERN, V, Z = (f"blocks.0.attn.hook_{name}" for name in ("q", "k", "pattern", "v", "z"))
SEARCHED = (EMBED, Q, K, PATTERN, V, Z)
WHOLE = (*SEARCHED[1:], LOGIT)
ALIGNED = (EMBED, Z)
SOURCES = ("any", "minimal")
DIRECTIONS = ("learned", "learned at initialisation", "random")


@dataclass(frozen=True)
class Best:
    """The one cell, at a position (dest in the pattern) or of a head, that does best on the first half of the pairs.

    Attributes:
        iia, low, high: of the second half.
    """

    variable: str
    hook: str
    axis: str
    index: int
    iia: float
    low: float
    high: float


@dataclass(frozen=True)
class Abstraction:
    """Interchange-intervention accuracy (IIA) of variables and sites, directions, and scrubbing.

    Attributes:
        variables: those whose value can change the label.
        n_pairs: of each variable.
        unpatched: share of pairs in which the model's label without intervention is the expected one.
        majority, source: share for the more frequent expected label, and for the source's label.
        sites: hook points, the embedding apart by the variable's own bits and the others.
        iia, low, high: with 95 % Clopper–Pearson intervals; NaN where a site has no position.
        search: IIA of single positions over all pairs, sources of any kind; a [CLS] transformer has n_ctx + 1, of
            which q, the pattern and z have only the last.
        aligned: the variables that directions are learned for: rule, AND, and one target.
        alignment, alignment_low, alignment_high: IIA on the pairs that the direction was not learned on, with
            Clopper–Pearson intervals; for random directions the mean, least and largest of N_RANDOM.
        weight: share of the learned direction's squared length at each position.
        scrubbed: by hypothesis, see analyses.scrubbing.
        base_loss: nats, of always giving the label's frequency.
    """

    variables: tuple[str, ...]
    n_pairs: tuple[int, ...]
    unpatched: Float[np.ndarray, " variable"]
    majority: Float[np.ndarray, " variable"]
    source: Float[np.ndarray, " variable"]
    sites: tuple[str, ...]
    iia: Float[np.ndarray, "source variable site"]
    low: Float[np.ndarray, "source variable site"]
    high: Float[np.ndarray, "source variable site"]
    search: Float[np.ndarray, "hook variable pos"]
    best: tuple[Best, ...]
    aligned: tuple[str, ...]
    alignment: Float[np.ndarray, "hook aligned direction"]
    alignment_low: Float[np.ndarray, "hook aligned direction"]
    alignment_high: Float[np.ndarray, "hook aligned direction"]
    weight: Float[np.ndarray, "hook aligned pos"]
    scrubbed: dict[str, Scrubbed]
    base_loss: float
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "sources": SOURCES,
            "search_hooks": SEARCHED,
            "alignment_hooks": ALIGNED,
            "directions": DIRECTIONS,
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "best": [vars(best) for best in self.best],
            "scrubbed": {name: vars(each) for name, each in self.scrubbed.items()},
        }

    def to_rows(self) -> Rows:
        rows: list[tuple[Any, ...]] = []
        for (s, v, i), value in np.ndenumerate(self.iia):
            interval = (self.low[s, v, i], self.high[s, v, i])
            rows.append((f"interchange, {SOURCES[s]} source", self.variables[v], self.sites[i], "", value, *interval))
        for (h, v, pos), value in np.ndenumerate(self.search):
            rows.append(("search", self.variables[v], SEARCHED[h], pos, value, np.nan, np.nan))
        for (h, v, d), value in np.ndenumerate(self.alignment):
            interval = (self.alignment_low[h, v, d], self.alignment_high[h, v, d])
            rows.append((f"direction, {DIRECTIONS[d]}", self.aligned[v], ALIGNED[h], "", value, *interval))
        for name, each in self.scrubbed.items():
            rows.append(("scrubbing", name, "", "", each.recovered, each.low, each.high))
        return Rows(["method", "variable", "site", "pos", "value", "low", "high"], rows)


def applies(run: Run) -> bool:
    return run.has_attention and isinstance(run.task, Conjunction)


def compute(run: Run) -> Abstraction:
    task, model = cast(Conjunction, run.task), double(run.model)
    causal = CausalModel(task)
    drawn = draw_all(causal, run.seed)
    names = tuple(pairs.variable.name for pairs in drawn)
    shares = np.array([site_shares(model, causal, pairs) for pairs in drawn])
    iia, low, high = np.moveaxis(shares, (0, 2), (2, 0))
    searches, best = zip(*(search_sites(model, pairs) for pairs in drawn), strict=True)
    aligned = [i for i, name in enumerate(names) if name in ("rule", "and", f"target {task.targets[0][0]}")]
    untrained = double(build_model(run.config.model, torch_generator(run.seed, "init")))
    directions = [
        [align(model, untrained, drawn[i], hook, torch_generator(run.seed, "pairs", 2, i, h)) for i in aligned]
        for h, hook in enumerate(ALIGNED)
    ]
    alignment = np.array([[values for values, _ in row] for row in directions])
    return Abstraction(
        variables=names,
        n_pairs=tuple(len(pairs.base) for pairs in drawn),
        unpatched=np.array([unpatched(model, pairs) for pairs in drawn]),
        majority=np.array([pairs.majority_baseline for pairs in drawn]),
        source=np.array([pairs.source_baseline for pairs in drawn]),
        sites=("embed, own bits", "embed, other bits", *WHOLE),
        iia=iia,
        low=low,
        high=high,
        search=np.stack(searches, axis=1),
        best=tuple(best),
        aligned=tuple(names[i] for i in aligned),
        alignment=alignment[..., 0],
        alignment_low=alignment[..., 1],
        alignment_high=alignment[..., 2],
        weight=np.stack(levelled([np.array([weight for _, weight in row]) for row in directions], 1)),
        scrubbed=scrub(model, task, run.seed),
        base_loss=entropy(task.p_true),
        targets=task.targets,
        rule_positions=task.rule_positions,
    )


def draw_all(causal: CausalModel, seed: int) -> list[Interchanges]:
    """Pairs for every variable whose value can change the label, the others left out.

    Raises:
        TaskError: inputs of one of the labels are too rare.
    """
    drawn = []
    for i, variable in enumerate(causal.variables):
        try:
            drawn.append(draw_interchanges(causal, variable.name, N_PAIRS, torch_generator(seed, "pairs", 1, i)))
        except TaskError:
            if variable.name == "and":
                raise
    return drawn


def double(model: Any) -> "HookedAttention":
    """A copy in double precision, where no label hangs on rounding."""
    return cast("HookedAttention", copy.deepcopy(model).double())


def site_shares(
    model: "HookedAttention", causal: CausalModel, pairs: Interchanges
) -> Float[np.ndarray, "source estimate site"]:
    """IIA of every site and its interval's bounds; NaN where the site has no position."""
    own = pairs.variable.positions
    others = [pos for pos in range(causal.task.n_ctx) if pos not in own]
    result = np.full((len(SOURCES), 3, 2 + len(WHOLE)), np.nan)
    sites = [Site(EMBED, pos=own), Site(EMBED, pos=others), *map(Site, WHOLE)]
    there = [i for i, site in enumerate(sites) if site.pos != []]
    for s, source in enumerate((pairs.source, causal.minimal_source(pairs.variable.name, pairs.base, pairs.source))):
        agreed = interchange_agreement(model, pairs.base, source, pairs.expected, [sites[i] for i in there])
        found = share(np.array(agreed))
        result[s][:, there] = found.value, found.low, found.high
    return result


def search_sites(model: "HookedAttention", pairs: Interchanges) -> tuple[Float[np.ndarray, "hook pos"], Best]:
    """IIA of every single position, and the best single position or (of several) head."""
    half = len(pairs.base) // 2
    axes = ("pos", "head") if model.cfg.n_heads > 1 else ("pos",)
    sites = [Site(hook, (axis,)) for hook in SEARCHED for axis in (axes if hook != EMBED else ("pos",))]
    found = list(zip(sites, interchange_agreement(model, pairs.base, pairs.source, pairs.expected, sites), strict=True))
    by_pos = [agreed.mean(axis=1) for site, agreed in found if site.over == ("pos",)]
    cells = [(site.hook, site.over[0], i, of_cell) for site, agreed in found for i, of_cell in enumerate(agreed)]
    hook, axis, index, agreed = max(cells, key=lambda cell: cell[-1][:half].mean())
    measured = share(agreed[half:])
    iia, low, high = (float(each) for each in (measured.value, measured.low, measured.high))
    best = Best(pairs.variable.name, hook, axis, index, iia, low, high)
    return np.array(levelled(by_pos, 1)), best


def unpatched(model: "HookedAttention", pairs: Interchanges) -> float:
    return float(((run_model(model, pairs.base)[0] > 0) == pairs.expected).double().mean())


def align(
    model: "HookedAttention", untrained: "HookedAttention", pairs: Interchanges, hook: str, generator: torch.Generator
) -> tuple[Float[np.ndarray, "direction estimate"], Float[np.ndarray, " pos"]]:
    """IIA of each of DIRECTIONS with its bounds, and the learned one's share of squared length by position.

    The model at initialisation answers True above its median logit, which favours it: most such models would give all
    inputs one label otherwise.
    """
    half = len(pairs.base) // 2
    learn, measure = slice(None, half), slice(half, None)
    result = np.full((len(DIRECTIONS), 3), np.nan)
    weight = np.full(pairs.base.shape[1], np.nan)  # if none is learned
    for d, each in enumerate((model, untrained)):
        whole = pair_activations(each, pairs.base, pairs.source, hook)
        on = [whole.rows(rows) for rows in (learn, measure)]
        if not on[0].change.any():
            continue  # a site that never differs holds no variable
        threshold = float(on[0].clean.median()) if d else 0.0
        direction = learn_direction(on[0], pairs.expected[learn], generator, threshold=threshold)
        found = share(agreement(on[1], direction[None], pairs, measure, threshold)[0])
        result[d] = found.value, found.low, found.high
        if d == 0:
            weight = direction.square().flatten(1).sum(dim=1).numpy()
            chance = agreement(on[1], random_directions(on[1], N_RANDOM, generator), pairs, measure, 0.0).mean(axis=1)
            result[2] = chance.mean(), chance.min(), chance.max()
    return result, weight


def agreement(
    pairing: Pairing, directions: torch.Tensor, pairs: Interchanges, rows: slice, threshold: float
) -> np.ndarray:
    """Whether the label is the expected one, [direction, batch]."""
    return ((aligned_logits(pairing, directions) > threshold) == pairs.expected[rows]).numpy()


def plot(result: Abstraction) -> "Figure":
    scrubbed = result.scrubbed.values()
    return plot_abstraction(
        result.iia,
        baselines=np.stack([result.unpatched, result.majority, result.source]),
        search=result.search,
        alignment=result.alignment,
        alignment_low=result.alignment_low,
        alignment_high=result.alignment_high,
        recovered=np.array([each.recovered for each in scrubbed]),
        recovered_low=np.array([each.low for each in scrubbed]),
        recovered_high=np.array([each.high for each in scrubbed]),
        accuracy=np.array([each.accuracy for each in scrubbed]),
        sources=SOURCES,
        variables=result.variables,
        sites=result.sites,
        hooks=SEARCHED,
        aligned=result.aligned,
        aligned_hooks=ALIGNED,
        directions=[*DIRECTIONS[:2], f"random (mean and range of {N_RANDOM})"],
        hypotheses=list(result.scrubbed),
        targets=result.targets,
        rule_positions=result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
