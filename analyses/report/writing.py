"""`boolens report`: what is wanting is analysed, then the pages are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyses.overview import verdict_lines
from analyses.progress import progress_bar
from analyses.report.findings import Finding, find, find_all, wanting
from analyses.report.render import render
from analyses.report.run_page import MOODS, frame, headline, link, run_page
from analyses.results import load_analysis
from analyses.runs import Run, find_runs
from interp.errors import BoolensError
from interp.files import write_atomic

PAGE = "report.html"
Found = dict[str, Finding]


def write_report(
    path: Path, out: Path | None = None, *, analyze: bool = True, jobs: int | None = None
) -> tuple[dict[str, Any], list[str]]:
    """RUN/report.html, or of a folder of seeds the overview and each seed's own.

    Args:
        path: a run, or a folder of seeds.
        out: another file for the page of `path`; seeds' pages stay in their folders.
        analyze: whether to run analyses that are missing, stale or without a figure first.
        jobs: processes for those; None for what suits.

    Returns:
        What --json prints, and the lines to print, the page's path last.

    Raises:
        BoolensError, TaskError: no run at `path`, a folder in the way of the page, or an analysis that fails.
    """
    runs = find_runs(path)
    page = path / PAGE if out is None else out
    if page.is_dir():
        raise BoolensError(f"{page} is a folder; --out is the page's file, such as {page / PAGE}")
    found = [find_all(run) for run in runs]
    if analyze:
        found = run_wanting(runs, found, jobs)
    seeds = runs[0].path != path
    pages = {run.path.name: run.path / PAGE for run in runs} if seeds else {runs[0].path.name: page}
    with progress_bar(len(runs), "writing reports") as bar:
        for run, of_run in zip(runs, found, strict=True):
            bar.advance(0, f"writing {run.path.name}")
            own = pages[run.path.name]
            write_atomic(own, run_page(run, of_run, own, ("All seeds", page) if seeds else None))
            bar.advance()
    if seeds:
        from analyses.report.overview_page import overview_page

        write_atomic(page, overview_page(path, runs, found, pages, page))
    lines = [line for run, of_run in zip(runs, found, strict=True) for line in run_lines(run, of_run)]
    content = {"report": str(page), "reports": {name: str(own) for name, own in pages.items()}}
    content["verdicts"] = {run.path.name: verdicts(of_run) for run, of_run in zip(runs, found, strict=True)}
    content["missing"] = {run.path.name: gone for run, of in zip(runs, found, strict=True) if (gone := missing(of))}
    return content, [*lines, f"report: {page}"]


def write_index(folder: Path, heading: str, paths: Sequence[Path]) -> Path:
    """Each single run's report, linked back, and FOLDER/report.html that leads to all of them.

    Args:
        folder: of the index.
        heading: its title.
        paths: runs of one seed each.
    """
    page = folder / PAGE
    entries = []
    for path in paths:
        run = Run(path)
        found = find_all(run)
        write_atomic(path / PAGE, run_page(run, found, path / PAGE, ("Overview", page)))
        entries.append({**headline(run, found), "href": link(path / PAGE, page)})
    words = {"title": heading, "back": None, "moods": MOODS, "entries": entries}
    contents = [{"anchor": f"run-{i}", "text": entry["title"]} for i, entry in enumerate(entries, 1)]
    write_atomic(page, render("index.html.j2", **frame(), **words, contents=contents))
    return page


def run_wanting(runs: Sequence[Run], found: Sequence[Found], jobs: int | None = None) -> list[Found]:
    """Run the analyses that pages of these runs would lack, with their figures; gives what is there then."""
    from analyses.batch import analyse_all

    names = [wanting(of_run) for of_run in found]
    work = [(run, load_analysis(name)) for run, of_run in zip(runs, names, strict=True) for name in of_run]
    if work:
        analyse_all(runs, work, jobs=jobs)
    made = [{name: find(run, name) for name in of_run} for run, of_run in zip(runs, names, strict=True)]
    return [of_run | new for of_run, new in zip(found, made, strict=True)]


def missing(found: Found) -> list[str]:
    """The analyses that the page lacks."""
    return [name for name, one in found.items() if one.result is None]


def verdicts(found: Found) -> dict[str, str | None]:
    """The words of target-recovery and certificate; None where there is no result of these weights."""
    results = {name: found[name].result if name in found else None for name in ("target-recovery", "certificate")}
    return {name: None if result is None else result["verdict"] for name, result in results.items()}


def run_lines(run: Run, found: Found) -> list[str]:
    """A run's verdicts in sentences, as `boolens analyze` prints them."""
    lines = []
    recovery = found["target-recovery"].result
    if recovery is not None:
        lines += verdict_lines(run, recovery)
    certificate = found["certificate"].result if "certificate" in found else None
    if certificate is not None:
        lines.append(f"{run.path}: {certificate['sentence']}")
    if gone := missing(found):
        lines.append(f"{run.path}: not in the page: {', '.join(gone)}; `boolens report {run.path}` makes them")
    return lines
