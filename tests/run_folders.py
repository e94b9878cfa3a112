"""Run folders of models that no training made."""

from pathlib import Path

from analyses.runs import Run
from analyses.train import versions
from interp.checkpoint import WEIGHTS, save_weights
from interp.config import RunConfig, TrainConfig
from interp.files import write_json
from interp.models import AnyModel
from tasks import Task


def write_run(folder: Path, model: AnyModel, task: Task, *, seed: int = 0, training: TrainConfig | None = None) -> Run:
    """The run in a folder of this model, as if imported."""
    config = RunConfig(model.cfg, training, seed, "imported:by hand", versions())
    write_json(folder / "task.json", task.to_dict())
    write_json(folder / "config.json", config.to_dict())
    save_weights(model, folder / WEIGHTS)
    return Run(folder)
