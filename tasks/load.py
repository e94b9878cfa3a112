"""task.json and back, strictly."""

import json
from pathlib import Path
from typing import Any

from tasks.base import Task
from tasks.boolean import Majority, Or, Parity
from tasks.errors import TaskError
from tasks.junta import Junta
from tasks.rule_and import RuleAnd
from tasks.sparse_and import SparseAnd
from tasks.tabular import TableTask

TASKS: dict[str, type[Task]] = {
    task.NAME: task for task in (SparseAnd, RuleAnd, Or, Majority, Parity, Junta, TableTask)
}
"""Every task by the name that commands and files use."""
_FIELDS = {"schema", "task", "n_ctx", "rule_positions", "targets", "p"}


def task_from_dict(content: Any, source: str = "task") -> Task:
    """The task that `Task.to_dict` described.

    Raises:
        TaskError: a missing or unknown field, another schema, an unknown task, or an impossible task.
    """
    if not isinstance(content, dict):
        raise TaskError(f"{source}: expected a JSON object, found {type(content).__name__}")
    name = content.get("task")
    kind = TASKS.get(name) if isinstance(name, str) else None
    fields = _FIELDS if kind is None else _FIELDS | kind.OWN_FIELDS
    missing, unknown = sorted(fields - content.keys()), sorted(content.keys() - fields)
    if missing or unknown:
        raise TaskError(
            f"{source}: missing fields {missing}, unknown fields {unknown}; the fields are {sorted(fields)}"
        )
    if type(content["schema"]) is not int or content["schema"] != 1:
        raise TaskError(f"{source}: schema {content['schema']!r} is not known; this version reads schema 1")
    if kind is None:
        raise TaskError(f"{source}: task {name!r} is not known; the tasks are {sorted(TASKS)}")
    sets = content["targets"]
    if not isinstance(sets, list) or not all(isinstance(t, list) for t in sets) or not sets:
        raise TaskError(f"{source}: targets {sets!r} must be a list of lists of indices, one a rule")
    if not isinstance(content["rule_positions"], list):
        raise TaskError(f"{source}: rule_positions {content['rule_positions']!r} must be a list of indices")
    task = kind.from_fields({k: v for k, v in content.items() if k not in ("schema", "task")})
    if task.to_dict() != content:
        raise TaskError(f"{source}: {content} does not describe a {task.NAME} task; it would read as {task.to_dict()}")
    return task


def load_task(run: str | Path) -> Task:
    """The task of a run folder (or of a task.json named directly).

    Raises:
        TaskError: no such file, not JSON, or not a valid task.
    """
    path = Path(run)
    path = path / "task.json" if path.is_dir() else path
    try:
        return task_from_dict(json.loads(path.read_text(encoding="utf-8")), source=str(path))
    except FileNotFoundError:
        raise TaskError(f"{path} does not exist; give a run folder, or train one with `boolens train`") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} is not valid JSON ({error}); restore it or train the run again") from None
