"""What a run's folder holds of each analysis, and whether it is of the run's own weights."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analyses.report.captions import CAPTIONS
from analyses.results import SWEEPING, load_analysis, result_path
from analyses.runs import Run
from interp.errors import BoolensError
from interp.files import read_json

State = Literal["there", "missing", "stale", "damaged"]
IDENTITY = ("weights_sha256", "config_sha256")
"""What of a result's provenance must be the run's."""


@dataclass(frozen=True)
class Finding:
    """One analysis of one run, as it lies on disk.

    Attributes:
        name: of the analysis.
        folder: RUN/analyses/NAME.
        state: 'there'; 'missing'; 'stale', of other weights or another configuration; or 'damaged', not readable.
        result: of result.json where it is there, else None.
    """

    name: str
    folder: Path
    state: State
    result: dict[str, Any] | None = None

    @property
    def figure(self) -> Path | None:
        """figure.png, where the result is there and has one."""
        path = self.folder / "figure.png"
        return path if self.result is not None and path.is_file() else None

    @property
    def sweeps_elsewhere(self) -> bool:
        """Whether the result is of options of the user's own, which no second call knows."""
        result = self.result or {}
        return self.name in SWEEPING and (result.get("over", ["pos"]) != ["pos"] or result.get("metric") != "logit")

    def rows(self) -> tuple[Sequence[str], list[list[str]]]:
        """data.csv: its header and rows, as text.

        Raises:
            BoolensError: a result without its table.
        """
        path = self.folder / "data.csv"
        try:
            with path.open(encoding="utf-8", newline="") as file:
                header, *rows = csv.reader(file)
        except (FileNotFoundError, ValueError) as error:
            why = "does not exist" if isinstance(error, FileNotFoundError) else f"is not a table ({error})"
            raise BoolensError(f"{path} {why}; make it again with `boolens analyze RUN {self.name}`") from None
        return header, rows


def find(run: Run, name: str) -> Finding:
    """The analysis of that name, trusted only if its provenance is the run's (IDENTITY)."""
    path = result_path(run, name)
    if not path.exists():
        return Finding(name, path.parent, "missing")
    try:
        content = read_json(path)
        provenance, result = content["run"], content["result"]
        mine = all(provenance[key] == run.provenance[key] for key in IDENTITY)
    except (BoolensError, KeyError, TypeError):
        return Finding(name, path.parent, "damaged")
    if not isinstance(result, dict):
        return Finding(name, path.parent, "damaged")
    return Finding(name, path.parent, "there", result) if mine else Finding(name, path.parent, "stale")


def find_all(run: Run) -> dict[str, Finding]:
    """Every analysis that applies to the run, by name, in the order of the captions."""
    return {name: find(run, name) for name in CAPTIONS if load_analysis(name).applies(run)}


def wanting(found: dict[str, Finding]) -> list[str]:
    """The names of those to run again: not there, or without a figure (unless with options of the user's own)."""
    return [
        name for name, one in found.items() if one.state != "there" or (not one.figure and not one.sweeps_elsewhere)
    ]
