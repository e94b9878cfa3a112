"""`boolens train table`, and the analyses of such a run, by the table of animals and the breast-cancer data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import commands
from analyses.cli import main
from analyses.results import chosen_analyses, load_analysis, run_analysis
from analyses.runs import Run
from analyses.target_recovery import compute
from interp.errors import BoolensError
from tasks import TableTask, TaskError

ANIMALS: dict[str, Any] = {"task": "table", "data": "animals", "label": "alive", "binarise": "thing=drop"}
ALIVE = ["grows", "reproduces", "reacts"]


@pytest.fixture(scope="module")
def animals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], list[str]]:
    out = tmp_path_factory.mktemp("table") / "animals"
    content, lines = commands.train({**ANIMALS, "steps": 1000, "seeds": "0:2", "out": out})
    return out, content, lines


def test_what_was_read_is_said(animals: tuple[Path, list[dict[str, Any]], list[str]]) -> None:
    _, content, lines = animals
    assert lines[0].startswith("animals.csv: 75 rows of 14 features, label 'alive' (True in 47 %); 21 rows equal")
    assert "53 rows for training, 22 held out, no input in both parts; hypothesis (the AND with the fewest" in lines[2]
    assert "grows AND reproduces AND reacts, wrong on 0 of 53 training and 0 of 22 held-out rows" in lines[2]
    table = content[0]["table"]
    assert table["hypothesis"]["features"] == ALIVE
    assert (table["n_train"], table["n_valid"], table["duplicates"], table["contradictory_rows"]) == (53, 22, 21, 0)
    assert content[0]["accuracy"]["n_valid"] == 22


def test_runs_are_analysed_without_the_file(animals: tuple[Path, list[dict[str, Any]], list[str]]) -> None:
    run = Run(animals[0] / "seed-000000")
    assert isinstance(run.task, TableTask)
    assert run.valid.x.tolist() == run.task.part("valid")[0].tolist()
    assert run.config.training
    assert (run.config.training.n_train, run.config.training.n_valid) == (53, 22)
    names = [analysis.NAME for analysis in chosen_analyses(run)]
    assert "target-recovery" in names
    assert not {"certificate", "activation-patching", "attribution", "abstraction"} & set(names)
    for name in ("certificate", "activation-patching", "attribution"):
        with pytest.raises(BoolensError, match=f"{name} does not apply .* table"):
            chosen_analyses(run, [name])


def test_the_model_uses_the_attributes_of_life(animals: tuple[Path, list[dict[str, Any]], list[str]]) -> None:
    result = compute(Run(animals[0] / "seed-000000"))
    assert result.accuracy.valid == 1
    assert result.verdict.verdict == "created"
    assert "exactly the hypothesised features {grows, reproduces, reacts}" in result.verdict.sentence
    assert "target" not in result.verdict.sentence
    assert result.weights_method.startswith("sampled")


def test_figures_have_the_features_names(animals: tuple[Path, list[dict[str, Any]], list[str]]) -> None:
    run = Run(animals[0] / "seed-000001")
    for name in ("samples", "target-recovery"):
        run_analysis(load_analysis(name), run)
        drawn = (run.path / "analyses" / name / "figure.svg").read_text()
        assert all(feature in drawn for feature in (*ALIVE, "has_wheels", "warm"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": None}, "needs a file and its label"),
        ({"n_ctx": 14}, "table takes no --n-ctx"),
        ({"p": "0.5"}, "table takes no --p"),
        ({"until_certified": True}, "table takes no --until-certified"),
        ({"targets": "grows", "n_targets": 2}, "exclude each other"),
        ({"task": "sparse-and"}, "sparse-and takes no --data, --label, --binarise"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BoolensError, match=message):
        commands.make_plan({**ANIMALS, "out": tmp_path / "run", **options})


def test_sizes_must_fit_the_table(tmp_path: Path) -> None:
    plan = commands.make_plan({**ANIMALS, "out": tmp_path, "n_train": 40, "n_valid": 20, "targets": "eats,warm"})
    assert (plan.training.n_train, plan.training.n_valid) == (40, 20)
    with pytest.raises(TaskError, match="70 training and 20 held-out rows of 75"):
        commands.make_plan({**ANIMALS, "out": tmp_path, "n_train": 70, "n_valid": 20})


def test_all_options_may_come_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"data": "animals", "label": "alive", "binarise": "thing=drop", "missing": "refuse", "steps": 3}
    (tmp_path / "options.json").write_text(json.dumps({**options, "contradictions": "keep", "targets": "warm,0"}))
    with pytest.raises(SystemExit) as stopped:
        main(["train", "table", "--config", str(tmp_path / "options.json"), "--out", str(tmp_path / "run"), "--json"])
    assert stopped.value.code == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["table"]["hypothesis"]["features"] == ["moves", "warm"]
    assert told["table"]["hypothesis"]["origin"] == "given"


def test_breast_cancer(tmp_path: Path) -> None:
    """Medians from rows that are not held out; attention is no worse than a linear model, and no miracle either."""
    frame = pytest.importorskip("sklearn.datasets").load_breast_cancer(as_frame=True).frame
    frame.assign(malignant=1 - frame.pop("target")).to_csv(tmp_path / "cells.csv", index=False)
    given = {"task": "table", "data": tmp_path / "cells.csv", "label": "malignant", "binarise": "quantile:0.5"}
    accuracy = {}
    for model in ("attention", "linear"):
        content, _ = commands.train({**given, "model": model, "steps": 500, "seeds": "0:3", "out": tmp_path / model})
        assert all(found["table"]["rows"] == 569 and found["table"]["features"] == 30 for found in content)
        accuracy[model] = np.mean([found["accuracy"]["balanced"] for found in content])
    assert 0.88 < min(accuracy.values()) <= max(accuracy.values()) < 0.97
    names = {found["table"]["hypothesis"]["features"][0].split(">")[0] for found in content}
    assert names <= {"mean concavity", "mean concave points"}
