"""What is said about one run and about a folder of seeds."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import commands, target_recovery
from analyses.overview import sets_text, summarise, verdict_lines
from analyses.runs import Run, seed_folder
from interp.statistics import clopper_pearson
from tasks import SparseAnd


@pytest.fixture
def seeds(weighing_model: Callable, write_run: Callable, tmp_path: Path) -> Path:
    """Seeds 0 and 2 look at their targets, seed 1 at other bits."""
    for seed, targets in ((0, (2, 5)), (1, (0, 9)), (2, (3, 8))):
        looks_at = (4, 6) if seed == 1 else targets
        weights = [64.0 if pos in looks_at else 1.0 for pos in range(16)]
        write_run(
            seed_folder(tmp_path / "many", seed), weighing_model(weights, 96.0), SparseAnd(16, targets), seed=seed
        )
    return tmp_path / "many"


def test_a_folder_of_seeds(seeds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, lines = commands.analyze(seeds, ["target-recovery"])
    out = capsys.readouterr().out
    overview = json.loads((seeds / "analyses" / "overview.json").read_text())
    assert content["overview"] == overview
    assert list(content["runs"]) == overview["runs"] == ["seed-000000", "seed-000001", "seed-000002"]
    low, high = clopper_pearson(2, 3)
    assert overview["match"]["patching"] == {"count": 2, "of": 3, "interval": [low, high]}
    control = overview["shuffled"]
    assert (control["match"], control["auroc"], control["precision"]) == (pytest.approx(1 / 120), 0.5, 2 / 16)
    for method in ("patching", "attention"):
        found = [
            content["runs"][name]["target-recovery"]["result"]["rules"][0]["methods"][method]["auroc"]
            for name in overview["runs"]
        ]
        assert overview["auroc"][method]["mean"] == pytest.approx(np.mean(found))
        assert overview["auroc"][method]["interval"] == [pytest.approx(min(found)), 1]  # of three, 1/27 are all alike
        assert overview["precision"][method]["mean"] == pytest.approx((1 + 0 + 1) / 3)
        start, end = control["auroc_range"][method]
        assert 0 < start < 0.5 < end < 1
    verdicts = {word: found["count"] for word, found in overview["verdicts"].items()}
    assert verdicts == {"created": 2, "mixed": 0, "not created": 1}
    accuracies = [content["runs"][name]["target-recovery"]["result"]["accuracy"]["valid"] for name in overview["runs"]]
    assert overview["validation_accuracy"] == {"min": min(accuracies), "median": sorted(accuracies)[1]}

    with (seeds / "analyses" / "overview.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["seed"], row["targets"]) for row in rows] == [
        ("seed-000000", "0", "2,5"),
        ("seed-000001", "1", "0,9"),
        ("seed-000002", "2", "3,8"),
    ]
    assert [row["verdict"] for row in rows] == ["created", "not created", "created"]
    assert [row["patching"] for row in rows] == ["True", "False", "True"]
    assert [float(row["valid"]) for row in rows] == accuracies

    assert [line.split(": ")[1].split(".")[0] for line in lines[:3]] == ["created", "not created", "created"]
    assert lines[-1] == f"overview: {seeds / 'analyses' / 'overview.csv'}"
    assert f"patching: exactly the targets on top in 2 of 3 runs (95 % interval {low:.2f} to {high:.2f})" in out
    assert "created 2/3" in out
    assert "; AUROC 0." in out
    assert (
        "control, index sets drawn at random: on top in 0.0083 of runs, mean AUROC 0.50 (95 % of drawings within" in out
    )
    for seed in range(3):
        assert (seed_folder(seeds, seed) / "analyses" / "target-recovery" / "result.json").exists()


def test_without_target_recovery_there_is_no_overview(seeds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, lines = commands.analyze(seeds, ["samples"])
    assert list(content) == ["seed-000000", "seed-000001", "seed-000002"]
    assert lines == [f"written: {seed_folder(seeds, seed) / 'analyses' / 'samples'}" for seed in range(3)]
    assert not (seeds / "analyses").exists()
    assert capsys.readouterr().out == ""


def test_a_single_run_is_told_in_sentences(seeds: Path) -> None:
    run = Run(seed_folder(seeds, 1))
    result = target_recovery.compute(run)
    first, *rest = verdict_lines(run, result.verdict.to_json())
    assert first == f"{run.path}: not created. {result.verdict.sentence}"
    assert rest == [f"  {d}" for d in (*result.verdict.disagreements, *result.verdict.heads)]


def test_every_share_is_over_all_runs(analysed: Callable[[str], Run]) -> None:
    run = analysed("rule")
    result = target_recovery.compute(run)
    summary: Any = summarise([run] * 4, [result] * 4)
    assert {found["of"] for part in ("verdicts", "match") for found in summary[part].values()} == {4}
    assert sum(found["count"] for found in summary["verdicts"].values()) == 4
    assert summary["match"]["patching"]["count"] == 4
    assert result.match[:, result.methods.index("contribution")].tolist() == [True, False]
    assert summary["match"]["contribution"]["count"] == 0  # under one rule is not under all


def test_sets_are_written_as_the_command_line_takes_them() -> None:
    assert sets_text(((3, 7), (2, 5))) == "3,7/2,5"
    assert sets_text(((12,),)) == "12"


def test_the_shuffled_range_is_that_of_mann_and_whitney(seeds: Path) -> None:
    """Three runs of 2 among 16: the mean AUROC of random sets has the variance of U, (n + 1)/(12 s (n − s)), over 3."""
    runs = [Run(seed_folder(seeds, seed)) for seed in range(3)]
    results = [target_recovery.compute(run) for run in runs]
    for result in results:
        result.scores[:] = np.arange(16.0)
    low, high = summarise(runs, results)["shuffled"]["auroc_range"]["patching"]
    deviation = np.sqrt(17 / (12 * 2 * 14) / 3)
    assert (high - low) / (2 * 1.96 * deviation) == pytest.approx(1, abs=0.07)
    assert (high + low) / 2 == pytest.approx(0.5, abs=0.02)
