"""Is the model right on every one of the 2**T inputs, and if not, where and how often?

A counterexample is run through the hooked model again, in double precision, before it is believed. As an analysis among
others it looks for a counterexample, a proof and the radius, and samples the probability of error beyond QUICK inputs;
`boolens certify` also finds that probability and the number of wrong inputs exactly, which takes seconds at T = 30.
"""

import copy
import os
from dataclasses import dataclass
from math import comb as binomial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from analyses.results import Rows, position_role
from analyses.runs import Run
from interp.certify.certificate import Box, Certificate, certify
from interp.certify.side import RatioSide, Side
from interp.certify.terms import attention_terms, linear_terms
from interp.hooks import run as run_model
from interp.plots import plot_certificate
from interp.seeds import numpy_generator, torch_generator
from interp.statistics import clopper_pearson
from tasks import Task, label_cover

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "certificate"
MISSING = "a table says nothing of the inputs that it does not hold, so that there is nothing to prove"
QUICK = 2**20
"""Inputs up to which the analysis counts them all."""
N_SAMPLED = 20_000
LEVEL = 0.99
"""Of the interval for a sampled probability of error."""


@dataclass(frozen=True)
class Settings:
    """Attributes: seconds: to stop after; count: find the exact probability of error whatever the number of inputs."""

    seconds: float = 60.0
    count: bool = True


@dataclass(frozen=True)
class Certified:
    """A certificate in the task's terms.

    Attributes:
        found: what `interp.certify` says.
        kind: of the bounds on the probability of error: 'exact', 'bounds', or 'sampled' with a Clopper–Pearson
            interval at LEVEL from N_SAMPLED inputs.
        lower, upper: these bounds.
        logit, worst_logit: of the counterexample and of the worst input, by the hooked model in double precision.
        logit_float32: the same of the counterexample in the stored precision.
        seconds: taken, None for the quick certificate, which is the same every time.
        shares: of inputs by number of changes, how many are wrong, whichever the targets' bits; empty where unknown.
        change: what one change is.
    """

    found: Certificate
    kind: Literal["exact", "bounds", "sampled"]
    lower: float
    upper: float
    logit: float | None
    logit_float32: float | None
    worst_logit: float | None
    seconds: float | None
    shares: Float[np.ndarray, " change"]
    change: str
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]
    n_ctx: int

    def to_json(self) -> dict[str, Any]:
        found = self.found
        bits = [None if x is None else x.tolist() for x in (found.counterexample, found.worst)]
        return {
            "verdict": found.verdict,
            "n_inputs": found.n_inputs,
            "n_wrong": found.n_wrong,
            "error_probability": {
                "lower": self.lower,
                "upper": self.upper,
                "kind": self.kind,
                **({"level": LEVEL, "n": N_SAMPLED} if self.kind == "sampled" else {}),
            },
            "counterexample": bits[0],
            "logit": self.logit,
            "logit_float32": self.logit_float32,
            "changes": found.n_changes,
            "change": self.change,
            "worst": None if bits[1] is None else {"input": bits[1], "logit": self.worst_logit},
            "radius": {"proven": found.radius[0], "at_most": found.radius[1]},
            "wrong_by_changes": None
            if found.by_changes is None
            else {str(n): count for n, count in found.by_changes.items()},
            "method": found.method,
            "margin": found.margin,
            "boxes": found.n_boxes,
            "evaluated": found.n_counted,
            "seconds": self.seconds,
            "sentence": self.sentence,
        }

    def to_rows(self) -> Rows:
        found = self.found
        rows = [
            (name, pos, int(bit), position_role(pos, self.targets, self.rule_positions))
            for name, x in (("counterexample", found.counterexample), ("worst", found.worst))
            if x is not None
            for pos, bit in enumerate(x)
        ]
        return Rows(["input", "pos", "bit", "role"], rows)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        found, n = self.found, f"{self.found.n_inputs:,}"
        if found.verdict == "verified":
            return f"verified: right on all {n} inputs ({found.method})"
        safe = f"proven right with at most {found.radius[0]} {self.change}" if found.radius[0] >= 0 else ""
        if found.verdict == "refuted":
            parts = [f"wrong with {found.n_changes} {self.change} (logit {self.logit:+.3g})", safe]
            if found.n_wrong is not None:
                parts.insert(0, f"wrong on {found.n_wrong:,} of {n} inputs")
        else:
            parts = [found.method, safe]
        if self.kind == "exact":
            chance = f"probability of error {self.upper:.3g}"
        elif self.kind == "bounds":
            chance = f"probability of error from {self.lower:.3g} to {self.upper:.3g}"
        else:
            chance = f"probability of error at most {self.upper:.2g} ({LEVEL:.0%} interval, {N_SAMPLED:,} samples)"
        return f"{found.verdict}: " + "; ".join([*filter(None, parts), chance])


def applies(run: Run) -> bool:
    return run.task.ON_ALL_INPUTS


def compute(run: Run, settings: Settings | None = None) -> Certified:
    """The certificate of a run; without settings the quick one.

    Raises:
        BoolensError: no time.
        TaskError: a task with too many boxes of one label.
    """
    quick = settings is None
    settings = settings or Settings(count=2**run.task.n_ctx <= QUICK)
    task = run.task
    make_side = side_maker(run.model)
    found = certify(
        make_side,
        boxes_of(task),
        np.array(task.bit_probability),
        numpy_generator(run.seed, "certificate", 0),
        seconds=settings.seconds,
        count=settings.count,
        threads=1 if quick else os.cpu_count() or 1,
    )
    model = copy.deepcopy(run.model).double()
    logit, worst = (confirmed(model, task, x) for x in (found.counterexample, found.worst))
    kind, lower, upper = probability(run, make_side, found)
    return Certified(
        found=found,
        kind=kind,
        lower=lower,
        upper=upper,
        logit=logit,
        logit_float32=None if found.counterexample is None else logit_of(run.model, found.counterexample),
        worst_logit=worst,
        seconds=None if quick else found.seconds,
        shares=shares(task, found.by_changes),
        change=f"{'zeros' if task.p >= 0.5 else 'ones'} outside the targets",
        targets=task.targets,
        rule_positions=task.rule_positions,
        n_ctx=task.n_ctx,
    )


def side_maker(model: Any) -> Any:
    """The model against a label, for `interp.certify`."""
    architecture = model.cfg.architecture
    if architecture == "mlp":
        from interp.certify.mlp import MLPSide

        return lambda label, counted: MLPSide(model, label, counted)
    if architecture == "cls":
        from interp.certify.cls import cls_side_maker

        return cls_side_maker(model)
    terms = attention_terms(model) if architecture == "attention" else linear_terms(model)

    def make(label: bool, counted: Int[np.ndarray, " pos"]) -> Side:
        return RatioSide(terms, label, counted)

    return make


def boxes_of(task: Task) -> list[Box]:
    """The task's boxes of one label; a change is the less likely bit outside the targets of the rule in force."""
    boxes = []
    for box in label_cover(task):
        counted = np.full(task.n_ctx, 0 if task.p >= 0.5 else 1, dtype=np.int8)
        counted[[*task.targets[box.rule], *task.rule_positions]] = -1
        boxes.append(Box(box.fixed, box.label, counted))
    return boxes


def logit_of(model: Any, x: Int[np.ndarray, " pos"]) -> float:
    return float(run_model(model, torch.from_numpy(x)[None])[0])


def confirmed(model: Any, task: Task, x: Int[np.ndarray, " pos"] | None) -> float | None:
    """The logit of a counterexample by the hooked model.

    Raises:
        RuntimeError: it is none, which would be a defect of the search.
    """
    if x is None:
        return None
    logit = logit_of(model, x)
    if (logit > 0) == bool(task.label(torch.from_numpy(x)[None])):
        raise RuntimeError(f"{x.tolist()} was found wrong, but the model's logit {logit} is right")
    return logit


def probability(
    run: Run, make_side: Any, found: Certificate
) -> tuple[Literal["exact", "bounds", "sampled"], float, float]:
    """The bounds that are tighter: those proven, or an interval from samples."""
    if not found.open:
        return "exact", found.lower, found.upper
    x = run.task.sample(N_SAMPLED, torch_generator(run.seed, "certificate"))
    true = make_side(False, np.full(run.task.n_ctx, -1)).logits(x.numpy()) > 0
    n_wrong = int((true != run.task.label(x).numpy()).sum())
    low, high = clopper_pearson(n_wrong, N_SAMPLED, LEVEL)
    if found.upper - found.lower <= high - low:
        return "bounds", found.lower, found.upper
    return "sampled", low, high


def shares(task: Task, by_changes: dict[int, int] | None) -> Float[np.ndarray, " change"]:
    """Of all inputs with so many changes, how many are wrong."""
    if by_changes is None:
        return np.zeros(0)
    totals = np.zeros(task.n_ctx + 1)
    for targets in task.targets:
        others = task.n_ctx - len(task.rule_positions) - len(targets)
        ways = np.array([float(2 ** len(targets)) * binomial(others, n) for n in range(others + 1)])
        totals[: others + 1] += ways
    totals = totals[totals > 0]
    return np.array([by_changes.get(n, 0) / total for n, total in enumerate(totals)])


def plot(result: Certified) -> "Figure":
    found = result.found
    shown = [
        (name, x) for name, x in (("fewest changes", found.counterexample), ("worst", found.worst)) if x is not None
    ]
    logits = {"fewest changes": result.logit, "worst": result.worst_logit}
    return plot_certificate(
        np.array([x for _, x in shown], dtype=np.int64).reshape(-1, result.n_ctx),
        result.shares,
        rows=[f"{name}: logit {logits[name]:+.3g}" for name, _ in shown],
        change=result.change,
        harmless=found.radius[0],
        targets=result.targets,
        rule_positions=result.rule_positions,
        n_ctx=result.n_ctx,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
