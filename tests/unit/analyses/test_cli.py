"""The command line, in process: what it prints, and one clear line with exit code 2 for every kind of bad input."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses import cli, commands
from analyses.runs import Run
from interp.checkpoint import load_config
from tasks import SparseAnd, load_task

TUTORIAL = Path(__file__).parents[2] / "data" / "tutorial"
RULE_FILE = str(TUTORIAL / "rule_and_T11_s2_seed1.pt")
QUICK = ["--n-ctx", "6", "--n-targets", "2", "--n-train", "40", "--n-valid", "50", "--steps", "5"]


@pytest.fixture
def refused(boolens: Callable, tmp_path: Path) -> Callable[..., str]:
    """From arguments to the one line that refuses them; nothing may be written."""

    def call(*arguments: str | Path) -> str:
        before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
        code, out, err = boolens(*arguments)
        assert (code, out) == (2, "")
        assert re.fullmatch(r"boolens: \S[^\n]*\n", err), err
        assert "Traceback" not in err
        assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
        return err

    return call


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["xor"], "there is no task 'xor'; choose from junta, majority, or, parity, rule-and, sparse-and"),
            (["junta", "--table", "011"], "the table has 3 entries; 1 targets need 2**1 = 2"),
            (["junta", "--targets", "3,5", "--table", "0011"], "does not depend on targets [5]"),
            (["junta", "--n-targets", "17"], "17 targets of a junta; its table of 2**s entries allows 1 to 16"),
            (["or", "--table", "0110"], "or takes no --table; leave it out, or use junta"),
            (["parity", "--n-rule-bits", "1"], "parity has no rule bits"),
            (["majority", "--n-targets", "31"], "31 target indices asked for, but only 30 positions are free"),
            (["or", "--p", "tutorial"], "p = 'tutorial' is not a probability"),
            (["sparse-and", "--model", "tree"], "there is no model 'tree'"),
            (["sparse-and", "--model", "linear", "--n-heads", "2"], "a linear model has no --n-heads"),
            (["sparse-and", "--bogus"], "No such option: --bogus"),
            (["sparse-and", "--steps", "many"], "Invalid value for '--steps'"),
            (["sparse-and", "--steps", "-1"], "steps is -1; it must be a whole number of at least 0"),
            (["sparse-and", "--lr", "0"], "lr is 0.0; it must be a number above 0"),
            (["sparse-and", "--n-ctx", "4", "--n-targets", "5"], "5"),
            (["sparse-and", "--n-ctx", "0"], "n_ctx is 0"),
            (["sparse-and", "--targets", "1;2"], "--targets '1;2' is not a list of indices"),
            (["sparse-and", "--targets", "1,99"], "index 99 is outside [0, 30)"),
            (["sparse-and", "--targets", "1,2/3,4"], "names 2 sets; sparse-and has one"),
            (["rule-and", "--targets", "1,2"], "1 target sets; rule-and needs 2"),
            (["rule-and", "--targets", "1/2", "--rule-positions", "11"], "rule_positions: index 11 is outside"),
            (["sparse-and", "--p", "1"], "p = 1.0 is outside (0, 1)"),
            (["sparse-and", "--p", "-0.1"], "p = -0.1 is outside (0, 1)"),
            (["sparse-and", "--p", "nan"], "p = nan is outside (0, 1)"),
            (["sparse-and", "--p", "fair"], "p = 'fair' is not a probability"),
            (["sparse-and", "--p", "1e-9"], "labels are False: P(label = True) is"),
            (["sparse-and", "--seed", "-1"], "seeds -1 must be different whole numbers of at least 0"),
            (["sparse-and", "--seeds", "0-4"], "--seeds '0-4' is not a range"),
            (["sparse-and", "--seeds", "4:2"], "seeds '4:2' must be different whole numbers"),
            (["sparse-and", "--seeds", "0:2", "--seed", "1"], "--seed 1 and --seeds 0:2 exclude each other"),
            (["sparse-and", "--device", "nope"], "device 'nope' is not available"),
            (["sparse-and", "--config", "nope.json"], "--config nope.json does not exist"),
            (["rule-and", "--n-ctx", "60", "--n-rule-bits", "45"], "not enough memory for this; ask for fewer"),
        ],
    )
    def test_of_train(self, arguments: list[str], said: str, refused: Callable[..., str], tmp_path: Path) -> None:
        assert said in refused("train", *arguments, "--out", tmp_path / "run")

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "Missing command."),
            (["nope"], "No such command 'nope'"),
            (["train"], "Missing argument"),
            (["train", "sparse-and"], "Missing option '--out'"),
            (["analyze"], "Missing argument"),
            (["demo"], "Missing option '--out'"),
            (["import", RULE_FILE, "--task", "rule-and", "--targets", "3,9/4,6"], "Missing option '--out'"),
        ],
    )
    def test_what_is_missing(self, arguments: list[str], said: str, refused: Callable[..., str]) -> None:
        assert said in refused(*arguments)

    def test_an_out_that_cannot_be_written(self, refused: Callable[..., str], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        for command in (
            ["train", "sparse-and", *QUICK],
            ["train", "sparse-and", *QUICK, "--seeds", "0:2"],
            ["import", RULE_FILE, "--task", "rule-and", "--targets", "3,9/4,6"],
            ["demo"],
        ):
            assert "Not a directory" in refused(*command, "--out", tmp_path / "file" / "run")

    def test_an_out_that_is_there(self, refused: Callable[..., str], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("mine")
        assert "Not a directory" in refused("train", "sparse-and", *QUICK, "--out", tmp_path / "file")
        assert "is not a run folder" in refused("train", "sparse-and", *QUICK, "--out", tmp_path, "--resume")
        assert "exists and is not overwritten" in refused("train", "sparse-and", *QUICK, "--out", tmp_path)
        arguments = ["import", RULE_FILE, "--task", "rule-and", "--targets", "3,9/4,6", "--out", tmp_path]
        assert "exists and is not overwritten" in refused(*arguments)

    def test_of_analyze(self, analysed: Callable[[str], Run], refused: Callable[..., str], tmp_path: Path) -> None:
        linear = analysed("linear").path
        before = sorted(linear.rglob("*"))
        assert "does not exist; train a run" in refused("analyze", tmp_path / "nope")
        assert "is not a run folder" in refused("analyze", tmp_path)
        assert "there is no analysis 'entropy'; choose from samples," in refused(
            "analyze", linear, "samples", "entropy"
        )
        assert "attention-patterns does not apply to" in refused("analyze", linear, "samples", "attention-patterns")
        assert sorted(linear.rglob("*")) == before

    @pytest.mark.parametrize("file", ["config.json", "task.json", "model.safetensors"])
    def test_half_written_runs(
        self, file: str, weighing_model: Callable, write_run: Callable, refused: Callable[..., str], tmp_path: Path
    ) -> None:
        for seed in (0, 1):
            folder = tmp_path / "many" / f"seed-00000{seed}"
            write_run(folder, weighing_model([8, 1, 8], 12.5), SparseAnd(3, (0, 2)), seed=seed)
        (folder / file).write_bytes((folder / file).read_bytes()[:-20])
        assert file in refused("analyze", tmp_path / "many")  # nor is seed 0 analysed
        (folder / file).unlink()
        assert "seed-000001" in refused("analyze", tmp_path / "many")

    def test_of_import(self, refused: Callable[..., str], tmp_path: Path) -> None:
        rule = ["--task", "rule-and", "--targets", "3,9/4,6", "--out", tmp_path / "run"]
        assert "does not exist; give a .pt file" in refused("import", tmp_path / "nope.pt", *rule)
        damaged = tmp_path / "damaged.pt"
        damaged.write_bytes(Path(RULE_FILE).read_bytes()[:500])
        assert "damaged.pt is" in refused("import", damaged, *rule)
        torch.save({"code": Bomb(tmp_path / "created")}, tmp_path / "bomb.pt")
        assert "bomb.pt is refused: it is damaged or holds more than weights" in refused(
            "import", tmp_path / "bomb.pt", *rule
        )
        other = ["--task", "sparse-and", "--targets", "12,24,27", "--out", tmp_path / "run"]
        assert "index 12 is outside [0, 11)" in refused("import", RULE_FILE, *other)
        assert "seeds -1 must be" in refused("import", RULE_FILE, *rule, "--seed", "-1")
        assert "p = 2.0 is outside (0, 1)" in refused("import", RULE_FILE, *rule, "--p", "2")

    def test_other_errors_are_not_hidden(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A fault of the program is a traceback."""
        for error in (ValueError("a bug"), RuntimeError("a bug"), ArithmeticError("a bug")):

            def broken(*args: Any, error: Exception = error, **fields: Any) -> None:
                raise error

            monkeypatch.setattr(commands, "train", broken)
            with pytest.raises(type(error), match="a bug"):
                cli.main(["train", "sparse-and", "--out", str(tmp_path / "run")])

    def test_an_interruption(self, monkeypatch: pytest.MonkeyPatch, boolens: Callable, tmp_path: Path) -> None:
        def interrupted(*args: Any, **fields: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(commands, "train", interrupted)
        code, out, err = boolens("train", "sparse-and", "--out", tmp_path / "run")
        assert (code, out) == (130, "")
        assert "finished parts are kept, and `boolens train ... --resume` goes on" in err


class Bomb:
    """Unpickling this without care creates a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.target), "w")


class TestTrain:
    def test_in_words_and_as_json(self, boolens: Callable, tmp_path: Path) -> None:
        code, out, err = boolens("train", "sparse-and", *QUICK, "--out", tmp_path / "words")
        assert (code, err) == (0, "")
        assert out.startswith(f"{tmp_path / 'words'}: sparse-and ")
        code, out, err = boolens("train", "sparse-and", *QUICK, "--out", tmp_path / "json", "--json")
        assert (code, err, out.count("\n")) == (0, "", 1)
        (content,) = json.loads(out)
        assert content.keys() == {"run", "seed", "task", "accuracy", "p_true"}

    def test_options_from_a_file_yield_to_the_command_line(self, boolens: Callable, tmp_path: Path) -> None:
        options = {"n_ctx": 7, "targets": "1,5", "steps": 3, "lr": 0.5, "p": 0.6, "n_train": 40, "n_valid": 50}
        (tmp_path / "options.json").write_text(json.dumps(options))
        config = ["--config", tmp_path / "options.json"]
        arguments = ["--steps", "4", "--p", "balanced", "--seed", "3"]
        code, *_ = boolens("train", "sparse-and", "--out", tmp_path / "run", *config, *arguments)
        assert code == 0
        assert load_task(tmp_path / "run") == SparseAnd(7, (1, 5), p="balanced")
        run = load_config(tmp_path / "run")
        assert run.training is not None
        assert (run.training.steps, run.training.lr, run.training.n_train, run.seed) == (4, 0.5, 40, 3)

    @pytest.mark.parametrize(
        ("content", "said"),
        [('{"stepz": 3}', "unknown options ['stepz']"), ('{"targets": [1, 5]}', "targets is [1, 5]; it must be text"),
         ("[]", "holds list; write an object"), ("{", "is not valid JSON")],
    )  # fmt: skip
    def test_a_file_of_bad_options(self, content: str, said: str, refused: Callable[..., str], tmp_path: Path) -> None:
        (tmp_path / "options.json").write_text(content)
        assert said in refused("train", "sparse-and", "--out", tmp_path / "run", "--config", tmp_path / "options.json")

    def test_resume_names_what_differs(self, boolens: Callable, refused: Callable[..., str], tmp_path: Path) -> None:
        run = ["train", "sparse-and", *QUICK, "--out", tmp_path / "run"]
        boolens(*run)
        assert "training.lr: 0.01 there, 0.02 asked for" in refused(*run, "--lr", "0.02", "--resume")
        assert boolens(*run, "--resume")[0] == 0


class TestAnalyze:
    def test_json_is_the_results_alone(self, analysed: Callable[[str], Run], boolens: Callable) -> None:
        run = analysed("linear")
        code, out, err = boolens("analyze", run.path, "samples", "target-recovery", "--json")
        assert (code, err, out.count("\n")) == (0, "", 1)
        content = json.loads(out)
        assert list(content) == ["samples", "target-recovery"]
        for name in content:
            assert content[name] == json.loads((run.path / "analyses" / name / "result.json").read_text())

    def test_words_are_the_verdict_and_what_was_written(
        self, analysed: Callable[[str], Run], boolens: Callable
    ) -> None:
        run = analysed("linear")
        code, out, err = boolens("analyze", run.path, "target-recovery", "samples")
        assert (code, err) == (0, "")
        verdict, *written = [line for line in out.splitlines() if not line.startswith("  ")]
        found = json.loads((run.path / "analyses" / "target-recovery" / "result.json").read_text())["result"]
        assert verdict == f"{run.path}: {found['verdict']}. {found['sentence']}"
        assert written == [f"written: {run.path / 'analyses' / name}" for name in ("target-recovery", "samples")]

    def test_json_of_several_seeds(self, boolens: Callable, tmp_path: Path) -> None:
        options = ["--model", "linear", "--seeds", "0:2", "--out", tmp_path / "many", "--json"]
        _, out, _ = boolens("train", "sparse-and", *QUICK, *options)
        assert [run["seed"] for run in json.loads(out)] == [0, 1]
        code, out, err = boolens("analyze", tmp_path / "many", "target-recovery", "--json")
        assert (code, err) == (0, "")
        content = json.loads(out)
        assert content.keys() == {"overview", "runs"}
        assert list(content["runs"]) == ["seed-000000", "seed-000001"]


class TestModules:
    @pytest.mark.parametrize(
        ("arguments", "passed"),
        [
            (["RUN"], ["analyze", "RUN", "samples"]),
            (["RUN", "--json"], ["analyze", "RUN", "--json", "samples"]),
            (["--json", "RUN"], ["analyze", "--json", "RUN", "samples"]),
            ([], ["analyze", "--help"]),
        ],
    )
    def test_are_analyze(self, arguments: list[str], passed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[list[str]] = []
        monkeypatch.setattr(cli, "main", seen.append)
        monkeypatch.setattr(cli.sys, "argv", ["samples.py", *arguments])
        cli.analyze_as_module("samples")
        assert seen == [passed]

    def test_options_may_stand_before_the_run(self, analysed: Callable[[str], Run], boolens: Callable) -> None:
        run = analysed("linear")
        results = [boolens("analyze", *order, "samples") for order in ((run.path, "--json"), ("--json", run.path))]
        assert results[0] == results[1]
        assert results[0][0] == 0


def test_import_says_what_to_do_next(boolens: Callable, tmp_path: Path) -> None:
    arguments = ["import", RULE_FILE, "--task", "rule-and", "--targets", "3,9/4,6", "--p", "tutorial"]
    code, out, err = boolens(*arguments, "--out", tmp_path / "run")
    assert (code, err) == (0, "")
    assert out == (
        f"{tmp_path / 'run'}: rule-and 3,9/4,6, imported from {RULE_FILE}; next: boolens analyze {tmp_path / 'run'}\n"
    )
    code, out, _ = boolens(*arguments, "--out", tmp_path / "again", "--json")
    assert json.loads(out) == {"run": str(tmp_path / "again"), "task": load_task(tmp_path / "run").to_dict()}


def test_demo_trains_analyses_and_says_the_verdicts(
    boolens: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With smaller tasks than its own, and picked up where an earlier call stopped."""
    small = {"model": "linear", "n_train": 60, "n_valid": 80, "steps": 20}
    tasks = {"sparse-and": {"n_ctx": 6, "n_targets": 2}, "rule-and": {"n_ctx": 6, "targets": "0,3/1,4"}}
    monkeypatch.setattr(commands, "DEMO", {name: {"task": name, **small, **t} for name, t in tasks.items()})
    code, out, err = boolens("demo", "--out", tmp_path / "demo")
    assert (code, err) == (0, "")
    for name in tasks:
        folder = tmp_path / "demo" / name
        assert f"{folder}: {name} " in out
        assert re.search(rf"^{folder}: (created|mixed|not created)\. ", out, re.MULTILINE)
        assert (folder / "report.html").exists()
        assert (folder / "analyses" / "target-recovery" / "figure.png").exists()
    page = tmp_path / "demo" / "report.html"
    assert out.splitlines()[-1] == f"report: {page}"
    assert all(f'href="{name}/report.html"' in page.read_text(encoding="utf-8") for name in tasks)
    weights = (tmp_path / "demo" / "rule-and" / "model.safetensors").stat().st_mtime_ns
    code, out, err = boolens("demo", "--out", tmp_path / "demo", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out).keys() == tasks.keys()
    assert (tmp_path / "demo" / "rule-and" / "model.safetensors").stat().st_mtime_ns == weights


def test_the_demo_is_the_tutorial_s_two_tasks() -> None:
    plans = {name: commands.make_plan({**options, "out": "x"}) for name, options in commands.DEMO.items()}
    tasks = {name: plan.draw_task(0) for name, plan in plans.items()}
    sizes = {name: (task.n_ctx, [len(t) for t in task.targets]) for name, task in tasks.items()}
    assert sizes == {"sparse-and": (30, [3]), "rule-and": (11, [2, 2])}
    assert all(plan.model.to_dict()["d_model"] == 2 for plan in plans.values())
