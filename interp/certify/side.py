"""What the searches need of a model: one for each label, logits with their sign turned so that above 0 is wrong."""

from typing import Protocol

import numpy as np
from jaxtyping import Float, Int

from interp.certify.bounds import bound, signed
from interp.certify.count import Counted, count_box
from interp.certify.search import climb, logits
from interp.certify.terms import Terms

MOST = int(np.iinfo(np.int32).max)
"""As a limit on counted bits: none."""
MAX_BOXES = 4000
"""Boxes bounded at most where bounds are cheap."""
BRANCH_AND_BOUND = "branch and bound"
CLOSED_FORM = "closed form: with one head, the sign of a linear function of the bits"


class Side(Protocol):
    """A model against one label.

    Attributes:
        counted: the bit that counts as a change at each position, -1 where neither does.
        margin: how far rounding can move a logit.
        slack: how far rounding can move a bound.
        leaf: boxes of at most so many free bits are better counted than split.
        boxes: that a proof may bound, and each of the proofs about the radius, before counting takes over.
        proof: what a proof is called.
    """

    counted: Int[np.ndarray, " pos"]
    margin: float
    slack: float
    leaf: int
    boxes: int
    proof: str

    def bound(
        self, boxes: Int[np.ndarray, "box pos"], limit: Int[np.ndarray, " box"]
    ) -> tuple[Float[np.ndarray, " box"], Int[np.ndarray, "box pos"], Float[np.ndarray, "box pos"]]:
        """For each box: an upper bound over inputs with at most `limit` counted bits at free positions, an input that
        may come near it, and what each position has to do with its being loose.
        """
        ...

    def logits(self, x: Int[np.ndarray, "batch pos"]) -> Float[np.ndarray, " batch"]: ...

    def climb(
        self, starts: Int[np.ndarray, "start pos"], fixed: Int[np.ndarray, " pos"]
    ) -> tuple[Int[np.ndarray, "start pos"], Float[np.ndarray, " start"]]:
        """From each start to an input of larger logit, free bits only."""
        ...

    def count(self, fixed: Int[np.ndarray, " pos"]) -> Counted | int:
        """The wrong inputs of a box; or where to split it."""
        ...


class RatioSide:
    """A model that is a sum of ratios: attention, or a linear model."""

    leaf = 19  # counting 2**19 inputs of 30 terms takes as long as bounding a few dozen boxes
    boxes = MAX_BOXES

    def __init__(self, terms: Terms, label: bool, counted: Int[np.ndarray, " pos"]) -> None:
        self.terms, self.label = terms, label
        self.counted = np.asarray(counted, dtype=np.int8)
        self.signed = signed(terms, label, self.counted)
        self.margin, self.slack = terms.margin, 4 * terms.margin
        single = len(terms.own) == 1 and terms.own[0] < 0 and not terms.additive.any()
        self.proof = CLOSED_FORM if single else BRANCH_AND_BOUND

    def bound(self, boxes, limit):
        return bound(self.signed, boxes, limit)

    def logits(self, x):
        return logits(self.signed, np.asarray(x, dtype=np.int8))

    def climb(self, starts, fixed):
        return climb(self.signed, starts, fixed)

    def count(self, fixed):
        return count_box(self.terms, fixed, self.label, self.counted)
