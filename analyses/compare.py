"""Which architecture generalises better, on sparse and on dense functions? (The tutorial's Exercise 3)"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analyses.compare_cell import MEASURES, Cell, train_cell
from analyses.compare_setting import ARCHITECTURES, Rule, Setting
from analyses.options import model_config
from analyses.overview import sets_text
from analyses.progress import Bar
from analyses.results import Rows
from analyses.sample_size import SampleSize, measure_sample_size
from analyses.train import versions
from interp.training import check_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.config import TrainConfig

NAME = "compare"
WORDS = {"tutorial": "tutorial's 100 steps", "converged": "to convergence"}


@dataclass(frozen=True)
class Comparison:
    """All cells, and the sample sizes of Exercise 3.4 on the sparse task by architecture (none if left out)."""

    setting: Setting
    cells: tuple[Cell, ...]
    sample_sizes: tuple[SampleSize, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "cells": [cell.to_json() for cell in self.cells],
            "sample_size": [found.to_json() for found in self.sample_sizes],
            "rules": {
                "training": [rule.to_json() for rule in self.setting.rules],
                "finished": "at the last step, or at every log_every-th step when the training loss is below "
                "stop_loss or the lowest validation loss is `patience` rows old (0: off); the last weights are judged",
                "interval": "95 %: bootstrap over seeds for means, Clopper-Pearson for counts",
                "perfect": "every validation input answered rightly",
                "constant": "one label for all training and validation inputs",
                "sample_size": f"training '{self.setting.rules[-1].name}'; each seed's smallest sufficient size by "
                "bisection over `sizes` with nested training sets; n_train is the smallest size that suffices at least "
                "half of the seeds, its 95 % interval from order statistics; null is beyond `largest`, and every size "
                "is known to one step of `sizes` only",
                "sizes": self.setting.sizes,
            },
        }

    def to_rows(self) -> Rows:
        names = ("density", "n_targets", "training", "architecture", "seed", "targets", "parameters", "n_train")
        rows = []
        for cell in self.cells:
            for i, (seed, task) in enumerate(cell.tasks.items()):
                what = (cell.density, len(task.targets[0]), cell.rule.name, cell.architecture, seed)
                whose = (sets_text(task.targets), cell.parameters, self.setting.n_train)
                steps, *measured = cell.values[i]
                rows.append([*what, *whose, int(steps), *measured, int(cell.constant[i]), cell.stopped[i]])
        return Rows([*names, *MEASURES, "constant", "stopped"], rows)

    @property
    def provenance(self) -> dict[str, Any]:
        return {"options": self.setting.to_json(), "versions": versions()}


def compute(setting: Setting, bar: Bar, device: str = "cpu") -> Comparison:
    """Train every cell's seeds as stacks, then bisect the sample sizes; `bar` counts models.

    Raises:
        BoolensError, TaskError: a device that is not there, or a data set with one label only (before any training).
    """
    check_device(device)
    tasks = {density: setting.tasks(density) for density in setting.densities}
    cells, sample_sizes = [], []
    for density in setting.densities:
        for rule in setting.rules:
            for architecture in ARCHITECTURES:
                cells.append(train_cell(setting, architecture, density, rule, tasks[density], bar, device))
    for architecture in ARCHITECTURES if setting.sizes else ():
        model, rule = model_config(architecture, setting.n_ctx, {}), setting.rules[-1]
        at_most = bar.done + len(setting.seeds) * len(setting.sizes).bit_length()

        def training(n_train: int, rule: Rule = rule, architecture: str = architecture) -> "TrainConfig":
            return rule.training(architecture, n_train, setting.n_valid)

        what = f"{architecture}, sample size"
        found = measure_sample_size(
            *(model, training, tasks["sparse"], setting.sizes),
            device=device,
            on_step=lambda step, jobs, what=what: bar.advance(0, f"{what} {len(jobs[0].data[1])}: step {step}"),
            on_done=lambda job: bar.advance(),
        )
        sample_sizes.append(found)
        bar.advance(at_most - bar.done)
    return Comparison(setting, tuple(cells), tuple(sample_sizes))


def plot(result: Comparison) -> "Figure":
    from interp.plots import Measure, SampleSizes, plot_comparison

    setting, rules = result.setting, result.setting.rules
    shape = (len(setting.densities), len(rules), len(ARCHITECTURES))

    def measure(name: str) -> Measure:
        i = MEASURES.index(name)
        values = np.array([cell.values[:, i] for cell in result.cells]).reshape(*shape, -1)
        low, high = (
            np.array([getattr(cell, end)[i] for cell in result.cells]).reshape(shape) for end in ("low", "high")
        )
        return Measure(values, values.mean(-1), low, high)

    sizes = None
    if result.sample_sizes:
        found = result.sample_sizes
        sizes = SampleSizes(
            tried=setting.sizes,
            per_seed=np.array([f.per_seed for f in found]),
            median=np.array([f.median for f in found]),
            low=np.array([f.low for f in found]),
            high=np.array([f.high for f in found]),
        )
    majority = np.array([cell.column("majority_accuracy") for cell in result.cells]).reshape(*shape, -1)[:, 0, 0]
    return plot_comparison(
        measure("valid_accuracy"),
        measure("balanced_accuracy"),
        measure("valid_loss"),
        majority,
        densities=[f"{d}: AND of {s} of {setting.n_ctx} bits" for d, s in setting.densities.items()],
        trainings=[WORDS.get(rule.name, rule.name) for rule in rules],
        architectures=[("MLP" if a == "mlp" else a) for a in ARCHITECTURES],
        parameters=[cell.parameters for cell in result.cells[: len(ARCHITECTURES)]],
        n_train=setting.n_train,
        n_valid=setting.n_valid,
        sample_sizes=sizes,
    )
