"""A real Dask scheduler with two worker processes on loopback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from analyses.engine import cluster, run_cells
from interp.errors import BoolensError

ROOT = Path(__file__).parents[3]
ROOTS = "tests.engine_cells:roots"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def start(*arguments: str, output: Path) -> "subprocess.Popen[bytes]":
    with output.open("wb") as file:
        command = [sys.executable, "-m", "dask", *arguments]
        return subprocess.Popen(command, cwd=output.parent, env=ENVIRONMENT, stdout=file, stderr=file)


@pytest.fixture
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with two workers, each a process without a nanny that would restart it."""
    folder = tmp_path_factory.mktemp("dask")
    log = folder / "scheduler.log"
    place = ("--host", "127.0.0.1", "--no-dashboard")
    processes = [start("scheduler", "--port", "0", *place, output=log)]
    try:
        until, found = time.monotonic() + 30, None
        while found is None and time.monotonic() < until:
            found = re.search(r"Scheduler at:\s+(tcp://127\.0\.0\.1:\d+)", log.read_text("utf-8"))
            time.sleep(0.05)
        assert found, log.read_text("utf-8")
        for i in range(2):
            options = ("--nthreads", "1", "--no-nanny", *place)
            processes.append(start("worker", found[1], *options, output=folder / f"worker{i}.log"))
        from distributed import Client

        with Client(found[1], timeout=20, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=30)
        yield found[1]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait(timeout=10)


def test_a_worker_killed_mid_cell_changes_nothing(tmp_path: Path, scheduler: str) -> None:
    """Also: a cell that fails there is recorded, and the rest is done."""
    log = tmp_path / "log"
    configs = [{"n": n, "log": str(log), "seconds": 0.6, "fault": "raise" if n == 4 else None} for n in range(6)]
    killed: list[int] = []

    def kill_one(share: float, text: str) -> None:
        if not killed and log.exists() and (said := log.read_text("utf-8").split()):
            killed.append(int(said[0]))
            os.kill(killed[0], signal.SIGKILL)

    there = run_cells(tmp_path / "cluster", ROOTS, configs, scheduler=scheduler, progress=kill_one)
    by_process = [line.split() for line in log.read_text("utf-8").splitlines()]
    lost = [n for pid, n in by_process if int(pid) == killed[0]]
    assert len(lost) == 1
    assert [n for _, n in by_process].count(lost[0]) == 2
    pd.testing.assert_frame_equal(there, run_cells(tmp_path / "serial", ROOTS, configs), check_exact=True)
    (error,) = (tmp_path / "cluster" / "errors").glob("*.json")
    assert json.loads(error.read_text("utf-8"))["message"] == "no roots of 4"


def test_a_cell_that_kills_its_workers_is_a_failed_one(tmp_path: Path, scheduler: str) -> None:
    """Two workers are fewer than the scheduler's allowed failures: it is asked to allow one."""
    from distributed import Client

    with Client(scheduler, set_as_default=False) as client:
        client.run_on_scheduler(allow_one)
    log = tmp_path / "log"
    configs = [{"n": 2, "fault": "die", "log": str(log)}]
    assert run_cells(tmp_path / "grid", ROOTS, configs, scheduler=scheduler).empty
    assert len(log.read_text("utf-8").splitlines()) == 2
    (error,) = (tmp_path / "grid" / "errors").glob("*.json")
    assert json.loads(error.read_text("utf-8"))["type"] == "KilledWorker"


def allow_one(dask_scheduler: object) -> None:
    dask_scheduler.allowed_failures = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_scheduler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT", 1.0)
    with pytest.raises(BoolensError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        run_cells(tmp_path / "grid", ROOTS, [{"n": 2}], scheduler="tcp://127.0.0.1:9")
    assert not (tmp_path / "grid" / "cells").exists()


def test_workers_of_another_schema_are_refused(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests import engine_cells

    monkeypatch.setattr(engine_cells, "SCHEMA", 2)
    with pytest.raises(BoolensError, match=r"has schema 1 .* this client 2"):
        run_cells(tmp_path / "grid", ROOTS, [{"n": 2}], scheduler=scheduler)
