"""What the commands say: one run's verdict in words, many runs' as a table with intervals."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.files import plain, write_csv, write_json
from interp.statistics import clopper_pearson

if TYPE_CHECKING:
    from analyses.runs import Run
    from analyses.target_recovery import TargetRecovery
    from analyses.variable_creation import VariableCreation


def verdict_lines(run: "Run", result: "TargetRecovery") -> list[str]:
    """The verdict on one run, in sentences."""
    verdict = result.verdict
    return [
        f"{run.path}: {verdict.verdict}. {verdict.sentence}",
        *(f"  {d}" for d in (*verdict.disagreements, *verdict.heads)),
    ]


def summarise(runs: Sequence["Run"], results: Sequence["TargetRecovery"]) -> dict[str, Any]:
    """Shares over seeds with 95 % Clopper–Pearson intervals: verdicts, and matches by method (all rules of a run)."""
    n = len(runs)

    def share(count: int) -> dict[str, Any]:
        return {"count": count, "of": n, "interval": clopper_pearson(count, n)}

    return {
        "runs": [run.path.name for run in runs],
        "verdicts": {
            w: share(sum(r.verdict.verdict == w for r in results)) for w in ("created", "mixed", "not created")
        },
        "match": {m: share(sum(bool(r.match[:, i].all()) for r in results)) for i, m in enumerate(results[0].methods)},
        "validation_accuracy": {
            "min": min(r.accuracy.valid for r in results),
            "median": sorted(r.accuracy.valid for r in results)[n // 2],
        },
    }


def write_claims(folder: Path, results: "Sequence[VariableCreation]") -> list[str]:
    """FOLDER/analyses/claims.json, a row a claim and method over all runs; returns them in words."""
    from analyses.variable_creation import summarise as over_runs

    rows = over_runs(results)
    write_json(folder / "analyses" / "claims.json", plain({"claims": rows}))
    return [
        f"{row['verdict']}: {row['claim']} ({row['method']}): holds in {row['holds']} of {row['runs']} runs (95 % "
        f"interval {row['interval'][0]:.2f} to {row['interval'][1]:.2f}), fails in {row['fails']}, mean AUROC "
        f"{row['mean_auroc']:.3f} (at initialisation {row['mean_initial_auroc']:.3f})"
        for row in rows
    ]


def write_overview(folder: Path, runs: Sequence["Run"], results: Sequence["TargetRecovery"]) -> dict[str, Any]:
    """FOLDER/analyses/overview.json and overview.csv, a row a seed; returns the JSON's content."""
    summary = plain(summarise(runs, results))
    columns = ["run", "seed", "targets", "valid", "majority", "balanced", "verdict", *results[0].methods]
    rows = []
    for run, r in zip(runs, results, strict=True):
        accuracy = (r.accuracy.valid, r.accuracy.majority, r.accuracy.balanced)
        who = (run.path.name, run.seed, sets_text(run.task.targets))
        rows.append((*who, *accuracy, r.verdict.verdict, *all_rules(r)))
    write_csv(folder / "analyses" / "overview.csv", columns, rows)
    write_json(folder / "analyses" / "overview.json", summary)
    return summary


def print_overview(runs: Sequence["Run"], results: Sequence["TargetRecovery"], summary: dict[str, Any]) -> None:
    """A table, a row a seed: whether each method has exactly the targets on top under every rule."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 140)
    methods = results[0].methods
    table = Table("seed", "targets", "valid", "majority", *methods, "verdict")
    for run, r in zip(runs, results, strict=True):
        marks = ["yes" if m else "no" for m in all_rules(r)]
        accuracy = (f"{r.accuracy.valid:.3f}", f"{r.accuracy.majority:.3f}")
        table.add_row(str(run.seed), sets_text(run.task.targets), *accuracy, *marks, r.verdict.verdict)
    counts = [f"{summary['match'][m]['count']}/{len(runs)}" for m in methods]
    table.add_section()
    table.add_row("all", "", "", "", *counts, f"created {summary['verdicts']['created']['count']}/{len(runs)}")
    console.print(table)
    for method in methods:
        count, (low, high) = summary["match"][method]["count"], summary["match"][method]["interval"]
        interval = f"95 % interval {low:.2f} to {high:.2f}"
        console.print(
            f"{method}: exactly the targets on top in {count} of {len(runs)} runs ({interval})", highlight=False
        )


def all_rules(result: "TargetRecovery") -> list[bool]:
    """For each method, whether it has exactly the targets on top under every rule."""
    return [bool(matched.all()) for matched in result.match.T]


def sets_text(targets: Sequence[Sequence[int]]) -> str:
    """Target sets as the command line takes them: 3,7/2,5."""
    return "/".join(",".join(map(str, t)) for t in targets)
