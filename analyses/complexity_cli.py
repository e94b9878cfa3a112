"""`boolens sample-complexity`."""

from pathlib import Path
from typing import Annotated

import typer

from analyses.cli import Json, app, say

FULL, QUICK = "50,100,200,400,800,1600", "25,50,100,200"


@app.command()
def sample_complexity(
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write, or to go on with.")] = None,
    model: Annotated[str, typer.Option(help="cls, attention, mlp, linear; several with commas.")] = "cls",
    task: Annotated[str, typer.Option(help="sparse-and, parity, majority; several with commas.")] = "sparse-and",
    n_ctx: Annotated[str | None, typer.Option(help=f"Numbers of bits T. [{FULL}; --quick {QUICK}]")] = None,
    n_targets: Annotated[int, typer.Option(help="Targets of the task.")] = 3,
    trials: Annotated[int | None, typer.Option(help="Trials a cell. [50; --quick 20]")] = None,
    share: Annotated[float, typer.Option(help="Share of trials that must succeed.")] = 0.5,
    accuracy: Annotated[float, typer.Option(help="Validation accuracy that is a success.")] = 1.0,
    largest: Annotated[int, typer.Option(help="Most training samples tried.")] = 3200,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate. [the model's]")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps. [1000]")] = None,
    n_valid: Annotated[int | None, typer.Option(help="Validation samples. [1000]")] = None,
    log_every: Annotated[int | None, typer.Option(help="Steps between looks at validation accuracy. [25]")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Adam's weight decay. [0.0001 for cls, else 0]")] = None,
    d_model: Annotated[int | None, typer.Option(help="Width of embeddings. [the model's]")] = None,
    n_heads: Annotated[int | None, typer.Option(help="Attention heads. [the model's]")] = None,
    d_mlp: Annotated[int | None, typer.Option(help="Hidden units. [the model's]")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout in training. [the model's]")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first trial.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help=f"T {QUICK} with 20 trials.")] = False,
    scheduler: Annotated[str | None, typer.Option(help="A Dask cluster's, tcp://HOST:PORT. [this process]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate the time of every cell, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """From how many training samples does a model generalise, and how does that grow with T?"""
    from analyses.complexity import report
    from analyses.complexity.cell import Options, cells
    from interp.errors import BoolensError

    text = n_ctx or (QUICK if quick else FULL)
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BoolensError(f"--n-ctx {text!r} is not a list of whole numbers; write 50,100,200") from None
    options = Options(
        models=tuple(model.split(",")),
        tasks=tuple(task.split(",")),
        n_ctx=sizes,
        n_targets=n_targets,
        trials=trials if trials is not None else 20 if quick else 50,
        **{"share": share, "accuracy": accuracy, "seed": seed, "largest": largest},
        model_options={"d_model": d_model, "n_heads": n_heads, "d_mlp": d_mlp, "dropout": dropout},
        training_options={
            **{"lr": lr, "steps": steps, "n_valid": n_valid, "log_every": log_every, "weight_decay": weight_decay}
        },
    )
    cells(options)  # what is wrong with the request comes first
    if dry_run:
        say(report.dry_run(options), as_json)
    elif out is None:
        raise BoolensError("--out is missing; name a folder to write, or ask for --dry-run")
    else:
        say(report.measure(options, out, scheduler), as_json)
