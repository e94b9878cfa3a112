"""A grid over any option of `boolens train`; one cell is one configuration with all its seeds as one stack."""

import dataclasses
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from analyses.options import OPTION_TYPES
from interp.errors import BoolensError

SCHEMA = 1
"""Raised when the rows of one configuration come to differ, so that finished cells are computed again."""
COMPUTE = "analyses.sweep:train_cell"
FIXED = ("seeds", "device", "seed")
LISTABLE = tuple(name for name in OPTION_TYPES if name not in (*FIXED, "until_certified", "rounds"))
WITH_COMMAS = ("targets", "rule_positions", "data", "label", "binarise")
"""Texts that hold commas themselves: one value each time that the option is given."""
MOST_CELLS = 100_000
CALIBRATED = 4
"""Cells that an estimate of the cost is made of."""


def parse_values(name: str, texts: list[str]) -> list[Any]:
    """The values of an option on the command line: '50,100,200', '50:400:50' (the end included), or repeated.

    Raises:
        BoolensError: an empty list, or a value of the wrong type.
    """
    if name in WITH_COMMAS:
        return list(texts)
    values: list[Any] = []
    for text in texts:
        for part in text.split(","):
            if not part.strip():
                raise BoolensError(f"{_flag(name)} {text!r} has an empty value; write 50,100,200 or 50:400:50")
            values += _parse_range(name, part) if ":" in part else [_parse_one(name, part.strip())]
    return values


def _parse_one(name: str, text: str) -> Any:
    kinds = OPTION_TYPES[name]
    if kinds == (bool,):
        if text in ("true", "false"):
            return text == "true"
        raise BoolensError(f"{_flag(name)} is {text!r}; write true, false or true,false")
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    raise BoolensError(f"{_flag(name)} is {text!r}; it must be {'a number' if float in kinds else 'a whole number'}")


def _parse_range(name: str, text: str) -> list[Any]:
    if not {int, float} & set(OPTION_TYPES[name]):
        raise BoolensError(f"{_flag(name)} {text!r}: texts have no range; write them with commas between")
    return make_range(name, [_parse_one(name, part) for part in text.split(":")])


def make_range(name: str, ends: Any) -> list[Any]:
    """start, start + step, ... up to stop, which is included where the steps meet it."""
    good = isinstance(ends, list) and len(ends) == 3 and all(type(e) in (int, float) for e in ends)
    if not good or ends[2] <= 0 or ends[1] < ends[0]:
        raise BoolensError(f"{_flag(name)}: range {ends!r} must be start, stop of at least start, and step above 0")
    start, stop, step = ends
    n = int((stop - start) / step + 1e-9) + 1
    if n > MOST_CELLS:
        raise BoolensError(f"{_flag(name)}: range {ends!r} has {n} values; at most {MOST_CELLS}, take a larger step")
    return [start + i * step for i in range(n)]


def read_grid(path: Path) -> dict[str, list[Any]]:
    """Options by name with underscores: a value, a list, {range: [start, stop, step]} or {log_range: [low, high, n]}.

    Raises:
        BoolensError: no such file, no such option, an empty list, or a value of the wrong type.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BoolensError(f"--grid {path} cannot be read ({error}); write YAML of train's options") from None
    if not isinstance(content, dict):
        raise BoolensError(f"--grid {path} holds {type(content).__name__}; write options by name, n_ctx: [50, 100]")
    return {name: _grid_values(path, name, value) for name, value in content.items()}


def _grid_values(path: Path, name: Any, value: Any) -> list[Any]:
    if name not in (*LISTABLE, "seeds", "device"):
        raise BoolensError(f"--grid {path}: {name!r} cannot be swept; there are seeds, {', '.join(sorted(LISTABLE))}")
    if isinstance(value, dict):
        if value.keys() == {"range"}:
            value = make_range(name, value["range"])
        elif value.keys() == {"log_range"}:
            value = _log_range(name, value["log_range"])
        else:
            raise BoolensError(f"--grid {path}: {name} is {value!r}; write a list, {{range: ...}}, {{log_range: ...}}")
    values = value if isinstance(value, list) else [value]
    for one in values:
        if type(one) not in OPTION_TYPES[name]:
            raise BoolensError(f"--grid {path}: {name} is {one!r}; it must be {OPTION_TYPES[name]}")
    if not values or (name in ("seeds", "device") and len(values) > 1):
        raise BoolensError(f"--grid {path}: {name} has {len(values)} values; give at least one (of seeds, device: one)")
    return values


def _log_range(name: str, ends: Any) -> list[Any]:
    good = isinstance(ends, list) and len(ends) == 3 and all(type(e) in (int, float) for e in ends)
    if not good or ends[0] <= 0 or ends[1] < ends[0] or type(ends[2]) is not int or ends[2] < 1:
        raise BoolensError(f"{_flag(name)}: log_range {ends!r} must be low above 0, high of at least low, and number")
    found = np.geomspace(*ends).tolist()
    return list(dict.fromkeys(round(v) for v in found)) if float not in OPTION_TYPES[name] else found


def make_configs(task: str, grid: dict[str, list[Any]], *, recovery: bool = False) -> list[dict[str, Any]]:
    """The product of the lists, checked cell by cell before anything starts.

    Raises:
        BoolensError: an empty or too large grid, or a cell that cannot be, which is named.
    """
    from analyses.commands import make_plan
    from tasks.errors import TaskError

    sizes = [len(values) for values in grid.values()]
    if 0 in sizes or np.prod(sizes, dtype=float) > MOST_CELLS:
        raise BoolensError(f"the grid has lists of {sizes} values; 1 to {MOST_CELLS} cells, so shorten them")
    varied = [name for name, values in grid.items() if len(values) > 1]
    configs = []
    for values in itertools.product(*grid.values()):
        options = dict(zip(grid, values, strict=True))
        try:
            make_plan({**options, "task": task, "out": "."})
        except (BoolensError, TaskError) as error:
            where = ", ".join(f"{name} = {options[name]}" for name in varied) or "its options"
            raise BoolensError(f"the cell of {where}: {error}") from None
        configs.append({"task": task, "options": options, "recovery": recovery})
    return configs


def relative_cost(config: dict[str, Any]) -> float:
    """Of a cell beside others, by which progress is measured: steps · rows · bits · models, with a share of rows."""
    from analyses.commands import make_plan

    plan = make_plan({**config["options"], "task": config["task"], "out": "."})
    rows = plan.training.batch_size or plan.training.n_train
    return (1 + plan.training.steps) * (100.0 + rows) * plan.model.n_ctx * len(plan.seeds)


def calibrated_seconds(configs: list[dict[str, Any]]) -> Callable[[dict[str, Any]], float]:
    """From a cell to its estimated seconds on this machine: `relative_cost` times what some cells take.

    CALIBRATED cells, evenly spread over the grid by cost, are trained for a few steps; the estimate takes the median of
    their seconds over cost. `--recovery` is not reckoned.
    """
    from analyses.commands import make_plan
    from analyses.train import make_job
    from interp.training import train_stack

    def seconds_of(plan: Any, steps: int) -> float:
        few = dataclasses.replace(plan.training, steps=steps, stop_accuracy=0.0, stop_loss=0.0)
        jobs = [make_job(plan.draw_task(seed), plan.model, few, seed) for seed in plan.seeds[:4]]
        started = time.perf_counter()
        train_stack(jobs, few)
        return (time.perf_counter() - started) / len(jobs)

    ordered = sorted(configs, key=relative_cost)
    places = sorted({round(i * (len(ordered) - 1) / max(1, CALIBRATED - 1)) for i in range(CALIBRATED)})
    rates = []
    for config in (ordered[i] for i in places):
        plan = make_plan({**config["options"], "task": config["task"], "out": "."})
        seconds_of(plan, 1)  # which compiles
        a_step = max(seconds_of(plan, 45) - seconds_of(plan, 5), 1e-6) / 40  # what comes with every call is left out
        rates.append(a_step * (1 + plan.training.steps) * len(plan.seeds) / relative_cost(config))
    rate = float(np.median(rates))
    return lambda config: rate * relative_cost(config)


def train_cell(config: dict[str, Any], tell: Callable[[float, str], None] | None) -> list[dict[str, Any]]:
    """One row a seed: the options, what training came to and, on request, which methods recover all targets."""
    from analyses.commands import make_plan
    from analyses.train import make_job
    from interp.training import Job, train_stack

    options = config["options"]
    plan = make_plan({**options, "task": config["task"], "out": "."})
    tasks = {seed: plan.draw_task(seed) for seed in plan.seeds}
    started = time.perf_counter()
    jobs = [make_job(tasks[seed], plan.model, plan.training, seed) for seed in plan.seeds]

    def on_step(step: int, _: list[Job]) -> None:
        if tell:
            tell(step / max(1, plan.training.steps), f"step {step}")

    train_stack(jobs, plan.training, device=options.get("device") or "cpu", on_step=on_step)
    seconds = (time.perf_counter() - started) / len(jobs)
    shown = {k: str(v) if str in OPTION_TYPES[k] else v for k, v in options.items() if k != "seeds"}
    rows = []
    for job in jobs:
        step, train_loss, train_accuracy, valid_loss, valid_accuracy = job.history[-1]
        share = job.valid[1].double().mean().item()
        row = {"task": config["task"], **shown, "seed": job.seed, "steps_taken": int(step), "stopped": job.stopped}
        row |= {"train_loss": train_loss, "train_accuracy": train_accuracy, "valid_loss": valid_loss}
        row |= {"valid_accuracy": valid_accuracy, "majority": max(share, 1 - share), "seconds": seconds}
        rows.append(row | (_recovered(plan, tasks[job.seed], job) if config["recovery"] else {}))
    return rows


def _recovered(plan: Any, task: Any, job: Any) -> dict[str, bool | None]:
    """Whether each method's top positions are the targets, of every rule; null where a method does not apply."""
    from analyses import target_recovery
    from analyses.runs import Run
    from analyses.train import start_run, write_history
    from interp.checkpoint import WEIGHTS, save_weights
    from interp.recovery import METHODS

    match: dict[str, bool | None] = dict.fromkeys((f"match_{m.replace('-', '_')}" for m in METHODS), None)
    if job.stopped == "diverged":
        return match
    with tempfile.TemporaryDirectory() as folder:
        there = dataclasses.replace(plan, out=Path(folder), many=False)
        start_run(there, task, job.seed)
        write_history(there.out, job.history)
        save_weights(job.model, there.out / WEIGHTS)
        found = target_recovery.compute(Run(there.out))
    return match | {f"match_{m.replace('-', '_')}": bool(found.match[:, i].all()) for i, m in enumerate(found.methods)}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
