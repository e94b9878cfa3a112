"""circuits' result.json: enough to compute the model's logits with, and its table's parts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import circuits as analysis
from analyses import commands
from analyses.runs import Run
from interp import HookedAttention
from interp.circuits import PARTS
from interp.files import plain
from tasks import SparseAnd

TUTORIAL = Path(__file__).parents[2] / "data" / "tutorial"
RULE = TUTORIAL / "rule_and_T11_s2_seed1.pt"


@pytest.fixture(scope="module", params=["heads", "rule", "tutorial"])
def run(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    random_attention: Callable[..., HookedAttention],
    write_run: Callable[..., Run],
) -> Run:
    """A random model with three heads, and two of the tutorial's."""
    out = tmp_path_factory.mktemp("circuits") / "run"
    match request.param:
        case "heads":
            sizes = {"n_heads": 3, "d_head": 3, "d_model": 11, "d_value": 2, "bias": True, "init_std": 0.5}
            return write_run(out, random_attention(7, **sizes), SparseAnd(7, (1, 4)))
        case "rule":
            commands.import_checkpoint(RULE, "rule-and", "3,9/4,6", out, None, "tutorial", 0)
        case _:
            file = TUTORIAL / "sparse_and_T30_s3_seed0.pt"
            commands.import_checkpoint(file, "sparse-and", "12,24,27", out, None, "tutorial", 0)
    return Run(out)


@pytest.fixture
def result(run: Run) -> Any:
    """result.json's result."""
    return plain(analysis.compute(run).to_json())


def test_the_logits_follow_from_the_result_alone(run: Run, result: Any) -> None:
    x = run.inputs(0, 7).numpy()
    qk, ov = np.array(result["qk"]["table"]), np.array(result["ov"]["table"])[:, :, 0]
    pos = np.arange(x.shape[1])
    scores = qk[:, pos[:, None], x[:, :, None], pos, x[:, None]]  # row-centred: the softmax does not see the means
    weight = np.exp(scores)
    pattern = weight / weight.sum(axis=-1, keepdims=True)
    written = ov[:, pos[:, None], pos, x[:, None]]
    constant = np.sum(result["ov"]["row_mean"]) + result["bias"]
    logit = (pattern * written).sum(axis=(0, 2, 3)) + constant
    np.testing.assert_allclose(logit, run.model(run.inputs(0, 7)).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_ov_is_value_times_readout(result: Any) -> None:
    product = np.einsum("dhw,hsvw->hdsv", np.array(result["readout"]), np.array(result["value"]))
    table = np.array(result["ov"]["table"])[:, :, 0] + np.array(result["ov"]["row_mean"])[..., None]
    np.testing.assert_allclose(table, product, atol=1e-10)


def test_rank_is_bounded_by_the_width_and_shares_add_up(run: Run, result: Any) -> None:
    cfg: Any = run.config.model
    for circuit, width in (("qk", cfg.d_head), ("ov", cfg.d_value)):
        found = result[circuit]
        for h in range(cfg.n_heads):
            values = found["singular_values"][h]
            assert 1 <= found["rank"][h] == len(values) <= width
            assert 1 <= found["effective_rank"][h] <= found["rank"][h] + 1e-9
            assert list(found["shares"][h]) == list(PARTS)
            assert sum(found["shares"][h].values()) == pytest.approx(1)
            assert sum(v * v for v in values) == pytest.approx(np.square(found["table"][h]).sum())


def test_the_parts_in_the_table_add_up(tmp_path: Path) -> None:
    commands.import_checkpoint(RULE, "rule-and", "3,9/4,6", tmp_path / "run", None, "tutorial", 0)
    table = analysis.compute(Run(tmp_path / "run")).to_rows()
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert len(rows) == 22 * 22 + 11 * 22
    for row in rows:
        assert sum(row[part.replace("-", "_")] for part in PARTS) == pytest.approx(row["value"], abs=1e-12)
    for side in ("src", "dest"):
        assert {row[f"{side}_role"] for row in rows if row[side] == 10} == {"rule"}
        assert {row[side] for row in rows if row[f"{side}_role"] == "target"} == {3, 4, 6, 9}


def test_a_model_that_attends_by_position_alone(weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
    """By construction scores are log(weight of the key's position), values the bit: one part each."""
    run = write_run(tmp_path / "run", weighing_model([1.0, 8, 8, 1, 2], 3.0), SparseAnd(5, (1, 2)))
    result = analysis.compute(run)
    assert result.qk.shares[0].tolist() == pytest.approx([1, 0, 0, 0])
    assert result.ov.shares[0].tolist() == pytest.approx([0, 1, 0, 0])
    logs = np.log([1, 8, 8, 1, 2])
    np.testing.assert_allclose(
        result.qk.table, np.broadcast_to((logs - logs.mean())[:, None], (1, 5, 2, 5, 2)), atol=1e-6
    )
    assert [len(of_head) for of_head in (*result.qk.singular_values, *result.ov.singular_values)] == [1, 1]


class TestManyCells:
    """T = 7, three heads, targets 1 and 4: 3 · 6 · 49 = 882 cells, of which (49 - 25) / 49 touch a target."""

    @pytest.fixture
    def result(
        self, random_attention: Callable[..., HookedAttention], write_run: Callable[..., Run], tmp_path: Path
    ) -> Any:
        model = random_attention(7, n_heads=3, d_head=5, d_model=11, init_std=0.5)
        return analysis.compute(write_run(tmp_path / "run", model, SparseAnd(7, (1, 4))))

    @staticmethod
    def rows_of(result: Any) -> list[dict[str, Any]]:
        table = result.to_rows()
        return [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    def test_within_the_limit_all_are_written(self, result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(analysis, "MOST_ROWS", 882)
        assert len(self.rows_of(result)) == 882
        assert result.to_json()["rows"] == {"written": 882, "of": 882, "which": "all cells"}

    @pytest.mark.parametrize("limit", [881, 432])
    def test_above_it_those_of_targets_in_full(self, limit: int, result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = self.rows_of(result)
        monkeypatch.setattr(analysis, "MOST_ROWS", limit)
        rows = self.rows_of(result)
        assert rows == [row for row in whole if row["src"] in (1, 4) or row["dest"] in (1, 4)]
        said = result.to_json()["rows"]
        assert (said["written"], said["of"]) == (len(rows), 882) == (3 * 6 * (49 - 25), 882)
        assert said["which"] == "cells whose dest or src is a target or a rule position"
        assert np.shape(result.to_json()["qk"]["table"]) == (3, 7, 2, 7, 2)

    def test_where_the_targets_are_many_the_largest(self, result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = self.rows_of(result)
        monkeypatch.setattr(analysis, "MOST_ROWS", 40)
        rows = self.rows_of(result)
        for circuit in ("QK", "OV"):
            kept, cells = ([abs(r["value"]) for r in found if r["circuit"] == circuit] for found in (rows, whole))
            assert sorted(kept) == sorted(cells)[-20:]
        assert all(row in whole for row in rows)
        assert result.to_json()["rows"]["written"] == 40
        assert "20 cells of largest absolute value" in result.to_json()["rows"]["which"]
