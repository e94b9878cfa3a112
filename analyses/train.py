"""Making runs: training one or many seeds into run folders, and taking over checkpoints."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from analyses.runs import seed_folder
from interp.checkpoint import WEIGHTS, import_tutorial, load_config, save_weights
from interp.config import ModelConfig, RunConfig, TrainConfig
from interp.errors import BoolensError
from interp.files import write_csv, write_json
from interp.models import build_model
from interp.seeds import torch_generator
from interp.training import HISTORY_COLUMNS, Job, check_device, train_stack
from interp.training_state import STATE
from tasks import Task, draw_dataset, load_task


@dataclass(frozen=True)
class Plan:
    """What to train: a task for each seed, one architecture, one way of training."""

    draw_task: Callable[[int], Task]
    model: ModelConfig
    training: TrainConfig
    seeds: tuple[int, ...]
    out: Path
    many: bool
    source: str = "trained"

    def folder(self, seed: int) -> Path:
        return seed_folder(self.out, seed) if self.many else self.out

    def config(self, seed: int) -> RunConfig:
        return RunConfig(self.model, self.training, seed, self.source, versions())


def versions() -> dict[str, str]:
    return {"boolens": version("boolens"), "torch": torch.__version__}


def check_plan(plan: Plan, *, resume: bool, device: str = "cpu") -> dict[int, Task]:
    """The task of every seed; all that can go wrong with the request goes wrong here, before anything is written.

    Raises:
        BoolensError, TaskError: an impossible task or data set, a device that is not there, or folders in the way.
    """
    check_device(device)
    tasks = {seed: plan.draw_task(seed) for seed in plan.seeds}
    for seed, task in tasks.items():
        draw_dataset(task, plan.training.n_train, torch_generator(seed, "train"), part="train")
        draw_dataset(task, plan.training.n_valid, torch_generator(seed, "valid"))
        _check_folder(plan.folder(seed), plan.config(seed), task, resume=resume)
    if plan.out.exists() and plan.many and (plan.out / "config.json").exists():
        raise BoolensError(f"{plan.out} is a run of one seed; choose another --out for several seeds")
    return tasks


def _check_folder(folder: Path, config: RunConfig, task: Task, *, resume: bool) -> None:
    if not folder.exists() or all(p.name.endswith(".partial") for p in folder.iterdir()):
        return
    if not resume:
        raise BoolensError(
            f"{folder} exists and is not overwritten; choose another --out, or pass --resume to finish it"
        )
    if not (folder / "config.json").exists() and not (folder / "task.json").exists():
        raise BoolensError(f"{folder} is not a run folder, so there is nothing to resume; choose another --out")
    there, wanted = {}, _fields({**config.identity, "task": task.to_dict()})
    if (folder / "config.json").exists():
        there |= _fields(load_config(folder).identity)
    if (folder / "task.json").exists():
        there |= _fields({"task": load_task(folder).to_dict()})
    differing = [key for key in there if key not in wanted or there[key] != wanted[key]]
    if differing:
        detail = "; ".join(f"{key}: {there[key]} there, {wanted.get(key, 'none')} asked for" for key in differing)
        raise BoolensError(f"{folder} holds another run ({detail}); repeat its options, or choose another --out")


def _fields(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested object's values by dotted names, 'training.steps'."""
    fields = {}
    for key, value in content.items():
        fields |= _fields(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return fields


def train_seeds(
    plan: Plan,
    tasks: dict[int, Task],
    *,
    device: str = "cpu",
    at_once: int | None = None,
    on_step: Callable[[int, list[Job]], None] | None = None,
    on_done: Callable[[Job], None] | None = None,
) -> None:
    """Train all seeds into their folders, together, from where an earlier attempt stopped; finished ones stay."""
    jobs = []
    for seed in plan.seeds:
        folder = plan.folder(seed)
        if (folder / WEIGHTS).exists():
            (folder / STATE).unlink(missing_ok=True)  # killed between writing the weights and this
            continue
        start_run(plan, tasks[seed], seed)
        jobs.append(make_job(tasks[seed], plan.model, plan.training, seed, folder))

    def finish(job: Job) -> None:
        if job.stopped != "diverged" and job.folder:
            write_history(job.folder, job.history)
            save_weights(job.model, job.folder / WEIGHTS)
            (job.folder / STATE).unlink(missing_ok=True)
        if on_done:
            on_done(job)

    if jobs:
        train_stack(jobs, plan.training, device=device, at_once=at_once, on_step=on_step, on_done=finish)
    diverged = [job for job in jobs if job.stopped == "diverged"]
    if diverged:
        seeds = ", ".join(str(job.seed) for job in diverged)
        raise BoolensError(
            f"the loss of seed {seeds} is no longer finite (at step {diverged[0].history[-1][0]:.0f}); "
            f"lower lr = {plan.training.lr}; the other seeds are kept"
        )


def start_run(plan: Plan, task: Task, seed: int) -> None:
    """task.json and config.json, before there are weights."""
    write_json(plan.folder(seed) / "task.json", task.to_dict())
    write_json(plan.folder(seed) / "config.json", plan.config(seed).to_dict())


def make_job(task: Task, model: ModelConfig, training: TrainConfig, seed: int, folder: Path | None = None) -> Job:
    """A freshly initialised model with its data, each from the seed's own stream."""
    data = draw_dataset(task, training.n_train, torch_generator(seed, "train"), part="train")
    valid = draw_dataset(task, training.n_valid, torch_generator(seed, "valid"))
    return Job(build_model(model, torch_generator(seed, "init")), data, valid, seed, folder)


def write_history(folder: Path, history: Sequence[Sequence[float]]) -> None:
    """history.csv with HISTORY_COLUMNS."""
    write_csv(folder / "history.csv", HISTORY_COLUMNS, [(int(row[0]), *row[1:]) for row in history])


def import_run(checkpoint: Path, task: Task, out: Path, seed: int = 0) -> Path:
    """Take over a checkpoint of the tutorial's SelfAttention as a run folder.

    Raises:
        BoolensError: not such a checkpoint, one of another n_ctx than the task, or `out` exists.
    """
    if out.exists():
        raise BoolensError(f"{out} exists and is not overwritten; choose another --out")
    model = import_tutorial(checkpoint)
    if model.cfg.n_ctx != task.n_ctx:
        raise BoolensError(
            f"{checkpoint} has n_ctx = {model.cfg.n_ctx}, the task {task.n_ctx}; give the task that it was trained on"
        )
    config = RunConfig(model.cfg, None, seed, f"imported:{checkpoint.name}", versions())
    write_json(out / "task.json", task.to_dict())
    write_json(out / "config.json", config.to_dict())
    save_weights(model, out / WEIGHTS)
    return out
