"""One cell of the comparison: an architecture on a density in one way of training, over seeds."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from analyses.compare_setting import Rule, Setting
from analyses.options import model_config
from analyses.progress import Bar
from analyses.sample_size import train_cached
from analyses.train import make_job
from interp.hooks import run as run_model
from interp.seeds import numpy_generator
from interp.statistics import bootstrap_mean, clopper_pearson
from interp.training import Job
from tasks import Task

MEASURES = (
    *("steps", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy"),
    *("majority_accuracy", "balanced_accuracy"),
)
"""Of every model: steps taken, losses (nats), accuracies (shares in [0, 1]; the last two of the validation set)."""


@dataclass(frozen=True)
class Cell:
    """One architecture on one density in one way of training.

    Attributes:
        parameters: learnable ones of one model.
        tasks: one a seed.
        values: MEASURES of each seed's model after training; NaN where it diverged.
        stopped: why each seed's training ended.
        constant: whether each seed's model gives all its training and validation inputs one label.
        low, high: 95 % bootstrap interval over seeds of the mean of each measure; NaN for one seed.
    """

    architecture: str
    density: str
    rule: Rule
    parameters: int
    tasks: dict[int, Task]
    values: Float[np.ndarray, "seed measure"]
    stopped: tuple[str, ...]
    constant: tuple[bool, ...]
    low: Float[np.ndarray, " measure"]
    high: Float[np.ndarray, " measure"]

    def column(self, measure: str) -> Float[np.ndarray, " seed"]:
        return self.values[:, MEASURES.index(measure)]

    def summary(self, measure: str) -> dict[str, Any]:
        """Mean, its interval, and median over seeds."""
        i = MEASURES.index(measure)
        of_seeds = self.values[:, i]
        return {"mean": of_seeds.mean(), "interval": [self.low[i], self.high[i]], "median": np.median(of_seeds)}

    def to_json(self) -> dict[str, Any]:
        n, n_perfect = len(self.tasks), int((self.column("valid_accuracy") == 1).sum())
        task = next(iter(self.tasks.values()))
        return {
            "architecture": self.architecture,
            "density": self.density,
            "training": self.rule.name,
            "n_targets": len(task.targets[0]),
            "p": task.p,
            "p_true": task.p_true,
            "parameters": self.parameters,
            "n_seeds": n,
            **{measure: self.summary(measure) for measure in MEASURES},
            "perfect": {"count": n_perfect, "of": n, "interval": clopper_pearson(n_perfect, n)},
            "constant": {"count": sum(self.constant), "of": n, "interval": clopper_pearson(sum(self.constant), n)},
            "stopped": dict(Counter(self.stopped)),
        }


def train_cell(
    setting: Setting, architecture: str, density: str, rule: Rule, tasks: dict[int, Task], bar: Bar, device: str
) -> Cell:
    """Train a cell's seeds as one stack; `bar` counts models."""
    training = rule.training(architecture, setting.n_train, setting.n_valid)
    model = model_config(architecture, setting.n_ctx, {})
    jobs = [make_job(task, model, training, seed) for seed, task in tasks.items()]
    what = f"{architecture}, {density}, {rule.name}"
    train_cached(
        jobs,
        training,
        device=device,
        on_step=lambda step, _: bar.advance(0, f"{what}: step {step}"),
        on_done=lambda _: bar.advance(),
    )
    measured = [_measure(job) for job in jobs]
    values = np.array([row for row, _ in measured])
    low = high = np.full(len(MEASURES), np.nan)
    if len(jobs) > 1:
        low, high = bootstrap_mean(values, numpy_generator(setting.seeds[0], "statistics"))
    return Cell(
        architecture=architecture,
        density=density,
        rule=rule,
        parameters=sum(p.numel() for p in jobs[0].model.parameters()),
        tasks=tasks,
        values=values,
        stopped=tuple(job.stopped for job in jobs),
        constant=tuple(constant for _, constant in measured),
        low=low,
        high=high,
    )


def _measure(job: Job) -> tuple[list[float], bool]:
    """MEASURES of a trained model, and whether it is a constant predictor."""
    x, y = job.valid
    said = run_model(job.model, x)[0] > 0
    right = (said == y).double()
    share = y.double().mean().item()
    step, train_loss, train_accuracy, valid_loss, _ = job.history[-1]
    balanced = (right[y].mean().item() + right[~y].mean().item()) / 2
    answers = {*said.tolist(), *(run_model(job.model, job.data[0])[0] > 0).tolist()}
    row = [step, train_loss, train_accuracy, valid_loss, right.mean().item(), max(share, 1 - share), balanced]
    return row, len(answers) == 1
