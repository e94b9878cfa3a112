"""Runs on disk: written by hand through the package's own functions, trained once a session, or the tutorial's."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from analyses import cli, commands
from analyses.runs import Run
from interp.config import AttentionConfig
from interp.models import HookedAttention
from tests.hand_set import hand_set
from tests.run_folders import write_run

TUTORIAL = Path(__file__).parents[2] / "data" / "tutorial"


@pytest.fixture
def boolens(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """From arguments to exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, captured.out, captured.err

    return call


@pytest.fixture(scope="session", name="write_run")
def write_run_() -> Callable[..., Run]:
    """From a folder, a model and a task to the run in that folder."""
    return write_run


@pytest.fixture(scope="session")
def weighing_model() -> Callable[..., HookedAttention]:
    """From one positive weight a position and a threshold to a model with logit = sum of weight · bit - threshold.

    Every query attends to a key in proportion to its weight; values are the bits; the readouts sum to all weights.
    """

    def build(weights: Sequence[float], threshold: float) -> HookedAttention:
        n_ctx = len(weights)
        return hand_set(
            AttentionConfig(n_ctx=n_ctx, d_model=2, d_head=1, bias=True),
            W_E=[[0, 0], [0, 1]],
            W_pos=[[math.log(w), 0] for w in weights],
            b_Q=[[1]],
            W_K=[[[1], [0]]],
            W_V=[[[0], [1]]],
            W_readout=[[[sum(weights) / n_ctx]]] * n_ctx,
            b_readout=-threshold,
        )

    return build


@pytest.fixture(scope="session")
def asking_model() -> Callable[..., HookedAttention]:
    """From n_ctx, targets and sinks to a model that is right and whose attention is on the sinks.

    A query whose bit is 0 attends evenly, one whose bit is 1 mostly to the sinks, whose value is 1. Only the targets'
    queries are read; the logit is above 0 where all their bits are 1.
    """

    def build(n_ctx: int, targets: Sequence[int], sinks: Sequence[int]) -> HookedAttention:
        s, others = len(sinks), n_ctx - len(sinks)
        off, on = s / n_ctx, 8 * s / (8 * s + others)
        return hand_set(
            AttentionConfig(n_ctx=n_ctx, d_model=2, d_head=1, bias=True),
            W_E=[[0, 0], [1, 0]],
            W_pos=[[0, int(pos in sinks)] for pos in range(n_ctx)],
            W_Q=[[[1], [0]]],
            W_K=[[[0], [math.log(8)]]],
            W_V=[[[0], [1]]],
            W_readout=[[[10 * (pos in targets)]] for pos in range(n_ctx)],
            b_readout=-10 * (len(targets) * on - (on - off) / 2),
        )

    return build


@pytest.fixture(scope="session")
def selecting_model() -> Callable[..., HookedAttention]:
    """From n_ctx and two target sets of one size s to a model in which the rule bit, last, moves the attention.

    Only the rule bit's query is read. It attends to its rule's targets with score 30, to all others with 0; values are
    the bits. So the logit is 20 · (share of these targets that are 1, less 1 − 1/(2s)).
    """

    def build(n_ctx: int, targets: Sequence[Sequence[int]]) -> HookedAttention:
        size, key = len(targets[0]), 30 * math.sqrt(2)
        return hand_set(
            AttentionConfig(n_ctx=n_ctx, d_model=3, d_head=2, bias=True),
            W_E=[[0, 0, 0], [1, 0, 0]],
            W_pos=[[0, int(pos in targets[0]), int(pos in targets[1])] for pos in range(n_ctx)],
            W_Q=[[[-1, 1], [0, 0], [0, 0]]],
            b_Q=[[1, 0]],
            W_K=[[[0, 0], [key, 0], [0, key]]],
            W_V=[[[1], [0], [0]]],
            W_readout=[[[20 * (pos == n_ctx - 1)]] for pos in range(n_ctx)],
            b_readout=-20 * (1 - 1 / (2 * size)),
        )

    return build


@pytest.fixture(scope="session")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A run by its name, trained or imported and analysed by the commands, once a session."""
    folder = tmp_path_factory.mktemp("analysed")
    small = {"task": "sparse-and", "n_train": 200, "n_valid": 300}

    def make(name: str) -> None:
        out = folder / name
        match name:
            case "sparse":
                sizes = {"n_ctx": 9, "n_targets": 4, "n_heads": 2, "d_value": 2, "d_head": 3, "bias": True}
                commands.train(
                    {**small, **sizes, "init_std": 0.1, "steps": 250, "snapshot_every": 50, "out": out, "seed": 1}
                )
            case "mlp":
                commands.train({**small, "n_ctx": 9, "model": "mlp", "d_mlp": 32, "steps": 400, "out": out})
            case "cls":
                sizes = {"n_ctx": 13, "model": "cls", "d_model": 12, "n_heads": 3, "d_mlp": 10, "lr": 0.01}
                commands.train({**small, **sizes, "n_targets": 3, "steps": 400, "snapshot_every": 80, "out": out})
            case "cls-rule":
                sizes = {"n_ctx": 8, "model": "cls", "d_model": 16, "n_heads": 5, "d_head": 3, "d_mlp": 11, "lr": 0.01}
                rule = {
                    "task": "rule-and",
                    "targets": "1,3/0,6",
                    "norm": False,
                    "steps": 800,
                    "init_std": 0.1,
                    "dropout": 0.0,
                }
                commands.train({**small, **sizes, **rule, "out": out})
            case "linear":
                commands.train({**small, "n_ctx": 9, "model": "linear", "steps": 400, "lr": 0.05, "out": out})
            case "rule":
                file = TUTORIAL / "rule_and_T11_s2_seed1.pt"
                commands.import_checkpoint(file, "rule-and", "3,9/4,6", out, None, "tutorial", 0)
            case "tutorial":
                file = TUTORIAL / "sparse_and_T30_s3_seed0.pt"
                commands.import_checkpoint(file, "sparse-and", "12,24,27", out, None, "tutorial", 0)
        commands.analyze(out, ())

    def get(name: str) -> Run:
        if not (folder / name).exists():
            make(name)
        return Run(folder / name)

    return get


@pytest.fixture(scope="session")
def result_of(analysed: Callable[[str], Run]) -> Callable[[str, str], Any]:
    """From the names of a run and of an analysis to result.json's whole content, read strictly."""

    def read(run: str, analysis: str) -> Any:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} in result.json")

        path = analysed(run).path / "analyses" / analysis / "result.json"
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)

    return read
