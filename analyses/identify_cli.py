"""`boolens identify`."""

from pathlib import Path
from typing import Annotated

import typer

from analyses.cli import Json, app, say


@app.command()
def identify(
    run: Annotated[Path | None, typer.Argument(help="A run folder, or a folder of seeds; or leave it out.")] = None,
    data: Annotated[Path | None, typer.Option(help="A table's file, .csv or .parquet, or animals, all rows.")] = None,
    label: Annotated[str | None, typer.Option(help="Its label: COLUMN, or COLUMN=VALUE that is True.")] = None,
    binarise: Annotated[str | None, typer.Option(help="Other columns as bits, as for train.")] = None,
    missing: Annotated[str | None, typer.Option(help="Missing values, as for train.")] = None,
    contradictions: Annotated[str | None, typer.Option(help="Equal rows with both labels, as for train.")] = None,
    limit: Annotated[int, typer.Option(help="Sets listed at most.")] = 20,
    as_json: Json = False,
) -> None:
    """Which index sets explain every label of a run's training sample, or of a table's rows? Exact."""
    from analyses import identifying
    from interp.errors import BoolensError

    if (run is None) == (data is None):
        raise BoolensError("identify takes a RUN or a table, --data FILE.csv --label COLUMN; give one of them")
    if run is not None:
        say(identifying.identify_runs(run, limit), as_json)
    else:
        options = {"data": data, "label": label, "binarise": binarise, "missing": missing}
        say(identifying.identify_table({**options, "contradictions": contradictions}, limit), as_json)
