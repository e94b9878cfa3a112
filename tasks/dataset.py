"""Labelled samples for training and validation."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.base import Task
from tasks.errors import TaskError
from tasks.tabular import TableTask


class Dataset(NamedTuple):
    """Inputs (int64 bits) and their labels."""

    x: Int[Tensor, "batch pos"]
    y: Bool[Tensor, " batch"]


def draw_dataset(
    task: Task,
    n: int,
    generator: torch.Generator,
    *,
    distinct: bool = False,
    part: Literal["train", "valid"] = "valid",
) -> Dataset:
    """n labelled inputs that contain both labels; of a table the very rows of the part, which must be n.

    Raises:
        TaskError: as `Task.sample`; also when every label is the same, since nothing can be learned or judged, or a
            table's part has not n rows.
    """
    if isinstance(task, TableTask):
        data = Dataset(*task.part(part))
        if len(data.y) != n:
            raise TaskError(f"the {part} part of the table has {len(data.y)} rows, not {n}; leave the number out")
        return data
    x = task.sample(n, generator, distinct=distinct)
    y = task.label(x)
    n_true = int(y.sum())
    if n_true in (0, n):
        raise TaskError(
            f"all {n} labels are {bool(n_true)}: P(label = True) is {task.p_true:.3g} at p = {task.p:.4g}; "
            "draw more samples, or use p = 'balanced' (for a junta another p)"
        )
    return Dataset(x, y)
