"""A bar on terminals only, and only once the work has taken two seconds."""

import sys
import time

import pytest

from analyses import progress
from analyses.progress import progress_bar


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the bar sees."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_nothing_where_there_is_no_terminal(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(3, "working") as bar:
        for _ in range(3):
            clock[0] += 10
            bar.advance()
        assert bar.progress is None
        assert bar.done == 3
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_on_a_terminal_after_two_seconds(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar(9, "working") as bar:
        for seconds, shown in ((0.5, False), (1.9, False), (2.1, True)):
            clock[0] = seconds
            bar.advance(2, f"at {seconds}")
            assert (bar.progress is not None) == shown
        assert bar.progress is not None
        (task,) = bar.progress.tasks
        assert (task.completed, task.total, task.description) == (6, 9, "at 2.1")
        clock[0] = 2.15  # drawn at most ten times a second
        bar.advance()
        assert task.completed == 6
        assert bar.progress.live.is_started
    assert not bar.progress.live.is_started


def test_is_taken_down_after_an_exception(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(ZeroDivisionError), progress_bar(9, "working") as bar:  # noqa: PT012
        clock[0] = 5
        bar.advance()
        raise ZeroDivisionError
    assert bar.progress is not None
    assert not bar.progress.live.is_started


def test_appears_by_itself_where_nothing_is_counted_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes many seconds inside one call."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    with progress_bar(9, "working") as bar:
        time.sleep(1)
        assert bar.progress is not None
        (task,) = bar.progress.tasks
        assert (task.completed, task.description) == (0, "working (compiles on first use)")
        bar.advance()
        assert (task.completed, task.description) == (1, "working")
    assert not bar.progress.live.is_started
