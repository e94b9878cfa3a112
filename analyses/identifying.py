"""`boolens identify`: which index sets explain the labels that a run was trained on, or those of a table."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from analyses.overview import sets_text
from analyses.runs import Run, find_runs
from analyses.table_task import hypothesis_line, table_maker
from analyses.train import make_job
from interp.errors import BoolensError
from interp.files import plain, write_json
from tasks import TableTask, Task
from tasks.identify import KINDS, consistent_sets, minimal_and_sets, smallest_identifying_sample

LIMIT = 20
"""Sets that are listed, unless another number is asked for."""
Said = tuple[Any, list[str]]


def identify_runs(path: Path, limit: int = LIMIT) -> Said:
    """Of every run at `path`, from its training sample; each run gets identify.json.

    Raises:
        BoolensError: a limit below 1, an imported run (its sample is not known), or a task that is no AND, OR,
            majority, parity or table.
    """
    content, lines = {}, []
    for run in find_runs(path):
        found = _of_run(run, limit)
        write_json(run.path / "identify.json", plain(found))
        content[run.path.name] = found
        lines += [f"{run.path}: {line}" for line in _lines(found, run.task)]
    return content if len(content) > 1 else next(iter(content.values())), lines


def identify_table(options: dict[str, Any], limit: int = LIMIT) -> Said:
    """Of all rows of a table, without a run; `options` are those of `boolens train table`."""
    task = table_maker(options)(0)
    found = _of_table(task, torch.from_numpy(task.x.astype(np.int64)), torch.from_numpy(task.y), limit)
    return found, _lines(found, task)


def _of_run(run: Run, limit: int) -> dict[str, Any]:
    training, task = run.config.training, run.task
    if training is None:
        raise BoolensError(f"{run.path} was imported, so its training sample is not known; train a run, or give --data")
    if isinstance(task, TableTask):
        found = _of_table(task, *task.part("train"), limit)
        held_x, held_y = task.part("valid")
        wrong = [int((held_x[:, list(s)].all(dim=1) != held_y).sum()) for s in found["sets"]]
        return {**found, "held_out": len(held_y), "held_out_errors": wrong}
    if task.NAME not in KINDS:
        raise BoolensError(f"{run.path}: the index sets of a {task.NAME} are not searched for; of {', '.join(KINDS)}")
    x, y = make_job(task, run.config.model, training, run.seed).data
    s = len(task.targets[0])
    sets, more = consistent_sets(x, y, task.NAME, s, limit)
    m = smallest_identifying_sample(task, x, y)
    return {"function": task.NAME, "rows": len(y), "sets": sets, "more": more, "smallest_identifying_sample": m}


def _of_table(task: TableTask, x: torch.Tensor, y: torch.Tensor, limit: int) -> dict[str, Any]:
    sets, more = minimal_and_sets(x, y, limit)
    names = [[task.features[i] for i in chosen] for chosen in sets]
    return {"function": "and", "rows": len(y), "sets": sets, "names": names, "more": more}


def _lines(found: dict[str, Any], task: Task) -> list[str]:
    n, sets = found["rows"], found["sets"]
    if not sets:
        lines = [f"no index set's AND explains the labels of all {n} rows"]
        return [*lines, hypothesis_line(task)] if isinstance(task, TableTask) else lines
    one = len(sets) == 1 and not found["more"]
    number = f"{'more than ' if found['more'] else ''}{len(sets)} {'minimal ' if found['function'] == 'and' else ''}"
    function = "AND" if found["function"] == "and" else f"{task.NAME} (of {len(sets[0])})"
    lines = [f"{number}index set{'' if one else 's'} whose {function} explains the labels of all {n} rows"]
    for i, chosen in enumerate(sets):
        wrong = found.get("held_out_errors")
        of_held = f", wrong on {wrong[i]} of {found['held_out']} held-out rows" if wrong else ""
        lines.append(f"  {sets_text([chosen], task.position_names)}{of_held}")
    m = found.get("smallest_identifying_sample")
    if m is not None:
        lines.append(
            f"the first {m:.0f} rows leave only one" if np.isfinite(m) else f"all {n} rows leave more than one"
        )
    return lines
