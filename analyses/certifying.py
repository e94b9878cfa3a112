"""`boolens certify`: the verdict over all inputs of a run, or of every seed in a folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analyses import certificate
from analyses.certified_training import Progress, train_until_certified
from analyses.progress import progress_bar
from analyses.results import chosen_analyses, envelope, run_analysis
from analyses.runs import Run, find_runs
from analyses.train import Plan, check_plan
from analyses.verdict import measure_accuracy
from interp.files import plain, write_csv, write_json
from interp.statistics import clopper_pearson


def certify(path: Path, settings: certificate.Settings) -> tuple[Any, list[str]]:
    """Every run's certificate into RUN/analyses/certificate/; a folder of seeds also gets analyses/certificates.*.

    Returns:
        The result of a single run, or {"certificates": summary, "runs": results by name}; and the lines to print.
    """
    runs = find_runs(path)
    for run in runs:
        chosen_analyses(run, (certificate.NAME,))
    found: list[certificate.Certified] = []
    with progress_bar(len(runs), "certifying") as bar:
        for run in runs:
            bar.advance(0, f"certifying {run.path.name}")
            result = run_analysis(certificate, run, settings)
            assert isinstance(result, certificate.Certified)
            found.append(result)
            bar.advance()
    lines = [f"{run.path}: {result.sentence}" for run, result in zip(runs, found, strict=True)]
    if len(runs) == 1:
        return envelope(certificate.NAME, runs[0], found[0])["result"], lines
    summary = write_certificates(path, runs, found)
    verdicts = ", ".join(f"{count['count']} {verdict}" for verdict, count in summary["verdicts"].items())
    content = {run.path.name: result.to_json() for run, result in zip(runs, found, strict=True)}
    said = f"{len(runs)} runs: {verdicts}; see {path}/analyses/certificates.*"
    return {"certificates": summary, "runs": content}, [*lines, said]


def train_certified(plan: Plan, given: dict[str, Any]) -> tuple[Any, list[str]]:
    """`boolens train --until-certified`: `given` holds the command's options by name."""
    device, most_rounds = given.get("device") or "cpu", given.get("rounds", 20)
    tasks = check_plan(plan, resume=bool(given.get("resume")), device=device)
    with progress_bar(most_rounds, "training until certified") as bar:

        def on_round(number: int, states: Sequence[Progress]) -> None:
            bar.advance(1, f"round {number}: {sum(s.verified for s in states)} of {len(states)} verified")

        train_until_certified(plan, tasks, most_rounds, device=device, on_round=on_round)
    content, lines = [], []
    for seed in plan.seeds:
        folder = plan.folder(seed)
        told = json.loads((folder / "certified.json").read_text())
        last = told["rounds"][-1]
        state = "verified" if told["verified"] else f"not verified, {last['counterexamples']} counterexamples left"
        content.append({"run": str(folder), "seed": seed, **told})
        lines.append(f"{folder}: {state} after {len(told['rounds'])} rounds, {last['steps']} steps")
    n_verified = sum(each["verified"] for each in content)
    low, high = clopper_pearson(n_verified, len(content))
    return content, [
        *lines,
        f"{n_verified} of {len(content)} verified on all inputs (95 % interval {low:.2f} to {high:.2f})",
    ]


def write_certificates(folder: Path, runs: Sequence[Run], found: Sequence[certificate.Certified]) -> dict[str, Any]:
    """FOLDER/analyses/certificates.{json, csv, png, svg}: a row a seed; returns the JSON's content."""
    from interp.plots import plot_certificates, save_figure

    n, out = len(runs), folder / "analyses"
    verdicts = [result.found.verdict for result in found]
    accuracy = [measure_accuracy(run).valid for run in runs]
    counts = {verdict: verdicts.count(verdict) for verdict in ("verified", "refuted", "undecided")}
    summary = plain(
        {
            "runs": [run.path.name for run in runs],
            "verdicts": {name: {"count": k, "of": n, "interval": clopper_pearson(k, n)} for name, k in counts.items()},
            "error_probability": {
                "median_lower": float(np.median([result.lower for result in found])),
                "median_upper": float(np.median([result.upper for result in found])),
                "exact": sum(result.kind == "exact" for result in found),
            },
            "radius_proven": {
                "min": min(result.found.radius[0] for result in found),
                "median": float(np.median([result.found.radius[0] for result in found])),
            },
            "seconds": sum(result.found.seconds for result in found),
        }
    )
    columns = ["run", "seed", "valid", "verdict", "n_wrong", "error_lower", "error_upper", "kind", "changes", "radius"]
    rows = [
        (
            *(run.path.name, run.seed, valid, result.found.verdict, result.found.n_wrong),
            *(result.lower, result.upper, result.kind, result.found.n_changes, result.found.radius[0]),
        )
        for run, valid, result in zip(runs, accuracy, found, strict=True)
    ]
    write_json(out / "certificates.json", summary)
    write_csv(out / "certificates.csv", columns, rows)
    figure = plot_certificates(
        np.array(accuracy),
        np.array([result.lower for result in found]),
        np.array([result.upper for result in found]),
        np.array([result.found.radius[0] for result in found]),
        verdicts=verdicts,
        change=found[0].change,
    )
    save_figure(figure, out, "certificates")
    return summary
