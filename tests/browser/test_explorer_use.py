"""The explorer by keyboard, in its address, in both themes and on a phone."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses.runs import Run
from interp.config import AttentionConfig, ClsConfig, MLPConfig, ModelConfig
from interp.interventions import Patch, RemoveKey
from interp.models import build_model
from interp.recovery import PATTERN
from interp.seeds import torch_generator
from tasks import SparseAnd
from tests.browser.explorer_page import Explorer, explorer_page, logit_of
from tests.run_folders import write_run


def drawn_run(folder: Path, cfg: ModelConfig) -> Run:
    model, generator = build_model(cfg).eval(), torch_generator(5, "init")
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.7, generator=generator)
    return write_run(folder, model, SparseAnd(cfg.n_ctx, (1, 3)))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return drawn_run(tmp_path / "run", AttentionConfig(n_ctx=6, n_heads=2, d_model=5, d_head=3, bias=True))


@pytest.fixture
def shown(run: Run, open_page: Callable[..., Any]) -> Explorer:
    return Explorer(open_page(explorer_page(run)))


def focused(shown: Explorer) -> str:
    """What names the element that has the focus."""
    return shown.page.evaluate(
        "() => { const at = document.activeElement; return at.ariaLabel || at.innerText || at.dataset.ex || ''; }"
    )


def tab_to(shown: Explorer, what: str) -> None:
    for _ in range(40):
        shown.page.keyboard.press("Tab")
        if re.match(what, focused(shown)):
            return
    raise AssertionError(f"Tab never reached {what}")


def test_everything_can_be_done_by_keyboard(shown: Explorer, run: Run) -> None:
    press = shown.page.keyboard.press
    tab_to(shown, "bit 1, target")  # the selected bit
    start = shown.bits()
    press("ArrowRight")
    assert focused(shown).startswith("bit 2")
    press("Space")
    x = start.clone()
    x[0, 2] = 1 - x[0, 2]
    assert torch.equal(shown.bits(), x)
    for key, pos in (("End", 5), ("ArrowLeft", 4), ("Home", 0), ("ArrowLeft", 0), ("ArrowRight", 1)):
        press(key)
        assert focused(shown).startswith(f"bit {pos}")
    assert shown.part("name").inner_text() == "Position 1"
    assert shown.part("bits").locator('[tabindex="0"]').count() == 1

    tab_to(shown, "Remove key 1")
    press("Enter")
    expected = logit_of(run, x, RemoveKey(1))
    assert shown.logit == pytest.approx(expected, abs=1e-5)
    tab_to(shown, "Freeze row 1")
    press("Space")
    tab_to(shown, "Patch all rows")
    press("Enter")
    whole = Patch(PATTERN, source=shown.bits("second"))
    assert shown.logit == pytest.approx(logit_of(run, x, RemoveKey(1), whole), abs=1e-5)
    tab_to(shown, "Clear all")
    press("Enter")
    assert shown.logit == pytest.approx(logit_of(run, x), abs=1e-5)
    assert focused(shown).startswith("bit 1")

    press("r")
    assert shown.edits() == ["Key 1 removed · all heads"]
    press("r")
    assert shown.edits() == []
    tab_to(shown, "Matrix")
    press("ArrowDown")
    press("ArrowRight")
    assert "query 2 to key 2" in focused(shown)
    press("f")
    assert shown.edits()[0].startswith("Frozen row 2")


def test_a_copied_address_opens_the_same_state(
    shown: Explorer, run: Run, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    shown.part("head").select_option("1")
    shown.bit(4).click()
    shown.act("remove")
    shown.act("freeze")
    shown.bit(0).click()
    shown.part("head").select_option("")
    shown.act("patch")
    shown.bit(5, "second").click()
    shown.page.locator('[name="ex-view"][value="scores"]').check()
    shown.part("copy").click()
    address = shown.page.evaluate("location.href")
    fragment = address.split("#")[1]
    assert fragment.startswith("explorer&bits=")
    assert all(f"&{name}=" in fragment for name in ("second", "view", "removed", "frozen", "patched", "at"))
    assert re.search(r"&frozen=4\.1:[01]{6}:4\.1&", fragment)  # with the key that was removed then
    again = Explorer(open_page(explorer_page(run)))
    again.page.evaluate("(fragment) => { location.hash = fragment; }", fragment)
    again.page.wait_for_function(f"document.querySelector('[data-ex=output]').dataset.logit === '{shown.logit!r}'")
    again.page.reload()
    for other in (again, Explorer(again.page)):
        assert other.logit == shown.logit
        assert other.edits() == shown.edits()
        assert len(other.edits()) == 3
        assert torch.equal(other.bits("second"), shown.bits("second"))
        assert other.page.locator('[value="scores"]').is_checked()


@pytest.mark.parametrize(
    ("fragment", "reason"),
    [
        ("nowhere", "no state of the explorer"),
        ("explorer&bits=01", "must be 6 digits"),
        ("explorer&bits=01210x", "must be 6 digits"),
        ("explorer&head=1", "bits are missing"),
        ("explorer&bits=010101&head=2", "from 0 to 1"),
        ("explorer&bits=010101&view=both", "must be pattern or scores"),
        ("explorer&bits=010101&removed=6", "from 0 to 5"),
        ("explorer&bits=010101&removed=all", "leaves nothing to attend to"),
        ("explorer&bits=010101&removed=0,1,2,3,4,5.1,5.0", "leaves nothing to attend to"),
        ("explorer&bits=010101&frozen=3", "must be row:bits"),
        ("explorer&bits=010101&frozen=3:010101:6", "from 0 to 5"),
        ("explorer&bits=010101&frozen=3:010101:0+1+2+3+4+5", "leaves nothing to attend to"),
        ("explorer&bits=010101&patched=3", "need a second input"),
        ("explorer&bits=010101&bits=010101", "given twice"),
        ("explorer&bits=010101&colour=red", "is unknown"),
        ("explorer&bits=%E0%A4%A", "URI malformed"),
    ],
)
def test_a_malformed_address_is_told_and_changes_nothing(fragment: str, reason: str, shown: Explorer) -> None:
    before, bits = shown.logit, shown.bits()
    shown.page.evaluate("(fragment) => { location.hash = fragment; }", fragment)
    shown.part("notice").wait_for(state="visible")
    assert reason in shown.notice
    assert shown.logit == before
    assert torch.equal(shown.bits(), bits)
    shown.page.reload()
    assert reason in shown.notice
    shown.bit(0).click()
    assert shown.notice == ""


def test_the_last_key_of_a_query_stays(shown: Explorer) -> None:
    for pos in range(6):
        shown.bit(pos).focus()
        shown.page.keyboard.press("r")
    assert len(shown.edits()) == 5
    assert "last key" in shown.notice


def test_without_a_clipboard_the_address_can_be_copied_by_hand(shown: Explorer) -> None:
    shown.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    shown.part("copy").click()
    field = shown.part("link").locator("input")
    assert "#explorer&bits=" in field.input_value()
    assert shown.page.evaluate("getSelection().toString()") == field.input_value()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize(
    "cfg",
    [AttentionConfig(n_ctx=30), AttentionConfig(n_ctx=100), ClsConfig(n_ctx=30), MLPConfig(n_ctx=30)],
    ids=lambda cfg: f"{cfg.architecture}-{cfg.n_ctx}",
)
def test_nothing_runs_over_the_window(
    cfg: ModelConfig, width: int, height: int, theme: str, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    page = open_page(explorer_page(drawn_run(tmp_path / "run", cfg)), width=width, height=height, theme=theme)
    shown = Explorer(page)
    if cfg.architecture != "mlp":
        shown.act("patch")
        page.locator(".ex-help summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = (
        shown.part("bits")
        .locator("button")
        .evaluate_all("buttons => buttons.map((button) => [button.offsetWidth, button.offsetHeight])")
    )
    assert min(min(size) for size in sizes) >= 24
    picture = tmp_path / f"{cfg.architecture}-{width}-{theme}.png"
    page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000


def test_the_matrix_is_drawn_again_in_another_theme(shown: Explorer) -> None:
    def pixels() -> str:
        return shown.part("matrix").evaluate("canvas => canvas.toDataURL()")

    light = pixels()
    for theme, same in (("dark", False), ("light", True)):
        shown.page.evaluate(
            "(theme) => { document.documentElement.dataset.theme = theme;"
            "document.dispatchEvent(new Event('boolens:theme')); }",
            theme,
        )
        assert (pixels() == light) == same


def test_a_printed_page_says_what_it_is(shown: Explorer) -> None:
    shown.page.emulate_media(media="print")
    bits = "".join(map(str, shown.bits()[0].tolist()))
    assert bits in shown.part("print").inner_text()
    assert shown.part("print").is_visible()
    assert not shown.part("copy").is_visible()
