"""The command `boolens report`."""

from pathlib import Path
from typing import Annotated

import typer

from analyses.cli import Json, app, say


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder of seeds.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Another file for the page; an older page is replaced. [RUN/report.html]"),
    ] = None,
    analyze: Annotated[
        bool, typer.Option("--analyze/--no-analyze", help="First run analyses that are missing, stale or not drawn.")
    ] = True,
    jobs: Annotated[int | None, typer.Option(help="Processes for them. [one a core, where that pays]")] = None,
    as_json: Json = False,
) -> None:
    """One self-contained page: verdict, figures, tables; of a folder of seeds an overview, and a page for each seed."""
    from analyses.report.writing import write_report

    say(write_report(run, out, analyze=analyze, jobs=jobs), as_json)
