"""Cells on a Dask cluster: workers compute and return rows, the client writes them."""

import threading
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from analyses.engine.cells import Cell, Row, compute_cell, find_compute
from interp.errors import BoolensError

if TYPE_CHECKING:
    from analyses.engine.run import Ledger

CONNECT = 10.0
"""Seconds in which a scheduler must answer."""
POLL = 0.5
_one_at_a_time = threading.Lock()


def connect(scheduler: str, cell: Cell) -> Any:
    """A `distributed.Client` of the scheduler, whose workers of now have been asked for the cell's function.

    Raises:
        BoolensError: dask[distributed] is missing, no scheduler answers, or a worker lacks the function or has it in
            another schema.
    """
    try:
        from distributed import Client
    except ImportError:
        raise BoolensError("--scheduler needs dask[distributed]; pip install 'boolens[cluster]'") from None
    try:
        client: Any = Client(scheduler, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BoolensError(
            f"no Dask scheduler answers at {scheduler} ({error}); start one with `dask scheduler`, or leave it out"
        ) from None
    answers = client.run(schema_here, cell.compute, on_error="return")
    for worker, answer in answers.items():
        if answer != cell.schema:
            client.close()
            raise BoolensError(
                f"worker {worker} has schema {answer!r} of {cell.compute}, this client {cell.schema} (boolens "
                f"{version('boolens')}); install the same boolens there"
            )
    return client


def schema_here(compute: str) -> int:
    return find_compute(compute)[1]


def compute_there(cell: Cell) -> list[Row]:
    """On a worker: one cell at a time in a process, with one thread of torch; cells run beside each other instead."""
    import torch

    schema = schema_here(cell.compute)
    if schema != cell.schema:  # a worker that joined later
        raise BoolensError(f"this worker has schema {schema} of {cell.compute}, not {cell.schema}; install the same")
    with _one_at_a_time:
        torch.set_num_threads(1)
        return compute_cell(cell)


def run_on(client: Any, ledger: "Ledger") -> None:
    """Keep one cell a worker in flight. A cell whose worker dies is run on another; one that outlives none of several
    (the scheduler's `allowed-failures`, 3) is recorded as failed.

    Raises:
        BoolensError: the scheduler has gone.
    """
    from distributed import Future, wait

    flying: dict[Future, Cell] = {}
    try:
        while (missing := ledger.look()) or flying:
            if client.status != "running":
                raise BoolensError("the Dask scheduler has gone; finished cells are kept, run again for the rest")
            aloft = {cell.key for cell in flying.values()}
            free = max(1, len(client.nthreads())) - len(flying)
            for cell in missing:
                if free > 0 and cell.key not in aloft and ledger.take(cell):
                    name = f"{cell.key}-{ledger.folder.token}"
                    flying[client.submit(compute_there, cell, key=name, pure=False, retries=0)] = cell
                    free -= 1
            ledger.tell({}, f"{len(flying)} on {len(client.nthreads())} workers")
            if not flying:
                time.sleep(POLL)
                continue
            try:
                with client.as_current():
                    waited: Any = wait(list(flying), timeout=POLL, return_when="FIRST_COMPLETED")
            except TimeoutError:
                continue
            for future in waited.done:
                cell = flying.pop(future)
                if future.status == "finished":
                    ledger.land(cell, future.result())
                elif future.status == "error":
                    ledger.fail(cell, future.exception())
                else:
                    raise BoolensError("the Dask scheduler has gone; finished cells are kept, run again for the rest")
    finally:
        if flying and client.status == "running":
            client.cancel(list(flying))
