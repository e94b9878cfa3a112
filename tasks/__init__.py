"""Boolean functions of T bits and their data. Knows no model."""

from tasks.base import Task
from tasks.boolean import Majority, Or, Parity, TargetFunction
from tasks.causal import CausalModel, Interchanges, Variable, draw_interchanges
from tasks.conjunction import Conjunction
from tasks.cover import LabelBox, label_cover
from tasks.dataset import Dataset, draw_dataset
from tasks.errors import TaskError
from tasks.junta import Junta, draw_table
from tasks.load import TASKS, load_task, task_from_dict
from tasks.pairs import Pairs, draw_pairs, flip_bits
from tasks.rule_and import RuleAnd
from tasks.sparse_and import SparseAnd
from tasks.tabular import TableTask

__all__ = [
    "TASKS",
    "CausalModel",
    "Conjunction",
    "Dataset",
    "Interchanges",
    "Junta",
    "LabelBox",
    "Majority",
    "Or",
    "Pairs",
    "Parity",
    "RuleAnd",
    "SparseAnd",
    "TableTask",
    "TargetFunction",
    "Task",
    "TaskError",
    "Variable",
    "draw_dataset",
    "draw_interchanges",
    "draw_pairs",
    "draw_table",
    "flip_bits",
    "label_cover",
    "load_task",
    "task_from_dict",
]
