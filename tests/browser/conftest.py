"""Pages in headless Chromium: opened as files, without a network; the test fails on any error that they report."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing(what: str) -> NoReturn:
    """Skip, but in CI, where the browser tests must run, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and CI is set: the browser tests must run there", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium, started once a file: while Playwright runs, nothing else in this thread can run an event loop."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed (pip install playwright)")
    if not CHROMIUM.exists():
        missing(f"there is no {CHROMIUM} (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Pages:
    """Opens pages, each in a window of its own, and keeps what goes wrong on them.

    Attributes:
        problems: errors on the console, uncaught exceptions, and requests for anything but the file itself, what is
            within it, or another file to which a link was followed.
    """

    def __init__(self, browser: "Browser", folder: Path) -> None:
        self.problems: list[str] = []
        self.contexts = []
        self._browser, self._folder = browser, folder

    def __call__(
        self, page: str | Path, width: int = 1280, height: int = 900, theme: Literal["light", "dark"] = "light"
    ) -> "Page":
        """The page of some HTML, or of a file."""
        path = page if isinstance(page, Path) else self._folder / f"page-{len(self.contexts)}.html"
        if isinstance(page, str):
            path.write_text(page, encoding="utf-8")
        context = self._browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        self.contexts.append(context)
        opened = context.new_page()
        opened.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        opened.on("console", self._on_console)
        opened.on("request", self._on_request)
        opened.goto(path.resolve().as_uri())
        return opened

    def _on_console(self, message: "ConsoleMessage") -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request: "Request") -> None:
        inside = request.url.startswith(("data:", "blob:"))
        followed = request.url.startswith("file:") and request.is_navigation_request()
        if not (inside or followed):
            self.problems.append(f"request: {request.url[:200]}")


@pytest.fixture
def open_page(browser: "Browser", tmp_path: Path) -> Iterator[Pages]:
    """From HTML, or the path of a file, to the page; at the end the test fails if a page had a problem."""
    pages = Pages(browser, tmp_path)
    yield pages
    for context in pages.contexts:
        context.close()
    assert not pages.problems, "\n".join(pages.problems)
