"""junta: any Boolean function of up to 16 of T bits, as a truth table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.base import check_n_ctx
from tasks.boolean import TargetFunction, draw_given
from tasks.draws import draw_target_sets
from tasks.errors import TaskError

MAX_TARGETS = 16
"""Of a junta: its table has 2**s entries."""
MAX_TABLES = 1000
"""Balanced tables drawn until one depends on every target; of two targets a third do, of more nearly all."""


@dataclass(frozen=True, init=False)
class Junta(TargetFunction):
    """label(x) = table[targets' bits read as a binary number, the first target most significant].

    Attributes:
        table: 2**s characters '0' (False) and '1' (True), in the order of the sorted targets.

    >>> task = Junta(4, targets=(1, 3), table="0010")
    >>> task.label(torch.tensor([[0, 1, 0, 0], [1, 0, 1, 1]])).tolist()
    [True, False]
    >>> Junta(4, targets=(3, 1), table="0100") == task
    True
    """

    NAME: ClassVar[str] = "junta"
    OWN_FIELDS: ClassVar[frozenset[str]] = frozenset({"table"})

    table: str

    def __init__(
        self, n_ctx: int, targets: Sequence[int], table: str, p: float | Literal["balanced"] = "balanced"
    ) -> None:
        """
        Args:
            n_ctx: number of bits T.
            targets: 1 to MAX_TARGETS target indices; negative ones count from the end.
            table: the label of every pattern of the targets' bits, in the order of `targets` as given.
            p: P(bit = 1); 'balanced' is 0.5, at which half of a table's entries give half of the labels.

        Raises:
            TaskError: as `TargetFunction`; also too many targets, or a table of the wrong length, with other characters
                than 0 and 1, that is constant or does not depend on every target.
        """
        super().__init__(n_ctx, targets, p)
        given = [int(i) % self.n_ctx for i in targets]
        entries = read_table(table, len(given)).permute(*np.argsort(given).tolist())
        irrelevant = [i for axis, i in enumerate(self.targets[0]) if not depends(entries, axis)]
        if irrelevant:
            kept = [i for i in self.targets[0] if i not in irrelevant]
            smaller = entries[tuple(0 if i in irrelevant else slice(None) for i in self.targets[0])]
            raise TaskError(
                f"the table does not depend on targets {irrelevant}; leave them out: "
                f"targets {','.join(map(str, kept))} with table {write_table(smaller)}"
            )
        object.__setattr__(self, "table", write_table(entries))

    @classmethod
    def draw(
        cls, n_ctx: int, n_targets: int, generator: torch.Generator, p: float | Literal["balanced"] = "balanced"
    ) -> Self:
        """A task with n_targets target indices drawn uniformly, and then a table by `draw_table`.

        Raises:
            TaskError: n_targets outside [1, n_ctx] or above MAX_TARGETS.
        """
        check_n_ctx(n_ctx)
        (targets,) = draw_target_sets(n_ctx, [n_targets], generator)
        return cls(n_ctx, targets, draw_table(n_targets, generator), p)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        return cls(fields["n_ctx"], fields["targets"][0], fields["table"], fields["p"])

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "table": self.table}

    @staticmethod
    def balanced_p(s: int) -> float:
        """One half, whatever the table; `p_true` says how likely the label True then is."""
        return 0.5

    @property
    def entries(self) -> Bool[Tensor, " pattern"]:
        """The table's entries."""
        return torch.from_numpy(np.frombuffer(self.table.encode(), np.uint8) == ord("1"))

    def of_targets(self, bits: Int[Tensor, "batch target"]) -> Bool[Tensor, " batch"]:
        return self.entries[bits.long() @ 2 ** torch.arange(bits.shape[1] - 1, -1, -1)]

    def true_by_count(self) -> list[int]:
        s = len(self.targets[0])
        return patterns(s).sum(dim=1)[self.entries].bincount(minlength=s + 1).tolist()

    def draw_sensitive(self, which: int, n: int, generator: torch.Generator) -> Int[Tensor, "batch target"]:
        bits = patterns(len(self.targets[0]))
        flipped = bits.clone()
        flipped[:, which] = 1 - flipped[:, which]
        turns = self.entries & ~self.of_targets(flipped)
        return bits[draw_given(turns, self.log_p_pattern(bits.sum(dim=1)), n, generator)]


def draw_table(s: int, generator: torch.Generator) -> str:
    """A table of s targets, uniform over those with as many entries True as False that depend on every target.

    Raises:
        TaskError: s outside [1, MAX_TARGETS].
    """
    check_size(s)
    for _ in range(MAX_TABLES):
        entries = (torch.randperm(2**s, generator=generator) < 2 ** (s - 1)).reshape((2,) * s)
        if all(depends(entries, axis) for axis in range(s)):
            return write_table(entries)
    raise TaskError(f"none of {MAX_TABLES} tables drawn depends on all {s} targets; draw with another seed")


def patterns(s: int) -> Int[Tensor, "pattern target"]:
    """All patterns of s bits, counting upwards."""
    return (torch.arange(2**s)[:, None] >> torch.arange(s - 1, -1, -1)) & 1


def check_size(s: int) -> None:
    if not 1 <= s <= MAX_TARGETS:
        raise TaskError(f"{s} targets of a junta; its table of 2**s entries allows 1 to {MAX_TARGETS}")


def read_table(table: str, s: int) -> Bool[Tensor, "*bit"]:
    """A table with one axis a target.

    Raises:
        TaskError: too many targets, or no table of so many, or a constant one.
    """
    check_size(s)
    if not isinstance(table, str) or set(table) - {"0", "1"}:
        raise TaskError(f"table {table!r} is not a text of 0 and 1; write the label of every pattern, such as 0110")
    if len(table) != 2**s:
        raise TaskError(
            f"the table has {len(table)} entries; {s} targets need 2**{s} = {2**s}, the first target most significant"
        )
    if len(set(table)) == 1:
        raise TaskError(f"the table is constant, every entry is {table[0]}; a task needs both labels")
    return torch.tensor([entry == "1" for entry in table]).reshape((2,) * s)


def write_table(entries: Bool[Tensor, "*bit"]) -> str:
    return "".join("01"[entry] for entry in entries.flatten().tolist())


def depends(entries: Bool[Tensor, "*bit"], axis: int) -> bool:
    """Whether some entry changes with the bit of an axis."""
    return bool((entries.select(axis, 0) != entries.select(axis, 1)).any())
