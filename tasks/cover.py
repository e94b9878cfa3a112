"""A task's inputs split into boxes of one label: some bits fixed, the others free."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int

from tasks.base import Task
from tasks.boolean import CountFunction
from tasks.conjunction import Conjunction
from tasks.errors import TaskError

MAX_BOXES = 2**16
"""More are refused: parity of s targets needs 2**s, an AND of s only s + 1 a rule."""

MAX_TABLE = 16
"""Targets of a task whose labels are tabulated: 2**16 inputs."""
Settled = Callable[[tuple[int, ...]], bool | None]


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
        TaskError: more than MAX_BOXES boxes, or more than MAX_TABLE targets of a task that is not an AND or a function
            of how many targets are 1.
    """
    boxes = []
    for rule, targets in enumerate(task.targets):
        for bits, label in _patterns(_settled(task, rule), ()):
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


def _patterns(settled: Settled, bits: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], bool]]:
    """The shortest beginnings of the targets' bits that settle the label, from `bits` on."""
    label = settled(bits)
    if label is not None:
        yield bits, label
        return
    for bit in (0, 1):
        yield from _patterns(settled, (*bits, bit))


def _settled(task: Task, rule: int) -> Settled:
    """From the first targets' bits to the label that they settle, whatever the other targets are; None while open."""
    s = len(task.targets[rule])
    if isinstance(task, Conjunction):
        return lambda bits: False if 0 in bits else None if len(bits) < s else True
    if isinstance(task, CountFunction):
        return lambda bits: _single({bool(task.of_count(sum(bits) + more)) for more in range(s - len(bits) + 1)})
    if s > MAX_TABLE:
        raise TaskError(f"{task.NAME} has {s} targets; a table of its labels allows {MAX_TABLE}, use fewer")
    x = torch.zeros(2**s, task.n_ctx, dtype=torch.int64)
    x[:, list(task.rule_positions)] = torch.tensor(task.rule_bits(rule), dtype=torch.int64)
    x[:, list(task.targets[rule])] = (torch.arange(2**s)[:, None] >> torch.arange(s - 1, -1, -1)) & 1
    table = task.label(x).tolist()

    def by_table(bits: tuple[int, ...]) -> bool | None:
        size = 2 ** (s - len(bits))
        first = int("0" + "".join(map(str, bits)), 2) * size
        return _single(set(table[first : first + size]))

    return by_table


def _single(labels: set[bool]) -> bool | None:
    return labels.pop() if len(labels) == 1 else None
