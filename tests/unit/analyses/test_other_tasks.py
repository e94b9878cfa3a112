"""Every analysis on runs of or, majority, parity and junta, through the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from analyses import cli
from analyses.results import NAMES
from tasks import Junta, load_task

QUICK = [
    "--n-ctx",
    "9",
    "--n-train",
    "150",
    "--n-valid",
    "200",
    "--steps",
    "250",
    "--init-std",
    "0.1",
    "--d-model",
    "3",
]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "--json"])
    assert caught.value.code == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("task", ["or", "majority", "parity", "junta"])
def test_every_analysis_works(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    (trained,) = call(capsys, "train", task, *QUICK, "--targets", "2,5,6", "--seed", "3", "--out", out)
    assert trained["p_true"] == pytest.approx(0.5, abs=1e-12)
    assert trained["task"] == load_task(out).to_dict()
    assert trained["task"]["task"] == task
    assert ("table" in trained["task"]) == (task == "junta")
    if task in ("or", "majority"):
        assert trained["accuracy"]["valid"] > 0.95
    content = call(capsys, "analyze", out)
    assert list(content) == list(NAMES)
    for name in NAMES:
        assert (tmp_path / "run" / "analyses" / name / "figure.png").stat().st_size > 5000
    groups = ["target 2", "target 5", "target 6", "non-targets"]
    assert content["activation-patching"]["result"]["groups"] == groups
    assert content["attribution"]["result"]["groups"] == groups
    recovery = content["target-recovery"]["result"]
    assert recovery["rules"][0]["targets"] == [2, 5, 6]
    assert recovery["weights_method"].startswith("exact")
    if task in ("or", "majority"):
        assert all(recovery["rules"][0]["methods"][method]["match"] for method in ("patching", "weights"))
    assert content["samples"]["result"]["p_true"] == trained["p_true"]


def test_an_unbalanced_junta_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "junta", *QUICK, "--steps", "1", "--table", "00000001", "--out", str(tmp_path / "run")])
    assert ", P(label = True) 0.125, attention; validation accuracy" in capsys.readouterr().out
    task = load_task(tmp_path / "run")
    assert isinstance(task, Junta)
    assert (task.table, len(task.targets[0]), task.p_true) == ("00000001", 3, 0.125)
