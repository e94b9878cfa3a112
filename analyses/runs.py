"""Runs on disk: one folder a trained or imported model, or a folder of such folders, one a seed."""

import hashlib
from collections.abc import Callable, Hashable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from interp.checkpoint import WEIGHTS, load_config, load_model
from interp.config import RunConfig, digest
from interp.errors import BoolensError
from interp.seeds import torch_generator
from tasks import Dataset, Task, draw_dataset, load_task

if TYPE_CHECKING:
    import torch

    from interp.models import AnyModel

T = TypeVar("T")
N_INPUTS = 256
"""Analysis inputs drawn for each rule, unless a caller asks for another number."""


class Run:
    """A finished run: its configuration, task, model and streams of data, each loaded on first use.

    Raises:
        BoolensError, TaskError: on first use of a part that is missing, half written or invalid.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @cached_property
    def config(self) -> RunConfig:
        return load_config(self.path)

    @cached_property
    def task(self) -> Task:
        task = load_task(self.path)
        if task.n_ctx != self.config.model.n_ctx:
            raise BoolensError(
                f"{self.path}: the task has n_ctx = {task.n_ctx}, the model {self.config.model.n_ctx}; "
                "they belong to different runs"
            )
        return task

    @cached_property
    def model(self) -> "AnyModel":
        return load_model(self.path)

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def architecture(self) -> str:
        return self.config.model.architecture

    @property
    def has_attention(self) -> bool:
        return self.architecture in ("attention", "cls")

    @property
    def is_cls(self) -> bool:
        """Whether the model is a [CLS] transformer: one query, and n_ctx + 1 keys of which the last is [CLS]'s own."""
        return self.architecture == "cls"

    def inputs(self, rule: int, n: int = N_INPUTS) -> "torch.Tensor":
        """n analysis inputs with a rule in force; a stream apart from training and validation."""
        return self.task.sample(n, torch_generator(self.seed, "analysis", rule), rule=rule)

    @cached_property
    def valid(self) -> Dataset:
        """The run's validation set: the very one of its training, or a fresh one for an imported model."""
        training = self.config.training
        return draw_dataset(self.task, training.n_valid if training else 1000, torch_generator(self.seed, "valid"))

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` returned when this key was first asked for; kept with the run, for analyses that share it."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What a result came from: enough to find the run again and to see that it is the same one."""
        return {
            "name": self.path.name,
            "task": self.task.to_dict(),
            **{k: v for k, v in self.config.to_dict().items() if k != "schema"},
            "config_sha256": digest([self.config.identity, self.task.to_dict()]),
            "weights_sha256": hashlib.sha256((self.path / WEIGHTS).read_bytes()).hexdigest(),
        }


def seed_folder(path: Path, seed: int) -> Path:
    """Where the run of one seed lies in a folder of seeds."""
    return path / f"seed-{seed:06d}"


def find_runs(path: str | Path) -> list[Run]:
    """The run at `path`, or every seed's run in it, in order.

    Raises:
        BoolensError, TaskError: neither, or one of the seeds is half written, damaged or mismatched.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise BoolensError(f"{folder} does not exist; train a run with `boolens train TASK --out {folder}`")
    found = sorted(p for p in folder.glob("seed-*") if p.is_dir()) or [folder]
    unfinished = [p.name for p in found if (p / "config.json").exists() and not (p / WEIGHTS).exists()]
    if unfinished:
        raise BoolensError(
            f"{folder}: {', '.join(unfinished)} half written (no {WEIGHTS}); finish with `boolens train ... --resume`"
        )
    runs = [Run(p) for p in found]
    for run in runs:
        _ = run.config, run.task, run.model
    return runs
