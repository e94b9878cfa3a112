"""The page of a folder of seeds: every seed's row, how the seeds vary, and what tables over them say."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analyses.overview import sets_text
from analyses.report.evidence import Fact
from analyses.report.findings import Finding
from analyses.report.formats import capital, listed, number, plural, share
from analyses.report.images import embed
from analyses.report.overview_tables import (
    Results,
    claims,
    counts,
    disagreements,
    formation_order,
    matches,
    methods_of,
    selection_sides,
)
from analyses.report.provenance import citation
from analyses.report.render import render
from analyses.report.run_page import MOODS, frame, link
from analyses.report.tables import Cell, Table, make_table
from analyses.report.words import model_name, model_sentences, shown, task_name, task_sentences
from analyses.runs import Run

SECTIONS = (
    (
        "selection-side",
        "Keys or queries",
        "On which side do the models select, and does that say where mean attention misses?",
        selection_sides,
    ),
    (
        "formation-order",
        "Order of formation",
        "In which order do the measures lock on during training?",
        formation_order,
    ),
    ("claims", "Claims", "In how many seeds does each claim hold?", claims),
)
READ = (
    "A dot is one seed, a black bar the median over seeds. Left: validation accuracy beside what always giving the "
    "more frequent answer gets. Middle: how well each method's scores separate the targets from all other positions "
    "(AUROC, mean over rules). Right, where there are certificates: the probability of a wrong input under the task's "
    "distribution, or its upper bound, on a logarithmic axis."
)
TROUBLE = (
    "Accuracies near the majority class, or methods whose dots are spread over the whole height: such a method cannot "
    "be trusted from one seed."
)


def overview_page(
    folder: Path,
    runs: Sequence[Run],
    found: Sequence[Mapping[str, Finding]],
    pages: Mapping[str, Path],
    out: Path,
) -> bytes:
    """The page's bytes.

    Args:
        folder: of the seeds.
        runs: its runs.
        found: their analyses.
        pages: each run's own page, by the run's name.
        out: the file that the page will be.
    """
    results = [{name: one.result for name, one in of.items() if one.result is not None} for of in found]
    missing = sorted({name for of in found for name, one in of.items() if one.result is None})
    sections = [
        {"name": name, "title": title, "question": question, "table": table}
        for name, title, question, make in SECTIONS
        if (table := make(results)) is not None
    ]
    first = runs[0]
    alike = all(run.task.to_dict() == first.task.to_dict() for run in runs)
    shape = task_sentences(first.task) if alike else ["Each seed has its own targets, and its own data."]
    heading = f"{task_name(first.task)}, {model_name(first)}, {plural(len(runs), 'seed')}"
    entries = [("verdict", "Verdict"), ("seeds", "Seeds"), ("distributions", "Distributions")]
    entries += [(section["name"], section["title"]) for section in sections]
    figure = _figure(results)
    if figure is None:
        entries.remove(("distributions", "Distributions"))
    return render(
        "overview.html.j2",
        **frame(),
        title=capital(heading),
        folder=folder.name,
        back=None,
        contents=[{"anchor": a, "text": t} for a, t in [*entries, ("provenance", "Provenance")]],
        task_sentences=shape,
        model_sentences=model_sentences(first),
        moods=MOODS,
        missing=missing,
        report_command=f"boolens report {shlex.quote(shown(folder))}",
        sentences=_sentences(results),
        disagreements=disagreements(results),
        counts=counts(results),
        seeds=_seeds(runs, results, pages, out),
        figure=figure,
        sections=sections,
        facts=_facts(runs),
        files=[
            {"name": path.name, "href": link(path, out)}
            for path in sorted((folder / "analyses").glob("*"))
            if path.is_file()
        ],
        citation=citation(frame()["version"]),
    )


def _sentences(results: Results) -> list[str]:
    """What holds over the seeds, in words."""
    said = []
    recovered = [of["target-recovery"] for of in results if "target-recovery" in of]
    if recovered:
        valid = [r["accuracy"]["valid"] for r in recovered]
        majority = [r["accuracy"]["majority"] for r in recovered]
        balanced = [r["accuracy"]["balanced"] for r in recovered]
        said.append(
            f"Validation accuracy is {_median(valid)}, balanced accuracy {_median(balanced)}. Always giving the more "
            f"frequent answer gets {_range(majority)}."
        )
        created = sum(r["verdict"] == "created" for r in recovered)
        said.append(f"{created} of {plural(len(recovered), 'model')} are found to have created the variables.")
    certified = [of["certificate"] for of in results if "certificate" in of]
    if certified:
        words = [f"{n} {w}" for w in ("verified", "refuted", "undecided") if (n := _count(certified, w))]
        upper = [c["error_probability"]["upper"] for c in certified]
        exact = all(c["error_probability"]["kind"] == "exact" for c in certified)
        kind = "probability of error" if exact else "upper bound of the probability of error"
        said.append(
            f"Certificates over all inputs: {listed(words)}; the {kind} is {number(float(np.median(upper)), 2)} in the "
            f"median and at most {number(max(upper), 2)}."
        )
    return said


def _count(certified: Sequence[Mapping[str, Any]], word: str) -> int:
    return sum(c["verdict"] == word for c in certified)


def _median(values: Sequence[float]) -> str:
    low, high = share(min(values)), share(max(values))
    return f"{low} in all" if low == high else f"{share(float(np.median(values)))} in the median ({low} to {high})"


def _range(values: Sequence[float]) -> str:
    low, high = share(min(values)), share(max(values))
    return low if low == high else f"{low} to {high}"


def _seeds(runs: Sequence[Run], results: Results, pages: Mapping[str, Path], out: Path) -> Table:
    """A row a seed, the seed linked to its own page."""
    methods, rows = methods_of(results), []
    certificates = any("certificate" in of for of in results)
    for run, of in zip(runs, results, strict=True):
        row = [
            Cell(str(run.seed), True, link(pages[run.path.name], out)),
            Cell(sets_text(run.task.targets, run.task.position_names).replace(",", ", ").replace("/", " / ")),
        ]
        recovery, certificate = of.get("target-recovery"), of.get("certificate")
        if recovery is None:
            row += [Cell("–")] * 4
        else:
            accuracy = recovery["accuracy"]
            row += [Cell(share(accuracy[name]), True) for name in ("valid", "majority", "balanced")]
            row.append(_word(recovery["verdict"]))
        if certificates:
            error = (certificate or {}).get("error_probability")
            row += [_word(certificate["verdict"]) if certificate else Cell("–"), _error(error)]
        for method in methods:
            found = None if recovery is None else matches(recovery, method)
            row.append(Cell("–") if found is None else Cell("yes", mood="good") if found else Cell("no", mood="bad"))
        rows.append(row)
    columns = ["seed", "targets", "validation accuracy", "majority", "balanced", "verdict"]
    columns += ["certificate", "probability of error"] if certificates else []
    return make_table([*columns, *methods], rows)


def _word(verdict: str) -> Cell:
    return Cell(verdict, mood=MOODS.get(verdict, ""))


def _error(error: Mapping[str, Any] | None) -> Cell:
    if error is None:
        return Cell("–")
    if error["lower"] == error["upper"]:
        return Cell(number(error["upper"], 3), True)
    return Cell(f"at most {number(error['upper'], 3)}")


def _figure(results: Results) -> dict[str, Any] | None:
    """The distributions over seeds; None where no seed has target recovery."""
    from interp.plots.overview import plot_overview
    from interp.plots.style import save_figure

    recovered = [of["target-recovery"] for of in results if "target-recovery" in of]
    if not recovered:
        return None
    methods = methods_of(results)
    auroc = np.array(
        [[np.mean(_floats(rule["methods"][m]["auroc"] for rule in r["rules"])) for r in recovered] for m in methods]
    )
    upper = _floats(of["certificate"]["error_probability"]["upper"] for of in results if "certificate" in of)
    accuracy = {name: _floats(r["accuracy"][name] for r in recovered) for name in ("valid", "majority")}
    figure = plot_overview(accuracy["valid"], accuracy["majority"], auroc, methods=methods, error=upper)
    with TemporaryDirectory() as folder:
        image = embed(save_figure(figure, folder)[0])
    medians = "; ".join(f"{m} {share(float(np.nanmedian(a)))}" for m, a in zip(methods, auroc, strict=True))
    alt = f"Dots of {plural(len(recovered), 'seed')}. {' '.join(_sentences(results))} Median AUROC: {medians}."
    return {"image": image, "alt": alt, "read": READ, "trouble": TROUBLE}


def _floats(values: Any) -> np.ndarray:
    """None as NaN."""
    return np.array(list(values), dtype=float)


def _facts(runs: Sequence[Run]) -> list[Fact]:
    made = {" and ".join(f"{k} {v}" for k, v in run.config.versions.items()) for run in runs}
    origins = {run.config.source for run in runs}
    return [
        Fact("seeds", listed(run.seed for run in runs)),
        Fact("origin", listed(sorted(origins))),
        Fact("made with", listed(sorted(made), "or")),
        *(Fact(f"SHA-256 of the weights, seed {run.seed}", run.provenance["weights_sha256"]) for run in runs),
    ]
