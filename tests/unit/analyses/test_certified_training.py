"""Training until certified: what it ends in is right on every input, or says that it is not."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import cli, commands
from analyses.certificate import boxes_of
from analyses.certified_training import alike, find_wrong
from analyses.runs import Run, find_runs
from interp.config import AttentionConfig
from interp.models import HookedAttention
from interp.seeds import numpy_generator
from tasks import RuleAnd, SparseAnd

SMALL: dict[str, Any] = {"task": "sparse-and", "n_ctx": 10, "n_targets": 2, "n_train": 120, "n_valid": 90, "steps": 250}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("certified") / "runs"
    commands.train({**SMALL, "seeds": "0:4", "out": out, "until_certified": True, "rounds": 12})
    return out


def test_verified_means_right_on_every_input(folder: Path) -> None:
    told = [json.loads((run.path / "certified.json").read_text()) for run in find_runs(folder)]
    assert sum(each["verified"] for each in told) >= 3
    for run, each in zip(find_runs(folder), told, strict=True):
        x = run.task.enumerate()
        right = bool(((run.model(x) > 0) == run.task.label(x)).all())
        assert right or not each["verified"]


def test_the_history_goes_through_all_rounds(folder: Path) -> None:
    for run in find_runs(folder):
        told = json.loads((run.path / "certified.json").read_text())
        steps = [int(row["step"]) for row in csv.DictReader((run.path / "history.csv").read_text().splitlines())]
        assert steps == sorted(set(steps))
        assert steps[-1] == told["rounds"][-1]["steps"] == 250 * len(told["rounds"])
        assert [each["counterexamples"] > 0 for each in told["rounds"]] == [True] * (len(told["rounds"]) - 1) + [
            not told["verified"]
        ]
        assert run.config.source == "certified"


def test_the_same_seeds_alone_give_the_same_weights(folder: Path, tmp_path: Path) -> None:
    commands.train({**SMALL, "seed": 2, "out": tmp_path / "two", "until_certified": True, "rounds": 12})
    together, alone = Run(folder / "seed-000002").model, Run(tmp_path / "two").model
    assert all(torch.equal(a, b) for a, b in zip(together.parameters(), alone.parameters(), strict=True))


def test_out_of_rounds_is_said(tmp_path: Path) -> None:
    content, lines = commands.train(
        {**SMALL, "steps": 3, "out": tmp_path / "short", "until_certified": True, "rounds": 1}
    )
    assert content[0]["verified"] is False
    assert "not verified" in lines[0]
    assert lines[-1].startswith("0 of 1 verified")


def test_nothing_is_found_in_a_model_that_is_right_and_much_in_one_that_is_not() -> None:
    task = SparseAnd(7, (2, 5))
    model = HookedAttention(AttentionConfig(7, init_std=0.5), torch.Generator().manual_seed(3)).eval()
    wrong, proven = find_wrong(model, boxes_of(task), numpy_generator(0, "certificate"))
    x = torch.from_numpy(wrong)
    assert not proven
    assert len(np.unique(wrong, axis=0)) == len(wrong) > 0
    assert ((model(x) > 0) != task.label(x)).all()


def test_rows_alike_keep_targets_and_rule_bits() -> None:
    task = RuleAnd(9, ((0, 3), (4, 5)))
    wrong = np.array([[1, 0, 1, 0, 1, 0, 1, 0, 1]])
    rows = alike(wrong, task, numpy_generator(1, "certificate"))
    kept = [0, 3, 4, 5, 8]
    assert (rows[:, kept] == wrong[0, kept]).all()
    changed = (rows != wrong).mean(axis=0)[[1, 2, 6, 7]]
    assert ((changed > 0.05) & (changed < 0.3)).all()


def test_no_rounds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["train", "sparse-and", "--until-certified", "--rounds", "0", "--out", str(tmp_path / "none")])
    assert caught.value.code == 2
    assert "0 rounds" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
