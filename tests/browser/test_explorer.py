"""The explorer in Chromium: what it shows is what PyTorch and interp.interventions compute for the same state."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses.results import load_analysis, run_analysis
from analyses.runs import Run
from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig
from interp.hooks import run as run_model
from interp.interventions import Patch, RemoveKey, intervene
from interp.models import build_model
from interp.readout import direct_readout
from interp.recovery import PATTERN
from interp.seeds import torch_generator
from tasks import RuleAnd, SparseAnd
from tests.browser.explorer_page import Explorer, explorer_page, logit_of, number
from tests.hand_set import hand_set
from tests.run_folders import write_run

CONFIGS: dict[str, ModelConfig] = {
    "attention": AttentionConfig(n_ctx=7, n_heads=2, d_model=5, d_head=3, d_value=4, bias=True),
    "one head": AttentionConfig(n_ctx=6, d_model=5, d_head=3, bias=True),
    "cls": ClsConfig(n_ctx=6, n_heads=3, d_model=12, d_head=4, d_mlp=9),
    "mlp": MLPConfig(n_ctx=6, d_mlp=17),
    "linear": LinearConfig(n_ctx=5),
}


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[[str], Run]:
    """From a name in CONFIGS to a run of a network whose weights are drawn, with an AND of positions 1 and 3."""

    def make(name: str) -> Run:
        model, generator = build_model(CONFIGS[name]).eval(), torch_generator(3, "init")
        for parameter in model.parameters():
            parameter.data.normal_(0, 0.7, generator=generator)
        return write_run(tmp_path / name, model, SparseAnd(model.cfg.n_ctx, (1, 3)))

    return make


@pytest.fixture
def explore(open_page: Callable[..., Any]) -> Callable[..., Explorer]:
    """From a run to its explorer on a page of its own."""
    return lambda run, **window: Explorer(open_page(explorer_page(run), **window))


@pytest.mark.parametrize("name", CONFIGS)
def test_clicked_bits_give_pytorchs_logit_and_every_flip_its_exact_move(
    name: str, run_of: Callable[[str], Run], explore: Callable[..., Explorer]
) -> None:
    run = run_of(name)
    shown = explore(run)
    for pos in (0, 3, 1, 3, 4):
        was, x = shown.logit, shown.bits()
        shown.bit(pos).click()
        x[0, pos] = 1 - x[0, pos]
        assert torch.equal(shown.bits(), x)
        assert shown.bit(pos).get_attribute("aria-pressed") == str(bool(x[0, pos])).lower()
        logit = logit_of(run, x)
        assert shown.logit == pytest.approx(logit, abs=1e-5)
        assert shown.part("answer").inner_text() == str(logit > 0)
        assert f"was {was:+.2f}".replace("-", "−") in shown.part("move").inner_text() or abs(was) < 0.1
        label = bool(run.task.label(x))
        words = f"{'right' if label == (logit > 0) else 'wrong'}: the label is {label}"
        assert shown.part("verdict").inner_text() == words
        flipped = x.repeat(x.shape[1], 1) ^ torch.eye(x.shape[1], dtype=x.dtype)
        moves = (run.model(flipped).detach() - logit).tolist()
        assert shown.bars("flip") == pytest.approx(moves, abs=1e-5)
        assert shown.detail("flip") == pytest.approx(moves[pos], abs=1e-5)
    assert shown.bit(3).get_attribute("aria-label") == f"bit 3, target, is {x[0, 3]}"
    assert shown.bit(4).get_attribute("aria-label") == f"bit 4, is {x[0, 4]}"


@pytest.mark.parametrize("name", ["attention", "one head", "cls"])
def test_interventions_show_what_intervene_computes(
    name: str, run_of: Callable[[str], Run], explore: Callable[..., Explorer]
) -> None:
    run = run_of(name)
    shown = explore(run)
    cls, one_head = name == "cls", name == "one head"
    head = None if one_head else 1
    if head is not None:
        shown.part("head").select_option("1")
    shown.bit(2).click()
    start, pos = shown.bits(), 2
    plain = shown.logit
    removal = logit_of(run, start, RemoveKey(pos, head=head)) - plain
    assert shown.detail("removal") == pytest.approx(removal, abs=1e-5)
    shown.act("remove")
    remove = RemoveKey(pos, head=head)
    assert shown.logit == pytest.approx(logit_of(run, start, remove), abs=1e-5)
    assert shown.unedited == pytest.approx(plain)
    assert number(shown.part("without").inner_text().split(": ")[1]) == pytest.approx(plain, abs=0.006)

    shown.act("freeze")
    shown.bit(2).click()
    shown.bit(0).click()
    x = shown.bits()
    row = 0 if cls else pos
    _, at_start = intervene(run.model, start, [remove], record=[PATTERN])  # as it was, without the removed key
    frozen = Patch(PATTERN, values=at_start[PATTERN], dest=row, head=head)
    assert shown.logit == pytest.approx(logit_of(run, x, remove, frozen), abs=1e-5)
    assert shown.unedited == pytest.approx(logit_of(run, x), abs=1e-5)

    if head is not None:
        shown.part("head").select_option("0")
    shown.bit(4).click()
    shown.act("patch")
    x, second = shown.bits(), shown.bits("second")
    assert second.tolist() == [[bit ^ (pos in (1, 3)) for pos, bit in enumerate(x[0].tolist())]]
    other = Patch(PATTERN, source=second, dest=0 if cls else 4, head=None if one_head else 0)
    assert shown.logit == pytest.approx(logit_of(run, x, remove, frozen, other), abs=1e-5)
    shown.bit(5, "second").click()
    second[0, 5] = 1 - second[0, 5]
    assert torch.equal(shown.bits("second"), second)
    other = Patch(PATTERN, source=second, dest=0 if cls else 4, head=None if one_head else 0)
    expected = logit_of(run, x, remove, frozen, other)
    assert shown.logit == pytest.approx(expected, abs=1e-5)
    assert abs(expected - logit_of(run, x, remove, frozen)) > 1e-4
    assert len(shown.edits()) == 3
    shown.page.get_by_role("button", name="Undo: Key 2 removed").click()
    assert shown.logit == pytest.approx(logit_of(run, x, frozen, other), abs=1e-5)
    shown.act("clear")
    assert shown.edits() == []
    assert shown.logit == pytest.approx(logit_of(run, x), abs=1e-5)


def test_all_rows_patched_leave_the_second_inputs_pattern_and_the_first_ones_values(
    run_of: Callable[[str], Run], explore: Callable[..., Explorer]
) -> None:
    run = run_of("attention")
    shown = explore(run)
    shown.act("patch-all")
    x, second = shown.bits(), shown.bits("second")
    whole = Patch(PATTERN, source=second)
    assert shown.logit == pytest.approx(logit_of(run, x, whole), abs=1e-5)
    shown.page.get_by_role("button", name="copy first").click()
    assert torch.equal(shown.bits("second"), x)
    assert shown.logit == pytest.approx(logit_of(run, x), abs=1e-5)
    shown.page.get_by_role("button", name="flip targets").click()
    assert shown.logit == pytest.approx(logit_of(run, x, whole), abs=1e-5)


@pytest.mark.parametrize("name", ["attention", "cls"])
def test_bars_and_details_are_the_effective_attention_and_contributions(
    name: str, run_of: Callable[[str], Run], explore: Callable[..., Explorer]
) -> None:
    run = run_of(name)
    shown = explore(run)
    x = shown.bits()
    _, cache = run_model(run.model, x, record=[PATTERN, "blocks.0.attn.hook_v"])
    pattern, values = cache[PATTERN][0], cache["blocks.0.attn.hook_v"][0]
    model: Any = run.model
    readout = direct_readout(model, x)
    readout = readout[0] if readout.ndim == 4 else readout
    effective = torch.einsum("hqk,qhd->hkd", pattern, readout)
    contribution = torch.einsum("hkd,khd->hk", effective, values)
    assert shown.bars("effective") == pytest.approx(effective.sum(dim=(0, 2)).tolist(), abs=1e-5)
    assert shown.bars("contribution") == pytest.approx(contribution.sum(dim=0).tolist(), abs=1e-5)
    shown.part("head").select_option("1")
    assert shown.bars("contribution") == pytest.approx(contribution[1].tolist(), abs=1e-5)
    shown.bit(4).hover()
    assert shown.detail("attention") == pytest.approx(float(pattern[1, :, 4].mean()), abs=1e-5)
    assert shown.detail("effective") == pytest.approx(float(effective[1, 4].sum()), abs=1e-5)
    assert shown.detail("contribution") == pytest.approx(float(contribution[1, 4]), abs=1e-5)


def test_the_rule_switch_moves_the_selection(explore: Callable[..., Explorer], tmp_path: Path) -> None:
    """Only the last position's query is read, and it attends to the targets of the rule that its bit names."""
    key, rules = 30 * math.sqrt(2), ((1, 4), (0, 5))
    model = hand_set(
        AttentionConfig(n_ctx=7, d_model=3, d_head=2, bias=True),
        W_E=[[0, 0, 0], [1, 0, 0]],
        W_pos=[[0, int(pos in rules[0]), int(pos in rules[1])] for pos in range(7)],
        W_Q=[[[-1, 1], [0, 0], [0, 0]]],
        b_Q=[[1, 0]],
        W_K=[[[0, 0], [key, 0], [0, key]]],
        W_V=[[[1], [0], [0]]],
        W_readout=[[[20 * (pos == 6)]] for pos in range(7)],
        b_readout=-15,
    )
    shown = explore(write_run(tmp_path / "rule", model.float(), RuleAnd(7, rules)))
    for rule in (1, 0, 1):
        shown.page.locator(f'[data-ex="rules"] input[value="{rule}"]').check()
        effective = shown.bars("effective")
        assert {pos for pos in range(7) if effective[pos] > 5} == set(rules[rule])
        assert shown.bits()[0, 6] == rule
        roles = [shown.bit(pos).get_attribute("data-role") for pos in range(7)]
        assert [pos for pos in range(7) if roles[pos] == "target"] == sorted(rules[rule])
        assert roles[6] == "rule"


def test_the_counterexample_is_answered_wrongly_and_the_page_says_so(
    run_of: Callable[[str], Run], explore: Callable[..., Explorer]
) -> None:
    run = run_of("one head")
    certificate = run_analysis(load_analysis("certificate"), run, figures=False)
    assert certificate is not None
    shown = explore(run)
    shown.page.get_by_role("button", name="all ones").click()
    assert shown.bits().tolist() == [[1] * 6]
    shown.page.locator('[data-kind="counterexample"]').click()
    x = shown.bits()
    answer, label = logit_of(run, x) > 0, bool(run.task.label(x))
    assert answer != label
    assert shown.part("verdict").get_attribute("data-kind") == "wrong"
    told = f"The certificate's counterexample: the label is {label}, the model answers {answer}."
    assert shown.part("loaded").inner_text().startswith(told)
    shown.bit(0).click()
    assert "changed at 0" in shown.part("loaded").inner_text()
