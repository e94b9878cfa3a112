"""The tutorial's own checkpoints end to end: imported, analysed, and judged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyses import commands, target_recovery
from analyses.runs import Run
from analyses.target_recovery import TargetRecovery

GOOD = [f"{task}_seed{seed}" for task in ("rule_and_T11_s2", "sparse_and_T30_s3") for seed in range(3)]
DEGENERATE = "sparse_and_T30_s18_degenerate"


@pytest.fixture(scope="session")
def tutorial(shared: Path) -> Path:
    folder = shared / "data" / "tutorial"
    if not folder.is_dir():
        pytest.skip(f"the tutorial's checkpoints are not there: no {folder}")
    return folder


def recover(tutorial: Path, name: str, out: Path, p: str) -> tuple[Run, TargetRecovery]:
    entry: dict[str, Any] = json.loads((tutorial / "index.json").read_text())[name]
    sets = [entry["targets"]] if "targets" in entry else [entry["targets_rule0"], entry["targets_rule1"]]
    text = "/".join(",".join(map(str, targets)) for targets in sets)
    commands.import_checkpoint(tutorial / f"{name}.pt", entry["task"], text, out, None, p, 0)
    run = Run(out)
    return run, target_recovery.compute(run)


def test_these_are_all(tutorial: Path) -> None:
    assert sorted(json.loads((tutorial / "index.json").read_text())) == sorted([*GOOD, DEGENERATE])


@pytest.mark.parametrize("name", GOOD)
def test_the_good_ones_created_their_variables_where_attention_misleads(
    name: str, tutorial: Path, tmp_path: Path
) -> None:
    run, result = recover(tutorial, name, tmp_path / "run", "balanced")
    assert result.verdict.verdict == "created"
    matched = {method: bool(result.match[:, m].all()) for m, method in enumerate(result.methods)}
    assert matched["patching"]
    assert matched["weights"]
    assert not matched["attention"]  # of any of the six
    assert result.verdict.disagreements[0].startswith("attention disagrees with patching: it has {")
    assert matched["contribution"] == (not run.task.rule_positions)
    patching = result.joint[result.methods.index("patching")]
    assert patching == pytest.approx(1 / 2025 if run.task.rule_positions else 1 / 4060)
    assert result.accuracy.valid >= 0.99
    assert result.accuracy.clear
    assert result.accuracy.constant is None


@pytest.mark.parametrize(("p", "majority"), [("balanced", (0.5, 0.53)), ("tutorial", (0.97, 0.995))])
def test_the_dense_one_is_the_constant_function(
    p: str, majority: tuple[float, float], tutorial: Path, tmp_path: Path
) -> None:
    """Its validation accuracy of 98 % on the tutorial's inputs is the majority class's."""
    run, result = recover(tutorial, DEGENERATE, tmp_path / "run", p)
    assert len(run.task.targets[0]) == 18
    assert result.verdict.verdict == "not created"
    assert result.verdict.sentence.startswith(
        "The model is the constant function: it answers False to every input drawn"
    )
    assert result.accuracy.constant is False
    assert result.accuracy.balanced == 0.5
    assert majority[0] <= result.accuracy.majority <= majority[1]
    assert not result.accuracy.clear
    if p == "tutorial":
        assert result.accuracy.valid == result.accuracy.majority


@pytest.mark.parametrize(("name", "rules"), [("tutorial", [None]), ("rule", [0, 1])])
def test_the_kept_ones_from_import_to_figures(
    name: str, rules: list[int | None], analysed: Callable[[str], Run], result_of: Callable[[str, str], Any]
) -> None:
    run, result = analysed(name), result_of(name, "target-recovery")
    assert run.config.source.startswith("imported:")
    assert result["run"]["training"] is None
    assert [rule["rule"] for rule in result["result"]["rules"]] == rules
    assert result["result"]["verdict"] == "created"
    assert result["result"]["accuracy"]["n_valid"] == 1000
    effective = result_of(name, "effective-attention")["result"]
    assert effective["logit_error"] < 1e-4
