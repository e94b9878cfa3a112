"""Making runs: training one or many seeds into run folders, and taking over checkpoints."""

import csv
import io
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
from interp.files import write_atomic, write_json
from interp.models import build_model
from interp.seeds import torch_generator
from interp.training import HISTORY_COLUMNS, STATE, check_device, train
from tasks import Task, draw_dataset, load_task

OnStep = Callable[[int, float], None]


@dataclass(frozen=True)
class Plan:
    """What to train: a task for each seed, one architecture, one way of training."""

    draw_task: Callable[[int], Task]
    model: ModelConfig
    training: TrainConfig
    seeds: tuple[int, ...]
    out: Path
    many: bool

    def folder(self, seed: int) -> Path:
        return seed_folder(self.out, seed) if self.many else self.out

    def config(self, seed: int) -> RunConfig:
        return RunConfig(self.model, self.training, seed, "trained", versions())


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
        draw_dataset(task, plan.training.n_train, torch_generator(seed, "train"))
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


def train_seed(plan: Plan, seed: int, task: Task, *, device: str = "cpu", on_step: OnStep | None = None) -> Path:
    """Train one seed into its folder, from where an earlier attempt stopped; a finished one is left as it is."""
    folder = plan.folder(seed)
    if (folder / WEIGHTS).exists():
        (folder / STATE).unlink(missing_ok=True)  # killed between writing the weights and this
        return folder
    write_json(folder / "task.json", task.to_dict())
    write_json(folder / "config.json", plan.config(seed).to_dict())
    data = draw_dataset(task, plan.training.n_train, torch_generator(seed, "train"))
    valid = draw_dataset(task, plan.training.n_valid, torch_generator(seed, "valid"))
    model = build_model(plan.model, torch_generator(seed, "init"))
    history = train(model, data, valid, plan.training, seed, folder=folder, device=device, on_step=on_step)
    write_history(folder, history.tolist())
    save_weights(model, folder / WEIGHTS)
    (folder / STATE).unlink(missing_ok=True)
    return folder


def write_history(folder: Path, history: Sequence[Sequence[float]]) -> None:
    """history.csv with HISTORY_COLUMNS."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HISTORY_COLUMNS)
    writer.writerows([(int(row[0]), *row[1:]) for row in history])
    write_atomic(folder / "history.csv", text.getvalue().encode())


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
