"""A task's inputs split into boxes of one label: some bits fixed, the others free."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from tasks.base import Task
from tasks.boolean import CountFunction
from tasks.conjunction import Conjunction
from tasks.errors import TaskError
from tasks.junta import Junta

MAX_BOXES = 2**16
"""More are refused: parity of s targets needs 2**s, an AND of s only s + 1 a rule."""


class LabelBox(NamedTuple):
    """Inputs with a rule in force, some targets fixed and one label.

    Attributes:
        rule: the rule in force.
        fixed: [pos], int8: the bit of a position that is fixed, -1 of one that is free.
        label: of every input in the box.
    """

    rule: int
    fixed: Int[np.ndarray, " pos"]
    label: bool


def label_cover(task: Task) -> list[LabelBox]:
    """Boxes that together hold every input once, each with one label and rule; few of them.

    >>> from tasks import SparseAnd
    >>> [(box.fixed.tolist(), box.label) for box in label_cover(SparseAnd(3, (0, 2)))]
    [([0, -1, -1], False), ([1, -1, 0], False), ([1, -1, 1], True)]

    Raises:
        TaskError: more than MAX_BOXES boxes, or a task of a kind that this does not know.
    """
    boxes = []
    for rule, targets in enumerate(task.targets):
        for bits, label in _patterns(task, len(targets), (), rule):
            fixed = np.full(task.n_ctx, -1, dtype=np.int8)
            fixed[list(task.rule_positions)] = task.rule_bits(rule)
            fixed[list(targets[: len(bits)])] = bits
            boxes.append(LabelBox(rule, fixed, label))
            if len(boxes) > MAX_BOXES:
                raise TaskError(
                    f"{task.NAME} of {len(targets)} targets has more than {MAX_BOXES} boxes of one label; "
                    "use fewer targets"
                )
    return boxes


def _patterns(task: Task, s: int, bits: tuple[int, ...], rule: int) -> Iterator[tuple[tuple[int, ...], bool]]:
    """The shortest beginnings of the targets' bits that settle the label, from `bits` on."""
    label = settled(task, bits, s)
    if label is not None:
        yield bits, label
        return
    for bit in (0, 1):
        yield from _patterns(task, s, (*bits, bit), rule)


def settled(task: Task, bits: tuple[int, ...], s: int) -> bool | None:
    """The label that the first targets' bits settle, whatever the other of the s are; None while it is open.

    Raises:
        TaskError: a task of a kind that this does not know.
    """
    left = s - len(bits)
    if isinstance(task, Conjunction):
        return False if 0 in bits else None if left else True
    if isinstance(task, CountFunction):
        labels = {bool(task.of_count(sum(bits) + more)) for more in range(left + 1)}
    elif isinstance(task, Junta):
        first = int("0" + "".join(map(str, bits)), 2) << left
        labels = {entry == "1" for entry in task.table[first : first + 2**left]}
    else:
        raise TaskError(
            f"{task.NAME} cannot be split into boxes of one label; conjunctions, or, majority, parity, junta can"
        )
    return labels.pop() if len(labels) == 1 else None
