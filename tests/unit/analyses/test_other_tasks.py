"""Every analysis on runs of or, majority, parity and junta."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyses import cli
from analyses.results import NAMES, load_analysis
from analyses.runs import Run
from tasks import Junta, Majority, Or, Parity, Task, load_task

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
TARGETS = (2, 5, 6)


@pytest.mark.parametrize(
    ("task", "threshold"),
    [
        (Or(9, TARGETS), 0.5),
        (Majority(9, TARGETS), 1.5),
        (Parity(9, TARGETS), 0.5),
        (Junta(9, TARGETS, "00010111"), 1.5),
    ],
    ids=["or", "majority", "parity", "junta"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # as in analyze: unchanged or undefined cells
def test_every_analysis_that_applies(
    task: Task, threshold: float, weighing_model: Callable, write_run: Callable[..., Run], tmp_path: Path
) -> None:
    model = weighing_model([64.0 if pos in TARGETS else 1.0 for pos in range(9)], 64 * threshold).float()
    run = write_run(tmp_path / "run", model, task)
    results: dict[str, Any] = {}
    for name in NAMES:
        analysis = load_analysis(name)
        assert analysis.applies(run) == (name not in ("abstraction", "formation"))  # of ANDs; of runs with snapshots
        if not analysis.applies(run):
            continue
        results[name] = analysis.compute(run)
        assert results[name].to_rows().rows or name == "certificate"  # which lists wrong inputs
    groups = ("target 2", "target 5", "target 6", "non-targets")
    assert results["activation-patching"].groups == results["attribution"].groups == groups
    assert results["samples"].p_true == pytest.approx(0.5, abs=1e-12)
    recovery = results["target-recovery"]
    assert recovery.weights_method.startswith("exact")
    assert recovery.match[0, [recovery.methods.index(method) for method in ("patching", "weights")]].all()
    assert recovery.accuracy.clear == (task.NAME != "parity")


def test_train_reports_the_task_and_analyze_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as caught:
            cli.main([*arguments, "--json"])
        assert caught.value.code == 0
        return json.loads(capsys.readouterr().out)

    out = str(tmp_path / "run")
    (trained,) = call("train", "or", *QUICK, "--targets", "2,5,6", "--seed", "3", "--out", out)
    assert trained["p_true"] == pytest.approx(0.5, abs=1e-12)
    assert trained["task"] == load_task(out).to_dict() == Or(9, TARGETS).to_dict()
    assert trained["accuracy"]["valid"] > 0.95
    content = call("analyze", out, "target-recovery")
    methods = content["target-recovery"]["result"]["rules"][0]["methods"]
    assert methods["patching"]["match"]
    assert methods["weights"]["match"]


def test_an_unbalanced_junta_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "junta", *QUICK, "--steps", "1", "--table", "00000001", "--out", str(tmp_path / "run")])
    assert ", P(label = True) 0.125, attention; validation accuracy" in capsys.readouterr().out
    task = load_task(tmp_path / "run")
    assert isinstance(task, Junta)
    assert (task.table, len(task.targets[0]), task.p_true) == ("00000001", 3, 0.125)
