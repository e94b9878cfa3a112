"""When did the parts of the solution form? The measures of `interp.formation` at every snapshot of a run.

A measure locks on at the first snapshot from which on it stays near its final value: within ± BAND of its range over
the run. A lock-on near the end says that the measure was still moving when training stopped, not that it formed late.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float

from analyses.results import Rows
from analyses.runs import Run
from interp.checkpoint import load_model, snapshot_path
from interp.errors import BoolensError
from interp.formation import (
    BAND,
    MEASURES,
    attention_measures,
    flip_scores_of,
    label_measures,
    lock_on,
    pattern_measures,
    precision,
    with_flips,
)
from interp.hooks import run as run_model
from interp.plots import plot_formation
from interp.readout import direct_readout
from interp.recovery import PATTERN
from interp.stack import Inputs, ParameterBlock, stack_logits
from interp.tables import attention_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.models import AnyModel, HookedAttention, HookedCls

NAME = "formation"
MISSING = "it has no snapshots from step 0 on; train it with --snapshot-every N"
"""Why it does not apply, where it does not."""
N_PROBES = 64
"""Inputs a rule for attention and patching, at every snapshot."""


@dataclass(frozen=True)
class Formation:
    """Every measure at every snapshot.

    Attributes:
        chance: what a measure would be without learning; NaN where that is not known.
        at: step at which a measure locks on, NaN where it does not (`interp.formation.lock_on`).
    """

    steps: tuple[int, ...]
    measures: tuple[str, ...]
    values: Float[np.ndarray, "measure step"]
    chance: Float[np.ndarray, " measure"]
    at: Float[np.ndarray, " measure"]

    def to_json(self) -> dict[str, Any]:
        per_measure = zip(self.measures, self.values, self.chance, self.at, strict=True)
        return {
            "steps": self.steps,
            "band": BAND,
            "measures": {
                name: {"values": values, "chance": chance, "locks_on": at, "range": values.max() - values.min()}
                for name, values, chance, at in per_measure
            },
        }

    def to_rows(self) -> Rows:
        return Rows(["step", *self.measures], [(s, *v) for s, v in zip(self.steps, self.values.T, strict=True)])


def applies(run: Run) -> bool:
    return snapshot_path(run.path, 0).exists() and len(snapshot_steps(run)) > 1


def snapshot_steps(run: Run) -> list[int]:
    """The steps of which the run has snapshots, in order."""
    return sorted(int(path.stem.removeprefix("step-")) for path in (run.path / "snapshots").glob("step-*.safetensors"))


def compute(run: Run) -> Formation:
    """
    Raises:
        BoolensError: the run has no snapshots, or one that is damaged.
    """
    if not applies(run):
        raise BoolensError(f"formation does not apply to {run.path}: {MISSING}")
    steps, task, probe = snapshot_steps(run), run.task, Probe(run)
    at_step = [probe.measure(load_model(run.path, step)) for step in steps]
    measures = tuple(name for name in MEASURES if name in at_step[0])
    values = np.array([[found[name] for found in at_step] for name in measures])
    n_true = float(run.valid.y.double().mean())
    s = np.mean([len(targets) for targets in task.targets])
    chance = {
        "valid-accuracy": max(n_true, 1 - n_true),
        "logit-auroc": 0.5,
        "attention-entropy": 1.0,
        "attention-on-targets": s / task.n_ctx,
        "effective-on-targets": s / task.n_ctx,
        "patching-precision": s / len(task.candidates),
    }
    return Formation(
        steps=tuple(steps),
        measures=measures,
        values=values,
        chance=np.array([chance.get(name, np.nan) for name in measures]),
        at=np.array([lock_on(steps, row) for row in values]),
    )


class Probe:
    """The inputs on which every snapshot of a run is measured, made once."""

    def __init__(self, run: Run) -> None:
        self.task, self.valid_y = run.task, run.valid.y
        rules = range(run.task.n_rules)
        by_rule = [run.inputs(rule, N_PROBES) for rule in rules]
        first = load_model(run.path, 0)
        self.block, self.start = ParameterBlock(first), parameters(first)
        x = torch.cat([run.valid.x, *(with_flips(x) for x in by_rule)])
        self.sizes = [len(run.valid.x), *((run.task.n_ctx + 1) * N_PROBES for _ in rules)]
        self.inputs = Inputs(first.cfg, x[None], self.start.dtype)
        self.x = torch.cat(by_rule)
        is_target = torch.zeros(run.task.n_rules, run.task.n_ctx, dtype=torch.bool)
        for rule, targets in enumerate(run.task.targets):
            is_target[rule, list(targets)] = True
        self.is_target = is_target.repeat_interleave(N_PROBES, dim=0)

    def measure(self, model: "AnyModel") -> dict[str, float]:
        """Every measure that the architecture has."""
        task = self.task
        row = parameters(model)
        valid, *by_rule = stack_logits(model.cfg, self.block, row[None], self.inputs)[0].split(self.sizes)
        found = label_measures(valid, self.valid_y)
        if model.cfg.architecture == "attention":
            with torch.no_grad():
                tables = attention_tables(cast("HookedAttention", model))
                found |= attention_measures(tables, self.x, self.is_target)
        elif model.cfg.architecture == "cls":
            pattern = run_model(model, self.x, record=[PATTERN])[1][PATTERN]
            found |= pattern_measures(pattern, direct_readout(cast("HookedCls", model), self.x), self.is_target)
        precisions = [
            precision(flip_scores_of(logit, task.n_ctx).numpy(), targets, task.candidates)
            for logit, targets in zip(by_rule, task.targets, strict=True)
        ]
        found["patching-precision"] = float(np.mean(precisions))
        found["distance"] = float((row.double() - self.start.double()).norm())
        return found


def parameters(model: "AnyModel") -> torch.Tensor:
    """All parameters in a row."""
    return ParameterBlock(model).flatten([model])[0]


def plot(result: Formation) -> "Figure":
    return plot_formation(result.steps, result.values, result.chance, result.at, measures=result.measures, band=BAND)


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
