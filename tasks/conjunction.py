"""What the AND tasks share: the label is True where every bit of the selected target set is 1."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.base import Task
from tasks.draws import balanced_p
from tasks.errors import TaskError

Probability = float | Literal["balanced", "tutorial"]


@dataclass(frozen=True)
class Conjunction(Task):
    """AND over the target set that the rule bits select (one set, without rule bits)."""

    def _label(self, x: Int[Tensor, "batch pos"]) -> Bool[Tensor, " batch"]:
        by_rule = torch.stack([(x[:, list(t)] == 1).all(dim=1) for t in self.targets])
        return by_rule.gather(0, self.rule(x)[None])[0]

    @property
    def p_true(self) -> float:
        """P(label = True): the mean over rules of p**size, since the rule bits are fair."""
        return math.fsum(self.p ** len(t) for t in self.targets) / self.n_rules


def resolve_p(p: Probability, sizes: Sequence[int], tutorial_size: int) -> float:
    """'balanced' solves for equally likely labels; 'tutorial' is 0.5**(1/tutorial_size) whatever the sizes."""
    if p == "balanced":
        return balanced_p(sizes) if all(sizes) else 0.5
    if p == "tutorial":
        return 0.5 ** (1 / tutorial_size)
    if isinstance(p, str):
        raise TaskError(f"p = {p!r} is not a probability; give a number in (0, 1), 'balanced' or 'tutorial'")
    return p
