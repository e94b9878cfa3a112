"""The report in a browser: sorted, switched, read by keyboard and on a phone, printed, followed from page to page."""

from pathlib import Path
from typing import Any

import pytest

from analyses.report.writing import write_report
from analyses.runs import Run
from tests.run_folders import write_run
from tests.unit.analyses.report_cases import write_hostile, write_rule, write_seeds

SIZES = [(1280, 900), (390, 844)]


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = write_rule(tmp_path_factory.mktemp("report") / "rule", write_run)
    write_report(run.path, analyze=False)
    return run


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = write_hostile(tmp_path_factory.mktemp("report") / "table", write_run)
    write_report(run.path, analyze=False)
    return run


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    runs = write_seeds(tmp_path_factory.mktemp("report") / "seeds", write_run)
    write_report(runs[0].path.parent, analyze=False)
    return runs


def column(page: Any, table: str, index: int) -> list[str]:
    return page.locator(f"{table} tbody tr td:nth-child({index})").all_inner_texts()


@pytest.mark.parametrize("which", ["rule", "hostile", "seeds"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_runs_over_the_window(
    request: pytest.FixtureRequest, open_page: Any, tmp_path: Path, which: str, theme: str, width: int, height: int
) -> None:
    made = request.getfixturevalue(which)
    folder = made[0].path.parent if isinstance(made, list) else made.path
    page = open_page(folder / "report.html", width, height, theme)
    for details in page.locator("details").all():
        details.evaluate("element => { element.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[theme]
    broken = page.evaluate("[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length")
    assert broken == 0
    picture = tmp_path / f"{which}-{theme}-{width}.png"
    page.screenshot(path=picture)  # of the window: Chromium cannot take one of a page of 25,000 pixels
    assert picture.stat().st_size > 5000


def test_tables_sort_by_mouse_and_keyboard(rule: Run, open_page: Any) -> None:
    page = open_page(rule.path / "report.html")
    page.locator("#ablation details.table > summary").click()
    table, heads = "#ablation table", page.locator("#ablation thead th")
    names = heads.all_inner_texts()
    effect = names.index("effect") + 1
    before = column(page, table, effect)
    button = heads.nth(effect - 1).locator("button")
    button.click()
    rising = [float(text.replace("\N{MINUS SIGN}", "-")) for text in column(page, table, effect) if text != "–"]
    assert heads.nth(effect - 1).get_attribute("aria-sort") == "ascending"
    assert rising == sorted(rising)
    assert sorted(column(page, table, effect)) == sorted(before)
    button.press("Enter")
    falling = [float(text.replace("\N{MINUS SIGN}", "-")) for text in column(page, table, effect) if text != "–"]
    assert falling == rising[::-1]
    assert heads.nth(effect - 1).get_attribute("aria-sort") == "descending"
    heads.nth(0).locator("button").press("Space")
    assert [head.get_attribute("aria-sort") for head in heads.all()].count(None) == len(names) - 1


def test_the_theme_is_switched_and_told(rule: Run, open_page: Any) -> None:
    page = open_page(rule.path / "report.html")
    page.evaluate("document.addEventListener('boolens:theme', event => { window.told = event.detail; })")
    assert page.locator("#theme").inner_text() == "Dark theme"
    page.locator("#theme").press("Enter")
    assert page.locator("#theme").inner_text() == "Light theme"
    assert page.evaluate("[document.documentElement.dataset.theme, window.told]") == ["dark", "dark"]
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"  # remembered


def test_the_first_key_skips_to_the_verdict(rule: Run, open_page: Any) -> None:
    page = open_page(rule.path / "report.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_every_control_has_a_name_and_a_place_in_the_order(rule: Run, open_page: Any) -> None:
    page = open_page(rule.path / "report.html")
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, a[href], [tabindex="0"], summary')]
            .filter(e => e.getClientRects().length && !(e.textContent.trim() || e.ariaLabel || e.title))
            .filter(e => !e.hasAttribute('aria-labelledby')).map(e => e.outerHTML.slice(0, 120))"""
    )
    assert nameless == []
    assert (
        page.evaluate('document.querySelectorAll(\'[tabindex]:not([tabindex="0"]):not([tabindex="-1"])\').length') == 0
    )


def test_the_explorer_answers_in_the_page(rule: Run, open_page: Any) -> None:
    page = open_page(rule.path / "report.html")
    bits = page.locator("#explorer [aria-pressed][aria-label^='bit']")
    assert bits.count() == 6
    first = bits.first
    before = first.get_attribute("aria-pressed")
    first.click()
    assert first.get_attribute("aria-pressed") != before
    assert "bits=" in page.evaluate("location.hash")


@pytest.mark.parametrize(("theme", "motion"), [("dark", "reduce"), ("light", "no-preference")])
def test_it_prints_in_black_on_white(rule: Run, open_page: Any, theme: str, motion: str) -> None:
    page = open_page(rule.path / "report.html", theme=theme)
    page.emulate_media(media="print", color_scheme=theme, reduced_motion=motion)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert not page.locator(".toc").is_visible()
    assert page.locator("#verdict").is_visible()
    assert page.locator("#samples img").is_visible()
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")


def test_seeds_are_reached_from_the_overview_and_lead_back(seeds: list[Run], open_page: Any) -> None:
    page = open_page(seeds[0].path.parent / "report.html")
    page.locator("#seeds table a").nth(1).click()
    page.wait_for_url("**/seed-000001/report.html")
    assert "seed 1" in page.locator("h1").inner_text()
    page.locator("header a.back").click()
    page.wait_for_url("**/seeds/report.html")
    assert page.locator("#seeds tbody tr").count() == len(seeds)
