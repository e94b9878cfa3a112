"""What an analysis is, and how its result lies on disk."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from jaxtyping import Float

from analyses.runs import Run
from interp.errors import BoolensError
from interp.files import plain, write_csv, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analyses.certificate import Settings
    from analyses.hypothesis import Hypothesis
    from analyses.sweeps import SweepOptions

NAMES = (
    "samples",
    "attention-patterns",
    "effective-attention",
    "circuits",
    "ablation",
    "activation-patching",
    "attribution",
    "target-recovery",
    "certificate",
    "variable-creation",
    "formation",
    "abstraction",
)
"""Every analysis, in the order in which they run; each is the module of the same name with underscores."""
MOST_SHOWN = 4
"""Heads (or channels) of a model in one figure; of more, those that differ most between positions."""
SWEEPING = ("ablation", "activation-patching", "attribution")
"""Those whose `compute` takes SweepOptions too."""


@dataclass(frozen=True)
class Rows:
    """A table: data.csv's header and rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def position_role(pos: int, targets: Sequence[Sequence[int]], rule_positions: Sequence[int]) -> str:
    """'rule', 'target' (of any rule) or 'other'."""
    if pos in rule_positions:
        return "rule"
    return "target" if any(pos in entry for entry in targets) else "other"


def strongest(values: Float[np.ndarray, "rule channel pos"]) -> list[int]:
    """The channels that a figure shows, in order: MOST_SHOWN, those that vary most over positions, or all."""
    spread = np.nanstd(values, axis=-1).sum(axis=0)
    return sorted(np.argsort(-spread, kind="stable")[:MOST_SHOWN].tolist())


class Result(Protocol):
    """A frozen result: what goes into result.json and data.csv."""

    def to_json(self) -> dict[str, Any]: ...

    def to_rows(self) -> Rows: ...


class Analysis(Protocol):
    """A module that answers one question about a run."""

    NAME: str

    def applies(self, run: Run) -> bool: ...

    def compute(self, run: Run) -> Result: ...

    def plot(self, result: Any) -> "Figure": ...


def load_analysis(name: str) -> Analysis:
    """The analysis module of a name.

    Raises:
        BoolensError: no such analysis.
    """
    if name not in NAMES:
        raise BoolensError(f"there is no analysis {name!r}; choose from {', '.join(NAMES)}")
    return import_module(f"analyses.{name.replace('-', '_')}")  # pyright: ignore[reportReturnType]


def chosen_analyses(run: Run, names: Iterable[str] = ()) -> list[Analysis]:
    """The named analyses, or all that apply to the run.

    Raises:
        BoolensError: no such analysis, or a named one that does not apply to the run's architecture.
    """
    named = [load_analysis(name) for name in dict.fromkeys(names)]
    for analysis in named:
        if not analysis.applies(run):
            why = getattr(analysis, "MISSING", f"a {run.architecture} model has no attention to look at")
            raise BoolensError(f"{analysis.NAME} does not apply to {run.path}: {why}")
    return named or [a for a in map(load_analysis, NAMES) if a.applies(run)]


def run_analysis(
    analysis: Any,
    run: Run,
    options: "SweepOptions | Hypothesis | Settings | None" = None,
    *,
    figures: bool = True,
) -> Result:
    """Compute, draw and save one analysis, with the options that it takes, under RUN/analyses/NAME.

    Without figures, those of an earlier result go.
    """
    from interp.plots import name_last, name_positions, save_figure

    result = analysis.compute(run) if options is None else analysis.compute(run, options)
    folder = result_path(run, analysis.NAME).parent
    table = result.to_rows()
    write_csv(folder / "data.csv", table.columns, table.rows)
    if figures:
        figure = analysis.plot(result)
        if run.task.position_names:
            name_positions(figure, run.task.position_names, [i for targets in run.task.targets for i in targets])
        elif run.is_cls:
            name_last(figure, run.task.n_ctx + 1, "[CLS]")
        save_figure(figure, folder)
    else:
        for kind in ("png", "svg"):
            (folder / f"figure.{kind}").unlink(missing_ok=True)
    write_json(result_path(run, analysis.NAME), envelope(analysis.NAME, run, result))
    return result


def envelope(name: str, run: Run, result: Result) -> dict[str, Any]:
    """result.json: schema, analysis, provenance and result."""
    return {"schema": 1, "analysis": name, "run": run.provenance, "result": plain(result.to_json())}


def result_path(run: Run, name: str) -> Path:
    return run.path / "analyses" / name / "result.json"
