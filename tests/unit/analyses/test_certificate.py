"""The certificate of a run in the task's terms, against all its inputs one by one; and the command."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import certificate, cli, commands
from analyses.certificate import Settings, boxes_of, compute
from analyses.certifying import certify
from analyses.runs import Run
from interp import HookedAttention
from tasks import RuleAnd, SparseAnd, label_cover

Build = Callable[..., HookedAttention]
WriteRun = Callable[..., Run]


def truth(run: Run) -> dict[str, Any]:
    """Wrong inputs, their probability, and fewest changes among them, from the model's logits on all inputs."""
    x = run.task.enumerate()
    model = run.model.double()
    wrong = (model(x).detach() > 0) != run.task.label(x)
    changes = np.full(len(x), -1)
    for rule, targets in enumerate(run.task.targets):
        others = [i for i in run.task.candidates if i not in targets]
        here = (run.task.rule(x) == rule).numpy()
        changes[here] = (x[here][:, others] == (0 if run.task.p >= 0.5 else 1)).sum(dim=1)
    return {
        "n_wrong": int(wrong.sum()),
        "probability": float(run.task.log_probability(x).exp()[wrong].sum()),
        "changes": int(changes[wrong.numpy()].min()) if wrong.any() else None,
        "by_changes": {
            int(n): int(k) for n, k in zip(*np.unique(changes[wrong.numpy()], return_counts=True), strict=True)
        },
    }


@pytest.mark.parametrize("name", ["rule", "sparse", "linear"])
def test_the_result_is_the_truth_over_all_inputs(
    name: str, analysed: Callable[[str], Run], result_of: Callable
) -> None:
    result, right = result_of(name, "certificate")["result"], truth(Run(analysed(name).path))
    assert result["n_inputs"] == 2 ** analysed(name).task.n_ctx
    assert result["n_wrong"] == right["n_wrong"]
    assert result["verdict"] == ("refuted" if right["n_wrong"] else "verified")
    error = result["error_probability"]
    assert error["kind"] == "exact"
    assert error["lower"] == error["upper"] == pytest.approx(right["probability"], rel=1e-9)
    assert result["changes"] == right["changes"]
    assert {int(n): count for n, count in result["wrong_by_changes"].items()} == right["by_changes"]
    if right["n_wrong"]:
        assert result["radius"] == {"proven": right["changes"] - 1, "at_most": right["changes"] - 1}


def test_counterexamples_are_wrong_by_the_models_own_logit(analysed: Callable[[str], Run], result_of: Callable) -> None:
    run, result = Run(analysed("tutorial").path), result_of("tutorial", "certificate")["result"]
    assert result["verdict"] == "refuted"
    for bits, logit in (
        (result["counterexample"], result["logit"]),
        (result["worst"]["input"], result["worst"]["logit"]),
    ):
        x = torch.tensor([bits])
        assert run.model.double()(x).item() == pytest.approx(logit, rel=1e-12)
        assert (logit > 0) != run.task.label(x).item()
    assert abs(result["worst"]["logit"]) >= abs(result["logit"]) * (1 - 1e-9)


def test_the_quick_one_samples_where_there_are_too_many_inputs(result_of: Callable) -> None:
    result = result_of("tutorial", "certificate")["result"]
    error = result["error_probability"]
    assert (result["n_wrong"], result["seconds"], error["kind"]) == (None, None, "sampled")
    assert 0 <= error["lower"] < error["upper"] < 0.01
    assert "99% interval, 20,000 samples" in result["sentence"]


def test_a_model_that_is_right_everywhere_is_verified(
    tmp_path: Path, weighing_model: Build, write_run: WriteRun
) -> None:
    weights = [4.0 if pos in (1, 4) else 0.01 for pos in range(9)]
    run = write_run(tmp_path, weighing_model(weights, 7.0), SparseAnd(9, (1, 4)))
    assert truth(run)["n_wrong"] == 0
    result = compute(run, Settings(seconds=30))
    assert result.found.verdict == "verified"
    assert (result.found.n_wrong, result.lower, result.upper, result.kind) == (0, 0.0, 0.0, "exact")
    assert result.sentence == "verified: right on all 512 inputs (branch and bound)"
    assert not result.shares.any()


def test_a_tie_is_neither_right_nor_wrong(tmp_path: Path, weighing_model: Build, write_run: WriteRun) -> None:
    """The logit is 0 where exactly one of the two targets is 1, which the task calls False."""
    run = write_run(tmp_path, weighing_model([1.0, 1.0], 1.0), SparseAnd(2, (0, 1)))
    result = compute(run)
    assert (result.found.verdict, result.found.n_wrong) == ("undecided", None)
    assert result.kind != "exact"
    assert result.upper > 0


def test_changes_leave_out_targets_of_the_rule_in_force_and_rule_bits() -> None:
    task = RuleAnd(6, ((0, 1), (2,)))
    counted = {(box.label, tuple(box.counted.tolist())) for box in boxes_of(task)}
    assert {bits for _, bits in counted} == {(-1, -1, 0, 0, 0, -1), (0, 0, -1, 0, 0, -1)}
    assert len(boxes_of(task)) == len(label_cover(task)) == 5
    rare = SparseAnd(4, (1,), p=0.2)
    assert boxes_of(rare)[0].counted.tolist() == [1, -1, 1, 1]


def test_a_wrong_counterexample_stops_everything(tmp_path: Path, weighing_model: Build, write_run: WriteRun) -> None:
    run = write_run(tmp_path, weighing_model([1.0, 1.0], 1.5), SparseAnd(2, (0, 1)))
    with pytest.raises(RuntimeError, match="found wrong, but the model's logit"):
        certificate.confirmed(run.model, run.task, np.array([1, 1]))


def test_shares_are_of_all_inputs_with_so_many_changes() -> None:
    task = SparseAnd(5, (0, 3))  # three others
    assert certificate.shares(task, {1: 6, 3: 4}).tolist() == [0.0, 0.5, 0.0, 1.0]
    assert certificate.shares(task, None).size == 0


@pytest.fixture(scope="module")
def certified_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("certified") / "seeds"
    small = {"task": "sparse-and", "n_ctx": 8, "n_targets": 2, "n_train": 120, "n_valid": 100, "steps": 300}
    commands.train({**small, "seeds": "0:3", "out": out})
    certify(out, Settings(seconds=20))
    return out


def test_a_folder_of_seeds_gets_a_row_a_seed(certified_folder: Path) -> None:
    out = certified_folder / "analyses"
    assert sorted(p.name for p in out.iterdir()) == [f"certificates.{kind}" for kind in ("csv", "json", "png", "svg")]
    rows = list(csv.DictReader((out / "certificates.csv").read_text().splitlines()))
    summary = json.loads((out / "certificates.json").read_text())
    assert [row["run"] for row in rows] == summary["runs"] == [f"seed-00000{i}" for i in range(3)]
    for row in rows:
        right = truth(Run(certified_folder / row["run"]))
        assert int(row["n_wrong"]) == right["n_wrong"]
        assert float(row["error_upper"]) == pytest.approx(right["probability"], rel=1e-9)
        assert row["verdict"] == ("refuted" if right["n_wrong"] else "verified")
        summary["verdicts"][row["verdict"]]["count"] -= 1
    assert all(entry["count"] == 0 for entry in summary["verdicts"].values())


def test_the_command_prints_the_result_alone_as_json(
    certified_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        cli.main(["certify", str(certified_folder / "seed-000001"), "--json"])
    assert done.value.code == 0
    result = json.loads(capsys.readouterr().out)
    assert {
        "verdict",
        "n_inputs",
        "n_wrong",
        "error_probability",
        "counterexample",
        "logit",
        "method",
        "seconds",
    } <= set(result)
    assert result["seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nowhere"], "nowhere does not exist"), (["RUN", "--seconds", "0"], "0.0 seconds; give at least one box")],
)
def test_bad_input_is_one_line(
    arguments: list[str], said: str, certified_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(certified_folder / "seed-000000")
    with pytest.raises(SystemExit) as caught:
        cli.main(["certify", *(run if each == "RUN" else each for each in arguments)])
    error = capsys.readouterr().err
    assert (caught.value.code, error.count("\n")) == (2, 1)
    assert said in error
