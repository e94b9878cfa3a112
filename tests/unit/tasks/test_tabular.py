"""A table's task: what it knows, what it refuses to know, and task.json both ways."""

import json

import numpy as np
import pytest
import torch

from tasks import TableTask, TaskError, draw_dataset, task_from_dict
from tasks.tabular import MAX_CELLS, check_table

NAMES = ("fever", "cough", "lump", "rash", "pain")
X = np.array(
    [
        [1, 0, 1, 0, 1],
        [1, 0, 1, 1, 1],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0],
        [1, 1, 0, 0, 1],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 0, 0, 1],
    ],
    dtype=bool,
)
Y = np.array([1, 1, 0, 1, 0, 0, 1, 0, 0], dtype=bool)
TRAIN = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
HELD_OUT = np.array([0, 0, 0, 0, 0, 1, 1, 1, 0], dtype=bool)


def task(**changes) -> TableTask:
    fields = {"features": NAMES, "x": X, "y": Y, "train": TRAIN, "held_out": HELD_OUT, "targets": (0, 2)} | changes
    return TableTask(**fields)


def test_labels_are_the_more_frequent_ones_of_the_tables_rows() -> None:
    x = torch.from_numpy(X[[0, 2, 6, 8]].astype(int))
    assert task().label(x).tolist() == [True, False, False, False]  # 1 of 3, and 1 of 2


def test_an_input_outside_the_table_has_no_label() -> None:
    with pytest.raises(TaskError, match="1 of 2 inputs are not in the table"):
        task().label(torch.tensor([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0]]))


def test_parts_keep_rows_and_their_own_labels() -> None:
    x, y = task().part("train")
    assert x.tolist() == X[:5].astype(int).tolist()
    assert y.tolist() == [True, True, False, True, False]
    generator = torch.Generator()
    assert draw_dataset(task(), 5, generator, part="train").y.tolist() == y.tolist()
    assert draw_dataset(task(), 3, generator).x.tolist() == X[5:8].astype(int).tolist()
    with pytest.raises(TaskError, match="valid part of the table has 3 rows, not 4"):
        draw_dataset(task(), 4, generator)


def test_inputs_are_drawn_from_the_held_out_rows() -> None:
    drawn = task().sample(400, torch.Generator().manual_seed(0))
    rows, counts = np.unique(drawn.numpy(), axis=0, return_counts=True)
    assert rows.tolist() == [[1, 1, 0, 0, 1], [1, 1, 1, 0, 0]]
    assert abs(counts[0] - 400 / 3) < 40
    distinct = task().sample(2, torch.Generator().manual_seed(0), distinct=True)
    assert sorted(distinct.tolist()) == rows.tolist()
    with pytest.raises(TaskError, match="2 different inputs are held out"):
        task().sample(3, torch.Generator(), distinct=True)


def test_shares_and_errors_are_counted_on_their_parts() -> None:
    made = task()
    assert made.p_true == pytest.approx(1 / 3)
    assert made.bit_probability == pytest.approx((1, 1, 2 / 3, 0, 1 / 3))
    assert made.errors == 1  # row 3
    assert made.held_out_errors == 1  # row 7
    assert made.log_probability(torch.tensor([[1, 1, 1, 0, 0]])).exp().tolist() == pytest.approx([2 / 3])


def test_task_json_holds_everything() -> None:
    made = task(origin="fitted", ties=4, source={"file": "ill.csv"})
    content = json.loads(json.dumps(made.to_dict()))
    again = task_from_dict(content)
    assert isinstance(again, TableTask)
    assert again == made
    assert again.x.tolist() == X.tolist()
    assert hash(task_from_dict(content)) == hash(made)
    content["errors"] = 0
    with pytest.raises(TaskError, match="does not describe a table task"):
        task_from_dict(content)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("rows", "zz", "not hexadecimal"), ("labels", "00ff00", "need 2"), ("features", "ab", "list of names")],
)
def test_damaged_files_are_refused(field: str, value: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task_from_dict({**task().to_dict(), field: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": ("a", "b", "a", "c", "d")}, r"repeat \(\['a'\]\)"),
        ({"features": ("a", "b", " ", "c", "d")}, "are empty"),
        ({"y": np.ones(9, bool)}, "all 9 labels are True"),
        ({"x": np.ones((9, 5), bool)}, "the same input"),
        ({"train": TRAIN | HELD_OUT}, "2 inputs are in both parts"),
        ({"held_out": np.arange(9) == 5}, "the 1 held-out rows have not both labels"),
        ({"origin": "guessed"}, "origin is 'guessed'"),
        ({"targets": (5,)}, "index 5"),
    ],
)
def test_impossible_tables_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        task(**changes)


def test_too_large_a_table_is_refused() -> None:
    x = np.zeros((MAX_CELLS // 5 + 1, 5), bool)
    with pytest.raises(TaskError, match=f"at most {MAX_CELLS}"):
        check_table(NAMES, x, np.arange(len(x)) % 2 == 0)
