"""Is a thresholded model right on every input, and if not, where and how often?

A counterexample is looked for first, then a proof by branch and bound, then how few changes make a wrong input, then
the probability and number of wrong inputs. Statements are about the function of the stored weights in real arithmetic;
what rounding could change (`Terms.margin`) counts neither as right nor as wrong.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from interp.certify.branch import Budget, climb_from, prove
from interp.certify.side import MOST, Side
from interp.certify.total import Part, Total, changes, count_wrong
from interp.errors import BoolensError

N_STARTS = 14

Wrong = tuple[int, float, Int[np.ndarray, " pos"], str]
"""A wrong input: number of changes, size of its logit, the bits, how it was found."""


class Box(NamedTuple):
    """Inputs of one label: the bit where it is fixed, else -1; the bit that counts as a change, else -1."""

    fixed: Int[np.ndarray, " pos"]
    label: bool
    counted: Int[np.ndarray, " pos"]


@dataclass(frozen=True)
class Certificate:
    """Attributes:
    verdict: 'verified': right on every input; 'refuted': wrong on `counterexample`; else 'undecided'.
    n_inputs: 2**n_ctx.
    n_wrong: their exact number, None where that is not known.
    lower, upper: bounds on the probability of a wrong input under the task's distribution.
    counterexample: the wrong input with the fewest changes that was found; n_changes of it.
    worst: the wrong input found with the logit furthest from 0.
    radius: (largest number of changes that are proven harmless, the same that is known to be possible): every
        input with at most radius[0] changes is right, and one with radius[1] + 1 changes is wrong; -1 where an
        input without any is wrong. The second is the number of positions that can change where none is.
    method: how the verdict was reached.
    open: probability of inputs that were not reached before time ran out, or lie within rounding of 0.
    n_boxes, n_counted: boxes bounded and inputs evaluated.
    margin: how far rounding can move a logit.
    seconds: taken.
    """

    verdict: Literal["verified", "refuted", "undecided"]
    n_inputs: int
    n_wrong: int | None
    lower: float
    upper: float
    counterexample: Int[np.ndarray, " pos"] | None
    n_changes: int | None
    worst: Int[np.ndarray, " pos"] | None
    radius: tuple[int, int]
    by_changes: dict[int, int] | None
    method: str
    open: float
    n_boxes: int
    n_counted: int
    margin: float
    seconds: float


def certify(
    make_side: Callable[[bool, Int[np.ndarray, " pos"]], Side],
    boxes: Sequence[Box],
    bit_probability: Float[np.ndarray, " pos"],
    generator: np.random.Generator,
    *,
    seconds: float = 60.0,
    count: bool = True,
    threads: int = 1,
) -> Certificate:
    """The verdict over all inputs.

    Args:
        make_side: the model against a label, with changes counted as given.
        boxes: of one label each; together every input once.
        bit_probability: P(bit = 1) of each position.
        generator: for the starts of the search.
        seconds: to stop after; the probability of error keeps the bounds that it has then.
        count: also find the probability and number of wrong inputs; else only the verdict and the radius.
        threads: for counting.

    Raises:
        BoolensError: no boxes, or no time.
    """
    if not boxes or not seconds > 0:
        raise BoolensError(f"{len(boxes)} boxes of inputs, {seconds} seconds; give at least one box and some time")
    started = time.monotonic()
    until = started + seconds
    sides: dict[tuple[bool, bytes], Side] = {}

    def side(label: bool, counted: np.ndarray) -> Side:
        key = (label, counted.tobytes())
        if key not in sides:
            sides[key] = make_side(label, counted)
        return sides[key]

    groups: dict[tuple[bool, bytes], tuple[Side, list[np.ndarray]]] = {}
    for box in boxes:
        key = (box.label, box.counted.tobytes())
        groups.setdefault(key, (side(box.label, box.counted), []))[1].append(box.fixed)
    wrong = refute(side, boxes, generator, until)
    budget = Budget(min(one_side.boxes for one_side in sides.values()), until)
    proof = next(iter(sides.values())).proof
    proven, n_boxes = not wrong, 0
    for one_side, fixed in groups.values() if not wrong else ():
        found = prove(one_side, fixed, budget)
        n_boxes += found.n_boxes
        proven &= found.proven
        if found.counterexample is not None:
            x = found.counterexample
            wrong.append((changes(x, one_side.counted), found.logit, x, proof))
    most = max(int((box.counted >= 0).sum()) for box in boxes)
    if proven:
        radius = (most, most)
    else:
        radius, closest, used = _radius(list(groups.values()), wrong, most, until)
        wrong += closest
        n_boxes += used
    total = Total() if proven else Total(open=1.0)
    if count and not proven:
        parts = [Part(b.fixed, side(b.label, b.counted), side(not b.label, b.counted)) for b in boxes]
        total = count_wrong(parts, bit_probability, until=until, threads=threads)
        if total.fewest is not None and total.n_changes is not None:
            wrong.append((total.n_changes, -math.inf, total.fewest, "every input counted"))
        if total.worst is not None:  # None where all wrong ones lie in boxes that are wrong throughout
            wrong.append((MOST, total.largest, total.worst, "every input counted"))
        if not total.open:
            few = [n for n in (total.n_changes, total.fewest_unresolved) if n is not None]
            radius = (min(few) - 1 if few else most, total.n_changes - 1 if total.n_changes is not None else most)
    counted = not proven and count and not total.open
    exact = proven or (counted and not total.n_unresolved)
    nearest = min(wrong, key=lambda entry: entry[0], default=None)
    if wrong:
        verdict, method = "refuted", wrong[0][3]
    elif exact:
        verdict, method = "verified", proof if proven else "every input counted"
    else:
        verdict, method = (
            "undecided",
            "neither proven nor counted in the budget" if total.open else "logits within rounding of 0",
        )
    return Certificate(
        verdict=verdict,
        n_inputs=2 ** len(bit_probability),
        n_wrong=total.n_wrong if exact else None,
        lower=total.wrong,
        upper=min(1.0, total.wrong + total.unresolved + total.open),
        counterexample=nearest[2] if nearest else None,
        n_changes=nearest[0] if nearest else None,
        worst=max(wrong, key=lambda entry: entry[1])[2] if wrong else None,
        radius=radius,
        by_changes=dict(sorted(total.by_changes.items())) if counted else {} if proven else None,
        method=method,
        open=total.open + total.unresolved,
        n_boxes=n_boxes + total.n_boxes,
        n_counted=total.n_counted,
        margin=max(each.margin for each in sides.values()),
        seconds=time.monotonic() - started,
    )


def refute(
    side: Callable[[bool, Int[np.ndarray, " pos"]], Side],
    boxes: Sequence[Box],
    generator: np.random.Generator,
    until: float = math.inf,
) -> list[Wrong]:
    """Wrong inputs by flips of single bits, at most one a box; none of them proves nothing."""
    wrong: list[Wrong] = []
    for box in boxes:
        found = climb_from(side(box.label, box.counted), box.fixed, generator, N_STARTS, until)
        if found.counterexample is not None:
            x = found.counterexample
            wrong.append((changes(x, box.counted), found.logit, x, "flips of single bits"))
        if time.monotonic() > until:
            break
    return wrong


def _radius(
    groups: Sequence[tuple[Side, list[np.ndarray]]], wrong: Sequence[Wrong], most: int, until: float
) -> tuple[tuple[int, int], list[Wrong], int]:
    """The largest number of harmless changes, by one proof after another; wrong inputs with few changes met then."""
    fewest = min((entry[0] for entry in wrong), default=most + 1)
    closest: list[Wrong] = []
    harmless, n_boxes = -1, 0
    while harmless + 1 < fewest:
        limit = harmless + 1
        budget = Budget(min(side.boxes for side, _ in groups), until)
        for side, fixed in groups:
            found = prove(side, fixed, budget, limit)
            n_boxes += found.n_boxes
            if found.counterexample is not None:
                fewest = limit
                closest.append((limit, found.logit, found.counterexample, side.proof))
            if not found.proven:
                return (harmless, fewest - 1), closest, n_boxes
        harmless = limit
    return (harmless, fewest - 1), closest, n_boxes
