"""Circuits against what the model computes on all inputs, and against the weights."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from einops import einsum

from interp import HookedAttention, attention_tables
from interp.circuits import PARTS, effective_rank, numerical_rank, ov_circuit, qk_circuit
from interp.hooks import run

SCORES, PATTERN = "blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_pattern"
N_CTX, N_HEADS, D_HEAD, D_MODEL, D_VALUE = 5, 3, 7, 11, 2


@pytest.fixture
def model(random_attention: Callable[..., HookedAttention]) -> Any:
    sizes = {"n_heads": N_HEADS, "d_head": D_HEAD, "d_model": D_MODEL, "d_value": D_VALUE, "bias": True}
    model: Any = random_attention(N_CTX, seed=2, **sizes)
    with torch.no_grad():
        for weight in (model.attn.W_Q, model.attn.W_K):
            weight.mul_(0.3)  # so that softmaxes are not saturated
    return model.requires_grad_(False)


def test_table_and_row_means_are_the_scores_on_every_input(model: Any, all_inputs: Callable) -> None:
    x = all_inputs(N_CTX)
    scores = run(model, x, record=[SCORES])[1][SCORES]
    circuit = qk_circuit(attention_tables(model))
    table = circuit.table + circuit.row_mean[..., None, None]
    for dest in range(N_CTX):
        for src in range(N_CTX):
            of_cell = table[:, dest, x[:, dest], src, x[:, src]].T
            torch.testing.assert_close(of_cell, scores[:, :, dest, src], rtol=0, atol=1e-12)


def test_pattern_times_ov_is_the_logit_less_a_constant(model: Any, all_inputs: Callable) -> None:
    x = all_inputs(N_CTX)
    logit, cache = run(model, x, record=[PATTERN])
    circuit = ov_circuit(attention_tables(model))
    present = circuit.table[:, :, 0, torch.arange(N_CTX), x]  # head dest batch src
    written = einsum(cache[PATTERN], present, "batch head dest src, head dest batch src -> batch")
    assert model.b_readout is not None
    assert logit.std() > 0.1
    torch.testing.assert_close(written + circuit.row_mean.sum() + model.b_readout, logit, rtol=0, atol=1e-12)


def test_the_parts_are_products_of_the_weights(model: Any) -> None:
    attn, sign = model.attn, torch.tensor([-1.0, 1.0], dtype=torch.float64)
    position, token = model.W_pos + model.W_E.mean(dim=0), (model.W_E[1] - model.W_E[0]) / 2
    found = qk_circuit(attention_tables(model)).parts
    for h in range(N_HEADS):
        q_pos = (position @ attn.W_Q[h] + attn.b_Q[h]) / math.sqrt(D_HEAD)
        q_tok = sign[:, None] * (token @ attn.W_Q[h]) / math.sqrt(D_HEAD)
        k_pos, k_tok = position @ attn.W_K[h], sign[:, None] * (token @ attn.W_K[h])
        k_pos = k_pos - k_pos.mean(dim=0)
        by_hand = [
            (q_pos @ k_pos.T)[:, None, :, None],
            (q_pos @ k_tok.T)[:, None, None, :],
            (q_tok @ k_pos.T)[None, :, :, None],
            (q_tok @ k_tok.T)[None, :, None, :],
        ]
        for name, part, expected in zip(PARTS, found[:, h], by_hand, strict=True):
            torch.testing.assert_close(part, expected.expand_as(part), rtol=0, atol=1e-12, msg=name)
            assert part.abs().max() > 0.05, name


def test_ov_has_no_token_on_the_query_s_side(model: Any) -> None:
    circuit = ov_circuit(attention_tables(model))
    assert circuit.parts.shape == (4, N_HEADS, N_CTX, 1, N_CTX, 2)
    assert circuit.row_mean.shape == (N_HEADS, N_CTX, 1)
    assert circuit.parts[2:].abs().max() < 1e-14
    token = (model.W_E[1] - model.W_E[0]) / 2
    written = einsum(token, model.attn.W_V, model.W_readout, "d, head d w, dest head w -> head dest")
    for v, sign in ((0, -1), (1, 1)):
        expected = (sign * written)[:, :, None].expand(-1, -1, N_CTX)
        torch.testing.assert_close(circuit.parts[1, :, :, 0, :, v], expected, rtol=0, atol=1e-12)


def test_nothing_depends_on_the_key_s_bias_nor_on_how_embeddings_share_a_constant(model: Any) -> None:
    before = [circuit(attention_tables(model)).parts for circuit in (qk_circuit, ov_circuit)]
    model.attn.b_K.add_(3)
    model.W_E.add_(2)
    model.W_pos.sub_(2)
    for circuit, parts in zip((qk_circuit, ov_circuit), before, strict=True):
        torch.testing.assert_close(circuit(attention_tables(model)).parts, parts, rtol=0, atol=1e-11)


@pytest.mark.parametrize("circuit", [qk_circuit, ov_circuit])
def test_shares_are_of_the_variance_and_add_up(circuit: Callable, model: Any) -> None:
    found = circuit(attention_tables(model))
    assert found.shares.shape == (N_HEADS, 4)
    np.testing.assert_allclose(found.shares.sum(dim=1), 1, rtol=1e-12)
    for h in range(N_HEADS):
        for part in range(4):
            share = np.var(found.parts[part, h].numpy()) / np.var(found.table[h].numpy())
            assert float(found.shares[h, part]) == pytest.approx(share)


def test_rows_that_are_constant_leave_shares_and_rank_undefined(model: Any) -> None:
    model.attn.W_K.zero_()
    circuit = qk_circuit(attention_tables(model))
    assert circuit.row_mean.abs().max() > 0.1
    assert circuit.shares.isnan().all()
    assert numerical_rank(circuit.singular_values, 2 * N_CTX) == [0] * N_HEADS
    assert effective_rank(circuit.singular_values).isnan().all()


def test_singular_values_are_of_the_whole_table(random_attention: Callable) -> None:
    model = random_attention(5, n_heads=3, d_head=2, d_model=11, d_value=1).requires_grad_(False)
    for circuit, rows, rank in ((qk_circuit, 10, 2), (ov_circuit, 5, 1)):
        found = circuit(attention_tables(model))
        values = found.singular_values
        for h in range(3):
            matrix = found.table[h].numpy().reshape(rows, 10)
            np.testing.assert_allclose(values[h], np.linalg.svd(matrix, compute_uv=False), atol=1e-12)
            assert numerical_rank(values, 10)[h] == np.linalg.matrix_rank(matrix) == rank


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 2.0, 2.0], 3.0),
        ([5.0, 0.0, 0.0], 1.0),
        ([3.0, 1.0, 0.0], math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))),
        ([0.0, 0.0, 0.0], math.nan),
    ],
)
def test_effective_rank_is_the_exponential_of_an_entropy(values: list[float], expected: float) -> None:
    assert float(effective_rank(torch.tensor([values]))[0]) == pytest.approx(expected, nan_ok=True)


def test_one_position_and_one_head_keep_their_axes(random_attention: Callable) -> None:
    tables = attention_tables(random_attention(1).requires_grad_(False))
    circuit = qk_circuit(tables)
    assert circuit.table.shape == (1, 1, 2, 1, 2)
    assert circuit.shares[0, [0, 2]].tolist() == pytest.approx([0, 0], abs=1e-20)  # nothing to choose between positions
    assert ov_circuit(tables).table.shape == (1, 1, 1, 1, 2)
