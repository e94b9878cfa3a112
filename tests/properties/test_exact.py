"""Properties of the exact engine that hold for any weights, sizes and inputs."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.config import AttentionConfig
from interp.exact import exact_sweep
from interp.exact_keys import exact_remove_key
from interp.hooks import run
from interp.interventions import UnchangedWarning
from interp.models import HookedAttention
from tests.unit.interp.exact_cases import EMBED, HOOKS, PATTERN, POS_EMBED, SCORES, V, Z, hooked_sweep, overs

few = settings(max_examples=25, deadline=None)


@st.composite
def cases(draw: st.DrawFn, least_ctx: int = 1) -> tuple[HookedAttention, Tensor, Tensor]:
    """A float64 model of small sizes, and clean and corrupted inputs; weights may give scores of hundreds."""
    cfg = AttentionConfig(
        n_ctx=draw(st.integers(least_ctx, 5)),
        d_model=draw(st.integers(1, 4)),
        n_heads=draw(st.integers(1, 3)),
        d_head=draw(st.integers(1, 3)),
        d_value=draw(st.integers(1, 3)),
        positions=draw(st.sampled_from(["learned", "sinusoidal"])),
        bias=draw(st.booleans()),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    model = HookedAttention(cfg).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, draw(st.sampled_from([0.01, 1.0, 4.0])), generator=generator)
    batch = draw(st.integers(1, 4))
    clean, corrupted = (torch.randint(2, (batch, cfg.n_ctx), generator=generator) for _ in range(2))
    return model, clean, corrupted


@few
@given(cases(), st.sampled_from(HOOKS), st.data())
def test_patching_from_another_input_is_one_hooked_run_a_cell(case, hook: str, data: st.DataObject) -> None:
    model, clean, corrupted = case
    values = run(model, clean, record=[hook])[1][hook]
    over = data.draw(st.sampled_from(overs(hook)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)
        swept = exact_sweep(model, corrupted, hook, values, over)
    plain = hooked_sweep(model, corrupted, hook, values, over)
    torch.testing.assert_close(swept, plain, rtol=1e-8, atol=1e-8)


@few
@given(cases(), st.sampled_from(HOOKS), st.data())
def test_patching_a_run_into_itself_changes_nothing_bit_for_bit(case, hook: str, data: st.DataObject) -> None:
    model, x, _ = case
    logit, cache = run(model, x, record=[hook])
    over = data.draw(st.sampled_from(overs(hook)))
    with pytest.warns(UnchangedWarning):
        swept = exact_sweep(model, x, hook, cache[hook], over)
    assert torch.equal(swept, logit.expand_as(swept))


@few
@given(cases(), st.sampled_from([V, PATTERN, Z]), st.data())
def test_changes_add_up_where_the_logit_is_linear(case, hook: str, data: st.DataObject) -> None:
    model, x, _ = case
    values = run(model, 1 - x, record=[hook])[1][hook] + 1
    over = data.draw(st.sampled_from(overs(hook)))
    logit = run(model, x)[0]
    changes = (exact_sweep(model, x, hook, values, over) - logit).reshape(-1, len(x))
    whole = exact_sweep(model, x, hook, values, ()) - logit
    torch.testing.assert_close(changes.sum(dim=0), whole, rtol=1e-8, atol=1e-8)


@few
@given(cases(), st.data())
def test_a_flipped_bit_s_embedding_gives_the_flipped_input_s_logit(case, data: st.DataObject) -> None:
    model, x, _ = case
    flipped = run(model, 1 - x, record=[EMBED])[1][EMBED]
    swept = exact_sweep(model, x, EMBED, flipped, ("pos",))
    for pos in range(x.shape[1]):
        other = x.clone()
        other[:, pos] = 1 - other[:, pos]
        torch.testing.assert_close(swept[pos], run(model, other)[0], rtol=1e-8, atol=1e-8)


@few
@given(cases(least_ctx=2))
def test_removing_a_key_is_a_score_of_minus_infinity(case) -> None:
    model, x, _ = case
    scores = run(model, x, record=[SCORES])[1][SCORES]
    gone = torch.full_like(scores, -torch.inf)
    cells = exact_sweep(model, x, SCORES, gone, ("head", "dest", "src"))
    torch.testing.assert_close(exact_remove_key(model, x, ("head", "dest", "src")), cells, rtol=1e-9, atol=1e-9)
    by_src = exact_sweep(model, x, SCORES, gone, ("src",))
    torch.testing.assert_close(exact_remove_key(model, x), by_src, rtol=1e-9, atol=1e-9)


@few
@given(cases(), st.sampled_from([h for h in HOOKS if h != POS_EMBED]), st.data())
def test_an_input_s_answer_does_not_depend_on_the_others(case, hook: str, data: st.DataObject) -> None:
    model, clean, corrupted = case
    values = run(model, clean, record=[hook])[1][hook] + 0.5
    over = data.draw(st.sampled_from(overs(hook)))
    whole = exact_sweep(model, corrupted, hook, values, over)
    for i in range(len(clean)):
        alone = exact_sweep(model, corrupted[i : i + 1], hook, values[i : i + 1], over)
        torch.testing.assert_close(alone[..., 0], whole[..., i], rtol=1e-10, atol=1e-10)
