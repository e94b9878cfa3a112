"""or, majority and parity: functions of how many targets are 1. What they share with junta is `TargetFunction`."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import betaincinv
from torch import Tensor

from tasks.base import Task, check_n_ctx
from tasks.draws import draw_target_sets
from tasks.errors import TaskError


@dataclass(frozen=True, init=False)
class TargetFunction(Task):
    """A function of the bits of one target set; there are no rule bits."""

    def __init__(self, n_ctx: int, targets: Sequence[int], p: float | Literal["balanced"] = "balanced") -> None:
        """
        Args:
            n_ctx: number of bits T.
            targets: the target indices; negative ones count from the end.
            p: P(bit = 1), in (0, 1); 'balanced' is `balanced_p` of the number of targets.

        Raises:
            TaskError: an index out of range or given twice, no index, p outside (0, 1), n_ctx < 1.
        """
        chosen = tuple(targets)
        if p == "balanced":
            p = self.balanced_p(len(chosen)) if chosen else 0.5
        elif isinstance(p, str):
            raise TaskError(
                f"p = {p!r} is not a probability; give a number in (0, 1) or 'balanced' "
                f"('tutorial' is for sparse-and and rule-and)"
            )
        super().__init__(n_ctx, (chosen,), p)

    @classmethod
    def draw(
        cls, n_ctx: int, n_targets: int, generator: torch.Generator, p: float | Literal["balanced"] = "balanced"
    ) -> Self:
        """A task with n_targets target indices drawn uniformly.

        Raises:
            TaskError: n_targets outside [1, n_ctx].
        """
        check_n_ctx(n_ctx)
        return cls(n_ctx, draw_target_sets(n_ctx, [n_targets], generator)[0], p)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        return cls(fields["n_ctx"], fields["targets"][0], fields["p"])

    @staticmethod
    @abstractmethod
    def balanced_p(s: int) -> float:
        """The P(bit = 1) at which both labels of a function of s targets are equally likely."""

    @abstractmethod
    def of_targets(self, bits: Int[Tensor, "batch target"]) -> Bool[Tensor, " batch"]:
        """The label as a function of the targets' bits, in the order of the sorted targets."""

    @abstractmethod
    def true_by_count(self) -> list[int]:
        """How many of the targets' patterns with 0, 1, ..., s ones have the label True."""

    @abstractmethod
    def draw_sensitive(self, which: int, n: int, generator: torch.Generator) -> Int[Tensor, "batch target"]:
        """n patterns of the targets with the label True, which flipping target number `which` makes False.

        They have the task's distribution, given that; nothing is rejected, so that rare ones are found too.
        """

    def log_p_pattern(self, ones: Int[Tensor, "*case"]) -> Float[Tensor, "*case"]:
        """Natural log of the probability of one pattern of the targets with so many ones, float64."""
        return ones.double() * math.log(self.p) + (len(self.targets[0]) - ones).double() * math.log1p(-self.p)

    def _label(self, x: Int[Tensor, "batch pos"]) -> Bool[Tensor, " batch"]:
        return self.of_targets(x[:, list(self.targets[0])])

    @property
    def p_true(self) -> float:
        """P(label = True): a sum over the numbers of ones, in whole numbers, rounded once."""
        ones, whole = self.p.as_integer_ratio()
        s = len(self.targets[0])
        total = sum(n * ones**k * (whole - ones) ** (s - k) for k, n in enumerate(self.true_by_count()))
        return total / whole**s

    @property
    def variables(self) -> tuple[str, ...]:
        return ("inputs", self.NAME, "label")


@dataclass(frozen=True, init=False)
class CountFunction(TargetFunction):
    """A function of how many targets are 1."""

    @abstractmethod
    def of_count(self, count: Any) -> Any:
        """The label where so many targets are 1: an int gives a bool, a tensor of them a tensor."""

    def of_targets(self, bits: Int[Tensor, "batch target"]) -> Bool[Tensor, " batch"]:
        return self.of_count(bits.sum(dim=1))

    def true_by_count(self) -> list[int]:
        s = len(self.targets[0])
        return [math.comb(s, k) if self.of_count(k) else 0 for k in range(s + 1)]

    def draw_sensitive(self, which: int, n: int, generator: torch.Generator) -> Int[Tensor, "batch target"]:
        s = len(self.targets[0])
        # the target's own bit, and how many of the s - 1 others are 1
        bit, others = torch.meshgrid(torch.arange(2), torch.arange(s), indexing="ij")
        log_ways = -torch.lgamma(others.double() + 1) - torch.lgamma((s - others).double())  # up to a constant
        ones = bit + others
        turns = self.of_count(ones) & ~self.of_count(others + 1 - bit)
        picked = draw_given(turns.flatten(), (log_ways + self.log_p_pattern(ones)).flatten(), n, generator)
        order = torch.rand(n, s - 1, generator=generator, dtype=torch.float64).argsort(dim=1).argsort(dim=1)
        bits = (order < others.flatten()[picked, None]).long()
        return torch.cat([bits[:, :which], bit.flatten()[picked, None], bits[:, which:]], dim=1)


@dataclass(frozen=True, init=False)
class Or(CountFunction):
    """label(x) = OR of x[i] over the target set.

    >>> Or(4, targets=(1, 3)).label(torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]])).tolist()
    [False, True]
    """

    NAME: ClassVar[str] = "or"

    @staticmethod
    def balanced_p(s: int) -> float:
        return 1 - 0.5 ** (1 / s)

    def of_count(self, count: Any) -> Any:
        return count > 0


@dataclass(frozen=True, init=False)
class Majority(CountFunction):
    """label(x) = more than half of the targets are 1; an even number of targets that ties is False.

    >>> Majority(4, targets=(0, 1, 3)).label(torch.tensor([[1, 0, 1, 0], [1, 0, 0, 1]])).tolist()
    [False, True]
    """

    NAME: ClassVar[str] = "majority"

    @staticmethod
    def balanced_p(s: int) -> float:
        """0.5 for odd s; for even s above it, since ties are False (a quantile of the beta distribution)."""
        return 0.5 if s % 2 else float(betaincinv(s // 2 + 1, s // 2, 0.5))

    def of_count(self, count: Any) -> Any:
        return 2 * count > len(self.targets[0])


@dataclass(frozen=True, init=False)
class Parity(CountFunction):
    """label(x) = an odd number of targets is 1.

    >>> Parity(4, targets=(1, 3)).label(torch.tensor([[1, 1, 1, 1], [1, 0, 0, 1]])).tolist()
    [False, True]
    """

    NAME: ClassVar[str] = "parity"

    @staticmethod
    def balanced_p(s: int) -> float:
        return 0.5

    def of_count(self, count: Any) -> Any:
        return count % 2 == 1


def draw_given(
    allowed: Bool[Tensor, " case"], log_weight: Float[Tensor, " case"], n: int, generator: torch.Generator
) -> Int[Tensor, " batch"]:
    """n cases among those allowed, in proportion to exp(log_weight) however small that is."""
    weight = torch.where(allowed, log_weight.double(), -torch.inf).softmax(dim=0)
    return torch.multinomial(weight, n, replacement=True, generator=generator)
