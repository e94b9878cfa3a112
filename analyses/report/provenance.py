"""Where a run came from, and the commands that make it again."""

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from analyses.options import DEFAULT_LR
from analyses.report.evidence import Fact
from analyses.report.formats import listed
from analyses.report.words import shown
from analyses.runs import Run
from interp.errors import BoolensError
from tasks import Junta, TableTask, TaskError


def provenance_facts(run: Run) -> list[Fact]:
    """What identifies the run and its weights."""
    own, config = run.provenance, run.config
    made = {"trained": "trained by Boolens", "certified": "trained by Boolens until certified"}
    return [
        Fact("origin", made.get(config.source, config.source.replace(":", " from ", 1))),
        Fact("seed", str(run.seed)),
        Fact("made with", listed(f"{name} {number}" for name, number in config.versions.items())),
        Fact("SHA-256 of the weights", own["weights_sha256"]),
        Fact("SHA-256 of configuration and task", own["config_sha256"]),
    ]


def why_no_command(run: Run) -> str:
    """One sentence for the reader of a page without a training command."""
    if run.config.training is None:
        return "This checkpoint was imported; how it was trained is not recorded."
    if isinstance(run.task, TableTask):
        return "The run holds the table's rows (in task.json), but not its file, so no training command is given."
    return "Which options led here is not certain, so no training command is given; config.json has all settings."


def train_command(run: Run) -> str | None:
    """A `boolens train` that asks for this very task, model, training and seed; None where that cannot be certain."""
    options = _options(run)
    if options is None:
        return None
    from analyses.commands import make_plan  # commands writes reports too

    try:
        plan = make_plan({**options, "out": run.path})
        same = (plan.model, plan.training, plan.seeds, plan.source) == (
            *(run.config.model, run.config.training, (run.seed,), run.config.source),
        )
        if not same or plan.draw_task(run.seed).to_dict() != run.task.to_dict():
            return None
    except (BoolensError, TaskError):
        return None
    return " ".join(["boolens", "train", options["task"], *_flags(options), "--out", shlex.quote(fresh(run.path))])


def fresh(path: Path) -> str:
    """A folder that the command does not find in its way."""
    return f"{Path(shown(path)).name}-again"


def _options(run: Run) -> dict[str, Any] | None:
    """Those of `boolens train` that differ from its defaults, by name; None of a run that it did not simply train."""
    task, config = run.task, run.config
    if config.source != "trained" or config.training is None or isinstance(task, TableTask):
        return None
    options: dict[str, Any] = {"task": task.NAME, "n_ctx": task.n_ctx}
    options["targets"] = "/".join(",".join(map(str, targets)) for targets in task.targets)
    if task.rule_positions and task.rule_positions != tuple(range(task.n_ctx - len(task.rule_positions), task.n_ctx)):
        options["rule_positions"] = ",".join(map(str, task.rule_positions))
    if isinstance(task, Junta):
        options["table"] = task.table
    options["p"] = repr(task.p)
    options["model"] = run.architecture
    options |= _differing(config.model, {"n_ctx"}, {})
    options |= _differing(config.training, set(), {"lr": DEFAULT_LR[run.architecture]})
    options["seed"] = run.seed
    return options


def _differing(config: Any, without: set[str], defaults: dict[str, Any]) -> dict[str, Any]:
    usual = {f.name: f.default for f in fields(config)} | defaults
    return {
        name: value
        for name, value in config.to_dict().items()
        if name not in without and value is not None and value != usual.get(name)
    }


def _flags(options: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if name == "task":
            continue
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", shlex.quote(str(value))]
    return flags


def citation(version: str) -> str:
    """As in CITATION.cff."""
    return (
        "The Boolens authors, Boolens: from a trained attention checkpoint to a tested account of what it computes, "
        f"version {version}."
    )


def pretty(content: Any) -> str:
    """JSON as it lies in the file."""
    return json.dumps(content, indent=2, ensure_ascii=False)
