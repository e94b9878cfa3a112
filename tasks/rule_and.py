"""rule-and: rule bits choose which target set the AND is taken over (the tutorial's "Extra" task)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from tasks.base import check_n_ctx
from tasks.conjunction import Conjunction, Probability, resolve_p
from tasks.draws import draw_target_sets
from tasks.errors import TaskError


@dataclass(frozen=True, init=False)
class RuleAnd(Conjunction):
    """label(x) = AND of x[i] over targets[rule(x)]; k rule bits choose among 2**k target sets.

    >>> task = RuleAnd(5, targets=((0, 1), (2,)))
    >>> task.rule_positions
    (4,)
    >>> task.label(torch.tensor([[1, 1, 0, 0, 0], [1, 1, 0, 0, 1]])).tolist()
    [True, False]
    """

    NAME: ClassVar[str] = "rule-and"

    def __init__(
        self,
        n_ctx: int,
        targets: Sequence[Sequence[int]],
        p: Probability = "balanced",
        rule_positions: Sequence[int] | None = None,
    ) -> None:
        """
        Args:
            n_ctx: number of bits T, rule bits included.
            targets: 2**k target sets (k >= 1), which may differ in size and overlap.
            p: P(bit = 1) of the other bits (rule bits are fair); 'balanced' makes both labels equally
                likely, 'tutorial' is 0.5**(1/2) for every size.
            rule_positions: positions of the k rule bits, most significant first; the last k by default.

        Raises:
            TaskError: a number of sets that is not 2**k with k >= 1, an index out of range, given twice
                or also a rule position, an empty set, p outside (0, 1).
        """
        k = len(targets).bit_length() - 1
        if k < 1 or len(targets) != 2**k:
            raise TaskError(f"{len(targets)} target sets; rule-and needs 2, 4, 8, ... (2**k for k rule bits)")
        if rule_positions is None:
            check_n_ctx(n_ctx)
            if k > n_ctx:
                raise TaskError(f"{k} rule bits do not fit into n_ctx = {n_ctx} positions; raise n_ctx")
            rule_positions = tuple(range(n_ctx - k, n_ctx))
        sizes = [len(t) for t in targets]
        super().__init__(n_ctx, tuple(tuple(t) for t in targets), resolve_p(p, sizes, 2), tuple(rule_positions))

    @classmethod
    def draw(
        cls, n_ctx: int, n_targets: int, generator: torch.Generator, p: Probability = "balanced", n_rule_bits: int = 1
    ) -> Self:
        """A task with disjoint target sets of n_targets indices each, drawn uniformly; rule bits last.

        Raises:
            TaskError: too few positions for 2**n_rule_bits disjoint sets.
        """
        check_n_ctx(n_ctx)
        if not 1 <= n_rule_bits <= n_ctx:
            raise TaskError(f"{n_rule_bits} rule bits; give 1 to n_ctx = {n_ctx}")
        rule_positions = range(n_ctx - n_rule_bits, n_ctx)
        sizes = [n_targets] * 2**n_rule_bits
        return cls(n_ctx, draw_target_sets(n_ctx, sizes, generator, exclude=rule_positions), p)

    @classmethod
    def from_fields(cls, fields: dict) -> Self:
        return cls(fields["n_ctx"], fields["targets"], fields["p"], fields["rule_positions"])

    @property
    def variables(self) -> tuple[str, ...]:
        return ("inputs", "rule", "selected", "and", "label")
