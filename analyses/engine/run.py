"""Running a grid: what is missing is computed, what fails is recorded, what is there stays."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from analyses.engine.cells import Cell, Config, Row, Tell, compute_cell, make_cells
from analyses.engine.folder import Folder

REBUILD = 5.0
"""Least seconds between two rebuilds of results.parquet as cells land."""
POLL = 0.2
"""Seconds between looks at cells that another client computes."""


class Ledger:
    """What one client knows of its cells, shared by the ways of computing them."""

    def __init__(self, folder: Folder, cells: Sequence[Cell], seconds: dict[str, float], progress: Tell | None) -> None:
        self.folder, self.cells, self.seconds, self.progress = folder, cells, seconds, progress
        self.marks = {cell.key: folder.error_mark(cell.key) for cell in cells}
        self.settled: set[str] = set()
        self.failed: set[str] = set()
        self.rebuilt = time.monotonic()

    def look(self) -> list[Cell]:
        """Cells that are neither there nor have failed, here or by another client, since this one began."""
        for cell in self.cells:
            if cell.key in self.settled:
                continue
            if self.folder.has(cell.key):
                self.settled.add(cell.key)
            elif (mark := self.folder.error_mark(cell.key)) is not None and mark != self.marks[cell.key]:
                self.settled.add(cell.key)
                self.failed.add(cell.key)
        return [cell for cell in self.cells if cell.key not in self.settled]

    def take(self, cell: Cell) -> bool:
        """Claim a cell, unless it has been settled meanwhile."""
        if not self.folder.take(cell.key):
            return False
        if self.folder.has(cell.key):
            self.folder.release(cell.key)
            return False
        return True

    def land(self, cell: Cell, rows: list[Row]) -> None:
        self.folder.save(cell, rows)
        self._settle(cell)
        if time.monotonic() - self.rebuilt > REBUILD:
            self.rebuild()

    def fail(self, cell: Cell, error: BaseException) -> None:
        trace = "".join(traceback.format_exception(error))
        self.folder.save_error(cell, type(error).__name__, str(error), trace)
        self.failed.add(cell.key)
        self._settle(cell)

    def _settle(self, cell: Cell) -> None:
        self.settled.add(cell.key)
        self.folder.release(cell.key)
        self.tell({})

    def rebuild(self) -> None:
        self.folder.write_results([cell.key for cell in self.cells])
        self.rebuilt = time.monotonic()

    def tell(self, running: dict[str, float], text: str = "") -> None:
        """Progress by expected seconds: `running` holds the share done of cells in flight."""
        if self.progress is None:
            return
        done = sum(self.seconds[key] for key in self.settled) + sum(self.seconds[k] * s for k, s in running.items())
        state = f"{len(self.settled)} of {len(self.cells)} cells" + (f", {len(self.failed)} failed" * bool(self.failed))
        self.progress(min(1.0, done / sum(self.seconds.values())), f"{state}; {text}" if text else state)


@dataclass(frozen=True)
class CellState:
    """A line of the table before a run: state is 'there', 'failed' (is tried again) or 'missing'."""

    cell: Cell
    state: str
    seconds: float | None


def dry_run(
    folder: Path, compute: str, configs: Sequence[Config], expected_seconds: Callable[[Config], float] | None = None
) -> list[CellState]:
    """What `run_cells` would find: every cell, its state, and the seconds it is expected to take (0 if there).

    Raises:
        BoolensError: as `make_cells`.
    """
    there, states = Folder(folder), []
    for cell in make_cells(compute, configs):
        state = "there" if there.has(cell.key) else "failed" if there.error(cell.key).exists() else "missing"
        seconds = None if expected_seconds is None else 0.0 if state == "there" else expected_seconds(cell.config)
        states.append(CellState(cell, state, seconds))
    return states


def run_cells(
    folder: Path,
    compute: str,
    configs: Sequence[Config],
    *,
    scheduler: str | None = None,
    expected_seconds: Callable[[Config], float] | None = None,
    progress: Tell | None = None,
) -> pd.DataFrame:
    """Compute the cells that the folder lacks; those that failed before are tried again.

    Without a scheduler one cell follows another in this process. On a Dask cluster workers compute and this client
    writes, so that no file system need be shared. Several clients may work on one folder.

    Args:
        folder: made if need be; see `analyses.engine.folder`.
        compute: 'module:function' in a module with SCHEMA; the function takes a configuration and whom to tell of its
            progress, or None, and returns rows of equal columns.
        configs: JSON-able.
        scheduler: as tcp://HOST:PORT.
        expected_seconds: of a configuration, above 0, by which progress is measured; else cells count equally.
        progress: told the share done and the state.

    Returns:
        The rows of these cells in their order, behind the column `cell`; failed cells have none (see errors/).

    Raises:
        BoolensError: no cells, no such function, or a scheduler or workers that cannot be used.
    """
    cells = make_cells(compute, configs)
    place = Folder(folder)
    seconds = {cell.key: 1.0 if expected_seconds is None else expected_seconds(cell.config) for cell in cells}
    ledger = Ledger(place, cells, seconds, progress)
    client = None
    if scheduler is not None and ledger.look():
        from analyses.engine.cluster import connect

        client = connect(scheduler, cells[0])
    try:
        place.write_json(folder / "sweep.json", {"compute": compute, "cells": {c.key: c.config for c in cells}})
        with place.heartbeat():
            if client is None:
                _run_here(ledger)
            else:
                from analyses.engine.cluster import run_on

                run_on(client, ledger)
    finally:
        if client is not None:
            client.close()
        ledger.rebuild()
    return place.rows([cell.key for cell in cells if place.has(cell.key)]).to_pandas()


def _run_here(ledger: Ledger) -> None:
    while missing := ledger.look():
        taken = 0
        for cell in missing:
            if not ledger.take(cell):
                continue
            taken += 1
            try:
                rows = compute_cell(cell, lambda share, text, key=cell.key: ledger.tell({key: share}, text))
            except Exception as error:  # noqa: BLE001 - recorded; the other cells go on
                ledger.fail(cell, error)
            else:
                ledger.land(cell, rows)
        if not taken and ledger.look():
            ledger.tell({}, "another client computes the rest")
            time.sleep(POLL)
