"""How long does a verdict over all inputs take?

    python -m tests.benchmarks.certify [--quick] [--threads N]

Models are the tutorial's (104 parameters at T = 30), trained on 200 samples for 2000 steps, one a seed. Seconds,
medians over the models, after one call that compiles:

    refute_median_s             until a wrong input is found, and confirmed by the hooked model
    error_probability_median_s  the whole certificate: wrong inputs counted exactly, their probability, the radius
    closed_form_s               a proof for a single query without bits of its own (a [CLS] readout), T = 800

`detail` has every model's figures, the peak memory of the process, how time grows with T and s, and (not with --quick)
training until certified for 16 seeds beside the same number of steps on the tutorial's training set, and on as many
inputs with a uniformly drawn share of ones: how many end verified, and after how many rounds and seconds.

The last line is one JSON object.
"""

import argparse
import json
import os
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analyses.certificate import boxes_of, confirmed, side_maker
from analyses.certified_training import Progress, run_rounds
from analyses.options import task_maker
from analyses.train import Plan, make_job
from interp.certify.branch import Budget, prove
from interp.certify.certificate import certify, refute
from interp.certify.side import MOST, RatioSide
from interp.certify.terms import Terms
from interp.config import AttentionConfig, TrainConfig
from interp.seeds import numpy_generator
from interp.training import Job, train_stack
from tasks import Task

ROUNDS, STEPS = 20, 1000


def trained(n_ctx: int, n_targets: int, seeds: range, training: TrainConfig) -> list[tuple[Any, Task]]:
    make = task_maker("sparse-and", n_ctx=n_ctx, n_targets=n_targets)
    jobs = [make_job(make(seed), AttentionConfig(n_ctx), training, seed) for seed in seeds]
    train_stack(jobs, training)
    return [(job.model, make(job.seed)) for job in jobs]


def time_refutation(model: Any, task: Task, seed: int) -> float | None:
    """Seconds to a confirmed counterexample; None where flips find none."""
    start = time.perf_counter()
    wrong = refute(side_maker(model), boxes_of(task), numpy_generator(seed, "certificate"))
    for _, _, x, _ in wrong[:1]:
        confirmed(model, task, x)
    return time.perf_counter() - start if wrong else None


def time_certificate(model: Any, task: Task, seed: int, threads: int) -> dict[str, Any]:
    generator = numpy_generator(seed, "certificate")
    found = certify(
        side_maker(model), boxes_of(task), np.array(task.bit_probability), generator, seconds=300, threads=threads
    )
    return {
        "seconds": found.seconds,
        "verdict": found.verdict,
        "n_wrong": found.n_wrong,
        "error_probability": [found.lower, found.upper],
        "radius": found.radius[0],
        "evaluated": found.n_counted,
    }


def time_closed_form(n_ctx: int = 800, n_targets: int = 3) -> float:
    """A head that looks at the zeros among the targets, from one query: AND over n_ctx bits, proven."""
    score, value = np.zeros((1, 2, n_ctx, 2)), np.full((1, n_ctx, 2), 1.0)
    score[:, :, :n_targets, 0], value[:, :n_targets, 0] = 12.0, -1.0
    terms = Terms(score, value, np.array([-1]), np.zeros((n_ctx, 2)), 0.0, 1e-9)
    task = task_maker("sparse-and", n_ctx=n_ctx, targets=",".join(map(str, range(n_targets))))(0)
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        budget = Budget(1000)
        for box in boxes_of(task):
            if not prove(RatioSide(terms, box.label, box.counted), [box.fixed], budget, MOST).proven:
                raise SystemExit("the closed form did not prove a network that is right everywhere")
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def growth(threads: int, quick: bool) -> list[dict[str, Any]]:
    """Certificates by T and s."""
    sizes = [(14, 3), (20, 3), (24, 3)] if quick else [(14, 3), (20, 3), (24, 3), (27, 3), (30, 3), (30, 8), (30, 15)]
    rows = []
    for n_ctx, n_targets in sizes:
        training = TrainConfig(n_train=200 if n_targets == 3 else 1000, steps=2000)
        models = trained(n_ctx, n_targets, range(3), training)
        found = [time_certificate(model, task, seed, threads) for seed, (model, task) in enumerate(models)]
        median = statistics.median(each["seconds"] for each in found)
        rows.append({"n_ctx": n_ctx, "n_targets": n_targets, "median_s": median, "models": found})
    return rows


def training_until_certified(seeds: range) -> dict[str, Any]:
    """Verified models by way of training, all with the same number of steps at most."""
    make = task_maker("sparse-and", n_ctx=30, n_targets=3)
    training = TrainConfig(steps=STEPS)
    plan = Plan(make, AttentionConfig(30), training, tuple(seeds), Path(), many=True)
    start = time.perf_counter()
    states = {seed: Progress(make_job(make(seed), plan.model, training, seed), make(seed)) for seed in seeds}
    run_rounds(states, plan, ROUNDS)
    verified = [state.rounds[-1] for state in states.values() if state.verified]
    result: dict[str, Any] = {
        "counterexamples": {
            "verified": len(verified),
            "of": len(seeds),
            "rounds": sorted(len(state.rounds) for state in states.values() if state.verified),
            "seconds_each": (time.perf_counter() - start) / len(seeds),
        }
    }
    steps = max(state.rounds[-1][0] for state in states.values())
    for name, n_train, uniform in (("plain", 200, False), ("uniform_ones", 600, True)):
        start = time.perf_counter()
        longer = replace(training, n_train=n_train, steps=steps)
        jobs = [make_job(make(seed), plan.model, longer, seed) for seed in seeds]
        if uniform:
            jobs = [uniform_job(job, make(job.seed)) for job in jobs]
        train_stack(jobs, longer)
        verdicts = []
        for job in jobs:
            task, generator = make(job.seed), numpy_generator(job.seed, "certificate")
            p = np.array(task.bit_probability)
            verdicts.append(certify(side_maker(job.model), boxes_of(task), p, generator, count=False).verdict)
        result[name] = {
            "verified": verdicts.count("verified"),
            "undecided": verdicts.count("undecided"),
            "of": len(seeds),
            "steps": steps,
            "seconds_each": (time.perf_counter() - start) / len(seeds),
        }
    return result


def uniform_job(job: Job, task: Task) -> Job:
    """The job with bits outside the targets that are ones with a uniformly drawn probability, the targets as usual."""
    generator = torch.Generator().manual_seed(job.seed)
    x = job.data[0].clone()
    share = torch.rand(len(x), 1, generator=generator)
    others = [pos for pos in range(task.n_ctx) if pos not in task.targets[0]]
    x[:, others] = (torch.rand(len(x), len(others), generator=generator) < share).long()
    return replace(job, data=(x, task.label(x)))


def main() -> None:
    parser = argparse.ArgumentParser(description="How long does a verdict over all inputs take?")
    parser.add_argument("--quick", action="store_true", help="a minute at most: 4 models, T to 24, no training")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="for counting [all cores]")
    options = parser.parse_args()
    models = trained(30, 3, range(4 if options.quick else 12), TrainConfig())
    time_refutation(*models[0], 0)  # compiles
    time_certificate(*trained(14, 3, range(1), TrainConfig(steps=300))[0], 0, 1)
    refuted = [time_refutation(model, task, seed) for seed, (model, task) in enumerate(models)]
    found = [time_certificate(model, task, seed, options.threads) for seed, (model, task) in enumerate(models)]
    closed_form = time_closed_form()
    detail: dict[str, Any] = {
        "models": found,
        "refuted": sum(seconds is not None for seconds in refuted),
        "refute_s": refuted,
        "growth": growth(options.threads, options.quick),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if not options.quick:
        detail["training"] = training_until_certified(range(16))
    ratios = {
        "refute_median_s": statistics.median(s for s in refuted if s is not None),
        "error_probability_median_s": statistics.median(each["seconds"] for each in found),
        "closed_form_s": closed_form,
    }
    print(json.dumps({"benchmark": "certify", "threads": options.threads, "ratios": ratios, "detail": detail}))


if __name__ == "__main__":
    main()
