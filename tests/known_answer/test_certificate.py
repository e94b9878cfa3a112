"""A hand-set attention model whose wrong inputs are known in closed form, over 2**30 inputs.

A key's score is a_pos + b_vocab and its value depends on the position alone: −1 at targets, +1 at distractors. Scores
lie 100 or more apart, so that one kind of key has all the attention, to e**−100. The other positions have none.
"""

import numpy as np
import pytest
import torch

from interp.certify.certificate import Box, Certificate, certify
from interp.certify.side import RatioSide
from interp.certify.terms import attention_terms
from interp.config import AttentionConfig
from interp.models import HookedAttention
from tasks import SparseAnd
from tasks.cover import label_cover

TARGETS, DISTRACTORS, N_CTX = [3, 11, 26], [0, 19], 30
S, M = len(TARGETS), len(DISTRACTORS)


def hand_set(distractor_score: float) -> HookedAttention:
    """Zeros score 400 above ones; distractors `distractor_score` above targets."""
    model = HookedAttention(AttentionConfig(N_CTX, d_model=3, d_head=1)).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    model.W_E[0, 0] = 400
    model.W_pos[:, 0] = -1000
    model.W_pos[TARGETS, 0], model.W_pos[DISTRACTORS, 0] = 0, distractor_score
    model.W_pos[TARGETS, 1], model.W_pos[DISTRACTORS, 1] = -1, 1
    model.W_pos[:, 2] = 1
    for name, dimension in (("W_Q", 2), ("W_K", 0), ("W_V", 1)):
        model.attn.get_parameter(name)[0, dimension] = 1
    model.W_readout[[0, 5]] = torch.tensor([0.25, 0.75])[:, None, None]
    return model


def certificate(model: HookedAttention, task: SparseAnd) -> Certificate:
    counted = np.zeros(N_CTX, dtype=np.int8)
    counted[TARGETS] = -1
    boxes = [Box(box.fixed, box.label, counted) for box in label_cover(task)]
    terms = attention_terms(model)
    return certify(
        lambda label, changes: RatioSide(terms, label, changes),
        boxes,
        np.array(task.bit_probability),
        np.random.default_rng(0),
    )


def test_a_zero_at_a_distractor_hides_the_zeros_at_targets() -> None:
    """Zero at a distractor > zero at a target > one at a distractor > one at a target.

    True wherever a distractor is 0 or no target is: wrong where both have a zero.
    """
    task, model = SparseAnd(N_CTX, TARGETS), hand_set(200)
    found = certificate(model, task)
    assert found.verdict == "refuted"
    assert found.n_wrong == 2 ** (N_CTX - S - M) * (2**S - 1) * (2**M - 1)
    assert found.lower == pytest.approx((1 - task.p**S) * (1 - task.p**M), rel=1e-12)
    assert found.upper == pytest.approx(found.lower, rel=1e-12)
    assert (found.n_changes, found.radius) == (1, (0, 0))
    assert found.counterexample is not None
    assert (found.counterexample[DISTRACTORS] == 0).sum() == 1
    assert found.worst is not None
    np.testing.assert_allclose(model(torch.as_tensor(np.stack([found.counterexample, found.worst]))), 1)


def test_without_any_zero_the_targets_ones_are_read() -> None:
    """Zero at a target > zero at a distractor > one at a target: wrong only where targets and distractors are all 1."""
    task = SparseAnd(N_CTX, TARGETS)
    found = certificate(hand_set(-100), task)
    assert found.verdict == "refuted"
    assert found.n_wrong == 2 ** (N_CTX - S - M)
    assert found.lower == pytest.approx(task.p ** (S + M), rel=1e-12)
    assert found.upper == pytest.approx(found.lower, rel=1e-12)
    assert (found.n_changes, found.radius) == (0, (-1, -1))
