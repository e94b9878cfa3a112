"""How much faster is the stacked trainer than one nn.Module after another in the tutorial's shape?

    python -m tests.benchmarks.training [--quick] [--growth] [--threads N]

Ratios, all in this process with the same number of threads, medians of interleaved runs:

* plain_loop: time of a step of the plain loop / time of a model and step of the trainer; 64 seeds, T = 30, d = 2,
  batch 200;
* time_to_solution: the same for the time until every seed has validation accuracy 1.0, looked at every 20 steps;
* single_model: the same as plain_loop for a stack of one;
* matmul_share: share of the machine's matrix-product rate that the products of the plain table form (5.8 MFLOP a model
  and step) would reach in the trainer's time; above 1 the trainer needs less time than these products alone would.

The last line is one JSON object.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from analyses.train import make_job
from interp.config import AttentionConfig, TrainConfig
from interp.seeds import torch_generator
from interp.training import Job, denormals_flushed, train_stack
from tasks import SparseAnd

T, D, BATCH, VALID, LR, EVERY, MOST_STEPS = 30, 2, 200, 1000, 0.01, 20, 2000


class Plain(nn.Module):
    """The tutorial's self-attention as one would write it."""

    def __init__(self, n_ctx: int, d_model: int) -> None:
        super().__init__()
        self.tokenizer = nn.Embedding(2, d_model)
        self.positioner = nn.Parameter(torch.zeros(1, n_ctx, d_model))
        self.Wq = nn.Linear(d_model, d_model, bias=False)
        self.Wk = nn.Linear(d_model, d_model, bias=False)
        self.Wv = nn.Linear(d_model, 1, bias=False)
        self.linear = nn.Linear(n_ctx, 1, bias=False)
        self.scale = d_model**-0.5

    def start(self, seed: int) -> None:
        """Initialise from N(0, 0.001**2)."""
        generator = torch_generator(seed, "init")
        for parameter in self.parameters():
            nn.init.normal_(parameter, 0, 0.001, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.tokenizer(x) + self.positioner
        q, k, v = self.Wq(embedded), self.Wk(embedded), self.Wv(embedded)
        pattern = torch.softmax(q @ k.transpose(-1, -2) * self.scale, dim=-1)
        return self.linear((pattern @ v).squeeze(-1)).squeeze(-1)


def task_of(seed: int, n_ctx: int = T) -> SparseAnd:
    return SparseAnd.draw(n_ctx, 3, torch_generator(seed, "targets"))


def config(steps: int, batch: int = BATCH, **rule: Any) -> TrainConfig:
    return TrainConfig(**{"n_train": batch, "n_valid": VALID, "steps": steps, "lr": LR, "log_every": EVERY, **rule})


def plain_training(jobs: list[Job], steps: int, *, until_solved: bool) -> None:
    """Train plain models one after another; with `until_solved` each ends at validation accuracy 1.0."""
    for job in jobs:
        (x, y), (valid_x, valid_y) = job.data, job.valid
        model, loss = Plain(x.shape[1], D), nn.BCEWithLogitsLoss()
        model.start(job.seed)
        optimizer, target = torch.optim.Adam(model.parameters(), lr=LR), y.float()
        for step in range(steps):
            if until_solved and step % EVERY == 0:
                with torch.no_grad():
                    if bool(((model(valid_x) > 0) == valid_y).all()):
                        break
            optimizer.zero_grad()
            loss(model(x), target).backward()
            optimizer.step()


def stacked_training(jobs: list[Job], steps: int, *, until_solved: bool) -> None:
    """Train a stack by the same rule; without it nothing is evaluated but at both ends."""
    rule: dict[str, Any] = {"stop_accuracy": 1.0} if until_solved else {"log_every": 10**9}
    train_stack(jobs, config(steps, len(jobs[0].data[0]), **rule))


def jobs_of(seeds: int, n_ctx: int = T, batch: int = BATCH) -> list[Job]:
    """Freshly initialised models with their data."""
    return [make_job(task_of(seed, n_ctx), AttentionConfig(n_ctx, D), config(0, batch), seed) for seed in range(seeds)]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(repeats: int, *works: tuple[Callable[[list[Job]], object], Callable[[], list[Job]]]) -> list[float]:
    """Median seconds of each kind of work on the jobs that it is given (made outside the timing), run in turn."""
    times = []
    for _ in range(repeats):
        row = []
        for work, make in works:
            jobs = make()
            row.append(seconds(lambda work=work, jobs=jobs: work(jobs)))
        times.append(row)
    return [statistics.median(column) for column in zip(*times, strict=True)]


def matmul_rate() -> float:
    """Floating-point operations a second of a 1024 x 1024 product, best of ten."""
    a = torch.rand(1024, 1024)
    return 2 * 1024**3 / min(seconds(lambda: a @ a) for _ in range(10))


def table_flops(n_ctx: int, batch: int) -> int:
    """Operations of N, D and their gradients over both columns: 4 products of [batch, 2T] by [2T, 2T]."""
    return 4 * 2 * batch * (2 * n_ctx) ** 2


def growth(models: int, n_ctx: int, batch: int) -> dict[str, float]:
    """Milliseconds a model and step, of the trainer and of the plain loop, at one size."""
    steps = max(30, min(300, 40_000_000_000 // (models * table_flops(n_ctx, batch))))
    stack, plain = interleaved(
        3,
        (lambda jobs: stacked_training(jobs, steps, until_solved=False), lambda: jobs_of(models, n_ctx, batch)),
        (lambda jobs: plain_training(jobs, 20, until_solved=False), lambda: jobs_of(1, n_ctx, batch)),
    )
    sizes = {"models": models, "n_ctx": n_ctx, "batch": batch}
    return {**sizes, "ms": stack / steps / models * 1e3, "plain_ms": plain / 20 * 1e3}


SIZES = [
    *((models, T, BATCH) for models in (1, 8, 64, 256)),
    *((64, n_ctx, BATCH) for n_ctx in (15, 60, 120)),
    *((64, T, batch) for batch in (50, 800)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute at most: fewer repeats, 16 seeds to solution")
    parser.add_argument("--growth", action="store_true", help="also time as K, T and batch grow")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    repeats, steps, seeds = (3, 100, 16) if options.quick else (5, 300, 64)
    with denormals_flushed():
        stacked_training(jobs_of(8), 20, until_solved=False)
        plain_training(jobs_of(1), 20, until_solved=False)
        plain, stack, one = interleaved(
            repeats,
            (lambda jobs: plain_training(jobs, steps, until_solved=False), lambda: jobs_of(1)),
            (lambda jobs: stacked_training(jobs, steps, until_solved=False), lambda: jobs_of(64)),
            (lambda jobs: stacked_training(jobs, steps, until_solved=False), lambda: jobs_of(1)),
        )
        rate = matmul_rate()
        plain_solution, stack_solution = interleaved(
            1,
            (lambda jobs: plain_training(jobs, MOST_STEPS, until_solved=True), lambda: jobs_of(seeds)),
            (lambda jobs: stacked_training(jobs, MOST_STEPS, until_solved=True), lambda: jobs_of(seeds)),
        )
        rows = [growth(*size) for size in SIZES] if options.growth else []
    step = stack / steps / 64
    result = {
        "benchmark": "training",
        "threads": options.threads,
        "ratios": {
            "plain_loop": plain / steps / step,
            "time_to_solution": plain_solution / stack_solution,
            "matmul_share": table_flops(T, BATCH) / step / rate,
            "single_model": plain / one,
        },
        "detail": {
            "plain_ms_a_step": plain / steps * 1e3,
            "stack_ms_a_model_and_step": step * 1e3,
            "single_ms_a_step": one / steps * 1e3,
            "matmul_gflops": rate / 1e9,
            "seeds_to_solution": seeds,
            "plain_seconds_to_solution": plain_solution,
            "stack_seconds_to_solution": stack_solution,
            "growth": rows,
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
