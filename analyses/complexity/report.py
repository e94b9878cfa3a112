"""The command's measuring and its outputs: table, fits and figure."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analyses.complexity.cell import COMPUTE, Options, cells, expected_seconds, relative_cost
from analyses.complexity.fits import LAWS, PUBLISHED, WORDS, fit_laws, predict
from analyses.engine import Folder, run_cells
from analyses.engine import dry_run as dry_run_cells
from analyses.progress import progress_bar
from interp.errors import BoolensError
from interp.files import plain, write_csv, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
Said = tuple[Any, list[str]]


def dry_run(options: Options) -> Said:
    """Every cell's estimated seconds, and their total; nothing is trained but a few steps of calibration."""
    listed = [{"cell": cell_name(config), "seconds": expected_seconds(config)} for config in cells(options)]
    total = math.fsum(cell["seconds"] for cell in listed)
    lines = [f"{cell['cell']}: about {duration(cell['seconds'])}" for cell in listed]
    return {"cells": listed, "seconds": total}, [
        *lines,
        f"{len(listed)} cells, about {duration(total)} on this machine",
    ]


def measure(options: Options, out: Path, scheduler: str | None = None) -> Said:
    """Compute the cells that `out` lacks, here or on a Dask cluster; write complexity.csv, fits.json and the figure.

    Beside them are the engine's files (`analyses.engine`): results.parquet and a file a cell.

    Raises:
        BoolensError, TaskError: options out of range, `out` holds something else, or every cell failed.
    """
    configs = cells(options)
    if out.exists() and any(out.iterdir()) and not (out / "sweep.json").exists():
        raise BoolensError(f"{out} exists and holds no sample complexity to go on with; choose another --out")
    with progress_bar(1000, "sample complexity") as bar:
        found = run_cells(
            out, COMPUTE, configs, scheduler=scheduler, expected_seconds=relative_cost,
            progress=bar.reach,
        )  # fmt: skip
    failed = [
        f"failed: {Folder(out).error(s.cell.key)}" for s in dry_run_cells(out, COMPUTE, configs) if s.state != "there"
    ]
    if found.empty:
        raise BoolensError(f"every cell failed; the first error is in {failed[0].removeprefix('failed: ')}")
    rows = [{k: None if v != v else v for k, v in row.items()} for row in found.to_dict("records")]
    content, lines = report(rows, options, out)
    return content, [*lines, *(f"failed, tried again by the same call: {path}" for path in failed)]


def report(rows: Rows, options: Options, out: Path) -> Said:
    """Write table, fits and figure of the rows of all cells; the result and its sentences."""
    from interp.plots.style import save_figure

    out.mkdir(parents=True, exist_ok=True)
    columns = list(rows[0])
    found = [row for row in rows if row["kind"] == "summary"]
    short = [c for c in columns if c not in ("cell", "kind", "n_train", "reached", "failed")]
    write_csv(out / "complexity.csv", short, [[row[c] for c in short] for row in found])
    fits = {name: fit_rows(own, options.seed) for name, own in by_growth(found).items()}
    fits["published"] = fit_laws(list(PUBLISHED), list(PUBLISHED.values()), seed=options.seed)
    write_json(out / "fits.json", plain({"laws": WORDS, "rule": rule(options), "fits": fits}))
    save_figure(draw(found, fits, rule(options)), out)
    lines = [sentence(row) for row in found] + [fit_sentence(name, fit) for name, fit in fits.items()]
    cells_said = [{c: row[c] for c in short} for row in found]
    return {"rule": rule(options), "cells": cells_said, "fits": fits}, [*lines, f"rule: {rule(options)}", str(out)]


def rule(options: Options) -> str:
    """What the figure's caption says: when a size suffices, and how the models were trained."""
    trainings = {}
    for config in cells(options):
        found = config["training"]
        batch = f"batches of {found['batch_size']}" if found["batch_size"] else "full batch"
        how = f"{found['steps']} steps of Adam ({batch}, learning rate {found['lr']:g}"
        how += f", weight decay {found['weight_decay']:g})" if found["weight_decay"] else ")"
        trainings[config["model"]["architecture"]] = how
    told = {how: [name for name in trainings if trainings[name] == how] for how in trainings.values()}
    each = "; ".join(how if len(told) == 1 else f"{', '.join(names)}: {how}" for how, names in told.items())
    return (
        f"m*: fewest training samples with which {options.share:.0%} of {options.trials} trials reach a validation "
        f"accuracy of {options.accuracy:g} at a logged step, within {each}; floor: one target set left possible"
    )


def by_growth(found: Rows) -> dict[str, Rows]:
    """The summaries of one model and task together."""
    groups: dict[str, Rows] = {}
    for row in found:
        groups.setdefault(f"{row['model']}, {row['task']}", []).append(row)
    return groups


def fit_rows(found: Rows, seed: int) -> dict[str, Any]:
    """The laws fitted to the cells whose m* is known."""
    known = [row for row in found if row["m_star"] is not None]
    return fit_laws(*([row[c] for row in known] for c in ("n_ctx", "m_star", "low", "high")), seed=seed)


def draw(found: Rows, fits: dict[str, Any], rule: str) -> "Figure":
    from interp.plots.complexity import Growth, plot_complexity

    growths = []
    for name, own in by_growth(found).items():
        columns = {
            c: np.array([math.nan if row[c] is None else row[c] for row in own], dtype=float)
            for c in ("m_star", "low", "high", "floor")
        }
        laws = {
            f"{WORDS[law]} (weight {fits[name]['laws'][law]['weight']:.2f})": lambda t, law=law, name=name: predict(
                law, fits[name]["laws"][law]["a"], fits[name]["laws"][law]["b"], t
            )
            for law in (LAWS if fits[name]["defined"] else ())
        }
        growths.append(Growth(name, [row["n_ctx"] for row in own], **columns, laws=laws))
    alike = all(row["n_targets"] == 3 for row in found)
    return plot_complexity(growths, PUBLISHED if alike else {}, rule)


def sentence(row: dict[str, Any]) -> str:
    name = f"{row['model']}, {row['task']}, T = {row['n_ctx']}"
    if row["m_star"] is None:
        return f"{name}: not reached with the samples tried (floor {number(row['floor'])})"
    return (
        f"{name}: m* = {row['m_star']:.0f} ({number(row['low'])} to {number(row['high'])}); floor "
        f"{number(row['floor'])}, ratio {number(row['ratio'], 2)} ({number(row['ratio_low'], 2)} to "
        f"{number(row['ratio_high'], 2)})"
    )


def fit_sentence(name: str, fit: dict[str, Any]) -> str:
    if not fit["defined"]:
        return f"{name}: laws undefined with {fit['n']} values of T; measure at least 4"
    told = ", ".join(f"{WORDS[law]} {f['weight']:.2f}" for law, f in fit["laws"].items())
    b, low, high = fit["exponent"]
    return f"{name}: weights {told}; exponent of the power {b:.2f} ({low:.2f} to {high:.2f})"


def number(value: float | None, places: int = 0) -> str:
    return "no bound" if value is None else f"{value:.{places}f}"


def cell_name(config: dict[str, Any]) -> str:
    return f"{config['model']['architecture']}, {config['task']}, T = {config['n_ctx']}"


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
