"""The analyses of many runs, in this process or in several; results do not depend on how many."""

import gc
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import groupby
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, NoReturn

import torch

from analyses.progress import Bar, progress_bar
from analyses.results import Analysis, Result, load_analysis, run_analysis
from analyses.runs import N_INPUTS, Run
from interp.errors import BoolensError
from interp.threads import ONE_THREAD_BELOW, suited_threads

KEPT = ("target-recovery", "variable-creation")
"""Analyses whose results tables over runs are made of; the others' are only written, for circuits are large."""
PIECES_A_PROCESS = 12
"""Fewest analyses of a run that pay for starting a process: its imports alone take some seconds."""

NUMPY_THREADS = "OPENBLAS_NUM_THREADS"

Work = Sequence[tuple[Run, Analysis]]
ByRun = Sequence[tuple[Run, Sequence[Analysis]]]


def default_jobs(runs: int, pieces: int, n_elements: int, big: int) -> int:
    """How many processes suit: one for a single run, else one a core, as far as there is enough to do for each.

    Args:
        runs: number of runs.
        pieces: number of pairs of a run and an analysis.
        n_elements, big: elements of the largest activation; from `big` on, every analysis is work enough.
    """
    if runs < 2:
        return 1
    return max(1, min(n_cores(), pieces if n_elements >= big else pieces // PIECES_A_PROCESS))


def analyse_all(
    runs: Sequence[Run], work: Work, options: Any = None, jobs: int | None = None, *, figures: bool = True
) -> list[Result | None]:
    """`run_all` with a progress bar, and with as many processes and threads as suit.

    Args:
        runs: all of the folder's; of several each has one thread, however many processes.
        work: pairs of these runs and analyses.
        options: what `compute` takes beside the run, or None.
        jobs: number of processes; None for what suits.
        figures: whether to draw them.

    Raises:
        BoolensError, TaskError: as `run_all`.
    """
    widest = max(N_INPUTS * run.task.n_rules * run.task.n_ctx**2 for run in runs)
    if jobs is None:
        jobs = default_jobs(len({run.path for run, _ in work}), len(work), widest, ONE_THREAD_BELOW)
    with progress_bar(len(work), "analysing") as bar, suited_threads(widest if len(runs) == 1 else 0):
        return run_all(work, options, jobs, bar, figures=figures)


def n_cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def run_all(work: Work, options: Any, jobs: int, bar: Bar, *, figures: bool = True) -> list[Result | None]:
    """Compute, draw and save each analysis of each run; gives the results of KEPT, in the order of `work`.

    Every process computes with as many threads as this one, so that sums are made in the same order. Where analyses
    fail, the error is that of the first in the order of `work`; those that wait are not begun. Ctrl-C stops all.

    Args:
        work: pairs of a run and an analysis.
        options: what `compute` takes beside the run, or None.
        jobs: number of processes; 1 is this one.
        bar: counts the pairs.
        figures: whether to draw them.

    Raises:
        BoolensError, TaskError: of an analysis; a number of jobs below 1; a process that the system has ended.
    """
    if jobs < 1:
        raise BoolensError(f"{jobs} jobs; at least 1 process is needed, leave --jobs out for one a core")
    by_run = [(run, [analysis for _, analysis in pairs]) for run, pairs in groupby(work, key=lambda pair: pair[0])]
    if jobs > 1 and len(by_run) > 1:
        return _in_processes(by_run, (options, figures), min(jobs, len(by_run)), bar)
    results = []
    gc.freeze()  # looking through all that was imported, again and again, takes a tenth of the time
    try:
        with _quietly():
            for run, analysis in work:
                bar.advance(0, f"{run.path.name}: {analysis.NAME}")
                results.append(_kept(analysis.NAME, run_analysis(analysis, run, options, figures=figures)))
                bar.advance()
    finally:
        gc.unfreeze()
    return results


def _in_processes(work: ByRun, how: tuple[Any, bool], jobs: int, bar: Bar) -> list[Result | None]:
    """A run stays in one process, where its analyses share what they compute."""
    try:
        futures = _futures(work, how, jobs, bar)
        return [result for future in futures for result in future.result()]  # begun in order: the error is the first
    except BrokenProcessPool:
        raise BoolensError(
            f"one of {jobs} processes was ended from outside, most likely for want of memory; take fewer with --jobs"
        ) from None


def _futures(work: ByRun, how: tuple[Any, bool], jobs: int, bar: Bar) -> list[Future[list[Result | None]]]:
    """All of them, when all are done, or those that had begun when one failed; the processes have ended."""
    others = set(active_children())
    threads = torch.get_num_threads()
    named = [(run, [analysis.NAME for analysis in analyses]) for run, analyses in work]
    given = (threads, {name for _, names in named for name in names})
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start, given)
    try:
        with _numpy_threads(threads):
            futures = {pool.submit(_analyse, run.path, names, *how): (run, names) for run, names in named}
        for future in as_completed(futures):
            if future.exception() is not None:
                break
            run, names = futures[future]
            bar.advance(len(names), run.path.name)
        return list(futures)
    except BaseException:
        for process in set(active_children()) - others:
            if process.pid is not None:
                with suppress(ProcessLookupError):  # Ctrl-C reaches them anyway, a signal to this process does not
                    os.kill(process.pid, signal.SIGINT)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _numpy_threads(n: int) -> Iterator[None]:
    """Processes that are started here give numpy's matrix products so many threads, if the user has not said."""
    if NUMPY_THREADS in os.environ:
        yield
        return
    os.environ[NUMPY_THREADS] = str(n)
    try:
        yield
    finally:
        del os.environ[NUMPY_THREADS]


def _start(threads: int, names: set[str]) -> None:
    """In a new process: Ctrl-C is heard only while there is something to stop, and the parent's end is its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    threading.Thread(target=_follow_parent, daemon=True).start()
    for name in names:
        load_analysis(name)
    gc.freeze()


def _follow_parent() -> NoReturn:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _analyse(path: Path, names: Sequence[str], options: Any, figures: bool) -> list[Result | None]:
    signal.signal(signal.SIGINT, _stop)
    run = Run(path)
    try:
        with _quietly():
            return [_kept(name, run_analysis(load_analysis(name), run, options, figures=figures)) for name in names]
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _stop(*_: Any) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not disturb what the first one cleans up
    raise KeyboardInterrupt


def _kept(name: str, result: Result) -> Result | None:
    return result if name in KEPT else None


@contextmanager
def _quietly() -> Iterator[None]:
    """Cells that nothing changes or that are undefined are 0 and NaN in the results; no need to say so too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
