"""Branch and bound over boxes of inputs: proof, counterexample, or what is left open."""

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int

from interp.certify.side import MOST, Side

BATCH = 32
"""Boxes bounded at once."""


@dataclass
class Budget:
    """What a search may cost; shared between searches, so that they stop together.

    Attributes:
        boxes: still to be bounded.
        until: `time.monotonic()` at which to stop.
    """

    boxes: int
    until: float = np.inf

    @property
    def spent(self) -> bool:
        return self.boxes <= 0 or time.monotonic() > self.until


@dataclass
class Searched:
    """Attributes:
    counterexample: an input with a logit above the margin, or None.
    logit: of it, its sign turned so that above 0 is wrong.
    open: boxes that are neither proven nor split, when the budget ran out.
    upper: largest bound over these; below 0 where all is proven.
    n_boxes: bounded.
    """

    counterexample: Int[np.ndarray, " pos"] | None = None
    logit: float = -np.inf
    open: list[np.ndarray] = field(default_factory=list)
    upper: float = -np.inf
    n_boxes: int = 0

    @property
    def proven(self) -> bool:
        return self.counterexample is None and not self.open


def prove(side: Side, boxes: Sequence[np.ndarray], budget: Budget, limit: int = MOST) -> Searched:
    """Is every input in the boxes, with at most `limit` counted bits, right by more than rounding?

    Best first by bound; every box's likely maximiser is evaluated.

    Args:
        side: the model, for the label of all the boxes.
        boxes: [pos] each, the bit where it is fixed, else -1.
        budget: boxes are taken off it.
        limit: counted bits in an input, those at fixed positions included.
    """
    found = Searched()
    heap: list[tuple[float, int, np.ndarray, int]] = []
    order = 0
    children = [np.asarray(box, dtype=np.int8) for box in boxes]
    counting = side.counted >= 0
    while True:
        while children:
            batch, children = np.stack(children[:BATCH]), children[BATCH:]
            left = limit - (batch == side.counted)[:, counting].sum(axis=1)
            batch, left = batch[left >= 0], left[left >= 0]
            if not len(batch):
                continue
            upper, best, effect = side.bound(batch, left)
            logit = side.logits(best)
            logit[(best == side.counted)[:, counting].sum(axis=1) > limit] = -np.inf
            worst = int(logit.argmax())
            if logit[worst] > side.margin:
                found.counterexample, found.logit = best[worst].astype(np.int64), float(logit[worst])
                found.n_boxes += len(batch)
                return found
            found.n_boxes += len(batch)
            budget.boxes -= len(batch)
            for i, box in enumerate(batch):
                if upper[i] < -side.slack:
                    continue
                free = np.flatnonzero(box < 0)
                split = int(free[effect[i, free].argmax()]) if len(free) else -1
                heapq.heappush(heap, (-float(upper[i]), order, box, split))
                order += 1
        if not heap:
            return found
        if budget.spent or heap[0][3] < 0:
            break
        for _ in range(min(BATCH // 2, len(heap))):
            if heap[0][3] < 0:
                break
            _, _, box, split = heapq.heappop(heap)
            for bit in (0, 1):
                child = box.copy()
                child[split] = bit
                children.append(child)
    found.open = [box for _, _, box, _ in heap]
    found.upper = -heap[0][0]
    return found


def climb_from(
    side: Side, box: Int[np.ndarray, " pos"], generator: np.random.Generator, n_starts: int, until: float = np.inf
) -> Searched:
    """The worst input of a box found by flipping single bits, from all ones, all zeros and random starts.

    A start's bits are ones with a uniformly drawn probability. Nothing found proves nothing. The time is looked at
    (`time.monotonic`) after each start.
    """
    density = np.concatenate([[0.0, 1.0], generator.random(n_starts)])[:, None]
    starts = np.where(box >= 0, box, generator.random((len(density), len(box))) < density)
    best = Searched()
    for start in starts.astype(np.int8):
        (reached,), (logit,) = side.climb(start[None], np.asarray(box, dtype=np.int8))
        if logit > max(side.margin, best.logit):
            best = Searched(reached.astype(np.int64), float(logit))
        if time.monotonic() > until:
            break
    return best
