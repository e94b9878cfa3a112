"""What only a process of its own can show: the installed command, what --help imports, and a real SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyses import commands
from analyses.runs import Run
from interp.training_state import STATE

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "numpy", "scipy", "pandas", "matplotlib", "transformer_lens", "safetensors")


def python(*arguments: str | Path, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def test_help_imports_nothing_heavy() -> None:
    """All pages in one process; then its modules are listed on the last line."""
    code = f"""
import sys
from analyses.cli import main
for command in ([], ["train"], ["analyze"], ["demo"], ["import"], ["x"]):
    try:
        main([*command, "--help"])
    except SystemExit as end:
        print("exit", end.code)
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    *pages, modules = done.stdout.splitlines()
    assert modules == "[]"
    assert [line for line in pages if line.startswith("exit")] == ["exit 0"] * 5 + ["exit 2"]
    text = "\n".join(pages)
    for word in (
        "train",
        "analyze",
        "demo",
        "import",
        "--n-ctx",
        "--snapshot-every",
        "--resume",
        "--json",
        "--targets",
    ):
        assert word in text
    assert done.stderr == "boolens: No such command 'x'. (see `boolens --help`)\n"


def test_a_module_is_analyze(analysed: Callable[[str], Run]) -> None:
    run = analysed("linear")
    done = python("-m", "analyses.samples", run.path, "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    expected = json.loads((run.path / "analyses" / "samples" / "result.json").read_text())
    assert json.loads(done.stdout) == {"samples": expected}


def test_the_installed_command(tmp_path: Path) -> None:
    """Trains from any folder, with its warnings and bars kept to itself; --json is alone on stdout."""
    boolens = Path(sys.executable).with_name("boolens")
    if not boolens.exists():
        pytest.skip(f"the package is not installed: no {boolens}")
    options = ["--n-ctx", "6", "--n-targets", "2", "--n-train", "40", "--n-valid", "50", "--steps", "5", "--json"]
    command = [str(boolens), "train", "sparse-and", "--out", "run", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (content,) = json.loads(done.stdout)
    assert content["run"] == "run"
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        *("config.json", "history.csv", "model.safetensors", "task.json")
    ]


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_killed_training_resumes_to_the_same_bytes(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL while the second of two seeds trains, after the first or together with it; saved every 20 ms here."""
    monkeypatch.setattr(commands, "models_at_once", lambda *_: at_once)
    options: dict[str, Any] = {"task": "sparse-and", "n_ctx": 12, "n_targets": 2, "n_train": 400, "n_valid": 50}
    options |= {"steps": 20_000, "log_every": 1000, "seeds": "0:2"}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if name != "task"]
    code = """
import sys
import torch
from analyses import commands, train
from analyses.cli import main
torch.set_num_threads(1)
stack = train.train_stack
train.train_stack = lambda jobs, cfg, **options: stack(jobs, cfg, **{**options, "save_seconds": 0.02})
commands.models_at_once = lambda *_: int(sys.argv[1])
main(["train", "sparse-and", *sys.argv[2:]])
"""
    command = [sys.executable, "-c", code, str(at_once), *given, f"--out={tmp_path / 'killed'}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first, second = (tmp_path / "killed" / f"seed-00000{seed}" for seed in (0, 1))
    try:
        deadline = time.monotonic() + 100
        while not (second / STATE).exists():
            assert process.poll() is None, "the training ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert (first / "model.safetensors").exists() == (at_once == 1)
    assert not (second / "model.safetensors").exists()
    finished = {p: p.stat().st_mtime_ns for p in first.iterdir() if at_once == 1}
    commands.train({**options, "out": tmp_path / "whole"})
    commands.train({**options, "out": tmp_path / "killed", "resume": True})
    assert {p: p.stat().st_mtime_ns for p in first.iterdir() if at_once == 1} == finished
    assert not (second / STATE).exists()
    for seed in ("seed-000000", "seed-000001"):
        for name in ("model.safetensors", "history.csv", "config.json", "task.json"):
            assert (tmp_path / "killed" / seed / name).read_bytes() == (tmp_path / "whole" / seed / name).read_bytes()
