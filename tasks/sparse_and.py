"""sparse-and: the AND of s of T bits (Edelman et al. 2022; the tutorial's Exercise 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from tasks.base import check_n_ctx
from tasks.conjunction import Conjunction, Probability, resolve_p
from tasks.draws import draw_target_sets


@dataclass(frozen=True, init=False)
class SparseAnd(Conjunction):
    """label(x) = AND of x[i] over the target set.

    >>> task = SparseAnd(5, targets=(1, 3))
    >>> task.label(torch.tensor([[0, 1, 0, 1, 0], [1, 1, 1, 0, 1]])).tolist()
    [True, False]
    """

    NAME: ClassVar[str] = "sparse-and"

    def __init__(self, n_ctx: int, targets: Sequence[int], p: Probability = "balanced") -> None:
        """
        Args:
            n_ctx: number of bits T.
            targets: the target indices; negative ones count from the end.
            p: P(bit = 1); 'balanced' is 0.5**(1/s), 'tutorial' is 0.5**(1/3) for every s.

        Raises:
            TaskError: an index out of range or given twice, no index, p outside (0, 1), n_ctx < 1.
        """
        super().__init__(n_ctx, (tuple(targets),), resolve_p(p, [len(targets)], tutorial_size=3))

    @classmethod
    def draw(cls, n_ctx: int, n_targets: int, generator: torch.Generator, p: Probability = "balanced") -> Self:
        """A task with n_targets target indices drawn uniformly.

        Raises:
            TaskError: n_targets outside [1, n_ctx].
        """
        check_n_ctx(n_ctx)
        return cls(n_ctx, draw_target_sets(n_ctx, [n_targets], generator)[0], p)

    @classmethod
    def from_fields(cls, fields: dict) -> Self:
        return cls(fields["n_ctx"], fields["targets"][0], fields["p"])

    @property
    def variables(self) -> tuple[str, ...]:
        return ("inputs", "and", "label")
