"""A comparison's files, and what is said about it."""

from pathlib import Path
from typing import Any

from analyses.compare import NAME, Comparison, plot
from interp.files import plain, write_csv, write_json
from interp.plots import save_figure


def write_comparison(result: Comparison, out: Path) -> dict[str, Any]:
    """OUT/data.csv, figure.png, figure.svg and, last, result.json, whose content is returned."""
    table = result.to_rows()
    write_csv(out / "data.csv", table.columns, table.rows)
    save_figure(plot(result), out)
    content = {"schema": 1, "analysis": NAME, "run": plain(result.provenance), "result": plain(result.to_json())}
    write_json(out / "result.json", content)
    return content


def print_comparison(result: Comparison) -> None:
    """A row a cell: means over seeds, the validation accuracy with its interval."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 140)
    columns = ("task", "training", "model", "parameters", "validation accuracy", "95 % interval")
    table = Table(*columns, "majority", "balanced", "loss (nats)", "at 100 %", "constant")
    before = ""
    for cell in result.cells:
        if before not in ("", cell.density):
            table.add_section()
        before = cell.density
        content = cell.to_json()
        accuracy = content["valid_accuracy"]
        low, high = accuracy["interval"]
        shares = [f"{content[name]['mean']:.3f}" for name in ("majority_accuracy", "balanced_accuracy")]
        counts = [f"{content[name]['count']}/{content['n_seeds']}" for name in ("perfect", "constant")]
        table.add_row(
            f"{cell.density}, s={content['n_targets']}",
            cell.rule.name,
            cell.architecture,
            f"{cell.parameters:,}",
            f"{accuracy['mean']:.4f}",
            f"{low:.4f} to {high:.4f}",
            *shares,
            f"{content['valid_loss']['mean']:.2g}",
            *counts,
        )
    console.print(table)
