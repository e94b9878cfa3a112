"""One cell of the sample complexity: the smallest sufficient training set of one model, task and T."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from analyses.complexity.quantile import Count, Levels, find_quantile, size_grid
from analyses.options import model_config, task_maker, train_config
from interp.config import MODEL_CONFIGS, ModelConfig, TrainConfig
from interp.errors import BoolensError
from interp.memory import models_at_once
from interp.models import build_model
from interp.seeds import torch_generator
from interp.training import Job, train_stack
from tasks import Dataset, Task
from tasks.identify import smallest_identifying_sample

SCHEMA = 1
"""Raised when a configuration's rows come to differ, so that finished cells are computed again."""
COMPUTE = "analyses.complexity.cell:compute_cell"
MODELS = ("cls", "attention", "mlp", "linear")
TASKS = ("sparse-and", "parity", "majority")
BLOCK = 64
"""Rows of a trial's stream that are drawn at a time, so that its training sets are nested whatever their sizes."""
PROBES = 11
"""Sizes that a cell is reckoned to try: a guess (10 and 18 were counted in two small cells of 12 trials)."""
OVER_FLOOR = 1.4
"""Where the search starts, times the floor."""
REPLICATION = {"steps": 1000, "n_valid": 1000, "log_every": 25}
Tell = Callable[[float, str], None]


@dataclass(frozen=True)
class Options:
    """What to measure. Every value lands in the cells' configurations.

    Attributes:
        models, tasks, n_ctx: the grid.
        n_targets: of every task.
        trials: each with its own targets, data, validation set and initialisation.
        share: of the trials that must reach `accuracy`, in (0, 1).
        accuracy: validation accuracy that is a success, at any logged step, in (0, 1].
        seed: the trials' seeds are this and the next ones.
        largest: most training samples tried.
        model_options, training_options: of the configurations (d_model, ..., lr, steps, ...); None keeps a default.
    """

    models: tuple[str, ...] = ("cls",)
    tasks: tuple[str, ...] = ("sparse-and",)
    n_ctx: tuple[int, ...] = (50, 100, 200, 400, 800, 1600)
    n_targets: int = 3
    trials: int = 50
    share: float = 0.5
    accuracy: float = 1.0
    seed: int = 0
    largest: int = 3200
    model_options: dict[str, Any] | None = None
    training_options: dict[str, Any] | None = None


def cells(options: Options) -> list[dict[str, Any]]:
    """The grid's cells as complete JSON-able configurations, by model, task and T.

    Raises:
        BoolensError, TaskError: a value out of range, an unknown or repeated model or task.
    """
    for what, given, known in (("model", options.models, MODELS), ("task", options.tasks, TASKS)):
        for name in given:
            if name not in known or (what == "model" and name not in MODEL_CONFIGS):
                raise BoolensError(f"the sample complexity of {what} {name!r} is not known; choose {', '.join(known)}")
    for what, given in (("models", options.models), ("tasks", options.tasks), ("T", options.n_ctx)):
        if not given or len(set(given)) < len(given):
            raise BoolensError(f"{what} {list(given)} must be different, and at least one")
    if options.trials < 1 or options.largest < 2:
        raise BoolensError(
            f"{options.trials} trials of at most {options.largest} samples; take at least 1 trial and 2 samples"
        )
    if not 0 < options.share < 1 or not 0 < options.accuracy <= 1:
        raise BoolensError(
            f"share {options.share} must be above 0 and below 1, accuracy {options.accuracy} above 0 and at most 1"
        )
    if options.seed < 0:
        raise BoolensError(f"seed is {options.seed}; it must be a whole number of at least 0")
    found = []
    for model in options.models:
        decay = {"weight_decay": 1e-4} if model == "cls" else {}
        chosen = {k: v for k, v in (options.training_options or {}).items() if v is not None}
        training = train_config(model, {**REPLICATION, **decay, **chosen, "stop_accuracy": options.accuracy}).to_dict()
        del training["n_train"]
        for task in options.tasks:
            for n_ctx in options.n_ctx:
                task_maker(task, n_ctx=n_ctx, n_targets=options.n_targets)(0)
                shape = model_config(model, n_ctx, options.model_options or {})
                found.append(
                    {
                        "model": {"architecture": model, **shape.to_dict()},
                        "training": training,
                        **{"task": task, "n_ctx": n_ctx, "n_targets": options.n_targets, "trials": options.trials},
                        **{"share": options.share, "accuracy": options.accuracy, "seed": options.seed},
                        "largest": options.largest,
                    }
                )
    return found


class Stream:
    """The rows of one trial, drawn as they are needed; the first m are the same however many are asked for."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.x = torch.empty(0, task.n_ctx, dtype=torch.uint8)
        self.n_blocks = 0

    def rows(self, m: int) -> Dataset:
        """The first m rows, which may all have one label."""
        more = []
        while BLOCK * self.n_blocks < m:
            generator = torch_generator(self.seed, "train", self.n_blocks)
            more.append(self.task.sample(BLOCK, generator).to(torch.uint8))
            self.n_blocks += 1
        self.x = torch.cat([self.x, *more])
        x = self.x[:m].long()
        return Dataset(x, self.task.label(x))

    def floor(self, most: int) -> float:
        """The smallest number of rows that leave one target set; inf beyond `most`."""
        m = BLOCK
        while True:
            found = smallest_identifying_sample(self.task, *self.rows(min(m, most)))
            if math.isfinite(found) or m >= most:
                return found
            m *= 2


class _Decided(Exception):
    """Enough trials of a probe have ended."""


class Cell:
    """The trials of a configuration, and what trains them."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        fields = dict(config["model"])
        kind = MODEL_CONFIGS[fields.pop("architecture")]
        self.model: ModelConfig = kind.from_dict(fields)
        self.seeds = range(config["seed"], config["seed"] + config["trials"])
        self.levels = Levels.of(config["trials"], config["share"])
        draw = task_maker(config["task"], n_ctx=config["n_ctx"], n_targets=config["n_targets"])
        self.streams = [Stream(draw(seed), seed) for seed in self.seeds]

    def training(self, m: int, **changes: Any) -> TrainConfig:
        return TrainConfig.from_dict({**self.config["training"], "n_train": m, **changes})

    def jobs(self, m: int, start: int = 0, end: int | None = None) -> list[Job]:
        """The trials from start to end with m training samples, freshly initialised."""
        jobs = []
        for stream, seed in list(zip(self.streams, self.seeds, strict=True))[start:end]:
            x = stream.task.sample(self.config["training"]["n_valid"], torch_generator(seed, "valid"))
            valid = Dataset(x, stream.task.label(x))
            jobs.append(Job(build_model(self.model, torch_generator(seed, "init")), stream.rows(m), valid, seed))
        return jobs

    def probe(self, m: int, on_step: Callable[[int, list[Job]], None] | None = None) -> Count:
        """Train with m samples until it is settled which of the levels are reached."""
        trials, reached, failed = len(self.seeds), 0, 0
        asked = [level for level in (self.levels.low, self.levels.need, self.levels.high) if level <= trials]

        def done(job: Job) -> None:
            nonlocal reached, failed
            if job.stopped == "accuracy":
                reached += 1
            else:
                failed += 1
            if all(Count(reached, failed, trials).says(level) is not None for level in asked):
                raise _Decided

        training = self.training(m)
        size = max(1, min(trials, models_at_once(self.model, training)))
        try:
            for start in range(0, trials, size):  # so that no more models and data are made than train together
                part = self.jobs(m, start, start + size)
                train_stack(part, training, on_step=on_step, on_done=done)
        except _Decided:
            pass
        return Count(reached, failed, trials)


def compute_cell(config: dict[str, Any], tell: Tell | None = None) -> list[dict[str, Any]]:
    """A row for each size tried (kind 'probe'), then one of kind 'summary'; the same columns in all.

    m_star is the smallest training-set size with which the share of trials reaches the accuracy at a logged step,
    low and high its 95 % interval (`find_quantile`); floor is the same share's quantile of the trials' smallest
    identifying samples, with its order-statistics interval. The ratio's interval is made of the two intervals' ends,
    so it holds at least 90 %. None is no bound or not reached within `largest`. Progress goes to `tell(share, text)`.

    Raises:
        BoolensError: a configuration that is not a cell's.
    """
    cell, n_probes = Cell(config), 0
    same = {"model": config["model"]["architecture"], **{k: config[k] for k in ("task", "n_ctx", "n_targets")}}
    same |= {k: config[k] for k in ("trials", "share", "accuracy")}
    names = ("n_train", "reached", "failed", "m_star", "low", "high", "floor", "floor_low", "floor_high")
    empty = dict.fromkeys((*names, "ratio", "ratio_low", "ratio_high"))
    name = f"{same['model']}, {same['task']}, T = {same['n_ctx']}"
    rows, floors = [], []
    for i, stream in enumerate(cell.streams):
        if tell:
            tell(0.0, f"{name}: floor of trial {i + 1} of {len(cell.streams)}")
        floors.append(stream.floor(max(BLOCK, config["largest"])))
    floor, floor_low, floor_high = cell.levels.order_statistics(floors)

    def probe(m: int) -> Count:
        nonlocal n_probes

        def on_step(step: int, jobs: list[Job]) -> None:
            if tell:
                part = (n_probes + step / cell.training(m).steps) / (PROBES + 1)
                tell(min(part, 0.99), f"{name}: {len(jobs)} trials of {m} samples, step {step}")

        count = cell.probe(m, on_step)
        n_probes += 1
        rows.append({"kind": "probe", **same, **empty, "n_train": m, "reached": count.reached, "failed": count.failed})
        return count

    start = round(OVER_FLOOR * floor) if math.isfinite(floor) else config["largest"]
    m_star, low, high = find_quantile(probe, size_grid(config["largest"]), cell.levels, start)
    found = {"m_star": m_star, "low": low, "high": high, "floor": floor, "floor_low": floor_low}
    found |= {"floor_high": floor_high, "ratio": m_star / floor, "ratio_low": low / floor_high}
    found["ratio_high"] = high / floor_low if floor_low else math.inf
    known = {k: float(v) if math.isfinite(v) and v > 0 else None for k, v in found.items()}
    if tell:
        tell(1.0, name)
    return [*rows, {"kind": "summary", **same, **empty, **known}]


def relative_cost(config: dict[str, Any]) -> float:
    """Of a cell beside others, by which progress is measured: what a step costs grows with T from some 100 on."""
    return config["trials"] * config["training"]["steps"] * (100.0 + config["n_ctx"])


def expected_seconds(config: dict[str, Any]) -> float:
    """Estimated cost, from a calibration on this machine: some models take steps with 1.4 floors of samples.

    PROBES trainings of all trials are reckoned, of which three quarters of the steps are taken. Takes about a second.
    """
    cell, n = Cell(config), min(config["trials"], 8)
    steps = min(config["training"]["steps"], config["training"]["log_every"])
    floors = sorted(stream.floor(max(BLOCK, config["largest"])) for stream in cell.streams[:3])
    m = round(OVER_FLOOR * floors[1 % len(floors)]) if math.isfinite(floors[1 % len(floors)]) else config["largest"]
    training = cell.training(m, steps=steps, log_every=steps, stop_accuracy=0.0)
    train_stack(cell.jobs(m, 0, n), cell.training(m, steps=1, log_every=1, stop_accuracy=0.0))  # compiles
    jobs = cell.jobs(m, 0, n)
    start = time.monotonic()
    train_stack(jobs, training)
    seconds = (time.monotonic() - start) / (n * max(1, steps))
    return 0.75 * PROBES * config["trials"] * config["training"]["steps"] * seconds
