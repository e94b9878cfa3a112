"""The command `boolens`. Nothing heavy is imported before a command runs, so that --help answers at once."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(
    name="boolens",
    help="From a trained attention checkpoint to a tested account of what it computes.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

INTERRUPTED = 130

Out = Annotated[Path, typer.Option("--out", help="Folder to write; it is not overwritten.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result alone, as JSON, on stdout.")]
P = Annotated[str, typer.Option("--p", help="P(bit = 1): a number, 'balanced' (labels equally likely) or 'tutorial'.")]
Table = Annotated[
    str | None, typer.Option(help="A junta's labels, 0110 for two targets, the first the most significant. [drawn]")
]


@app.command()
def train(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="sparse-and, rule-and, or, majority, parity, junta or table")],
    out: Out,
    n_ctx: Annotated[int | None, typer.Option(help="Number of bits T. [30; 11 for rule-and]")] = None,
    n_targets: Annotated[
        int | None, typer.Option(help="Targets a rule, drawn by each seed. [3; 2 for rule-and]")
    ] = None,
    targets: Annotated[
        str | None, typer.Option(help="Target indices: 3,7,12 or, one set a rule, 3,7/2,5; of a table also names.")
    ] = None,
    rule_positions: Annotated[str | None, typer.Option(help="Rule bits, most significant first. [the last]")] = None,
    table: Table = None,
    n_rule_bits: Annotated[int | None, typer.Option(help="Rule bits of a drawn rule-and task. [1]")] = None,
    p: P = "balanced",
    data: Annotated[Path | None, typer.Option(help="A table's file, .csv or .parquet; or animals.")] = None,
    label: Annotated[str | None, typer.Option(help="Its label: COLUMN, or COLUMN=VALUE that is True.")] = None,
    binarise: Annotated[
        str | None,
        typer.Option(help="Other columns as bits: quantile:0.5, one-hot, age=threshold:40, several with commas."),
    ] = None,
    missing: Annotated[
        str | None, typer.Option(help="Missing values: refuse, drop-rows, drop-columns or false. [refuse]")
    ] = None,
    contradictions: Annotated[
        str | None, typer.Option(help="Equal rows with both labels: keep, drop or majority. [keep]")
    ] = None,
    model: Annotated[str, typer.Option(help="attention, cls, mlp or linear")] = "attention",
    d_model: Annotated[int | None, typer.Option(help="Width of embeddings. [2; 64 for cls]")] = None,
    n_heads: Annotated[int | None, typer.Option(help="Attention heads. [1; 16 for cls]")] = None,
    d_head: Annotated[int | None, typer.Option(help="Width of queries and keys. [d_model; / n_heads for cls]")] = None,
    d_value: Annotated[int | None, typer.Option(help="Width of values. [1]")] = None,
    positions: Annotated[str | None, typer.Option(help="learned or sinusoidal. [learned]")] = None,
    bias: Annotated[
        bool | None, typer.Option("--bias/--no-bias", help="Biases in q, k, v and logit. [no; cls: yes]")
    ] = None,
    norm: Annotated[bool | None, typer.Option("--norm/--no-norm", help="The cls model's LayerNorms. [yes]")] = None,
    d_mlp: Annotated[int | None, typer.Option(help="Hidden units of the MLP. [512; 64 for cls, 0: none]")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout of mlp and cls. [0.1]")] = None,
    init_std: Annotated[float | None, typer.Option(help="Std of the initialisation. [0.001; 0.02 for others]")] = None,
    n_train: Annotated[int | None, typer.Option(help="Training samples. [200]")] = None,
    n_valid: Annotated[int | None, typer.Option(help="Validation samples. [1000]")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps. [2000]")] = None,
    lr: Annotated[float | None, typer.Option(help="Adam's learning rate. [0.01; 0.001 for mlp, cls]")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Times the weights in Adam's gradient. [0]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step; 0 is the full batch. [0]")] = None,
    log_every: Annotated[int | None, typer.Option(help="Steps between rows of history.csv. [20]")] = None,
    snapshot_every: Annotated[int | None, typer.Option(help="Steps between weight snapshots; 0 for none. [0]")] = None,
    stop_loss: Annotated[
        float | None, typer.Option(help="Finished once the training loss is below this. [0: off]")
    ] = None,
    stop_accuracy: Annotated[
        float | None, typer.Option(help="... validation accuracy is at least this. [0: off]")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="... validation loss is no lower for so many rows. [0: off]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of targets, initialisation and data.")] = 0,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds, 0:32 or 3,5,8; one folder each under --out.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    until_certified: Annotated[
        bool, typer.Option("--until-certified", help="Train on counterexamples, round by round, until none is left.")
    ] = False,
    rounds: Annotated[int, typer.Option(help="Rounds of --steps each that --until-certified may take.")] = 20,
    resume: Annotated[bool, typer.Option("--resume", help="Finish what an earlier, interrupted call began.")] = False,
    config: Annotated[Path | None, typer.Option(help="JSON file of these options (n_ctx, steps, ...).")] = None,
    as_json: Json = False,
) -> None:
    """Train a model, or one a seed, into run folders."""
    from analyses import commands
    from analyses.options import read_options

    given = dict(context.params)
    if config is not None:
        for name, value in read_options(config).items():
            source = context.get_parameter_source(name)
            if source is not None and source.name == "DEFAULT":
                given[name] = value
    say(commands.train(given), as_json)


@app.command()
def analyze(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder of seeds.")],
    names: Annotated[list[str] | None, typer.Argument(help="Analyses; all that apply if none is named.")] = None,
    hook: Annotated[str | None, typer.Option(help="Hook points, e.g. z,pattern. [all with the axes of --over]")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Of ablation: zero,mean,resample,optimal,remove-key; attribution: gradient,integrated."),
    ] = None,
    mode: Annotated[str | None, typer.Option(help="Of patching: denoise,noise.")] = None,
    metric: Annotated[str | None, typer.Option(help="logit, probability, loss or accuracy. [logit]")] = None,
    over: Annotated[
        str | None, typer.Option(help="Cells: pos, head, head,pos or head,dest,src, which are drawn as maps. [pos]")
    ] = None,
    hypothesis: Annotated[
        Path | None, typer.Option(help="Claims that variable-creation tests, YAML (see analyses/hypothesis.py).")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes for the runs of a folder. [one a core, where that pays]")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw each run's figures; without, tables come sooner.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Run analyses; figures, tables and result.json go to RUN/analyses/NAME/.

    --hook, --kind, --mode, --metric and --over are for ablation, activation-patching and attribution.
    """
    from analyses import commands

    sweep = {"hook": hook, "kind": kind, "mode": mode, "metric": metric, "over": over}
    how = {"quiet": as_json, "jobs": jobs, "content": as_json, "figures": figures}
    say(commands.analyze(run, names or [], sweep, hypothesis, **how), as_json)


@app.command()
def certify(
    run: Annotated[Path, typer.Argument(help="A run folder, or a folder of seeds.")],
    seconds: Annotated[float, typer.Option(help="Time for each run; what is known by then is reported.")] = 60.0,
    count: Annotated[
        bool, typer.Option("--count/--no-count", help="Find the exact probability and number of wrong inputs.")
    ] = True,
    as_json: Json = False,
) -> None:
    """The verdict over all 2**T inputs: verified, refuted by an input, or undecided; how often wrong, and where."""
    from analyses.certificate import Settings
    from analyses.certifying import certify as certify_runs

    say(certify_runs(run, Settings(seconds, count)), as_json)


@app.command()
def demo(out: Out, as_json: Json = False) -> None:
    """The main job: train sparse-and and rule-and, run every analysis, print the verdicts, write the report."""
    from analyses import commands

    say(commands.demo(out, quiet=as_json), as_json)


@app.command()
def compare(
    context: typer.Context,
    out: Out,
    seeds: Annotated[str, typer.Option(help="Seeds, 0:16 or 3,5,8.")] = "0:16",
    n_ctx: Annotated[int, typer.Option(help="Number of bits T.")] = 30,
    sparse: Annotated[int, typer.Option(help="Targets s of the sparse task.")] = 3,
    dense: Annotated[
        int | None, typer.Option(help="Targets of the dense task. [15; 18 with --tutorial-balance]")
    ] = None,
    n_train: Annotated[int, typer.Option(help="Training samples.")] = 1000,
    n_valid: Annotated[int, typer.Option(help="Validation samples.")] = 1000,
    tutorial_balance: Annotated[
        bool, typer.Option("--tutorial-balance", help="P(bit = 1) = 0.5**(1/3) for every s, as in the tutorial.")
    ] = False,
    sample_size: Annotated[
        bool, typer.Option(help="Find the smallest training sets for 100 % on the sparse task (Exercise 3.4).")
    ] = True,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    as_json: Json = False,
) -> None:
    """Attention, MLP and linear model on a sparse and a dense task, over seeds: the tutorial's Exercise 3."""
    from analyses import commands

    say(commands.compare(dict(context.params)), as_json)


@app.command(name="import")
def import_checkpoint(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.pt", help="The tutorial's SelfAttention, torch.save(state_dict()).")
    ],
    task: Annotated[str, typer.Option(help="The task that it was trained on, by the name that train takes.")],
    targets: Annotated[str, typer.Option(help="Its target indices: 3,7,12 or, one set a rule, 3,7/2,5.")],
    out: Out,
    rule_positions: Annotated[str | None, typer.Option(help="Rule bits, most significant first. [the last]")] = None,
    table: Table = None,
    p: P = "balanced",
    seed: Annotated[int, typer.Option(help="Seed of the data that analyses draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Take over a checkpoint of the tutorial as a run folder."""
    from analyses import commands

    say(commands.import_checkpoint(file, task, targets, out, rule_positions, p, seed, table), as_json)


def say(said: tuple[Any, list[str]], as_json: bool) -> None:
    content, lines = said
    if as_json:
        from interp.files import plain

        typer.echo(json.dumps(plain(content), allow_nan=False))
    else:
        for line in lines:
            typer.echo(line)


def analyze_as_module(name: str) -> None:
    """`python -m analyses.NAME RUN`: the same as `boolens analyze RUN NAME`."""
    main(["analyze", *sys.argv[1:], name] if len(sys.argv) > 1 else ["analyze", "--help"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; bad input is one line on stderr and exit code 2, never a traceback."""
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
    except typer.TyperException as error:
        message = getattr(error, "format_message", lambda: str(error))()
        _fail(f"{message} (see `boolens --help`)")
    except typer.Abort:
        code = INTERRUPTED
    except MemoryError:
        _fail("not enough memory for this; ask for fewer samples, bits, heads or hidden units")
    except OSError as error:
        _fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    except ValueError as error:
        from interp.errors import BoolensError
        from tasks.errors import TaskError

        if not isinstance(error, BoolensError | TaskError):
            raise
        _fail(str(error))
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        _fail("not enough memory for this; ask for fewer samples, bits, heads or hidden units")
    if code == INTERRUPTED:  # typer's own answer to Ctrl-C, without a word
        _fail("interrupted; finished parts are kept, and `boolens train ... --resume` goes on", code=INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 2) -> NoReturn:
    typer.echo(f"boolens: {' '.join(message.split())}", err=True)
    sys.exit(code)


# Commands in files of their own, which register on the app above.
from analyses import complexity_cli as complexity_cli  # noqa: E402
from analyses import identify_cli as identify_cli  # noqa: E402
from analyses import report_cli as report_cli  # noqa: E402
from analyses import sweep_cli as sweep_cli  # noqa: E402
