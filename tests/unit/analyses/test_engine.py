"""Grids in this process: resumption, failures, claims, clients that die and clients that share a folder."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analyses.engine import Folder, dry_run, make_cells, run_cells
from analyses.engine import folder as folder_module
from interp.errors import BoolensError

ROOT = Path(__file__).parents[3]
ROOTS = "tests.engine_cells:roots"


def lines(log: Path) -> list[str]:
    return [line.split()[1] for line in log.read_text(encoding="utf-8").splitlines()]


def start_client(folder: Path, configs: list[dict[str, Any]]) -> "subprocess.Popen[bytes]":
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom analyses.engine import run_cells\n"
        f"run_cells(Path(sys.argv[1]), {ROOTS!r}, json.loads(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(folder), json.dumps(configs)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    configs = [{"n": n, "log": str(log)} for n in (2, 3, 5)]
    first = run_cells(tmp_path / "grid", ROOTS, configs[:2])
    both = run_cells(tmp_path / "grid", ROOTS, configs)
    assert lines(log) == ["2", "3", "5"]
    assert both.n.tolist() == [2, 2, 2, 3, 3, 3, 5, 5, 5]
    pd.testing.assert_frame_equal(both.head(6), first)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "grid" / "results.parquet"), both)


def test_a_failure_is_recorded_and_tried_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    configs = [{"n": 2, "log": str(log), "fault": "raise"}, {"n": 3, "log": str(log)}]
    for _ in range(2):
        assert run_cells(tmp_path / "grid", ROOTS, configs).n.tolist() == [3, 3, 3]
    assert lines(log) == ["2", "3", "2"]
    (error,) = (tmp_path / "grid" / "errors").glob("*.json")
    said = json.loads(error.read_text(encoding="utf-8"))
    assert (said["type"], said["message"], said["config"]) == ("ArithmeticError", "no roots of 2", configs[0])
    assert "engine_cells.py" in said["traceback"]
    states = dry_run(tmp_path / "grid", ROOTS, [*configs, {"n": 7}], lambda config: 4.0)
    assert [(s.state, s.seconds) for s in states] == [("failed", 4.0), ("there", 0.0), ("missing", 4.0)]


def test_a_leftover_is_not_a_result(tmp_path: Path) -> None:
    (cell,) = make_cells(ROOTS, [{"n": 2}])
    left = Folder(tmp_path).cell(cell.key)
    left.parent.mkdir()
    left.with_name(f".{left.name}.0.partial").write_bytes(b"PAR1 half")
    assert len(run_cells(tmp_path, ROOTS, [{"n": 2}])) == 3


def test_progress_is_by_expected_seconds(tmp_path: Path) -> None:
    told: list[float] = []
    run_cells(
        tmp_path,
        ROOTS,
        [{"n": 1}, {"n": 3}],
        expected_seconds=lambda config: config["n"],
        progress=lambda share, _: told.append(share),
    )
    assert told == [0.125, 0.25, 0.625, 1.0]


@pytest.mark.parametrize(
    ("compute", "configs", "match"),
    [
        (ROOTS, [], "0 cells"),
        ("tests.engine_cells:none", [{}], "cannot be computed"),
        (ROOTS, [{"n": float("nan")}], "not JSON"),
    ],
)
def test_bad_requests(tmp_path: Path, compute: str, configs: list[dict[str, Any]], match: str) -> None:
    with pytest.raises(BoolensError, match=match):
        run_cells(tmp_path / "grid", compute, configs)
    assert not (tmp_path / "grid").exists()


def test_a_claim_holds_until_it_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Folder(tmp_path), Folder(tmp_path)
    assert one.take("key")
    assert not other.take("key")
    os.utime(one.claim_path("key"), (0.0, time.time() - 2 * folder_module.STALE))
    assert other.take("key")
    one.release("key")  # no longer its own
    assert other.claim_path("key").exists()
    other.release("key")
    assert not other.claim_path("key").exists()


def test_a_killed_client_loses_the_cell_in_flight_alone(tmp_path: Path) -> None:
    log, grid = tmp_path / "log", tmp_path / "grid"
    configs: list[dict[str, Any]] = [{"n": n, "log": str(log)} for n in (2, 3)]
    configs.append({"n": 5, "log": str(log), "seconds": 1.0})
    client = start_client(grid, configs)
    until = time.monotonic() + 30
    while not (log.exists() and "5" in lines(log)) and time.monotonic() < until:
        time.sleep(0.02)
    client.send_signal(signal.SIGKILL)
    client.wait(timeout=10)
    finished = {path: path.stat().st_mtime_ns for path in (grid / "cells").glob("*.parquet")}
    assert len(finished) == 2
    rows = run_cells(grid, ROOTS, configs)
    assert rows.n.tolist() == [2, 2, 2, 3, 3, 3, 5, 5, 5]
    assert lines(log) == ["2", "3", "5", "5"]
    assert {path: path.stat().st_mtime_ns for path in finished} == finished


def test_two_clients_share_the_work(tmp_path: Path) -> None:
    log, grid = tmp_path / "log", tmp_path / "grid"
    configs = [{"n": n, "log": str(log), "seconds": 0.2} for n in range(12)]
    clients = [start_client(grid, configs) for _ in range(2)]
    try:
        assert [client.wait(timeout=60) for client in clients] == [0, 0]
    finally:
        for client in clients:
            client.kill()
    assert sorted(map(int, lines(log))) == list(range(12))
    rows = pd.read_parquet(grid / "results.parquet")
    assert rows.n.tolist() == [n for n in range(12) for _ in range(3)]
    assert not list((grid / "claims").iterdir())
