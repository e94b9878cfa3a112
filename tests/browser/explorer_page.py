"""The explorer alone on a page, and a handle on it that reads and works it as a person does."""

import warnings
from typing import Any

import torch

from analyses.report.explorer import explorer_payload
from analyses.report.render import environment
from analyses.runs import Run
from interp.interventions import Intervention, UnchangedWarning, intervene

DARK = "--bg: #14171b; --surface: #1d2228; --text: #e6e9ed; --muted: #a2abb6; --line: #363e48"


def logit_of(run: Run, x: torch.Tensor, *interventions: Intervention) -> float:
    """What PyTorch answers on x [1, pos] under interventions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)
        return float(intervene(run.model, x, list(interventions))[0])


def explorer_page(run: Run) -> str:
    """A page with nothing but the explorer of a run."""
    explorer = environment().get_template("explorer.html.j2").render(explorer=explorer_payload(run))
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>explorer</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>body {{ margin: 16px; background: var(--bg, #fff) }} :root[data-theme=dark] {{ {DARK} }}"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {DARK} }} }}</style>"
        f"<section id='explorer'><h2>Live explorer</h2>{explorer}</section></html>"
    )


class Explorer:
    """An open page's explorer."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def part(self, name: str) -> Any:
        return self.page.locator(f'[data-ex="{name}"]')

    @property
    def logit(self) -> float:
        """In full precision; what is written is checked against it."""
        logit = float(self.part("output").get_attribute("data-logit"))
        assert abs(number(self.part("logit").inner_text()) - logit) <= 0.005 + abs(logit) * 0.05
        return logit

    @property
    def unedited(self) -> float | None:
        text = self.part("output").get_attribute("data-unedited")
        return float(text) if text else None

    def bit(self, pos: int, row: str = "bits") -> Any:
        return self.part(row).locator("button").nth(pos)

    def bits(self, row: str = "bits") -> torch.Tensor:
        """The row of bits as [1, pos]."""
        digits = self.part(row).locator(".ex-digit").all_inner_texts()
        return torch.tensor([[int(digit) for digit in digits]])

    def bars(self, row: str) -> list[float]:
        """The values over the positions in one row of bars."""
        bars = self.page.locator(f'[data-row="{row}"] rect')
        return [float(value) for value in bars.evaluate_all("bars => bars.map((bar) => bar.dataset.value)")]

    def detail(self, name: str) -> float:
        return float(self.page.locator(f'[data-value="{name}"]').get_attribute("data-number"))

    def act(self, name: str) -> None:
        self.page.locator(f'[data-act="{name}"]').click()

    def edits(self) -> list[str]:
        return self.part("edits").locator("li > span").all_inner_texts()

    @property
    def notice(self) -> str:
        return self.part("notice").inner_text() if self.part("notice").is_visible() else ""


def number(text: str) -> float:
    return float(text.replace("−", "-"))
