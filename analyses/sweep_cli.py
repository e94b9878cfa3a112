"""The command `boolens sweep`; its options of training are those of `boolens train`, read from the arguments."""

from pathlib import Path
from typing import Annotated, Any

import typer

from analyses.cli import Json, app, say


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def sweep(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="A task, by the name that train takes.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write, or to go on with.")],
    grid: Annotated[Path | None, typer.Option(help="YAML: train's options by name, each a value or a list.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds of every cell, trained together. [0:8]")] = None,
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Also whether each method of target-recovery finds the targets.")
    ] = False,
    scheduler: Annotated[str | None, typer.Option(help="A Dask cluster's, tcp://HOST:PORT. [this process]")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and their cost; do nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Train a grid: any option of train may be a list, --n-ctx 50,100, or a range, --n-train 50:400:50.

    --targets and --rule-positions hold commas themselves: repeat them. Results go to OUT/results.parquet; the same
    call again computes only what is missing.
    """
    from analyses import sweep as sweeping
    from interp.errors import BoolensError

    found = {} if grid is None else sweeping.read_grid(grid)
    given: dict[str, list[str]] = {}
    rest = list(context.args)
    while rest:
        flag, _, text = rest.pop(0).partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in sweeping.LISTABLE:
            raise BoolensError(f"{flag!r} is no option of sweep; there are those of `boolens train --help`")
        if not text and not rest:
            raise BoolensError(f"{flag} has no value; write {flag} and one value or a list")
        given.setdefault(name, []).append(text or rest.pop(0))
    found |= {name: sweeping.parse_values(name, texts) for name, texts in given.items()}
    found |= {name: [value] for name, value in {"seeds": seeds, "device": device}.items() if value is not None}
    configs = sweeping.make_configs(task, {"seeds": ["0:8"], **found}, recovery=recovery)
    content, lines = _list(out, configs) if dry_run else _run(out, configs, scheduler)
    say((content, lines), as_json)
    if content.get("failed"):
        raise typer.Exit(1)


def _list(out: Path, configs: list[dict[str, Any]]) -> tuple[Any, list[str]]:
    from analyses import engine, sweep

    states = engine.dry_run(out, sweep.COMPUTE, configs, sweep.calibrated_seconds(configs))
    total = sum(state.seconds or 0.0 for state in states)
    cells = [{"cell": s.cell.key, "state": s.state, "seconds": s.seconds, **s.cell.config} for s in states]
    lines = [f"{s.cell.key[:12]} {s.state:8} {s.seconds or 0:9.1f} s  {s.cell.config['options']}" for s in states]
    return {"cells": cells, "seconds": total}, [*lines, f"{len(states)} cells, about {total:.0f} s to go"]


def _run(out: Path, configs: list[dict[str, Any]], scheduler: str | None) -> tuple[Any, list[str]]:
    from analyses import engine, sweep
    from analyses.progress import progress_bar

    with progress_bar(1000, "sweeping") as bar:
        rows = engine.run_cells(
            out,
            sweep.COMPUTE,
            configs,
            scheduler=scheduler,
            expected_seconds=sweep.relative_cost,
            progress=bar.reach,
        )
    cells = engine.dry_run(out, sweep.COMPUTE, configs)
    failed = [str(engine.Folder(out).error(s.cell.key)) for s in cells if s.state != "there"]
    lines = [f"{len(cells) - len(failed)} of {len(cells)} cells, {len(rows)} models: {out / 'results.parquet'}"]
    lines += [f"failed, tried again by the same call: {path}" for path in failed]
    return {"results": str(out / "results.parquet"), "cells": len(cells), "rows": len(rows), "failed": failed}, lines
