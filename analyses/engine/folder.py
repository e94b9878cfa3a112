"""The folder of a grid: cells, errors and claims, each a file by the cell's key; safe for several clients at once.

sweep.json             the grid that was asked for last
cells/KEY.parquet      a finished cell's rows; its configuration is in the metadata, under b'boolens'
errors/KEY.json        a failed cell: type, message, traceback, config, time
claims/KEY             a cell in flight: who computes it; touched every few seconds
results.parquet        the rows of all finished cells, with the column `cell`
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analyses.engine.cells import Cell, Row
from interp.errors import BoolensError
from interp.files import plain, read_json, write_atomic

STALE = 60.0
"""Seconds without a heartbeat after which a claim is taken over; at once where its process is known to be gone."""
HEARTBEAT = 5.0


class Folder:
    """One client's view. A claim keeps clients from the same cell; where two take over one stale claim in the same
    instant both compute it, and the later write replaces the earlier whole, with the same rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.token = uuid.uuid4().hex
        self.tables: dict[str, pa.Table] = {}
        self.claimed: set[str] = set()
        if path.exists() and not path.is_dir():
            raise BoolensError(f"{path} is a file; choose another folder")

    def cell(self, key: str) -> Path:
        return self.path / "cells" / f"{key}.parquet"

    def error(self, key: str) -> Path:
        return self.path / "errors" / f"{key}.json"

    def claim_path(self, key: str) -> Path:
        return self.path / "claims" / key

    def has(self, key: str) -> bool:
        return self.cell(key).exists()

    def error_mark(self, key: str) -> int | None:
        """A number that changes whenever the cell's failure is recorded anew; None where there is no such record."""
        try:
            return self.error(key).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def write(self, path: Path, content: bytes) -> None:
        """Atomically; named by this client's token, since clients on two machines may have one process number."""
        beside = path.with_name(f".{path.name}.{self.token}.partial")
        write_atomic(beside, content)
        beside.replace(path)

    def write_json(self, path: Path, content: Any) -> None:
        self.write(path, (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode())

    def save(self, cell: Cell, rows: Sequence[Row]) -> None:
        """The rows of a cell that has been computed; an earlier failure's record goes."""
        table = pa.Table.from_pylist(list(rows)).replace_schema_metadata({"boolens": json.dumps(cell.content)})
        self.write(self.cell(cell.key), _parquet(table))
        self.tables[cell.key] = table
        self.error(cell.key).unlink(missing_ok=True)

    def save_error(self, cell: Cell, kind: str, message: str, trace: str) -> None:
        content = {"type": kind, "message": message, "traceback": trace, "time": time.time(), **cell.content}
        self.write_json(self.error(cell.key), content)

    def load(self, key: str) -> pa.Table:
        """A finished cell's rows.

        Raises:
            BoolensError: a file that is not Parquet.
        """
        if key not in self.tables:
            try:
                self.tables[key] = pq.ParquetFile(pa.BufferReader(self.cell(key).read_bytes())).read()
            except pa.ArrowInvalid as error:
                raise BoolensError(f"{self.cell(key)} is not readable ({error}); delete it and run again") from None
        return self.tables[key]

    def rows(self, keys: Sequence[str]) -> pa.Table:
        """The rows of finished cells, in this order, behind their key in the column `cell`."""
        tables = []
        for key in keys:
            table = self.load(key).replace_schema_metadata(None)
            tables.append(table.add_column(0, "cell", pa.array([key] * table.num_rows, pa.string())))
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({"cell": []})

    def write_results(self, first: Sequence[str] = ()) -> None:
        """results.parquet: cells of the keys `first` in that order, then the others that are in the folder."""
        there = {path.stem for path in (self.path / "cells").glob("*.parquet") if not path.name.startswith(".")}
        asked = [key for key in first if key in there]
        self.write(self.path / "results.parquet", _parquet(self.rows([*asked, *sorted(there - set(asked))])))

    def take(self, key: str) -> bool:
        """Claim a cell; False where another client has it."""
        path = self.claim_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            try:
                file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                if not self._is_stale(path):
                    return False
                with contextlib.suppress(FileNotFoundError):
                    path.rename(path.with_name(f".{key}.{self.token}.stale")).unlink()
                continue
            with os.fdopen(file, "w") as opened:
                json.dump({"host": socket.gethostname(), "pid": os.getpid(), "token": self.token}, opened)
            self.claimed.add(key)
            return True
        return False

    def release(self, key: str) -> None:
        self.claimed.discard(key)
        if _owner(self.claim_path(key)).get("token") == self.token:
            self.claim_path(key).unlink(missing_ok=True)

    def _is_stale(self, path: Path) -> bool:
        owner = _owner(path)
        if owner.get("host") == socket.gethostname() and not _is_alive(owner["pid"]):
            return True
        try:
            return time.time() - path.stat().st_mtime > STALE
        except FileNotFoundError:
            return True

    @contextlib.contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Keep this client's claims fresh; they are given up at the end."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT):
                for key in list(self.claimed):
                    with contextlib.suppress(FileNotFoundError):
                        os.utime(self.claim_path(key))

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            for key in list(self.claimed):
                self.release(key)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _owner(path: Path) -> dict[str, Any]:
    """Who claims; {} while the claim is being written or when it has gone."""
    try:
        return read_json(path)
    except BoolensError:
        return {}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
