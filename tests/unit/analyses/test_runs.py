"""Runs on disk: found, refused when something is missing, and their streams of data."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from analyses.runs import Run, find_runs, seed_folder
from interp import AttentionConfig, HookedAttention, HookedLinear, LinearConfig
from interp.config import TrainConfig
from interp.errors import BoolensError
from interp.seeds import torch_generator
from tasks import RuleAnd, SparseAnd, TaskError, draw_dataset

FILES = ("config.json", "task.json", "model.safetensors")


@pytest.fixture
def run(write_run: Callable, tmp_path: Path) -> Run:
    return write_run(tmp_path / "run", HookedAttention(AttentionConfig(n_ctx=6)), RuleAnd(6, ((0, 3), (1, 4))), seed=7)


@pytest.fixture
def seeds(write_run: Callable, tmp_path: Path) -> Path:
    """A folder of seeds 0, 2 and 10, written in another order."""
    for seed in (10, 0, 2):
        task = SparseAnd(5, (1, seed % 3 + 2))
        write_run(seed_folder(tmp_path / "many", seed), HookedLinear(LinearConfig(n_ctx=5)), task, seed=seed)
    return tmp_path / "many"


class TestRun:
    def test_knows_what_it_is(self, run: Run) -> None:
        assert (run.seed, run.architecture, run.has_attention) == (7, "attention", True)
        assert run.task == RuleAnd(6, ((0, 3), (1, 4)))
        assert not run.model.training

    def test_its_streams_are_apart_and_repeat(self, run: Run) -> None:
        again = Run(run.path)
        for rule in (0, 1):
            x = run.inputs(rule)
            assert x.shape == (256, 6)
            assert (run.task.rule(x) == rule).all()
            assert torch.equal(x, again.inputs(rule))
            assert torch.equal(
                run.inputs(rule, 10), run.task.sample(10, torch_generator(7, "analysis", rule), rule=rule)
            )
            assert not torch.equal(x[:, :5], run.valid.x[:256, :5])
        assert not torch.equal(run.inputs(0)[:, :5], run.inputs(1)[:, :5])

    def test_another_seed_has_other_inputs(self, run: Run, write_run: Callable, tmp_path: Path) -> None:
        other = write_run(tmp_path / "other", run.model, run.task, seed=8)
        assert not torch.equal(other.inputs(0), run.inputs(0))

    def test_validation_is_that_of_the_training(self, run: Run, write_run: Callable, tmp_path: Path) -> None:
        trained = write_run(tmp_path / "trained", run.model, run.task, seed=7, training=TrainConfig(n_valid=37))
        expected = draw_dataset(run.task, 37, torch_generator(7, "valid"))
        assert torch.equal(trained.valid.x, expected.x)
        assert torch.equal(trained.valid.y, expected.y)
        assert len(run.valid.y) == 1000  # an imported model has no training

    def test_provenance_changes_with_what_it_names(self, run: Run, write_run: Callable, tmp_path: Path) -> None:
        same = write_run(tmp_path / "same" / "run", run.model, run.task, seed=7).provenance
        assert same == run.provenance
        json.dumps(same, allow_nan=False)
        other_task = write_run(tmp_path / "task", run.model, RuleAnd(6, ((0, 2), (1, 4))), seed=7).provenance
        assert other_task["config_sha256"] != same["config_sha256"]
        assert other_task["weights_sha256"] == same["weights_sha256"]
        with torch.no_grad():
            run.model.get_parameter("W_E")[0, 0] += 1
        other_weights = write_run(tmp_path / "weights", run.model, run.task, seed=7).provenance
        assert other_weights["config_sha256"] == same["config_sha256"]
        assert other_weights["weights_sha256"] != same["weights_sha256"]

    def test_a_task_of_another_run(self, run: Run, write_run: Callable, tmp_path: Path) -> None:
        other = write_run(tmp_path / "other", HookedLinear(LinearConfig(n_ctx=5)), SparseAnd(5, (1,)))
        shutil.copy(other.path / "task.json", run.path)
        with pytest.raises(BoolensError, match="the task has n_ctx = 5, the model 6; they belong to different runs"):
            _ = Run(run.path).task


class TestFindRuns:
    def test_a_single_run(self, run: Run) -> None:
        assert [found.path for found in find_runs(run.path)] == [run.path]
        assert [found.path for found in find_runs(str(run.path))] == [run.path]

    def test_seeds_in_order(self, seeds: Path) -> None:
        assert [found.seed for found in find_runs(seeds)] == [0, 2, 10]
        assert [found.path.name for found in find_runs(seeds)] == ["seed-000000", "seed-000002", "seed-000010"]

    def test_what_analyses_added_is_no_run(self, seeds: Path) -> None:
        (seeds / "analyses").mkdir()
        (seeds / "seed-000099").write_text("not a folder")
        assert len(find_runs(seeds)) == 3

    def test_a_folder_that_is_missing(self, tmp_path: Path) -> None:
        folder = tmp_path / "nope"
        message = f"{folder} does not exist; train a run with `boolens train TASK --out {folder}`"
        with pytest.raises(BoolensError, match=message):
            find_runs(folder)

    def test_a_file(self, run: Run) -> None:
        with pytest.raises(BoolensError, match=r"config.json does not exist; train a run"):
            find_runs(run.path / "config.json")

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(BoolensError, match=r"is not a run folder \(it has no config.json\)"):
            find_runs(tmp_path)

    @pytest.mark.parametrize(
        ("file", "message"),
        [
            ("config.json", r"is not a run folder \(it has no config.json\); make one with `boolens train` or"),
            ("task.json", r"task.json does not exist; give a run folder"),
            (
                "model.safetensors",
                r"run half written \(no model.safetensors\); finish with `boolens train ... --resume`",
            ),
        ],
    )
    def test_a_missing_file(self, file: str, message: str, run: Run) -> None:
        (run.path / file).unlink()
        with pytest.raises((BoolensError, TaskError), match=message):
            find_runs(run.path)

    @pytest.mark.parametrize("file", FILES)
    def test_a_truncated_file(self, file: str, run: Run) -> None:
        content = (run.path / file).read_bytes()
        (run.path / file).write_bytes(content[: len(content) // 2])
        with pytest.raises((BoolensError, TaskError), match=file.replace(".", r"\.")):
            find_runs(run.path)

    @pytest.mark.parametrize("file", FILES)
    def test_one_seed_of_several(self, file: str, seeds: Path) -> None:
        (seeds / "seed-000002" / file).unlink()
        with pytest.raises((BoolensError, TaskError), match="seed-000002"):
            find_runs(seeds)

    def test_several_half_written_seeds_are_all_named(self, seeds: Path) -> None:
        for seed in ("seed-000000", "seed-000010"):
            (seeds / seed / "model.safetensors").unlink()
        with pytest.raises(BoolensError, match="seed-000000, seed-000010 half written"):
            find_runs(seeds)

    def test_weights_of_another_run(self, run: Run, seeds: Path) -> None:
        shutil.copy(seeds / "seed-000000" / "model.safetensors", run.path)
        with pytest.raises(BoolensError, match="does not fit the configuration"):
            find_runs(run.path)
