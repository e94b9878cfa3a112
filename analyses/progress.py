"""One progress bar, on a terminal only, and only for work that takes longer than two seconds."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

PATIENCE = 2.0


class Bar:
    """Shows itself once PATIENCE seconds have passed."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.started = self.drawn = time.monotonic()
        self.progress: Progress | None = None

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
        if self.progress is None:
            said = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
            columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn(), said)  # the words give way
            self.progress = Progress(*columns, console=Console(stderr=True), transient=True, expand=True)
            self.progress.add_task(self.what, total=self.total)
            self.progress.start()
        self.progress.update(self.progress.task_ids[0], completed=self.done, description=self.what)


@contextmanager
def progress_bar(total: int, what: str) -> Iterator[Bar]:
    """A bar for `total` units of work, taken down at the end."""
    bar = Bar(total, what)
    try:
        yield bar
    finally:
        if bar.progress is not None:
            bar.progress.stop()
