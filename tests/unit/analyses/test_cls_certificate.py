"""Certificates of [CLS] runs through the commands, against all inputs one by one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyses import certificate, commands
from analyses.certificate import Settings
from analyses.certifying import certify
from analyses.runs import Run
from interp.certify.side import CLOSED_FORM
from interp.config import ClsConfig
from tasks import SparseAnd
from tests.unit.interp.test_cls_tables import random_cls

KEYS = {"verdict", "n_inputs", "n_wrong", "error_probability", "counterexample", "worst", "radius", "method", "margin"}


@pytest.mark.parametrize("options", [{"n_heads": 1, "d_mlp": 0, "norm": False}, {"n_heads": 2, "d_mlp": 13}])
def test_the_command_counts_the_wrong_inputs(
    options: dict[str, Any], tmp_path: Path, write_run: Callable[..., Run]
) -> None:
    task = SparseAnd(7, (1, 4, 5))
    run = write_run(tmp_path, random_cls(ClsConfig(7, d_model=10, **options), 2), task)
    result, (line,) = certify(tmp_path, Settings())
    x = task.enumerate()
    wrong = (run.model.double()(x) > 0) != task.label(x)
    assert result.keys() >= KEYS
    assert result["n_wrong"] == int(wrong.sum()) > 0
    assert result["verdict"] in line
    assert result["error_probability"]["kind"] == "exact"
    assert result["error_probability"]["upper"] == pytest.approx(float(task.log_probability(x).exp()[wrong].sum()))


def test_too_many_inputs_for_a_model_with_an_mlp(tmp_path: Path, write_run: Callable[..., Run]) -> None:
    """No bound: a counterexample, or an interval from samples."""
    task = SparseAnd(40, (3, 17))
    run = write_run(tmp_path, random_cls(ClsConfig(40, d_model=10, n_heads=2, d_mlp=13), 2), task)
    found = certificate.compute(run)
    assert found.found.verdict in ("refuted", "undecided")
    assert found.found.n_wrong is None
    assert found.kind == "sampled"
    assert 0 <= found.lower < found.upper <= 1


def test_training_until_certified(tmp_path: Path) -> None:
    """A single head without norm or MLP is proven right in closed form on 2**12 inputs, and enumeration agrees."""
    given = {
        **{"task": "sparse-and", "n_ctx": 12, "targets": "1,5", "model": "cls", "n_heads": 1, "d_mlp": 0},
        **{"norm": False, "d_model": 8, "dropout": 0.0, "lr": 0.03, "steps": 300, "n_train": 200, "seeds": "0:2"},
    }
    commands.train({**given, "out": tmp_path, "until_certified": True, "rounds": 6})
    verified = 0
    for folder in sorted(tmp_path.glob("seed-*")):
        run, x = Run(folder), SparseAnd(12, (1, 5)).enumerate()
        if json.loads((folder / "certified.json").read_text())["verified"]:
            verified += 1
            assert ((run.model(x) > 0) == run.task.label(x)).all()
            assert certificate.compute(run).found.method == CLOSED_FORM
    assert verified
