"""cube_logits against table_logits on every input of the cube, and against an independent softmax."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interp import attention_tables, cube
from interp.cube import cube_logits
from interp.errors import BoolensError
from interp.tables import Tables, table_logits

AllInputs = Callable[[int], Tensor]
Build = Callable[..., Any]


def inputs(x: list[int], free: list[int], all_inputs: AllInputs) -> Tensor:
    listed = torch.tensor(x).repeat(2 ** len(free), 1)
    listed[:, free] = all_inputs(len(free)) if free else listed[:, free]
    return listed


def tables_of(build: Build, n_ctx: int, **fields: Any) -> Tables:
    return Tables(*(t.detach() for t in vars(attention_tables(build(n_ctx, **fields), torch.float64)).values()))


@pytest.mark.parametrize("fields", [{}, {"n_heads": 3, "d_value": 4, "d_model": 11, "d_head": 7, "bias": True}])
@pytest.mark.parametrize(
    "free",
    [[], [3], [4, 0], [0, 1, 2, 3, 4], [2, 4, 0, 3], [-1, 1, 3]],
    ids=lambda free: "free " + " ".join(map(str, free)),
)
def test_are_those_of_the_listed_inputs(
    fields: dict[str, Any], free: list[int], random_attention: Build, all_inputs: AllInputs
) -> None:
    for seed, row in enumerate(([0, 0, 1, 0, 1], [1, 0, 0, 1, 0])):
        tables = tables_of(random_attention, 5, seed=seed, **fields)
        found = cube_logits(tables, torch.tensor(row), free)
        expected = table_logits(tables, inputs(row, free, all_inputs)).numpy()
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_of_a_cube_larger_than_one_inner_table(
    random_attention: Build, all_inputs: AllInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tables_of(random_attention, 13, n_heads=2, bias=True)
    x = inputs([0] * 13, list(range(13)), all_inputs)
    expected = table_logits(tables, x).numpy()
    for inner in (0, 2, 6):
        monkeypatch.setattr(cube, "INNER", inner)
        np.testing.assert_allclose(cube_logits(tables, [0] * 13, range(13)), expected, rtol=1e-12, atol=1e-12)


def test_float32_tables_are_computed_with_in_float64(random_attention: Build, all_inputs: AllInputs) -> None:
    tables = attention_tables(random_attention(4, dtype=torch.float32))
    as_double = Tables(*(t.detach().double() for t in vars(tables).values()))
    expected = table_logits(as_double, all_inputs(4)).numpy()
    np.testing.assert_allclose(cube_logits(tables, [0] * 4, range(4)), expected, rtol=1e-13, atol=1e-13)


class TestExtremeScores:
    @pytest.mark.parametrize("size", [300.0, 1000.0, 1e6])
    @pytest.mark.parametrize("key", range(8))
    def test_a_key_that_dominates_while_absent(
        self, key: int, size: float, random_attention: Build, all_inputs: AllInputs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cube, "BLOCK", 7)
        tables = tables_of(random_attention, 4, n_heads=2)
        tables.scores[:, :, key] += size
        for free in ([0, 1, 2, 3], [2, 0]):
            row = [1, 0, 0, 1]
            expected = table_logits(tables, inputs(row, free, all_inputs)).numpy()
            found = cube_logits(tables, row, free)
            assert np.isfinite(found).all()
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)

    def test_a_fixed_absent_key_needs_no_listing(
        self, random_attention: Build, all_inputs: AllInputs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tables = tables_of(random_attention, 4)
        tables.scores[:, :, 1] += 1e6  # bit 1 at position 0
        expected = table_logits(tables, inputs([0] * 4, [1, 2, 3], all_inputs)).numpy()
        monkeypatch.setattr(cube, "_listed", None)
        np.testing.assert_allclose(cube_logits(tables, [0] * 4, [1, 2, 3]), expected, rtol=1e-12)
        with pytest.raises(TypeError, match="not callable"):
            cube_logits(tables, [0] * 4, [0, 1])

    @pytest.mark.parametrize("offset", [-1e5, 1e5])
    def test_a_common_offset_changes_nothing(self, offset: float, random_attention: Build) -> None:
        tables = tables_of(random_attention, 5)
        moved = Tables(tables.scores + offset, tables.value, tables.readout, tables.bias)
        same = cube_logits(tables, [0] * 5, range(5))
        np.testing.assert_allclose(cube_logits(moved, [0] * 5, range(5)), same, rtol=1e-8)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("x", "free", "message"),
    [
        ([0, 1], [0], r"x has shape \(2,\); give 3 bits"),
        ([0, 1, 2], [0], "give 3 bits, each 0 or 1"),
        ([0, 1, 1], [0, -3], r"free positions \[0, -3\]: name each of \[0, 3\) at most once"),
        ([0, 1, 1], [3], r"free positions \[3\]"),
    ],
)
def test_what_is_no_cube(x: list[int], free: list[int], message: str, random_attention: Build) -> None:
    with pytest.raises(BoolensError, match=message):
        cube_logits(tables_of(random_attention, 3), x, free)


def test_a_cube_too_large(random_attention: Build) -> None:
    with pytest.raises(BoolensError, match=r"30 free positions are more than 28; take the cube in parts"):
        cube_logits(tables_of(random_attention, 30), [0] * 30, range(30))
