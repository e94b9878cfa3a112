"""Kinds counted over a folder of seeds built to hold one of each."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyses import effective_attention, target_recovery
from analyses.results import envelope
from analyses.runs import seed_folder
from analyses.selection_overview import MIXED, REPAIRS, kind_of_run, write_sides
from interp.statistics import clopper_pearson
from tasks import RuleAnd, SparseAnd

TARGETS = (1, 4)


@pytest.fixture(scope="module")
def content(
    weighing_model: Callable, asking_model: Callable, write_run: Callable, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Seeds 0 and 1 act as keys, 2 to 4 as queries (3's sinks are the targets), 5 uses other bits."""
    folder = tmp_path_factory.mktemp("seeds")
    models = [
        weighing_model([1, 40, 1, 1, 40, 1, 1], 62.5),
        weighing_model([1, 30, 1, 1, 30, 1, 1], 47.5),
        asking_model(7, TARGETS, (0, 6)),
        asking_model(7, TARGETS, TARGETS),
        asking_model(7, TARGETS, (3, 5)),
        weighing_model([40, 1, 40, 1, 1, 1, 1], 62.5),
    ]
    runs = [write_run(seed_folder(folder, i), m, SparseAnd(7, TARGETS), seed=i) for i, m in enumerate(models)]
    both = (effective_attention, target_recovery)
    return {run.path.name: {a.NAME: envelope(a.NAME, run, a.compute(run)) for a in both} for run in runs}


def test_counts_of_kinds_and_of_matches(content: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    lines = write_sides(tmp_path, content)
    said = json.loads((tmp_path / "analyses" / "selection-side.json").read_text())
    assert said["runs"] == [f"seed-{i:06d}" for i in range(6)]
    counts = {kind: of_kind["count"] for kind, of_kind in said["kinds"].items()}
    assert counts == {"keys": 2, "keys in target rows": 0, "queries": 3, "both": 0, "neither": 1, MIXED: 0}
    queries = said["kinds"]["queries"]
    assert (queries["of"], queries["interval"]) == (6, pytest.approx(list(clopper_pearson(3, 6))))
    match = {m: (of["count"], of["of"]) for m, of in queries["match"].items()}
    assert match["attention"] == match["attention onto bit 0"] == match["attention onto bit 1"] == (1, 3)
    assert match["effective-attention"] == (1, 3)
    assert {of["count"] for of in said["kinds"]["keys"]["match"].values()} == {2}
    assert said["kinds"]["keys in target rows"]["match"]["attention"] == {"count": 0, "of": 0, "interval": [0, 1]}
    unexplained = [{"run": "seed-000005", "rule": 0, "kind": "neither"}]
    assert said["attention"] == {
        "missed": 3,
        "explained": 2,
        "unexplained": unexplained,
        "repaired": dict.fromkeys(REPAIRS, 0),
    }
    low, high = clopper_pearson(2, 6)
    matched = [
        "attention",
        "effective-attention",
        "contribution",
        "ablation",
        *REPAIRS,
    ]
    assert lines[0] == (
        f"selection side, keys: 2 of 6 runs (95 % interval {low:.2f} to {high:.2f}); exactly the targets on top: "
        + ", ".join(f"{name} in 2" for name in matched)
    )
    assert lines[3].startswith("attention misses the targets 3 times (by run and rule): side and rows say why in 2; ")
    assert lines[3].endswith("on top of it weighed by readout in 0, onto bit 0 in 0, onto bit 1 in 0")
    assert lines[4:] == [f"sides: {tmp_path / 'analyses' / 'selection-side.csv'}"]
    with (tmp_path / "analyses" / "selection-side.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["kind"] for row in rows] == ["keys"] * 2 + ["queries"] * 3 + ["neither"]
    assert [row["match_attention"] for row in rows] == ["True", "True", "False", "True", "False", "False"]
    assert [float(row["share_query"]) for row in rows[:4]] == pytest.approx([0, 0, 1, 1], abs=1e-9)
    assert rows[2]["readout_ratio"] == ""  # only the targets' rows are read: infinite


def test_without_target_recovery_kinds_alone_are_counted(content: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    some = {run: dict(analyses) for run, analyses in content.items()}
    del some["seed-000004"]["target-recovery"]
    lines = write_sides(tmp_path, some)
    said = json.loads((tmp_path / "analyses" / "selection-side.json").read_text())
    assert said["attention"] is None
    assert said["kinds"]["queries"] == {"count": 3, "of": 6, "interval": list(clopper_pearson(3, 6)), "match": {}}
    assert len(lines) == 4
    assert "on top" not in "".join(lines)


def test_one_seed_writes_nothing(content: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    first = {"seed-000000": content["seed-000000"], "seed-000001": {"samples": {}}}
    assert write_sides(tmp_path, first) == []
    assert not list(tmp_path.iterdir())


def test_keys_explain_a_miss_where_weighing_rows_finds_them(
    content: dict[str, dict[str, Any]], selecting_model: Callable, write_run: Callable, tmp_path: Path
) -> None:
    """Only the rule bit's row is read; under rule 0 most other rows look at rule 1's targets."""
    run = write_run(tmp_path / "run", selecting_model(9, ((1, 4), (2, 6))), RuleAnd(9, ((1, 4), (2, 6))))
    rule = {a.NAME: envelope(a.NAME, run, a.compute(run)) for a in (effective_attention, target_recovery)}
    write_sides(tmp_path, {"one": rule, "two": content["seed-000000"]})
    said = json.loads((tmp_path / "analyses" / "selection-side.json").read_text())
    assert said["attention"] == {
        **{"missed": 1, "explained": 1, "unexplained": []},
        "repaired": {"attention weighed by readout": 1, "attention onto bit 0": 0, "attention onto bit 1": 0},
    }
    assert said["kinds"]["keys"]["match"]["attention"]["count"] == 1


def test_the_kind_of_a_run_with_several_rules() -> None:
    assert kind_of_run([{"kind": "keys"}, {"kind": "keys"}]) == "keys"
    assert kind_of_run([{"kind": "keys"}, {"kind": "queries"}]) == MIXED
