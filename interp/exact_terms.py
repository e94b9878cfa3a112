"""The closed forms of the exact engine: what a row of attention adds to the logit when one of its terms is replaced.

For one head and dest let e_src = exp(score_src) and read_src = readout[dest] · v[src]. The row adds N / D to the logit,
with D = Σ e_src and N = Σ e_src · read_src. Replacing the term of one src by (score', read') leaves the other terms'
sum R = D − e_src and mean read as they were, so with p' = e' / (R + e') the row changes by

    p' · (read' − others' mean) − p · (read − others' mean).

Removing the key is p' = 0. Each cell costs O(1) once R and the mean are known, and `others` finds them for all cells of
a row in O(src). A difference like D − e_src is meaningless in floating point where e_src makes up nearly all of D.
That can be so for the largest term alone: what is left beside any other term is at least as large as that term. So the
largest term is left out first, and what is left beside it is summed of itself, relative to its own largest term.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

Cells = Float[Tensor, "batch head dest src"]


@dataclass(frozen=True)
class Others:
    """What each row holds beside the term of one src, for every src.

    Attributes:
        total: Σ exp(score − shift) of the other keys; at least 1, but 0 where there is no other key.
        shift: the score that the total is relative to.
        mean: the mean of the other keys' reads, weighted by exp(score); 0 where there is no other key.
    """

    total: Cells
    shift: Cells
    mean: Cells

    def pattern(self, scores: Cells) -> Cells:
        """The pattern at each src if its score were this one and the other keys' as they are; -inf gives 0."""
        if scores.shape[-1] == 1:
            return torch.ones_like(scores)
        return (self.shift - scores).exp_().mul_(self.total).add_(1).reciprocal_()


def others(scores: Cells, read: Cells) -> Others:
    """See the module's docstring. Right for any finite scores, however far apart."""
    if scores.shape[-1] == 1:
        return Others(torch.zeros_like(scores), scores, torch.zeros_like(scores))
    largest, top = scores.max(dim=-1, keepdim=True)
    weight = scores.scatter(-1, top, -torch.inf)
    second = weight.amax(dim=-1, keepdim=True)
    weight = weight.sub_(second).exp_()
    total = weight.sum(dim=-1, keepdim=True)
    weighted = (weight * read).sum(dim=-1, keepdim=True)
    # from here on relative to the largest score, whose own weight is 1
    scale = (second - largest).exp_()
    weight = weight.mul_(scale)
    mean = (read.gather(-1, top) + scale * weighted) - weight * read
    rest = (1 + scale * total) - weight
    mean = mean.div_(rest).scatter_(-1, top, weighted / total)
    shift = largest.expand_as(scores).scatter(-1, top, second)
    return Others(rest.scatter_(-1, top, total), shift, mean)


def swapped(scores: Cells, pattern: Cells, read: Cells, new_scores: Cells, new_read: Cells | None = None) -> Cells:
    """The change of the logit when the term of one (head, dest, src) is replaced, for every one of them.

    Args:
        scores, pattern, read: the unedited run's.
        new_scores, new_read: score and read that replace a cell's own; the read stays where new_read is None.
    """
    rest = others(scores, read)
    new_pattern = rest.pattern(new_scores)
    if new_read is None:
        return new_pattern.sub_(pattern).mul_(read - rest.mean)
    return new_pattern.mul_(new_read - rest.mean).sub_((read - rest.mean).mul_(pattern))


def removed(scores: Cells, pattern: Cells, read: Cells) -> Cells:
    """The change of the logit when one (head, dest, src) is no longer attended to and the row's rest renormalised."""
    return (others(scores, read).mean - read).mul_(pattern)


def reads(readout: Float[Tensor, "dest head d_value"], value: Float[Tensor, "batch src head d_value"]) -> Cells:
    """readout[dest] · v[src]: what the logit gains for each unit of pattern."""
    return einsum(readout, value, "dest head d_value, batch src head d_value -> batch head dest src")


def row_outputs(scores: Cells, read: Cells) -> Float[Tensor, "batch head dest"]:
    """What each row adds to the logit."""
    return (scores.softmax(dim=-1) * read).sum(dim=-1)
