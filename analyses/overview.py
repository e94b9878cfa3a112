"""What the commands say: one run's verdict in words, many runs' as a table with intervals."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.files import plain, write_csv, write_json
from interp.seeds import numpy_generator
from interp.selection import shuffled_auroc
from interp.statistics import bootstrap_mean, clopper_pearson

if TYPE_CHECKING:
    from analyses.runs import Run
    from analyses.target_recovery import TargetRecovery
    from analyses.variable_creation import VariableCreation

N_SHUFFLED = 2000
"""Index sets drawn at random a run, rule and method."""


def verdict_lines(run: "Run", verdict: Mapping[str, Any]) -> list[str]:
    """The verdict on one run, in sentences: verdict, sentence, disagreements and heads of target-recovery's JSON."""
    return [
        f"{run.path}: {verdict['verdict']}. {verdict['sentence']}",
        *(f"  {sentence}" for sentence in (*verdict["disagreements"], *verdict["heads"])),
    ]


def summarise(runs: Sequence["Run"], results: Sequence["TargetRecovery"]) -> dict[str, Any]:
    """Shares over seeds with 95 % Clopper–Pearson intervals: verdicts, and matches by method (all rules of a run).

    AUROC and precision at s (mean over rules) are averaged over seeds, with a 95 % bootstrap interval over seeds.
    Beside them stands the control, index sets drawn at random in the targets' place: what is expected of matches (if
    nothing ties), AUROC and precision, exact, and between what values 95 % of such drawings bring the mean AUROC.
    """
    n, methods = len(runs), results[0].methods
    generator = numpy_generator(runs[0].seed, "statistics", 2)

    def share(count: int) -> dict[str, Any]:
        return {"count": count, "of": n, "interval": clopper_pearson(count, n)}

    return {
        "runs": [run.path.name for run in runs],
        "verdicts": {
            w: share(sum(r.verdict.verdict == w for r in results)) for w in ("created", "mixed", "not created")
        },
        "match": {m: share(sum(bool(r.match[:, i].all()) for r in results)) for i, m in enumerate(methods)},
        "auroc": _over_seeds(methods, [r.auroc for r in results], generator),
        "precision": _over_seeds(methods, [r.precision for r in results], generator),
        "shuffled": {
            "match": float(np.mean([math.prod(1 / math.comb(c, s) for c, s in _sizes(run)) for run in runs])),
            "auroc": 0.5,
            "auroc_range": {m: _shuffled_range(runs, results, i, generator) for i, m in enumerate(methods)},
            "precision": float(np.mean([np.mean([s / c for c, s in _sizes(run)]) for run in runs])),
        },
        "validation_accuracy": {
            "min": min(r.accuracy.valid for r in results),
            "median": sorted(r.accuracy.valid for r in results)[n // 2],
        },
    }


def _sizes(run: "Run") -> list[tuple[int, int]]:
    """For each rule, the number of candidates and of targets."""
    return [(len(run.task.candidates), len(targets)) for targets in run.task.targets]


def _over_seeds(
    methods: Sequence[str], by_run: Sequence[Float[np.ndarray, "rule method"]], generator: np.random.Generator
) -> dict[str, Any]:
    values = np.array([of_run.mean(axis=0) for of_run in by_run])
    low, high = bootstrap_mean(values, generator)
    mean = values.mean(axis=0)
    return {m: {"mean": mean[i], "interval": (low[i], high[i])} for i, m in enumerate(methods)}


def _shuffled_range(
    runs: Sequence["Run"], results: Sequence["TargetRecovery"], method: int, generator: np.random.Generator
) -> tuple[float, float]:
    total = np.zeros(N_SHUFFLED)
    for run, result in zip(runs, results, strict=True):
        for scores, targets in zip(result.scores[:, method], run.task.targets, strict=True):
            drawn = shuffled_auroc(scores, len(targets), run.task.candidates, generator, N_SHUFFLED)
            total += drawn / len(runs) / run.task.n_rules
    low, high = np.quantile(total, [0.025, 0.975])
    return float(low), float(high)


def write_claims(folder: Path, results: "Sequence[VariableCreation]") -> list[str]:
    """FOLDER/analyses/claims.json, a row a claim and method over all runs; returns them in words."""
    from analyses.variable_creation import summarise as over_runs

    rows = over_runs(results)
    write_json(folder / "analyses" / "claims.json", plain({"claims": rows}))
    return [
        f"{row['verdict']}: {row['claim']} ({row['method']}): holds in {row['holds']} of {row['runs']} runs (95 % "
        f"interval {row['interval'][0]:.2f} to {row['interval'][1]:.2f}), fails in {row['fails']}, mean AUROC "
        f"{row['mean_auroc']:.3f} (at initialisation {row['mean_initial_auroc']:.3f}){_what_would_do(row)}"
        for row in rows
    ]


def _what_would_do(row: dict[str, Any]) -> str:
    if row["verdict"] != "undecided" or row["runs"] == 1:
        return ""
    enough = f"if it holds in all further ones, {row['runs_for_support']} runs in all would support it"
    return f"; {'too few runs for any verdict: ' if row['too_few'] else ''}{enough}"


def write_overview(
    folder: Path, runs: Sequence["Run"], results: Sequence["TargetRecovery"], certificates: Sequence[str] = ()
) -> dict[str, Any]:
    """FOLDER/analyses/overview.json and overview.csv, a row a seed; returns the JSON's content.

    Args:
        folder: of the seeds.
        runs: its runs.
        results: their target recovery.
        certificates: their certificates' verdicts, or none.
    """
    summary = plain(summarise(runs, results))
    columns = ["run", "seed", "targets", "valid", "majority", "balanced", "verdict", *results[0].methods]
    columns += ["certificate"] * bool(certificates)
    rows = []
    for i, (run, r) in enumerate(zip(runs, results, strict=True)):
        accuracy = (r.accuracy.valid, r.accuracy.majority, r.accuracy.balanced)
        who = (run.path.name, run.seed, sets_text(run.task.targets, run.task.position_names))
        rows.append((*who, *accuracy, r.verdict.verdict, *all_rules(r), *certificates[i : i + 1]))
    write_csv(folder / "analyses" / "overview.csv", columns, rows)
    write_json(folder / "analyses" / "overview.json", summary)
    return summary


def print_overview(
    runs: Sequence["Run"],
    results: Sequence["TargetRecovery"],
    summary: dict[str, Any],
    certificates: Sequence[str] = (),
) -> None:
    """A table, a row a seed: whether each method has exactly the targets on top under every rule."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 140)
    methods = results[0].methods
    table = Table("seed", "targets", "valid", "majority", *methods, "verdict", *["certificate"] * bool(certificates))
    for i, (run, r) in enumerate(zip(runs, results, strict=True)):
        marks = ["yes" if m else "no" for m in all_rules(r)]
        accuracy = (f"{r.accuracy.valid:.3f}", f"{r.accuracy.majority:.3f}")
        found = (r.verdict.verdict, *certificates[i : i + 1])
        table.add_row(str(run.seed), sets_text(run.task.targets, run.task.position_names), *accuracy, *marks, *found)
    counts = [f"{summary['match'][m]['count']}/{len(runs)}" for m in methods]
    table.add_section()
    table.add_row("all", "", "", "", *counts, f"created {summary['verdicts']['created']['count']}/{len(runs)}")
    console.print(table)
    for method in methods:
        count, (low, high) = summary["match"][method]["count"], summary["match"][method]["interval"]
        console.print(
            f"{method}: exactly the targets on top in {count} of {len(runs)} runs "
            f"(95 % interval {low:.2f} to {high:.2f}); {_mean_text(summary, 'AUROC', method)}, "
            f"{_mean_text(summary, 'precision', method)}",
            highlight=False,
        )
    control = summary["shuffled"]
    ranges = [end for ends in control["auroc_range"].values() for end in ends]
    spread = "" if None in ranges else f" (95 % of drawings within {min(ranges):.2f} to {max(ranges):.2f})"
    console.print(
        f"control, index sets drawn at random: on top in {control['match']:.2g} of runs, mean AUROC "
        f"{control['auroc']:.2f}{spread}, precision {control['precision']:.2f}",
        highlight=False,
    )


def _mean_text(summary: dict[str, Any], name: str, method: str) -> str:
    found = summary[name.lower()][method]
    if found["mean"] is None:
        return f"{name} undefined"
    low, high = found["interval"]
    return f"{name} {found['mean']:.2f} ({low:.2f} to {high:.2f})"


def all_rules(result: "TargetRecovery") -> list[bool]:
    """For each method, whether it has exactly the targets on top under every rule."""
    return [bool(matched.all()) for matched in result.match.T]


def sets_text(targets: Sequence[Sequence[int]], names: Sequence[str] = ()) -> str:
    """Target sets as the command line takes them: 3,7/2,5; of a table by the features' names."""
    return "/".join(",".join(names[i] if names else str(i) for i in t) for t in targets)
