"""Task: a Boolean function of T bits that depends on a few of them, and the distribution of its inputs."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.draws import draw_distinct, draw_independent
from tasks.errors import TaskError

ENUMERATE_LIMIT = 20
"""Largest n_ctx for which all 2**n_ctx inputs are listed (2**20 rows of 20 bits are 160 MiB of int64)."""


@dataclass(frozen=True)
class Task(ABC):
    """A Boolean function and its input distribution.

    Bits are independent; each is 1 with probability `p`, except rule bits, which are fair.

    Attributes:
        n_ctx: number of input bits T, at least 1.
        targets: one target set (sorted indices in [0, n_ctx)) per rule; a task without rule bits has one.
        p: P(bit = 1) of the bits that are not rule bits, in (0, 1).
        rule_positions: positions of the rule bits, most significant first; () without a rule.
    """

    n_ctx: int
    targets: tuple[tuple[int, ...], ...]
    p: float
    rule_positions: tuple[int, ...] = ()

    NAME: ClassVar[str]
    OWN_FIELDS: ClassVar[frozenset[str]] = frozenset()
    """Fields of task.json that only this task has."""
    ON_ALL_INPUTS: ClassVar[bool] = True
    """Whether every one of the 2**n_ctx inputs has a label, and bits are independent."""

    def __post_init__(self) -> None:
        check_n_ctx(self.n_ctx)
        object.__setattr__(self, "n_ctx", int(self.n_ctx))
        object.__setattr__(self, "rule_positions", checked_indices(self.rule_positions, self.n_ctx, "rule_positions"))
        n_rules = 2 ** len(self.rule_positions)
        if len(self.targets) != n_rules:
            raise TaskError(
                f"{len(self.targets)} target sets for {len(self.rule_positions)} rule bits; "
                f"give {n_rules}, one for each value of the rule bits"
            )
        checked = tuple(
            tuple(sorted(checked_indices(t, self.n_ctx, f"targets of rule {r}"))) for r, t in enumerate(self.targets)
        )
        for rule, targets in enumerate(checked):
            if not targets:
                raise TaskError(f"the target set of rule {rule} is empty; give at least one index")
            clash = sorted(set(targets) & set(self.rule_positions))
            if clash:
                raise TaskError(
                    f"position {clash[0]} is both a rule position and a target of rule {rule}; choose another"
                )
        object.__setattr__(self, "targets", checked)
        if not (isinstance(self.p, int | float) and math.isfinite(self.p) and 0 < self.p < 1):
            raise TaskError(f"p = {self.p!r} is outside (0, 1); 'balanced' makes both labels equally likely")
        object.__setattr__(self, "p", float(self.p))

    @property
    def n_rules(self) -> int:
        """Number of rules, 2**len(rule_positions)."""
        return len(self.targets)

    @property
    def candidates(self) -> tuple[int, ...]:
        """Positions that could be targets: all but the rule positions."""
        return tuple(i for i in range(self.n_ctx) if i not in self.rule_positions)

    @property
    def position_names(self) -> tuple[str, ...]:
        """What each position is called in figures and sentences; () where its number is its name."""
        return ()

    @property
    def bit_probability(self) -> tuple[float, ...]:
        """P(bit = 1) for each position."""
        return tuple(0.5 if i in self.rule_positions else self.p for i in range(self.n_ctx))

    def rule(self, x: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
        """The rule in force: the rule bits read as a binary number, most significant first."""
        self._check(x)
        rule = torch.zeros(len(x), dtype=torch.int64)
        for position in self.rule_positions:
            rule = 2 * rule + x[:, position]
        return rule

    def label(self, x: Int[Tensor, "batch pos"]) -> Bool[Tensor, " batch"]:
        """The function's value for each row of bits."""
        self._check(x)
        return self._label(x)

    @abstractmethod
    def _label(self, x: Int[Tensor, "batch pos"]) -> Bool[Tensor, " batch"]: ...

    @property
    @abstractmethod
    def p_true(self) -> float:
        """P(label = True) under the task's input distribution, exact."""

    def sample(
        self, n: int, generator: torch.Generator, *, rule: int | None = None, distinct: bool = False
    ) -> Int[Tensor, "batch pos"]:
        """Draw n inputs (int64 bits) from the task's distribution.

        Args:
            n: number of rows, at least 1.
            generator: source of randomness; the global state is not touched.
            rule: condition on this rule being in force.
            distinct: draw without repeats (distributed as when repeats are drawn again).

        Raises:
            TaskError: n < 1, no such rule, or more distinct inputs than exist or can be found.
        """
        if n < 1:
            raise TaskError(f"n = {n} samples; ask for at least 1")
        probability = list(self.bit_probability)
        if rule is not None:
            for position, bit in zip(self.rule_positions, self.rule_bits(rule), strict=True):
                probability[position] = float(bit)
        draw = draw_distinct if distinct else draw_independent
        return draw(n, probability, generator)

    def rule_bits(self, rule: int) -> tuple[int, ...]:
        """The rule bits that select `rule`, in the order of rule_positions."""
        if not 0 <= rule < self.n_rules:
            raise TaskError(f"rule {rule} does not exist; this task has rules 0 to {self.n_rules - 1}")
        k = len(self.rule_positions)
        return tuple((rule >> (k - 1 - i)) & 1 for i in range(k))

    def enumerate(self) -> Int[Tensor, "batch pos"]:
        """All 2**n_ctx inputs, counting upwards with position 0 as the most significant bit.

        Raises:
            TaskError: n_ctx > ENUMERATE_LIMIT.
        """
        if self.n_ctx > ENUMERATE_LIMIT:
            raise TaskError(
                f"2**{self.n_ctx} inputs are too many to list (limit n_ctx = {ENUMERATE_LIMIT}); use sample()"
            )
        numbers = torch.arange(2**self.n_ctx)
        return (numbers[:, None] >> torch.arange(self.n_ctx - 1, -1, -1)) & 1

    def log_probability(self, x: Int[Tensor, "batch pos"]) -> Tensor:
        """Natural log of each input's probability, float64 [batch]."""
        self._check(x)
        p = torch.tensor(self.bit_probability, dtype=torch.float64)
        return torch.where(x == 1, p.log(), torch.log1p(-p)).sum(dim=1)

    @property
    @abstractmethod
    def variables(self) -> tuple[str, ...]:
        """Names of the causal model's variables, from inputs to label."""

    def to_dict(self) -> dict[str, Any]:
        """The content of task.json; `tasks.task_from_dict` reads it back."""
        return {
            "schema": 1,
            "task": self.NAME,
            "n_ctx": self.n_ctx,
            "rule_positions": list(self.rule_positions),
            "targets": [list(t) for t in self.targets],
            "p": self.p,
        }

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        """Build from task.json's fields, the schema and task name already removed."""
        return cls(**{**fields, "targets": tuple(tuple(t) for t in fields["targets"])})

    def _check(self, x: Tensor) -> None:
        if x.ndim != 2 or x.shape[1] != self.n_ctx or x.is_floating_point() or x.is_complex():
            raise TaskError(
                f"inputs have shape {tuple(x.shape)} and type {x.dtype}; "
                f"this task takes integers [batch, pos] with pos = {self.n_ctx}"
            )
        if x.numel() and not 0 <= int(x.min()) <= int(x.max()) <= 1:
            raise TaskError(f"inputs range from {int(x.min())} to {int(x.max())}; every bit must be 0 or 1")


def check_n_ctx(n_ctx: int) -> None:
    """Raise TaskError unless n_ctx is a whole number of at least 1."""
    if isinstance(n_ctx, bool) or not isinstance(n_ctx, Integral) or n_ctx < 1:
        raise TaskError(f"n_ctx is {n_ctx!r}; a task needs a whole number of input bits, at least 1")


def checked_indices(values: Sequence[int], n_ctx: int, what: str) -> tuple[int, ...]:
    """Positions as ints; negative ones count from the end; duplicates and out-of-range ones are refused."""
    found: list[int] = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Integral) or not -n_ctx <= value < n_ctx:
            raise TaskError(f"{what}: index {value!r} is outside [0, {n_ctx})")
        index = int(value) % n_ctx
        if index in found:
            raise TaskError(f"{what}: index {index} is given twice; name each index once")
        found.append(index)
    return tuple(found)
