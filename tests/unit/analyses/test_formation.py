"""formation on trained runs: every number again from the snapshots; the order over seeds from the numbers."""

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import commands, formation
from analyses.results import chosen_analyses
from analyses.runs import Run, seed_folder
from interp import BoolensError, load_model
from interp.formation import MEASURES, lock_on, order_of_events, precision
from interp.hooks import run as run_model
from interp.recovery import PATTERN, flip_scores

SIZES = {"task": "sparse-and", "n_ctx": 7, "n_targets": 2, "n_train": 150, "n_valid": 130}
RULES = {"task": "rule-and", "n_ctx": 7, "targets": "1,3/2,5", "n_train": 250, "n_valid": 130}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 'seeds' (three), 'rule', 'mlp' and, without snapshots, 'plain'."""
    folder = tmp_path_factory.mktemp("formation")
    commands.train({**SIZES, "steps": 230, "snapshot_every": 20, "seeds": "0:3", "out": folder / "seeds"})
    commands.train(
        {
            **RULES,
            "steps": 180,
            "snapshot_every": 60,
            "n_heads": 2,
            "d_value": 3,
            "init_std": 0.2,
            "out": folder / "rule",
        }
    )
    commands.train({**SIZES, "model": "mlp", "d_mlp": 16, "steps": 60, "snapshot_every": 20, "out": folder / "mlp"})
    commands.train({**SIZES, "steps": 20, "out": folder / "plain"})
    return folder


@pytest.mark.parametrize("name", ["seeds/seed-000001", "rule", "mlp"])
def test_every_measure_again_from_the_snapshots(name: str, runs: Path) -> None:
    run = Run(runs / name)
    task, attention = run.task, name != "mlp"
    result = formation.compute(run)
    assert result.steps[0] == 0
    assert run.config.training is not None
    assert result.steps[-1] == run.config.training.steps
    assert set(MEASURES) - set(result.measures) == (set() if attention else set(MEASURES[3:6]))
    start = [p.detach().double() for p in load_model(run.path, 0).parameters()]
    x, y = run.valid
    for i, step in enumerate(result.steps):
        model = load_model(run.path, step)
        logit = run_model(model, x)[0].double()
        moved = [(p.detach().double() - q).square().sum() for p, q in zip(model.parameters(), start, strict=True)]
        inputs = [run.inputs(rule, formation.N_PROBES) for rule in range(task.n_rules)]
        precisions = [
            precision(flip_scores(model, inputs[r]).numpy(), task.targets[r], task.candidates)
            for r in range(task.n_rules)
        ]
        expected = {
            "valid-accuracy": float(((logit > 0) == y).double().mean()),
            "valid-loss": float(torch.nn.functional.binary_cross_entropy_with_logits(logit, y.double())),
            "patching-precision": np.mean(precisions),
            "distance": math.sqrt(sum(moved)),
        }
        if attention:
            patterns = [run_model(model, inputs[r], record=[PATTERN])[1][PATTERN] for r in range(task.n_rules)]
            mass = [p[..., list(t)].sum(dim=-1).mean() for p, t in zip(patterns, task.targets, strict=True)]
            expected["attention-on-targets"] = float(np.mean(mass))
        for measure, value in expected.items():
            found = result.values[result.measures.index(measure), i]
            assert found == pytest.approx(value, rel=1e-4, abs=1e-6), (measure, step)
    varied = {m for m, row in zip(result.measures, result.values, strict=True) if np.ptp(row) > 1e-3}
    assert varied >= {"valid-loss", "distance"} | ({"attention-on-targets"} if attention else set())


def test_accuracy_and_loss_are_history_s(runs: Path) -> None:
    run = Run(runs / "rule")
    result = formation.compute(run)
    with (run.path / "history.csv").open() as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}
    shared = [i for i, step in enumerate(result.steps) if step in rows]
    assert len(shared) > 2
    for measure, column in (("valid-accuracy", "valid_accuracy"), ("valid-loss", "valid_loss")):
        found = result.values[result.measures.index(measure)]
        assert found[shared] == pytest.approx([float(rows[result.steps[i]][column]) for i in shared], rel=1e-5)


def test_chance_is_what_no_learning_gives(runs: Path) -> None:
    result = formation.compute(Run(runs / "rule"))
    chance = dict(zip(result.measures, result.chance, strict=True))
    assert chance["attention-on-targets"] == chance["effective-on-targets"] == 2 / 7
    assert chance["patching-precision"] == 2 / 6  # the rule position is no candidate
    assert chance["attention-entropy"] == 1
    assert 0.5 <= chance["valid-accuracy"] <= 0.6
    assert math.isnan(chance["distance"])
    assert math.isnan(chance["valid-loss"])


def test_lock_ons_are_of_the_values(runs: Path) -> None:
    result = formation.compute(Run(seed_folder(runs / "seeds", 0)))
    assert result.at.tolist() == pytest.approx([lock_on(result.steps, row) for row in result.values], nan_ok=True)
    assert np.isfinite(result.at[result.measures.index("valid-accuracy")])


def test_a_run_without_snapshots(runs: Path) -> None:
    run = Run(runs / "plain")
    assert formation.NAME not in [a.NAME for a in chosen_analyses(run)]
    message = (
        f"formation does not apply to {run.path}: it has no snapshots from step 0 on; train it with --snapshot-every"
    )
    with pytest.raises(BoolensError, match=message):
        chosen_analyses(run, ["formation"])
    with pytest.raises(BoolensError, match=message):
        formation.compute(run)


def test_the_first_snapshot_is_the_initialisation_or_it_does_not_apply(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "rule", tmp_path / "rule")
    assert formation.applies(Run(tmp_path / "rule"))
    (tmp_path / "rule" / "snapshots" / "step-000000.safetensors").unlink()
    assert not formation.applies(Run(tmp_path / "rule"))


def test_a_damaged_snapshot_is_named(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "rule", tmp_path / "rule")
    damaged = tmp_path / "rule" / "snapshots" / "step-000060.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(BoolensError, match=f"{damaged} is not a whole safetensors file"):
        formation.compute(Run(tmp_path / "rule"))


@pytest.fixture(scope="module")
def ordered(runs: Path) -> tuple[Path, Any, list[str]]:
    """Where the order over seeds lies, and what `analyze` gave back and said."""
    content, lines = commands.analyze(runs / "seeds", ["formation"])
    return runs / "seeds" / "analyses", content, lines


class TestOrder:
    def test_files_and_line(self, ordered: tuple[Path, Any, list[str]]) -> None:
        folder, _, lines = ordered
        files = [f"formation-order.{kind}" for kind in ("csv", "json", "png", "svg")]
        assert sorted(p.name for p in folder.iterdir()) == files
        (said,) = [line for line in lines if line.startswith("formation over 3 seeds, median step of lock-on: ")]
        assert said.endswith(f"see {folder}/formation-order.*")

    def test_numbers_are_those_of_the_runs(self, ordered: tuple[Path, Any, list[str]]) -> None:
        folder, content, _ = ordered
        found = json.loads((folder / "formation-order.json").read_text())
        assert content["formation-order"] == found
        assert found["runs"] == ["seed-000000", "seed-000001", "seed-000002"]
        medians = [event["median"] for event in found["events"].values()]
        assert medians == sorted(medians, key=lambda m: math.inf if m is None else m)
        assert set(found["events"]) == set(MEASURES)
        for name, event in found["events"].items():
            steps = [content["runs"][r]["formation"]["result"]["measures"][name]["locks_on"] for r in found["runs"]]
            assert event["steps"] == steps
            happened = [s for s in steps if s is not None]
            assert event["seeds"] == len(happened)
            assert event["median"] == (np.median(happened) if happened else None)
        at = np.array([event["steps"] for event in found["events"].values()], dtype=float).T
        order, names = order_of_events(at), list(found["events"])
        assert len(found["pairs"]) == 8 * 7
        for pair in found["pairs"]:
            a, b = names.index(pair["earlier"]), names.index(pair["later"])
            assert (pair["before"], pair["tied"], pair["of"]) == (order.before[a, b], order.tied[a, b], order.of[a, b])
            assert pair["interval"] == [order.low[a, b], order.high[a, b]]
        with (folder / "formation-order.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [(r["earlier"], r["later"], int(r["before"])) for r in rows] == [
            (p["earlier"], p["later"], p["before"]) for p in found["pairs"]
        ]

    def test_one_run_has_no_order(self, runs: Path) -> None:
        _, lines = commands.analyze(runs / "rule", ["formation"])
        assert lines == [f"written: {runs / 'rule' / 'analyses' / 'formation'}"]
