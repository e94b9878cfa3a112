"""boolens identify, against every index set."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from analyses.cli import main
from analyses.runs import Run
from analyses.train import make_job

SMALL = ("--n-ctx", "9", "--n-valid", "50", "--steps", "2", "--targets", "1,4,6")


def call(capsys: Any, *arguments: str) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0), capsys.readouterr()


@pytest.mark.parametrize(
    ("task", "holds"),
    [
        ("sparse-and", lambda ones: ones == 3),
        ("or", lambda ones: ones > 0),
        ("parity", lambda ones: ones % 2 == 1),
        ("majority", lambda ones: ones > 1),
    ],
)
@pytest.mark.parametrize("n_train", [6, 60])
def test_a_runs_sample_leaves_these_sets(task: str, holds: Any, n_train: int, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert call(capsys, "train", task, *SMALL, "--n-train", str(n_train), "--out", str(out))[0] == 0
    code, said = call(capsys, "identify", str(out), "--limit", "1000", "--json")
    found = json.loads(said.out)
    assert code == 0
    run = Run(out)
    assert run.config.training
    x, y = make_job(run.task, run.config.model, run.config.training, 0).data

    def left(m: int) -> list[list[int]]:
        sets = itertools.combinations(range(9), 3)
        return [list(s) for s in sets if all(bool(holds(int(x[i, list(s)].sum()))) == bool(y[i]) for i in range(m))]

    assert sorted(found["sets"]) == left(n_train)
    assert not found["more"]
    m = found["smallest_identifying_sample"]
    if m is None:
        assert len(left(n_train)) > 1
    else:
        assert len(left(int(m))) == 1 < len(left(int(m) - 1))
    assert json.loads((out / "identify.json").read_text()) == found
    code, said = call(capsys, "identify", str(out), "--limit", "1")
    assert code == 0
    assert ("more than 1 index sets" in said.out) == (len(left(n_train)) > 1)


def test_a_table(tmp_path: Path, capsys: Any) -> None:
    bits = itertools.product((0, 1), repeat=5)
    rows = ["a,b,c,d,e,y", *(f"{a},{b},{c},{d},{e},{a & b}" for a, b, c, d, e in bits)]
    file = tmp_path / "table.csv"
    file.write_text("\n".join(rows) + "\n")
    code, said = call(capsys, "identify", "--data", str(file), "--label", "y", "--json")
    assert code == 0, said.err
    found = json.loads(said.out)
    assert (found["names"], found["rows"], found["more"]) == ([["a", "b"]], 32, False)


def test_animals(tmp_path: Path, capsys: Any) -> None:
    table = ("--data", "animals", "--label", "alive", "--binarise", "thing=drop")
    code, said = call(capsys, "identify", *table)
    assert code == 0, said.err
    assert "grows AND reproduces AND reacts" in said.out or "explains" in said.out
    out = str(tmp_path / "run")
    assert call(capsys, "train", "table", *table, "--steps", "2", "--out", out)[0] == 0
    code, said = call(capsys, "identify", out)
    assert code == 0
    assert "held-out rows" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "takes a RUN or a table"),
        (("--data", "animals", "--label", "alive", "--binarise", "thing=drop", "--limit", "0"), "limit"),
        (("nowhere",), "does not exist"),
    ],
)
def test_bad_requests(arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = call(capsys, "identify", *arguments)
    assert code == 2
    assert words in said.err


def test_a_rule_task_and_an_imported_run_are_refused(tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "rule")
    options = ("--n-ctx", "7", "--targets", "0,1/2,3", "--n-valid", "50", "--steps", "2", "--out", out)
    assert call(capsys, "train", "rule-and", *options)[0] == 0
    code, said = call(capsys, "identify", out)
    assert code == 2
    assert "rule-and" in said.err
