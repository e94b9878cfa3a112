"""From how many training samples does an architecture reach 100 % validation accuracy? (Exercise 3.4)"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scipy.stats import binom

from interp.config import MLPConfig, ModelConfig, TrainConfig
from interp.errors import BoolensError
from interp.hooks import run as run_model
from interp.models import build_model
from interp.seeds import torch_generator
from interp.training import Job, train_stack
from tasks import Task, draw_dataset

SIZES = tuple(round(25 * 2 ** (k / 2)) for k in range(15))
"""Training-set sizes 25, 35, 50 ... 3200, a factor of 1.41 apart: four trainings a seed tell them apart."""
CACHED = 1_000_000
"""Hidden activations of a stack of MLPs above which it no longer fits the cache and a step takes longer."""


@dataclass(frozen=True)
class SampleSize:
    """The smallest training set of `sizes` that suffices one architecture.

    Attributes:
        per_seed: for each seed the size with which it reached 100 %, the next smaller one failing; inf where even the
            largest failed.
        median: the smallest size that suffices at least half of the seeds (the lower median); inf as above.
        low, high: 95 % interval of the median from order statistics (exact binomial, whatever the distribution);
            0 and inf where there are too few seeds for a bound.
    """

    architecture: str
    sizes: tuple[int, ...]
    per_seed: tuple[float, ...]
    median: float
    low: float
    high: float

    def text(self, size: float) -> str:
        """A size in words: '283', '<= 25' for the smallest tried, '> 3200' beyond the largest."""
        if size > self.sizes[-1]:
            return f"> {self.sizes[-1]}"
        return f"<= {self.sizes[0]}" if size <= self.sizes[0] else f"{size:.0f}"

    @property
    def sentence(self) -> str:
        n = sum(math.isfinite(size) for size in self.per_seed)
        interval = f"95 % interval {self.text(self.low)} to {self.text(self.high)}"
        if math.isinf(self.median):
            return (
                f"{self.architecture}: {self.sizes[-1]} training samples are too few for 100 % validation accuracy in "
                f"half of the seeds ({n} of {len(self.per_seed)} reached it; {interval})"
            )
        return (
            f"{self.architecture}: half of the seeds reach 100 % validation accuracy with {self.text(self.median)} "
            f"training samples ({interval}; {n} of {len(self.per_seed)} with at most {self.sizes[-1]})"
        )

    def to_json(self) -> dict[str, Any]:
        """Infinite sizes become null (`interp.files.plain`); `text` spells them out."""
        return {
            "architecture": self.architecture,
            "n_train": self.median,
            "interval": [self.low, self.high],
            "text": f"{self.text(self.median)} ({self.text(self.low)} to {self.text(self.high)})",
            "largest": self.sizes[-1],
            "reached": sum(math.isfinite(size) for size in self.per_seed),
            "of": len(self.per_seed),
            "per_seed": self.per_seed,
        }


def measure_sample_size(
    model: ModelConfig,
    training: Callable[[int], TrainConfig],
    tasks: dict[int, Task],
    sizes: Sequence[int] = SIZES,
    *,
    device: str = "cpu",
    on_step: Callable[[int, list[Job]], None] | None = None,
    on_done: Callable[[Job], None] | None = None,
) -> SampleSize:
    """Bisect each seed's smallest sufficient size; the trainings of one size are one stack.

    A seed's training sets are nested: the first rows of one pool. Its initialisation and validation set stay the same.

    Args:
        model: what is trained.
        training: from a size to the training's configuration.
        tasks: each seed's task.
        sizes: increasing training-set sizes.
        device, on_step, on_done: as in `train_stack`.
    """
    seeds = tuple(tasks)
    n_valid = training(sizes[0]).n_valid
    pools = {seed: draw_dataset(tasks[seed], sizes[-1], torch_generator(seed, "train")) for seed in seeds}
    valid = {seed: draw_dataset(tasks[seed], n_valid, torch_generator(seed, "valid")) for seed in seeds}

    def succeed(asked: dict[int, int]) -> dict[int, bool]:
        reached = {}
        for size in sorted(set(asked.values())):
            jobs = []
            for case in (case for case, wanted in asked.items() if wanted == size):
                seed = seeds[case]
                data = (pools[seed].x[:size], pools[seed].y[:size])
                jobs.append(Job(build_model(model, torch_generator(seed, "init")), data, valid[seed], seed))
            train_cached(jobs, training(size), device=device, on_step=on_step, on_done=on_done)
            said = [bool(((run_model(job.model, job.valid[0])[0] > 0) == job.valid[1]).all()) for job in jobs]
            reached |= dict(zip((case for case, wanted in asked.items() if wanted == size), said, strict=True))
        return reached

    per_seed = bisect_sizes(succeed, len(seeds), sizes)
    return SampleSize(model.architecture, tuple(sizes), per_seed, *median_interval(per_seed))


def bisect_sizes(
    succeed: Callable[[dict[int, int]], dict[int, bool]], n_cases: int, sizes: Sequence[int]
) -> tuple[float, ...]:
    """Each case's smallest successful size, with about log2(len(sizes) + 1) questions a case.

    Where success is not monotone in the size, the answer is still a size that succeeds while the next smaller one
    fails (or the smallest of all); inf if the largest that was asked about last fails.

    Args:
        succeed: from case and size to success, for all cases still open at once.
        n_cases: number of independent cases.
        sizes: increasing.

    Raises:
        BoolensError: no sizes, or sizes that do not increase.
    """
    if not sizes or any(b <= a for a, b in pairwise(sizes)):
        raise BoolensError(f"sizes {list(sizes)} must increase, with at least one")
    failing, passing = [-1] * n_cases, [len(sizes)] * n_cases
    while True:
        middle = {c: (failing[c] + passing[c]) // 2 for c in range(n_cases) if passing[c] - failing[c] > 1}
        if not middle:
            return tuple(float(sizes[i]) if i < len(sizes) else math.inf for i in passing)
        answers = succeed({case: sizes[i] for case, i in middle.items()})
        for case, i in middle.items():
            (passing if answers[case] else failing)[case] = i


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """The lower median with its exact order-statistics interval; (0, inf) where n is too small for a bound.

    With ranks r and n + 1 − r the interval misses the median with probability 2 P(Binomial(n, 1/2) < r).
    """
    ordered, n = sorted(values), len(values)
    rank = int(binom.ppf((1 - level) / 2, n, 0.5))
    low, high = (ordered[rank - 1], ordered[n - rank]) if rank > 0 else (0.0, math.inf)
    return ordered[(n - 1) // 2], low, high


def train_cached(
    jobs: Sequence[Job],
    training: TrainConfig,
    *,
    device: str = "cpu",
    on_step: Callable[[int, list[Job]], None] | None = None,
    on_done: Callable[[Job], None] | None = None,
) -> None:
    """`train_stack`, with no more MLPs at once on a CPU than the cache holds."""
    cfg = jobs[0].model.cfg
    at_once = None
    if isinstance(cfg, MLPConfig) and device == "cpu":
        at_once = max(1, CACHED // (cfg.d_mlp * training.n_train))
    train_stack(jobs, training, device=device, at_once=at_once, on_step=on_step, on_done=on_done)
