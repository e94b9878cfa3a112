"""Boxes of one label against the labels of all inputs."""

from collections.abc import Sequence

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


def test_unknown_tasks_are_refused() -> None:
    class Unknown(Task):
        NAME = "unknown"

        def _label(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, 0] == 1

        @property
        def p_true(self) -> float:
            return self.p

        @property
        def variables(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
            return ("inputs", "label")

    with pytest.raises(TaskError, match="unknown cannot be split into boxes of one label; conjunctions, or, majority"):
        label_cover(Unknown(4, ((0,),), 0.5))
