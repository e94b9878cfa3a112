"""Boxes of one label against the labels of all inputs."""

from dataclasses import dataclass

import pytest
import torch

import tasks.cover
from tasks import Junta, Majority, Or, Parity, RuleAnd, SparseAnd
from tasks.base import Task
from tasks.cover import label_cover
from tasks.errors import TaskError

ALL: list[tuple[Task, int]] = [  # and the number of boxes that it takes
    (SparseAnd(1, (0,)), 2),
    (SparseAnd(10, (1, 4, 7)), 4),
    (SparseAnd(5, range(5)), 6),
    (RuleAnd(9, ((0, 3), (2, 5))), 6),
    (RuleAnd(10, ((0, 3), (1,), (1, 2, 4), (5,)), rule_positions=(6, 9)), 3 + 2 + 4 + 2),
    (Or(9, (0, 8)), 3),
    (Majority(8, (1, 2, 6)), 6),
    (Majority(9, (0, 3, 4, 8)), 16 - 6),
    (Parity(7, (2, 4, 5)), 8),
    (Junta(7, (0, 3), "0110"), 4),
    (Junta(8, (5, 0, 3), "01101100"), 6),
]


@pytest.mark.parametrize(("task", "n_boxes"), ALL, ids=lambda value: getattr(value, "NAME", str(value)))
def test_every_input_is_in_one_box_of_its_label_and_rule(task: Task, n_boxes: int) -> None:
    x = task.enumerate()
    label, rule, covered = task.label(x), task.rule(x), torch.zeros(len(x), dtype=torch.int64)
    cover = label_cover(task)
    for box in cover:
        fixed = torch.as_tensor(box.fixed)
        inside = ((fixed < 0) | (x == fixed)).all(dim=1)
        assert inside.any()
        assert (label[inside] == box.label).all()
        assert (rule[inside] == box.rule).all()
        covered += inside
    assert (covered == 1).all()
    assert len(cover) == n_boxes


def test_the_tutorial_size_takes_few_boxes() -> None:
    assert len(label_cover(SparseAnd(30, (3, 7, 12)))) == 4
    assert len(label_cover(SparseAnd(800, range(0, 800, 2)))) == 401


def test_too_many_boxes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.cover, "MAX_BOXES", 8)
    assert len(label_cover(Parity(5, (0, 2, 4)))) == 8
    with pytest.raises(TaskError, match="parity of 4 targets has more than 8 boxes of one label; use fewer"):
        label_cover(Parity(5, (0, 1, 2, 4)))


@dataclass(frozen=True)
class AllAlike(Task):
    """A task of a contributor's: True where all targets are the same."""

    NAME = "all-alike"

    def _label(self, x: torch.Tensor) -> torch.Tensor:
        bits = x[:, list(self.targets[0])]
        return (bits == bits[:, :1]).all(dim=1)

    @property
    def p_true(self) -> float:
        return self.p ** len(self.targets[0]) + (1 - self.p) ** len(self.targets[0])

    @property
    def variables(self) -> tuple[str, ...]:
        return ("inputs", "label")


def test_a_task_of_another_kind_is_covered_by_its_table() -> None:
    boxes = [(box.fixed.tolist(), box.label) for box in label_cover(AllAlike(4, ((1, 2, 3),), 0.4))]
    assert boxes == [
        ([-1, 0, 0, 0], True),
        ([-1, 0, 0, 1], False),
        ([-1, 0, 1, -1], False),
        ([-1, 1, 0, -1], False),
        ([-1, 1, 1, 0], False),
        ([-1, 1, 1, 1], True),
    ]
    with pytest.raises(TaskError, match="all-alike has 17 targets; a table of its labels allows 16, use fewer"):
        label_cover(AllAlike(20, (tuple(range(17)),), 0.5))
