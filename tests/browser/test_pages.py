"""The fixture that opens pages sees what it must: otherwise no browser test could fail on a page's errors."""

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("console.error('told')", "console: told"),
        ("throw new Error('thrown')", "uncaught: thrown"),
        ("Promise.reject(new Error('rejected'))", "uncaught: rejected"),
        ("new Image().src = 'http://127.0.0.1:9/pixel.png'", "request: http://127.0.0.1:9/pixel.png"),
        ("new Image().src = 'beside.png'", "/beside.png"),
    ],
)
def test_what_a_page_reports_is_a_problem(script: str, problem: str, open_page: Any) -> None:
    page = open_page(f"<!doctype html><meta charset='utf-8'><script>{script}</script>")
    page.wait_for_load_state("networkidle")
    assert any(found.endswith(problem) for found in open_page.problems), open_page.problems
    open_page.problems.clear()


def test_a_page_without_problems_may_follow_links_to_files_and_hold_data(open_page: Any, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text("<!doctype html><title>other</title>", encoding="utf-8")
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
    page = open_page(f"<!doctype html><img alt='' src='{pixel}'><a href='other.html'>other</a>", 390, 844, "dark")
    assert page.viewport_size == {"width": 390, "height": 844}
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    page.click("a")
    page.wait_for_url("**/other.html")
    assert page.title() == "other"
    assert open_page.problems == []
