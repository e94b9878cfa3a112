"""What `boolens compare` compares: the tasks, the architectures, and the ways of training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyses.options import parse_seeds, task_maker
from analyses.sample_size import SIZES
from interp.config import TrainConfig
from interp.errors import BoolensError
from interp.seeds import torch_generator
from tasks import Task, draw_dataset

ARCHITECTURES = ("attention", "mlp", "linear")


@dataclass(frozen=True)
class Rule:
    """One way of training: full-batch Adam with a learning rate and at most so many steps an architecture.

    A model is finished sooner when, at every `log_every`-th step, its training loss is below stop_loss (nats) or its
    lowest validation loss is `patience` rows old; 0 switches each off. The last weights are judged, not the best.
    """

    name: str
    lr: Mapping[str, float]
    steps: Mapping[str, int]
    stop_loss: float = 0.0
    patience: int = 0
    log_every: int = 20

    def training(self, architecture: str, n_train: int, n_valid: int) -> TrainConfig:
        return TrainConfig(
            n_train=n_train,
            n_valid=n_valid,
            steps=self.steps[architecture],
            lr=self.lr[architecture],
            log_every=self.log_every,
            stop_loss=self.stop_loss,
            patience=self.patience,
        )

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "lr": dict(self.lr), "steps": dict(self.steps)}


TUTORIAL = Rule(
    "tutorial",
    lr={"attention": 0.01, "mlp": 0.001, "linear": 0.01},
    steps=dict.fromkeys(ARCHITECTURES, 100),
)
"""The tutorial's steps and learning rates; it names a linear network but trains none, which takes attention's rate."""
CONVERGED = Rule(
    "converged",
    lr={"attention": 0.01, "mlp": 0.03, "linear": 0.1},
    steps={"attention": 2000, "mlp": 600, "linear": 2000},
    stop_loss=1e-3,
    patience=10,
)
"""The MLP and the linear model learn too slowly at the tutorial's rates to be finished within these steps."""


@dataclass(frozen=True)
class Setting:
    """What is compared.

    Attributes:
        seeds: each draws its own targets, data and initialisations, the same data for all architectures.
        n_ctx: number of bits T.
        sparse, dense: numbers of targets s; dense None stands for 15, or 18 with the tutorial's balance, as its code.
        n_train, n_valid: samples.
        tutorial_balance: P(bit = 1) = 0.5**(1/3) for every s, instead of equally likely labels.
        sizes: training-set sizes of Exercise 3.4 on the sparse task; () leaves it out.
        rules: the ways of training; the last one is the sample size's.
    """

    seeds: tuple[int, ...]
    n_ctx: int = 30
    sparse: int = 3
    dense: int | None = None
    n_train: int = 1000
    n_valid: int = 1000
    tutorial_balance: bool = False
    sizes: tuple[int, ...] = SIZES
    rules: tuple[Rule, ...] = (TUTORIAL, CONVERGED)

    def __post_init__(self) -> None:
        if not self.seeds:
            raise BoolensError("no seeds; give at least one")
        for option, s in (("--sparse", self.sparse), ("--dense", self.densities["dense"])):
            if not 1 <= s <= self.n_ctx:
                raise BoolensError(f"{option} is {s}, but targets number from 1 to --n-ctx = {self.n_ctx}; change one")
        if self.sparse >= self.densities["dense"]:
            raise BoolensError(f"--sparse {self.sparse} must be below --dense {self.densities['dense']}")
        for rule in self.rules:
            rule.training(ARCHITECTURES[0], self.n_train, self.n_valid)  # refuses sizes that cannot be

    @property
    def densities(self) -> dict[str, int]:
        """Number of targets by name."""
        default = 18 if self.tutorial_balance else 15
        return {"sparse": self.sparse, "dense": default if self.dense is None else self.dense}

    @property
    def n_models(self) -> int:
        """Models to train, the bisection's upper limit included."""
        n_questions = len(self.sizes).bit_length()
        return len(self.seeds) * len(ARCHITECTURES) * (2 * len(self.rules) + n_questions)

    def tasks(self, density: str) -> dict[int, Task]:
        """Each seed's task.

        Raises:
            TaskError: a training or validation set with one label only.
        """
        p = "tutorial" if self.tutorial_balance else "balanced"
        draw = task_maker("sparse-and", n_ctx=self.n_ctx, n_targets=self.densities[density], p=p)
        tasks = {seed: draw(seed) for seed in self.seeds}
        for seed, task in tasks.items():
            draw_dataset(task, self.n_train, torch_generator(seed, "train"))
            draw_dataset(task, self.n_valid, torch_generator(seed, "valid"))
        return tasks

    def to_json(self) -> dict[str, Any]:
        """The options."""
        return {k: v for k, v in vars(self).items() if k != "rules"} | self.densities


def make_setting(given: dict[str, Any]) -> Setting:
    """The setting that the command's options ask for; those left out keep their defaults.

    Raises:
        BoolensError: options that cannot be.
    """
    names = ("n_ctx", "sparse", "dense", "n_train", "n_valid", "tutorial_balance")
    fields = {name: given[name] for name in names if given.get(name) is not None}
    seeds, _ = parse_seeds(0, given.get("seeds") or "0:16")
    return Setting(seeds=seeds, sizes=SIZES if given.get("sample_size", True) else (), **fields)
