"""Runs with reports, made without training: their figures and tables matter here, not what they learned."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from analyses import commands
from analyses.results import chosen_analyses
from analyses.runs import Run, seed_folder
from interp import AttentionConfig, HookedAttention
from interp.config import LinearConfig, TrainConfig
from interp.models import HookedLinear
from tasks import RuleAnd, SparseAnd, TableTask

HOSTILE = (
    "<script>alert(1)</script>",
    "</script>",
    "\"quoted\" & 'single'",
    "Grösse ≥ 3 μm",
    "a very long name " * 8,
)
"""Feature names as a table may bring them."""


def attention(n_ctx: int, seed: int = 0) -> HookedAttention:
    return HookedAttention(AttentionConfig(n_ctx=n_ctx, init_std=1.0), torch.Generator().manual_seed(seed)).eval()


def write_rule(folder: Path, write_run: Callable[..., Run]) -> Run:
    """Two rules over six bits."""
    run = write_run(folder, attention(6), RuleAnd(6, ((1, 3), (0, 2)), 0.7))
    analyse(run)
    return run


def analyse(run: Run) -> None:
    """Every analysis that applies but the slowest, abstraction, with a small picture in each figure's place, for
    drawing takes most of the time."""
    names = [analysis.NAME for analysis in chosen_analyses(run) if analysis.NAME != "abstraction"]
    commands.analyze(run.path, names, quiet=True, figures=False)
    for result in run.path.glob("analyses/*/result.json"):
        picture = Image.effect_noise((240, 130), 40).convert("RGBA")
        picture.save(result.with_name("figure.png"))


def write_hostile(folder: Path, write_run: Callable[..., Run]) -> Run:
    """A table whose features have HOSTILE names."""
    bits = np.array([[(row >> i) & 1 for i in range(5)] for row in range(32)], dtype=bool)
    train = np.arange(32) % 3 > 0
    task = TableTask(
        HOSTILE, bits, bits[:, 0] & bits[:, 1], train, ~train, (0, 1), source={"label": "<img src=x onerror=alert(2)>"}
    )
    run = write_run(folder, attention(5, seed=1), task, training=TrainConfig(n_train=21, n_valid=11))
    analyse(run)
    return run


def write_seeds(folder: Path, write_run: Callable[..., Run], n: int = 3) -> list[Run]:
    """A folder of seeds: linear models on an AND of two of five bits, of which only the first is right everywhere."""
    runs = []
    for seed in range(n):
        model = HookedLinear(LinearConfig(n_ctx=5)).eval()
        with torch.no_grad():
            model.W[[seed, 4]] = 2.0
            model.W[3] += 3.0 if seed else 0.0
            model.b.fill_(-3.0)
        runs.append(write_run(seed_folder(folder, seed), model, SparseAnd(5, (seed, 4), 0.7), seed=seed))
        analyse(runs[-1])
    return runs
