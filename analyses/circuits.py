"""What do the weights say a query looks for, and what does a key write to the logit? Exact, without data.

The QK and OV table of every head, centred by row and split into parts (`interp.circuits` says how), and the readout.
result.json has the tables whole; data.csv, a row a cell, has at most MOST_ROWS of them and result.json says which.

A [CLS] transformer has one query, so `dest` and its vocab are 1 long; its own key is left out. With norms its readout
on the direct path depends on the input (`interp.readout`): OV is that of the mean over the analysis inputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int

from analyses.results import Rows, position_role
from analyses.runs import Run
from interp.circuits import PARTS, Circuit, effective_rank, numerical_rank, ov_circuit, qk_circuit
from interp.cls_tables import cls_tables
from interp.plots import plot_circuits, plot_query_circuits
from interp.readout import direct_readout
from interp.tables import Tables, attention_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.models import HookedAttention, HookedCls

NAME = "circuits"
MOST_ROWS = 200_000
"""Cells in data.csv; one head has 6 T² of them, so that one of T = 182 is written whole."""


@dataclass(frozen=True)
class Decomposed:
    """A circuit's numbers in float64; OV has a query_vocab axis of length 1.

    Attributes:
        parts: see `interp.circuits.Circuit`, as row_mean and shares.
        singular_values: of each head, those above rounding.
        effective_rank: of each head; NaN where the table is constant in each row.
    """

    parts: Float[np.ndarray, "part head dest query_vocab src key_vocab"]
    row_mean: Float[np.ndarray, "head dest query_vocab"]
    shares: Float[np.ndarray, "head part"]
    singular_values: tuple[tuple[float, ...], ...]
    effective_rank: Float[np.ndarray, " head"]

    @property
    def table(self) -> Float[np.ndarray, "head dest query_vocab src key_vocab"]:
        return self.parts.sum(axis=0)

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "row_mean": self.row_mean,
            "shares": [dict(zip(PARTS, of_head, strict=True)) for of_head in self.shares.tolist()],
            "singular_values": self.singular_values,
            "rank": [len(values) for values in self.singular_values],
            "effective_rank": self.effective_rank,
        }


@dataclass(frozen=True)
class Circuits:
    """Attributes: qk: in score units; ov: in logit; readout, value, bias: the tables' own, which OV is a product of."""

    qk: Decomposed
    ov: Decomposed
    readout: Float[np.ndarray, "dest head d_value"]
    value: Float[np.ndarray, "head src vocab d_value"]
    bias: float
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        names = ("readout", "value", "bias", "targets", "rule_positions")
        which, cells = self._written()
        rows = {"written": sum(map(len, cells)), "of": self.qk.table.size + self.ov.table.size, "which": which}
        circuits = {"qk": self.qk.to_json(), "ov": self.ov.to_json()}
        return {**circuits, **{name: getattr(self, name) for name in names}, "rows": rows}

    def to_rows(self) -> Rows:
        columns = ["circuit", "head", "dest", "dest_vocab", "dest_role", "src", "src_vocab", "src_role", "value"]
        return Rows([*columns, *(part.replace("-", "_") for part in PARTS)], list(self._rows()))

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        roles = [self.role(pos) for pos in range(self.value.shape[1])]
        for name, circuit, cells in zip(("QK", "OV"), (self.qk, self.ov), self._written()[1], strict=True):
            table = circuit.table
            for cell in map(tuple, cells.tolist()):
                h, dest, u, src, v = cell
                dest_vocab = u if name == "QK" else None
                of_dest = roles[dest] if len(self.readout) == len(roles) else "[CLS]"
                where = (name, h, dest, dest_vocab, of_dest, src, v, roles[src])
                yield (*where, table[cell], *circuit.parts[:, h, dest, u, src, v])

    def _written(self) -> tuple[str, list[Int[np.ndarray, "cell axis"]]]:
        """Which cells data.csv has, in words, and their indices (head, dest, query_vocab, src, key_vocab) by circuit.

        All; where they are too many, those whose dest or src is a target or a rule position; where even these are too
        many, of each circuit the largest in size, half of MOST_ROWS.
        """
        tables = [self.qk.table, self.ov.table]
        if sum(table.size for table in tables) <= MOST_ROWS:
            return "all cells", [np.argwhere(np.ones(table.shape, dtype=bool)) for table in tables]
        named = np.array([self.role(pos) != "other" for pos in range(self.value.shape[1])])
        of_dest = named if len(self.readout) == len(named) else np.array([False])
        of_either = of_dest[:, None, None, None] | named[:, None]
        chosen = [np.broadcast_to(of_either, table.shape) for table in tables]
        if 0 < sum(int(cells.sum()) for cells in chosen) <= MOST_ROWS:
            return "cells whose dest or src is a target or a rule position", [np.argwhere(cells) for cells in chosen]
        largest = []
        for table in tables:
            flat = np.argsort(-np.abs(table), axis=None, kind="stable")[: MOST_ROWS // 2]
            largest.append(np.stack(np.unravel_index(np.sort(flat), table.shape), axis=1))
        return f"of each circuit the {MOST_ROWS // 2} cells of largest absolute value", largest

    def role(self, pos: int) -> str:
        """See `analyses.results.position_role`."""
        return position_role(pos, self.targets, self.rule_positions)


def applies(run: Run) -> bool:
    return run.has_attention


def compute(run: Run) -> Circuits:
    with torch.no_grad():
        tables = _cls_tables(run) if run.is_cls else attention_tables(cast("HookedAttention", run.model), torch.float64)
        value = tables.value.unflatten(1, (-1, 2))
        return Circuits(
            qk=_decomposed(qk_circuit(tables)),
            ov=_decomposed(ov_circuit(tables)),
            readout=tables.readout.numpy(),
            value=value.numpy(),
            bias=float(tables.bias),
            targets=run.task.targets,
            rule_positions=run.task.rule_positions,
        )


def _cls_tables(run: Run) -> Tables:
    """Of the one query, on the bits' columns."""
    model = cast("HookedCls", run.model)
    tables = cls_tables(model)
    x = torch.cat([run.inputs(rule) for rule in range(run.task.n_rules)])
    readout = direct_readout(model, x).double().mean(dim=0)
    bias = readout.new_zeros(()) if model.b_readout is None else model.b_readout.double()
    return Tables(tables.scores[:, None, :-1], tables.value[:, :-1], readout, bias)


def _decomposed(circuit: Circuit) -> Decomposed:
    values = circuit.singular_values
    ranks = numerical_rank(values, 2 * circuit.table.shape[3])
    return Decomposed(
        parts=circuit.parts.numpy(),
        row_mean=circuit.row_mean.numpy(),
        shares=circuit.shares.numpy(),
        singular_values=tuple(tuple(row[:rank]) for row, rank in zip(values.tolist(), ranks, strict=True)),
        effective_rank=effective_rank(values).numpy(),
    )


def plot(result: Circuits) -> "Figure":
    if len(result.readout) != result.value.shape[1]:
        return plot_query_circuits(
            result.qk.table[:, 0, 0], result.ov.table[:, 0, 0], targets=result.targets,
            rule_positions=result.rule_positions,
        )  # fmt: skip
    return plot_circuits(
        result.qk.table,
        result.ov.table[:, :, 0],
        result.readout,
        result.qk.shares,
        result.ov.shares,
        parts=PARTS,
        qk_singular_values=result.qk.singular_values,
        ov_singular_values=result.ov.singular_values,
        targets=result.targets,
        rule_positions=result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
