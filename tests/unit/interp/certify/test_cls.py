"""Certificates of [CLS] models against enumeration through the hooked model."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from interp.certify.certificate import Certificate, certify
from interp.certify.cls import ClsSide, Values, cls_side_maker, cls_terms
from interp.certify.side import CLOSED_FORM, RatioSide
from interp.cls_tables import cls_tables
from interp.config import ClsConfig
from interp.errors import BoolensError
from interp.models import HookedCls
from tasks import Majority, Parity, RuleAnd, SparseAnd
from tasks.base import Task
from tests.unit.interp.certify.certify_cases import (
    all_inputs,
    all_logits,
    inside,
    n_counted,
    output_bias,
    random_box,
    task_boxes,
)
from tests.unit.interp.certify.test_certificate import check
from tests.unit.interp.test_cls_tables import random_cls

TASKS: dict[str, Task] = {
    "sparse-and": SparseAnd(7, (1, 4, 5)),
    "rule-and": RuleAnd(7, ((0, 3), (1, 2))),
    "majority": Majority(7, (1, 2, 6)),
    "parity": Parity(6, (2, 4)),
}
VARIANTS = list(itertools.product([False, True], [0, 13], [False, True], [1, 3]))


def config(n_ctx: int, norm: bool, d_mlp: int, bias: bool, n_heads: int) -> ClsConfig:
    return ClsConfig(n_ctx=n_ctx, d_model=11, n_heads=n_heads, d_head=5, d_mlp=d_mlp, norm=norm, bias=bias, dropout=0.0)


def certificate(model: HookedCls, task: Task, **options: bool) -> Certificate:
    boxes, p = task_boxes(task), np.array(task.bit_probability)
    return certify(cls_side_maker(model), boxes, p, np.random.default_rng(0), **options)


def fitted(cfg: ClsConfig, task: Task, steps: int) -> HookedCls:
    model = HookedCls(cfg, torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "W_" in name:
                parameter.mul_(15)
    x = task.enumerate()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(x), task.label(x).double()).backward()
        optimiser.step()
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize(("norm", "d_mlp", "bias", "n_heads"), VARIANTS)
def test_certificates_of_random_models_are_the_truth(norm: bool, d_mlp: int, bias: bool, n_heads: int) -> None:
    for seed, (name, task) in enumerate(TASKS.items()):
        model = random_cls(config(task.n_ctx, norm, d_mlp, bias, n_heads), seed).double()
        found, logits = certificate(model, task), all_logits(model)
        if np.abs(logits).min() < 10 * found.margin:
            continue
        if norm and not d_mlp and not bias:  # known by their logits times the norm's scale, so the worst is another
            assert found.n_wrong == ((logits > 0) != task.label(task.enumerate()).numpy()).sum(), name
        else:
            check(found, model, task)


@pytest.mark.parametrize(("norm", "d_mlp", "bias", "n_heads"), VARIANTS)
def test_certificates_of_trained_models(norm: bool, d_mlp: int, bias: bool, n_heads: int) -> None:
    task = TASKS["sparse-and"]
    model = fitted(config(7, norm, d_mlp, bias, n_heads), task, 60)
    found = certificate(model, task)
    wrong = (all_logits(model) > 0) != task.label(task.enumerate()).numpy()
    assert found.verdict == ("refuted" if wrong.any() else "verified")
    assert found.n_wrong == wrong.sum()
    if found.verdict == "verified":
        closed = not d_mlp and (not norm or not bias) and n_heads == 1
        assert found.method == CLOSED_FORM if closed else found.method != CLOSED_FORM


@pytest.mark.parametrize(("norm", "d_mlp", "bias", "n_heads"), VARIANTS)
def test_bounds_hold_and_counts_are_right_on_any_box(norm: bool, d_mlp: int, bias: bool, n_heads: int) -> None:
    model = random_cls(config(6, norm, d_mlp, bias, n_heads), 3).double()
    x, logits, generator = all_inputs(6), all_logits(model), np.random.default_rng(4)
    terms = cls_terms(cls_tables(model))
    for label in (False, True):
        for _ in range(10):
            fixed, counted, limit = random_box(6, generator)
            side = cls_side_maker(model)(label, counted)
            assert isinstance(side, ClsSide if terms is None else RatioSide)
            own = side.logits(x.astype(np.int8))
            within = inside(x, fixed)
            largest = own[within & (n_counted(x, counted, fixed < 0) <= limit)].max()
            (upper,), (best,), _ = side.bound(fixed[None].copy(), np.array([limit]))
            assert largest <= upper + side.slack
            if n_heads == 1 or terms is None:  # closed form, or all inputs: attained
                assert upper == pytest.approx(largest, abs=1e-9)
                assert side.logits(best[None])[0] == pytest.approx(largest, abs=1e-9)
            found = side.count(fixed)
            assert not isinstance(found, int)
            signed = (-1 if label else 1) * logits[within]
            clear = np.abs(own[within]) > 2 * side.margin
            assert found.wrong.sum() >= (signed[clear] > 0).sum()
            assert found.wrong.sum() + found.unresolved.sum() <= (signed > 0).sum() + (~clear).sum()
            (reached,), (logit,) = side.climb(x[within][:1].astype(np.int8), fixed)
            assert inside(reached[None], fixed).all()
            assert logit == pytest.approx(side.logits(reached[None])[0], abs=1e-9)
            assert logit >= own[within][0] - 1e-9


def test_terms_are_the_logit_and_with_a_norm_a_multiple_of_it() -> None:
    x = all_inputs(6).astype(np.int8)
    for norm, bias in ((False, True), (False, False), (True, False)):
        model = random_cls(config(6, norm, 0, bias, 3)).double()
        side = cls_side_maker(model)(False, np.full(6, -1))
        with torch.no_grad():
            logits, cache = model.run_with_cache(torch.as_tensor(x).long())
        scale = cache["ln_final.hook_scale"][:, 0, 0].numpy() if norm else 1.0
        np.testing.assert_allclose(side.logits(x), logits.numpy() * scale, rtol=0, atol=side.margin)
        assert side.margin < 1e-8
    assert cls_terms(cls_tables(random_cls(config(6, True, 0, True, 3)))) is None
    assert cls_terms(cls_tables(random_cls(config(6, False, 13, True, 3)))) is None


def test_scores_far_apart() -> None:
    model = random_cls(config(6, False, 13, True, 3)).double()
    with torch.no_grad():
        model.attn.get_parameter("W_Q").mul_(5000)
    values = Values(cls_tables(model))
    assert values.wide
    np.testing.assert_allclose(values.logits(all_inputs(6)), all_logits(model), rtol=0, atol=1e-9)


def test_an_input_of_too_small_a_scale_is_neither_right_nor_wrong() -> None:
    model = random_cls(config(6, True, 13, True, 3)).double()
    values, x = Values(cls_tables(model)), all_inputs(6)
    with torch.no_grad():
        scale = model.run_with_cache(torch.as_tensor(x))[1]["ln_final.hook_scale"][:, 0, 0].numpy()
    values.least["ln_final.hook_scale"] = float(np.median(scale))
    small = scale < np.median(scale)
    logits = values.logits(x)
    assert (logits[small] == 0).all()
    assert (logits[scale > 1.01 * np.median(scale)] != 0).all()
    counted = ClsSide(values, False, np.full(6, -1)).count(np.full(6, -1))
    assert counted.unresolved.sum() >= small.sum()


def test_threads_do_not_mix_their_scales() -> None:
    model = random_cls(config(8, True, 13, True, 3)).double()
    values, x = Values(cls_tables(model)), all_inputs(8)
    parts = [x[i : i + 1 + i % 7] for i in range(0, 240)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(values.logits, parts))
    for part, logits in zip(parts, found, strict=True):
        np.testing.assert_allclose(logits, values.logits(part), rtol=0, atol=1e-12)


def test_a_single_head_at_800_positions() -> None:
    """Two targets that hold all the attention, by hand: right on all 2**800 inputs; and one key more makes it wrong."""
    task, cfg = SparseAnd(800, (7, 501)), ClsConfig(800, d_model=3, n_heads=1, d_mlp=0, norm=False, bias=True)
    model = HookedCls(cfg).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.W_E[2, 0] = 1.0
        model.W_pos[[7, 501], 1] = 40.0  # keys; the [CLS] token's own and all others score 0
        model.W_E[1, 2] = 1.0
        attn: Any = model.attn
        attn.W_Q[0, 0, 0] = attn.W_K[0, 1, 0] = attn.W_V[0, 2, 1] = attn.W_O[0, 1, 2] = 1.0
        model.W_readout[2] = 1.0
        output_bias(model).fill_(-0.75)
    found = certificate(model, task)
    assert found.verdict == "verified"
    assert found.method == CLOSED_FORM
    assert found.n_wrong == 0
    with torch.no_grad():
        model.W_pos[33, 1] = 39.6
    found = certificate(model, task, count=False)
    assert found.verdict == "refuted"
    assert found.counterexample is not None
    assert (model(torch.as_tensor(found.counterexample)[None]) > 0) != task.label(
        torch.as_tensor(found.counterexample)[None]
    )


def test_weights_that_are_not_finite_are_refused() -> None:
    model = random_cls(config(5, False, 0, True, 1))
    with torch.no_grad():
        model.W_readout[1] = torch.nan
    with pytest.raises(BoolensError, match="W_readout is not finite"):
        cls_side_maker(model)
