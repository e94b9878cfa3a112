"""One progress bar, on a terminal only, and only for work that takes longer than two seconds."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

PATIENCE = 2.0
WAITING = "{} (compiles on first use)"
"""Said until the first unit is done: until then nothing tells long work from compiling."""


class Bar:
    """Shows itself once PATIENCE seconds have passed."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.started = self.drawn = time.monotonic()
        self.progress: Progress | None = None
        self.lock = threading.Lock()

    def reach(self, share: float, what: str | None = None) -> None:
        """Count units until this share of all of them is done."""
        self.advance(round(self.total * share) - self.done, what)

    def advance(self, n: int = 1, what: str | None = None) -> None:
        """Count n units as done; `what` replaces the description."""
        self.done += n
        self.what = what or self.what
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self.started < PATIENCE or now - self.drawn < 0.1:
            return
        self.drawn = now
        self.show()

    def show(self) -> None:
        """Draw what is known now."""
        with self.lock:
            if self.progress is None:
                text = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
                columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn(), text)  # text gives way
                self.progress = Progress(*columns, console=Console(stderr=True), transient=True, expand=True)
                self.progress.add_task(self.what, total=self.total)
                self.progress.start()
            said = self.what if self.done else WAITING.format(self.what)
            self.progress.update(self.progress.task_ids[0], completed=self.done, description=said)


@contextmanager
def progress_bar(total: int, what: str) -> Iterator[Bar]:
    """A bar for `total` units of work, taken down at the end."""
    bar = Bar(total, what)
    waiting = threading.Timer(PATIENCE, bar.show)  # work that says nothing for so long
    waiting.daemon = True
    if sys.stderr.isatty():
        waiting.start()
    try:
        yield bar
    finally:
        waiting.cancel()
        if waiting.ident is not None:
            waiting.join()
        if bar.progress is not None:
            bar.progress.stop()
