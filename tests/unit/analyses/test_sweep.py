"""`boolens sweep`: lists and ranges, refusals before anything starts, and rows equal to training by itself."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analyses import cli, sweep
from analyses.commands import make_plan
from analyses.train import make_job
from interp.errors import BoolensError
from interp.training import train_stack

QUICK = {"n_targets": 2, "n_train": 40, "n_valid": 50, "steps": 5}


@pytest.mark.parametrize(
    ("name", "texts", "values"),
    [
        ("n_ctx", ["50,100", "7"], [50, 100, 7]),
        ("n_train", ["50:400:150"], [50, 200, 350]),
        ("lr", ["0.1:0.3:0.1"], [0.1, 0.2, pytest.approx(0.3)]),
        ("targets", ["3,7", "2,5"], ["3,7", "2,5"]),
        ("p", ["balanced,0.5"], ["balanced", 0.5]),
        ("bias", ["true,false"], [True, False]),
    ],
)
def test_values_on_the_command_line(name: str, texts: list[str], values: list[Any]) -> None:
    assert sweep.parse_values(name, texts) == values


def test_a_grid_file(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("n_ctx: [5, 7]\nn_train: {log_range: [10, 1000, 3]}\nlr: 0.5\n", encoding="utf-8")
    assert sweep.read_grid(file) == {"n_ctx": [5, 7], "n_train": [10, 100, 1000], "lr": [0.5]}
    file.write_text("n_ctx: []\n", encoding="utf-8")
    with pytest.raises(BoolensError, match="n_ctx has 0 values"):
        sweep.read_grid(file)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--n-ctx", "6,,8"], "empty value"),
        (["--nonsense", "6"], "'--nonsense' is no option"),
        (["--n-ctx", "6,8", "--lr", "0.1,-1"], "the cell of n_ctx = 6, lr = -1"),
    ],
)
def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["sweep", "sparse-and", "--out", str(tmp_path / "grid"), *arguments])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "grid").exists()


def test_rows_are_those_of_training_by_itself(tmp_path: Path) -> None:
    given = [f"--{name.replace('_', '-')}={value}" for name, value in QUICK.items()]
    with pytest.raises(SystemExit) as caught:
        cli.main(["sweep", "sparse-and", "--out", str(tmp_path), "--n-ctx", "6,7", "--seeds", "1:4", *given])
    assert caught.value.code == 0
    rows = pd.read_parquet(tmp_path / "results.parquet")
    assert list(zip(rows.n_ctx, rows.seed, strict=True)) == [(n, seed) for n in (6, 7) for seed in (1, 2, 3)]
    plan = make_plan({**QUICK, "task": "sparse-and", "n_ctx": 7, "seed": 2, "out": "."})
    job = make_job(plan.draw_task(2), plan.model, plan.training, 2)
    train_stack([job], plan.training)
    found = rows[["steps_taken", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy"]].iloc[4]
    assert tuple(found) == job.history[-1]
