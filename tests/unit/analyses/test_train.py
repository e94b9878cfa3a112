"""Training into run folders: which files, never over others' work, and resumed to the bit."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from analyses import commands, train
from analyses.runs import Run
from analyses.train import check_plan, import_run, train_seeds
from interp import HookedLinear, LinearConfig, load_model
from interp.checkpoint import load_config
from interp.errors import BoolensError
from interp.training import Job
from interp.training_state import STATE
from tasks import RuleAnd, SparseAnd, TaskError, load_task

TUTORIAL = Path(__file__).parents[2] / "data" / "tutorial"
SMALL: dict[str, Any] = {"task": "sparse-and", "n_ctx": 6, "n_targets": 2, "n_train": 40, "n_valid": 50, "steps": 45}
FINISHED = ["config.json", "history.csv", "model.safetensors", "task.json"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def train_into(out: Path, **options: Any) -> dict[str, bytes]:
    commands.train({**SMALL, "out": out, **options})
    return files(out)


def check_same_weights(mine: bytes, theirs: bytes) -> None:
    """Equal but for the order of sums, which depends on how many models are trained at once."""
    for name, weight in safetensors.torch.load(mine).items():
        torch.testing.assert_close(weight, safetensors.torch.load(theirs)[name], rtol=1e-3, atol=1e-4)


class TestFiles:
    def test_one_seed(self, tmp_path: Path) -> None:
        assert sorted(train_into(tmp_path / "run")) == FINISHED

    def test_several_seeds(self, tmp_path: Path) -> None:
        written = train_into(tmp_path / "many", seeds="0:2")
        assert sorted(written) == [f"seed-00000{seed}/{name}" for seed in (0, 1) for name in FINISHED]
        assert written["seed-000000/model.safetensors"] != written["seed-000001/model.safetensors"]

    def test_snapshots(self, tmp_path: Path) -> None:
        written = train_into(tmp_path / "run", snapshot_every=20)
        steps = ["000000", "000020", "000040", "000045"]
        assert sorted(written) == [*FINISHED[:3], *(f"snapshots/step-{s}.safetensors" for s in steps), "task.json"]
        assert written["snapshots/step-000045.safetensors"] == written["model.safetensors"]

    def test_a_seed_s_run_does_not_depend_on_the_others(self, tmp_path: Path) -> None:
        alone, among = train_into(tmp_path / "alone", seed=3), train_into(tmp_path / "many", seeds="1,3,5")
        assert alone.keys() == {name.removeprefix("seed-000003/") for name in among if "seed-000003" in name}
        for name in ("config.json", "task.json"):
            assert alone[name] == among[f"seed-000003/{name}"]
        check_same_weights(alone["model.safetensors"], among["seed-000003/model.safetensors"])

    def test_the_history(self, tmp_path: Path) -> None:
        train_into(tmp_path / "run")
        with (tmp_path / "run" / "history.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy"]
        assert [row["step"] for row in rows] == ["0", "20", "40", "45"]
        assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"]) == pytest.approx(0.693, abs=0.01)

    def test_the_run_is_what_was_asked_for(self, tmp_path: Path) -> None:
        train_into(tmp_path / "run", model="mlp", d_mlp=8, seed=5, lr=0.02, p="0.6", batch_size=10)
        config = load_config(tmp_path / "run")
        assert (config.seed, config.source, config.model.to_dict()["d_mlp"]) == (5, "trained", 8)
        training = config.training
        assert training is not None
        assert (training.lr, training.batch_size, training.steps, training.n_train) == (0.02, 10, 45, 40)
        assert load_task(tmp_path / "run").p == 0.6
        assert not load_model(tmp_path / "run").training

    def test_global_random_states_are_not_touched(self, tmp_path: Path) -> None:
        before = torch.get_rng_state()
        train_into(tmp_path / "run", model="mlp", d_mlp=8)
        assert torch.equal(torch.get_rng_state(), before)

    def test_says_how_well_it_went(self, tmp_path: Path) -> None:
        content, lines = commands.train({**SMALL, "seeds": "0:2", "out": tmp_path / "many"})
        for seed, (said, line) in enumerate(zip(content, lines, strict=True)):
            run = Run(tmp_path / "many" / f"seed-00000{seed}")
            assert (said["run"], said["seed"], said["task"]) == (str(run.path), seed, run.task.to_dict())
            assert line.startswith(f"{run.path}: sparse-and ")
            assert f"validation accuracy {said['accuracy']['valid']:.3f} (majority class " in line


class TestFoldersInTheWay:
    def test_a_run_is_not_overwritten(self, tmp_path: Path) -> None:
        before = train_into(tmp_path / "run")
        with pytest.raises(
            BoolensError, match="run exists and is not overwritten; choose another --out, or pass --resume"
        ):
            train_into(tmp_path / "run")
        assert files(tmp_path / "run") == before

    def test_nor_is_one_of_several_seeds(self, tmp_path: Path) -> None:
        train_into(tmp_path / "many", seeds="1")
        before = files(tmp_path)
        with pytest.raises(BoolensError, match="seed-000001 exists and is not overwritten"):
            train_into(tmp_path / "many", seeds="0:3")
        assert files(tmp_path) == before  # seed 0 was not begun

    @pytest.mark.parametrize("resume", [True, False])
    def test_nor_anything_else(self, resume: bool, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        message = "is not a run folder, so there is nothing to resume" if resume else "exists and is not overwritten"
        with pytest.raises(BoolensError, match=message):
            train_into(tmp_path, resume=resume)
        assert files(tmp_path) == {"notes.txt": b"mine"}

    def test_seeds_beside_a_run_of_one(self, tmp_path: Path) -> None:
        before = train_into(tmp_path / "run")
        with pytest.raises(BoolensError, match="is a run of one seed; choose another --out for several seeds"):
            train_into(tmp_path / "run", seeds="0:2", resume=True)
        assert files(tmp_path / "run") == before

    def test_an_empty_folder_and_left_over_partial_files_are_nothing(self, tmp_path: Path) -> None:
        (tmp_path / ".config.json.1.partial").write_text("{")
        train_into(tmp_path)
        assert {*FINISHED} <= set(files(tmp_path))

    def test_nothing_is_written_when_the_data_cannot_be(self, tmp_path: Path) -> None:
        with pytest.raises(TaskError, match="all 40 labels are False"):
            train_into(tmp_path / "run", p="0.001")
        assert not (tmp_path / "run").exists()

    def test_nor_when_the_device_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(BoolensError, match="device 'nope' is not available"):
            train_into(tmp_path / "run", device="nope")
        assert not (tmp_path / "run").exists()


class TestResume:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"steps": 46}, "training.steps: 45 there, 46 asked for"),
            ({"lr": 0.5}, "training.lr: 0.01 there, 0.5 asked for"),
            ({"seed": 1, "targets": "1,2", "n_targets": None}, "seed: 0 there, 1 asked for"),
            ({"n_heads": 2}, "model.n_heads: 1 there, 2 asked for"),
            ({"p": "tutorial"}, "task.p: 0.70"),
            ({"targets": "1,2", "n_targets": None}, "task.targets: "),
            ({"model": "linear"}, "model.architecture: attention there, linear asked for"),
        ],
    )
    def test_other_options_are_refused_by_name(self, change: dict[str, Any], named: str, tmp_path: Path) -> None:
        before = train_into(tmp_path / "run")
        with pytest.raises(BoolensError) as caught:
            train_into(tmp_path / "run", resume=True, **change)
        assert "run holds another run (" in str(caught.value)
        assert named in str(caught.value)
        assert str(caught.value).endswith("); repeat its options, or choose another --out")
        if change.keys() == {"steps"}:
            assert "lr" not in str(caught.value)  # only what differs
        assert files(tmp_path / "run") == before

    def test_a_finished_run_is_left_as_it_is(self, tmp_path: Path) -> None:
        before = train_into(tmp_path / "run")
        times = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir()}
        assert train_into(tmp_path / "run", resume=True) == before
        assert {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir()} == times

    def test_missing_seeds_are_added_and_the_others_left(self, tmp_path: Path) -> None:
        whole = train_into(tmp_path / "whole", seeds="0:3")
        train_into(tmp_path / "many", seeds="1")
        times = {p: p.stat().st_mtime_ns for p in (tmp_path / "many" / "seed-000001").iterdir()}
        resumed = train_into(tmp_path / "many", seeds="0:3", resume=True)
        assert resumed.keys() == whole.keys()
        for name in whole:
            if name.endswith(".json"):
                assert resumed[name] == whole[name]
            elif name.endswith(".safetensors"):
                check_same_weights(resumed[name], whole[name])
        assert {p: p.stat().st_mtime_ns for p in (tmp_path / "many" / "seed-000001").iterdir()} == times

    @pytest.mark.parametrize("model", ["attention", "mlp"])
    @pytest.mark.parametrize("at", [1, 20, 33, 44])
    def test_an_interrupted_run_becomes_what_it_would_have_been(
        self, at: int, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Stopped after `at` steps, with the state saved after every step; mini-batches, dropout and snapshots too."""
        options = {"batch_size": 16, "snapshot_every": 15, "model": model, **({"d_mlp": 8} if model == "mlp" else {})}
        whole = train_into(tmp_path / "whole", **options)

        class Stop(Exception):
            pass

        last = at
        seen: list[int] = []

        def on_step(step: int, jobs: list[Job]) -> None:
            if step > last:
                raise Stop
            seen.append(step)

        original = train.train_stack
        changed = {"save_seconds": 0, "most_steps": 1, "on_step": on_step}
        monkeypatch.setattr(train, "train_stack", lambda *args, **fields: original(*args, **{**fields, **changed}))
        with pytest.raises(Stop):
            train_into(tmp_path / "run", **options)
        assert (tmp_path / "run" / STATE).exists()
        assert not (tmp_path / "run" / "model.safetensors").exists()
        last = 45
        assert train_into(tmp_path / "run", resume=True, **options) == whole
        assert seen == list(range(1, 46))  # no step was done again

    @pytest.mark.parametrize("left", [["task.json"], ["task.json", "config.json"], ["config.json"]])
    def test_a_run_that_had_hardly_begun(self, left: list[str], tmp_path: Path) -> None:
        whole = train_into(tmp_path / "whole")
        (tmp_path / "run").mkdir()
        for name in left:
            shutil.copy(tmp_path / "whole" / name, tmp_path / "run")
        assert train_into(tmp_path / "run", resume=True) == whole

    def test_a_state_left_beside_finished_weights_is_cleared(self, tmp_path: Path) -> None:
        before = train_into(tmp_path / "run")
        (tmp_path / "run" / STATE).write_bytes(b"killed before this was deleted")
        assert train_into(tmp_path / "run", resume=True) == before

    def test_a_damaged_configuration(self, tmp_path: Path) -> None:
        train_into(tmp_path / "run")
        (tmp_path / "run" / "config.json").write_text("{")
        with pytest.raises(BoolensError, match=r"config.json is not valid JSON"):
            train_into(tmp_path / "run", resume=True)

    def test_an_imported_run_is_another_run(self, write_run: Callable, tmp_path: Path) -> None:
        run = write_run(tmp_path / "run", HookedLinear(LinearConfig(n_ctx=6)), SparseAnd(6, (1, 2)))
        with pytest.raises(BoolensError, match=r"training: None there, none asked for.*source: imported:by hand there"):
            train_into(run.path, resume=True, model="linear", targets="1,2", n_targets=None)


class TestPlan:
    def test_every_seed_has_its_task(self, tmp_path: Path) -> None:
        plan = commands.make_plan({**SMALL, "out": tmp_path / "many", "seeds": "0:4"})
        tasks = check_plan(plan, resume=False)
        assert list(tasks) == [0, 1, 2, 3]
        assert len({task.targets for task in tasks.values()}) > 1
        assert plan.folder(2) == tmp_path / "many" / "seed-000002"
        assert not (tmp_path / "many").exists()

    def test_on_step_counts_up(self, tmp_path: Path) -> None:
        plan = commands.make_plan({**SMALL, "out": tmp_path / "run"})
        seen: list[int] = []
        train_seeds(plan, {0: plan.draw_task(0)}, on_step=lambda step, jobs: seen.append(step))
        assert seen == sorted(set(seen))
        assert {20, 40, 45} <= set(seen)  # the rows of the history


class TestImport:
    RULE, TASK = TUTORIAL / "rule_and_T11_s2_seed1.pt", RuleAnd(11, ((3, 9), (4, 6)), "tutorial")

    def test_writes_a_run(self, tmp_path: Path) -> None:
        out = import_run(self.RULE, self.TASK, tmp_path / "run", seed=4)
        assert sorted(files(out)) == ["config.json", "model.safetensors", "task.json"]
        run = Run(out)
        assert (run.task, run.seed) == (self.TASK, 4)
        assert (run.config.training, run.config.source) == (None, "imported:rule_and_T11_s2_seed1.pt")

    @pytest.mark.parametrize("kind", ["folder", "file"])
    def test_an_existing_out(self, kind: str, tmp_path: Path) -> None:
        out = tmp_path / "out"
        out.mkdir() if kind == "folder" else out.write_text("mine")
        with pytest.raises(BoolensError, match="out exists and is not overwritten"):
            import_run(self.RULE, self.TASK, out)
        assert files(tmp_path) == ({} if kind == "folder" else {"out": b"mine"})

    def test_a_task_of_another_size(self, tmp_path: Path) -> None:
        with pytest.raises(BoolensError, match=r"has n_ctx = 11, the task 30; give the task that it was trained on"):
            import_run(self.RULE, SparseAnd(30, (1, 2)), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("task", "targets", "seed", "message"),
        [
            ("rule-and", "3,11/4,6", 0, "index 11 is outside"),
            ("rule-and", "3,9", 0, "1 target sets; rule-and needs 2"),
            ("sparse-and", "3,9/4,6", 0, "names 2 sets; sparse-and has one"),
            ("nope", "3,9/4,6", 0, "there is no task 'nope'"),
            ("rule-and", "3,9/4,6", -1, "seeds -1 must be different whole numbers of at least 0"),
        ],
    )
    def test_what_the_command_refuses(self, task: str, targets: str, seed: int, message: str, tmp_path: Path) -> None:
        with pytest.raises((BoolensError, TaskError), match=message):
            commands.import_checkpoint(self.RULE, task, targets, tmp_path / "run", None, "balanced", seed)
        assert not (tmp_path / "run").exists()
