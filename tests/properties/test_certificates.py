"""Properties of certificates that hold for any model, box and limit."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.certify.certificate import certify
from interp.certify.count import Counted
from interp.models import AnyModel, HookedAttention, HookedLinear, HookedMLP
from tasks import SparseAnd
from tests.unit.interp.certify.certify_cases import (
    KINDS,
    all_inputs,
    all_logits,
    inside,
    n_counted,
    random_model,
    side_maker,
    task_boxes,
)

few = settings(max_examples=60, deadline=None)


@st.composite
def models(draw: st.DrawFn) -> AnyModel:
    kind, n_ctx = draw(st.sampled_from(list(KINDS))), draw(st.integers(1, 7))
    return random_model(kind, n_ctx, draw(st.integers(0, 2**32)), draw(st.sampled_from([0.03, 0.6, 1.5, 4.0])))


@few
@given(models(), st.booleans(), st.data())
def test_bounds_and_counts_agree_with_enumeration(model: AnyModel, label: bool, data: st.DataObject) -> None:
    n_ctx, bits = model.cfg.n_ctx, st.sampled_from([-1, 0, 1])
    fixed, counted = (
        np.array(data.draw(st.lists(bits, min_size=n_ctx, max_size=n_ctx)), dtype=np.int8) for _ in range(2)
    )
    limit = data.draw(st.integers(0, n_ctx))
    x, logits = all_inputs(n_ctx), (-1 if label else 1) * all_logits(model)
    side = side_maker(model)(label, counted)
    within = inside(x, fixed)
    largest = logits[within & (n_counted(x, counted, fixed < 0) <= limit)].max()
    assert largest <= side.bound(fixed[None], np.array([limit]))[0][0] + side.slack
    found = side.count(fixed)
    if isinstance(found, Counted) and np.abs(logits).min() > 2 * side.margin:
        assert found.wrong.sum() == (logits[within] > 0).sum()


@few
@given(models(), st.randoms(use_true_random=False))
def test_relabelling_positions_changes_no_verdict(model: AnyModel, random: Any) -> None:
    n_ctx = model.cfg.n_ctx
    order = random.sample(range(n_ctx), n_ctx)
    targets = random.sample(range(n_ctx), random.randint(1, n_ctx))

    def certificate(of: list[int]) -> Any:
        task = SparseAnd(n_ctx, of)
        probability = np.array(task.bit_probability)
        return certify(side_maker(model), task_boxes(task), probability, np.random.default_rng(0))

    before = certificate(targets)
    with torch.no_grad():
        weights = [model.W] if isinstance(model, HookedLinear) else []
        if isinstance(model, HookedAttention):
            weights = [model.W_pos, model.W_readout]
        elif isinstance(model, HookedMLP):
            weights = [model.mlp.W_in]
        for weight in weights:
            weight.copy_(weight[order])
    after = certificate([order.index(target) for target in targets])
    if before.open == 0:
        assert (after.verdict, after.n_wrong, after.radius) == (before.verdict, before.n_wrong, before.radius)
        np.testing.assert_allclose(after.lower, before.lower, rtol=1e-12, atol=1e-15)
