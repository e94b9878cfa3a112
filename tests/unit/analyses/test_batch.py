"""Analyses in several processes: the same files, words, JSON and errors as in one; nothing is left when they stop."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyses import batch, cli, commands
from analyses.batch import PIECES_A_PROCESS, default_jobs
from interp.errors import BoolensError
from interp.threads import ONE_THREAD_BELOW

ROOT = Path(__file__).parents[3]
NAMES = ["target-recovery", "variable-creation", "formation"]
SIZES = {"task": "sparse-and", "n_ctx": 5, "n_targets": 2, "n_train": 60, "n_valid": 90}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch") / "trained"
    commands.train({**SIZES, "steps": 40, "snapshot_every": 20, "seeds": "0:2", "out": folder})
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """By path, what the analyses have written."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("analyses/**/*") if p.is_file()}


def test_several_processes_say_and_write_what_one_does(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[tuple[Any, ...]] = []
    for jobs in (1, 2):
        folder = shutil.copytree(trained, tmp_path / "runs")  # one name, for it is printed
        content, lines = commands.analyze(folder, NAMES, jobs=jobs, content=True)
        found.append((content, lines, capsys.readouterr().out, files(folder)))
        shutil.rmtree(folder)
    (content, lines, out, written), again = found[0], found[1]
    assert (content, lines, out) == again[:3]
    assert written.keys() == again[3].keys()
    assert [name for name in written if written[name] != again[3][name]] == []
    assert len([name for name in written if name.endswith("result.json")]) == 2 * len(NAMES)
    assert content.keys() == {"claims", "formation-order", "overview", "runs"}
    assert [list(of_run) for of_run in content["runs"].values()] == [NAMES] * 2
    assert content["formation-order"]["runs"] == ["seed-000000", "seed-000001"]
    assert {row["runs"] for row in content["claims"]} == {2}


def test_an_error_is_the_first_and_the_rest_is_not_begun(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both runs are damaged, in a way that shows only when they are analysed."""
    said = []
    for jobs in ("1", "2"):
        folder = shutil.copytree(trained, tmp_path / "runs")
        for seed in (0, 1):
            (folder / f"seed-00000{seed}" / "snapshots" / "step-000020.safetensors").write_bytes(b"damaged")
        with pytest.raises(SystemExit) as caught:
            cli.main(["analyze", str(folder), "formation", "samples", "--jobs", jobs])
        said.append((caught.value.code, capsys.readouterr()))
        assert not (folder / "analyses").exists()
        assert not list(folder.rglob("*.partial"))
        shutil.rmtree(folder)
    assert said[0] == said[1]
    code, (out, err) = said[0]
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "seed-000000" in err
    assert "seed-000001" not in err


@pytest.mark.parametrize("jobs", [1, 2])
def test_without_figures_the_tables_are_the_same(jobs: int, trained: Path, tmp_path: Path) -> None:
    """An earlier figure goes, for it would be another result's."""
    drawn, not_drawn = (shutil.copytree(trained, tmp_path / name / "runs") for name in ("drawn", "not"))
    stale = not_drawn / "seed-000000" / "analyses" / "samples" / "figure.png"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier result")
    commands.analyze(drawn, ["samples"], jobs=1)
    commands.analyze(not_drawn, ["samples"], jobs=jobs, figures=False)
    tables = {name: content for name, content in files(drawn).items() if not name.endswith(("png", "svg"))}
    assert files(not_drawn) == tables
    assert len(tables) == 4


def end(*_: Any) -> None:
    os._exit(1)


def test_a_process_that_is_killed_is_told(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_analyse", end)
    folder = shutil.copytree(trained, tmp_path / "runs")
    with pytest.raises(BoolensError, match=r"one of 2 processes was ended from outside, .*; take fewer with --jobs"):
        commands.analyze(folder, ["samples"], jobs=2)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_stopped_processes_leave_nothing(sent: int, code: int, trained: Path, tmp_path: Path) -> None:
    """The signal reaches the parent alone; its processes, which would go on for a minute, end too."""
    for seed in range(3, 60):
        shutil.copytree(trained / "seed-000000", tmp_path / "runs" / f"seed-{seed:06d}")
    # a shell that starts these tests in the background has SIGINT ignored, which its processes inherit
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from analyses.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "analyze", str(tmp_path / "runs")]
    process = subprocess.Popen(
        [*command, "circuits", "--jobs", "2"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: bool(list(tmp_path.rglob("result.json"))))
    assert process.poll() is None
    os.kill(process.pid, sent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == b""
    wait_until(lambda: not group_lives(process.pid))
    written = list(tmp_path.rglob("result.json"))
    assert len(written) < 57
    if sent == signal.SIGINT:
        assert err.startswith(b"boolens: interrupted")
        assert err.count(b"\n") == 1
        assert not list(tmp_path.rglob("*.partial"))
        assert all(len(list(path.parent.iterdir())) == 4 for path in written)


def wait_until(happened: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("runs", "pieces", "n_elements", "expected"),
    [
        (1, 500, ONE_THREAD_BELOW, 1),  # a single run
        (2, 2 * PIECES_A_PROCESS - 1, 5, 1),  # not enough for a second process
        (2, 2 * PIECES_A_PROCESS, 5, 2),
        (9, 100 * PIECES_A_PROCESS, 5, 7),  # one a core
        (2, 3, ONE_THREAD_BELOW, 3),  # large ones pay at once
        (2, 3, ONE_THREAD_BELOW - 1, 1),
    ],
)
def test_jobs_suit_the_work(
    runs: int, pieces: int, n_elements: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "n_cores", lambda: 7)
    assert default_jobs(runs, pieces, n_elements, ONE_THREAD_BELOW) == expected


def test_no_process_is_too_few(trained: Path) -> None:
    with pytest.raises(BoolensError, match="0 jobs; at least 1 process is needed, leave --jobs out for one a core"):
        commands.analyze(trained, ["samples"], jobs=0)
