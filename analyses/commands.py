"""What each command does; returns the JSON content and the lines to print."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyses.options import import_task, model_config, parse_seeds, task_maker, train_config
from analyses.overview import print_overview, sets_text, verdict_lines, write_claims, write_overview
from analyses.progress import progress_bar
from analyses.results import SWEEPING, chosen_analyses, result_path
from analyses.runs import Run, find_runs
from analyses.table_task import TABLE_OPTIONS, part_sizes, reading_line, split_line, summary, table_maker
from analyses.train import Plan, check_plan, import_run, train_seeds
from interp.checkpoint import import_tutorial
from interp.errors import BoolensError
from interp.files import read_json
from interp.memory import models_at_once
from interp.training import Job, median_accuracy
from tasks import TableTask

Said = tuple[Any, list[str]]

TASK_OPTIONS = ("n_ctx", "n_targets", "targets", "rule_positions", "n_rule_bits", "table", "p")
MODEL_OPTIONS = (
    *("d_model", "n_heads", "d_head", "d_value", "positions", "bias", "norm", "d_mlp", "dropout", "init_std"),
)
TRAIN_OPTIONS = (
    *("n_train", "n_valid", "steps", "lr", "weight_decay", "batch_size", "log_every", "snapshot_every"),
    *("stop_loss", "stop_accuracy", "patience"),
)
SUMMED = ("formation", "effective-attention", "target-recovery", "certificate")
"""Analyses whose result.json tables over runs are made of."""
DEMO = {
    "sparse-and": {"task": "sparse-and", "n_ctx": 30, "n_targets": 3, "n_train": 200, "steps": 2000},
    "rule-and": {"task": "rule-and", "n_ctx": 11, "targets": "3,7/2,5", "n_train": 300, "n_valid": 500, "steps": 3000},
}


def train(given: dict[str, Any]) -> Said:
    """`boolens train`: `given` holds the command's options by name; those left out or None take their defaults."""
    plan = make_plan(given)
    if given.get("until_certified"):
        from analyses.certifying import train_certified

        return train_certified(plan, given)
    device = given.get("device") or "cpu"
    tasks = check_plan(plan, resume=bool(given.get("resume")), device=device)
    at_once = models_at_once(plan.model, plan.training, device)
    done: list[Job] = []
    counted: dict[int, int] = {}
    with progress_bar(len(plan.seeds) * plan.training.steps, "training") as bar:

        def count(job: Job, step: int) -> None:
            bar.advance(step - counted.get(job.seed, 0))
            counted[job.seed] = step

        def on_step(step: int, jobs: list[Job]) -> None:
            for job in jobs:
                count(job, step)
            state = f"{len(done)} models done, {len(plan.seeds) - len(done)} left, {len(jobs)} at once"
            bar.advance(0, f"{state}; median validation accuracy {median_accuracy([*done, *jobs]):.3f}")

        def on_done(job: Job) -> None:
            count(job, plan.training.steps)
            done.append(job)

        train_seeds(plan, tasks, device=device, at_once=at_once, on_step=on_step, on_done=on_done)
    from analyses.verdict import measure_accuracy

    content, lines = [], []
    for seed in plan.seeds:
        run = Run(plan.folder(seed))
        accuracy = measure_accuracy(run)
        said = {"task": run.task.to_dict(), "p_true": run.task.p_true, "accuracy": accuracy.to_json()}
        content.append({"run": str(run.path), "seed": seed, **said})
        if isinstance(run.task, TableTask):
            content[-1]["table"] = summary(run.task)
            lines += [reading_line(run.task)] if seed == plan.seeds[0] else []
        chance = "" if abs(run.task.p_true - 0.5) < 1e-9 else f", P(label = True) {run.task.p_true:.4g}"
        targets = sets_text(run.task.targets, run.task.position_names)
        lines.append(
            f"{run.path}: {run.task.NAME} {targets}{chance}, {run.architecture}; validation "
            f"accuracy {accuracy.valid:.3f} (majority class {accuracy.majority:.3f}, balanced {accuracy.balanced:.3f})"
        )
        lines += [f"  {split_line(run.task)}"] if isinstance(run.task, TableTask) else []
    return content, lines


def make_plan(given: dict[str, Any]) -> Plan:
    """The training that the options ask for.

    Raises:
        BoolensError, TaskError: options that cannot be.
    """
    options = {"model": "attention", "seed": 0, "seeds": None} | given
    seeds, many = parse_seeds(options["seed"], options["seeds"])
    if options["task"] == "table":
        draw_task = table_maker(options)
        options |= part_sizes(draw_task(seeds[0]))
    else:
        alien = ["--" + name for name in TABLE_OPTIONS if options.get(name) is not None]
        if alien:
            raise BoolensError(f"{options['task']} takes no {', '.join(alien)}; leave it out, or train a table")
        draw_task = task_maker(options["task"], **{name: options.get(name) for name in TASK_OPTIONS})
    return Plan(
        draw_task=draw_task,
        model=model_config(options["model"], draw_task(seeds[0]).n_ctx, {n: options.get(n) for n in MODEL_OPTIONS}),
        training=train_config(options["model"], {n: options.get(n) for n in TRAIN_OPTIONS}),
        seeds=seeds,
        out=Path(options["out"]),
        many=many,
        source="certified" if given.get("until_certified") else "trained",
    )


def analyze(
    path: Path,
    names: Sequence[str],
    sweep: dict[str, Any] | None = None,
    hypothesis: Path | None = None,
    *,
    quiet: bool = False,
    jobs: int | None = 1,
    content: bool = True,
    figures: bool = True,
) -> Said:
    """`boolens analyze`: every run at `path`, each analysis; a folder of seeds gets tables over its runs.

    Args:
        path: a run, or a folder of seeds.
        names: of analyses; all that apply if empty.
        sweep: the options of `analyses.sweeps` by name, texts or None.
        hypothesis: a file's name.
        quiet: whether the overview is not printed.
        jobs: number of processes, None for what suits (`analyses.batch`). A script that asks for more than one calls
            this under `if __name__ == "__main__":`.
        content: whether to return what --json prints, read back from the files; else {}.
        figures: whether to draw each run's, which takes longer than most analyses.

    Raises:
        BoolensError: options for an analysis that does not take them.
    """
    from analyses.batch import analyse_all
    from analyses.formation_order import write_order
    from analyses.hypothesis import load_hypothesis
    from analyses.selection_overview import write_sides
    from analyses.sweeps import sweep_options
    from analyses.target_recovery import TargetRecovery
    from analyses.variable_creation import VariableCreation

    claims = load_hypothesis(hypothesis) if hypothesis else None
    options = sweep_options(sweep or {})
    names = names or (("variable-creation",) if claims else SWEEPING if options else ())
    for name in names:
        if options and name not in SWEEPING:
            raise BoolensError(f"{name} takes no --hook, --kind, --mode, --metric or --over; {', '.join(SWEEPING)} do")
        if claims and name != "variable-creation":
            raise BoolensError(f"{name} takes no --hypothesis; variable-creation does")
    runs = find_runs(path)
    work = [(run, analysis) for run in runs for analysis in chosen_analyses(run, names)]
    results = analyse_all(runs, work, options or claims, jobs, figures=figures)
    recoveries = [result for result in results if isinstance(result, TargetRecovery)]
    tested = [result for result in results if isinstance(result, VariableCreation)]

    by_run: dict[str, dict[str, Any]] = {run.path.name: {} for run in runs}
    for run, analysis in work:
        if content or analysis.NAME in SUMMED:
            by_run[run.path.name][analysis.NAME] = read_json(result_path(run, analysis.NAME))
    tables: dict[str, Any] = {}
    lines = [line for run, r in zip(runs, recoveries, strict=False) for line in verdict_lines(run, r.verdict.to_json())]
    certificates = [of_run["certificate"]["result"] for of_run in by_run.values() if "certificate" in of_run]
    lines += [f"{run.path}: {found['sentence']}" for run, found in zip(runs, certificates, strict=False)]
    if tested and (claims or len(runs) > 1):
        lines += write_claims(path, tested)
        tables |= read_json(path / "analyses" / "claims.json")
    if order := write_order(path, by_run):
        lines += order
        tables["formation-order"] = read_json(path / "analyses" / "formation-order.json")
    if sides := write_sides(path, by_run):
        lines += sides
        tables["selection-side"] = read_json(path / "analyses" / "selection-side.json")
    if len(runs) > 1 and len(recoveries) == len(runs):
        proven = [found["verdict"] for found in certificates]
        tables["overview"] = write_overview(path, runs, recoveries, proven)
        if not quiet:
            print_overview(runs, recoveries, tables["overview"], proven)
        lines.append(f"overview: {path / 'analyses' / 'overview.csv'}")
    else:
        lines += [f"written: {result_path(run, analysis.NAME).parent}" for run, analysis in work]
    if not content:
        return {}, lines
    if len(runs) == 1:
        return by_run[runs[0].path.name], lines
    return {**tables, "runs": by_run} if tables else by_run, lines


def demo(out: Path, *, quiet: bool = False) -> Said:
    """`boolens demo`: both tasks trained (or found trained), analysed and reported; the last line is the page."""
    from analyses.report.writing import write_index

    content, lines = {}, []
    for name, options in DEMO.items():
        folder = out / name
        _, trained = train({**options, "out": folder, "resume": True})
        content[name], said = analyze(folder, (), quiet=quiet)
        lines += [*trained, *(line for line in said if not line.startswith("written:"))]
    page = write_index(out, "Two tasks, two models", [out / name for name in DEMO])
    return content, [*lines, f"report: {page}"]


def import_checkpoint(
    file: Path,
    task: str,
    targets: str,
    out: Path,
    rule_positions: str | None,
    p: str,
    seed: int,
    table: str | None = None,
) -> Said:
    """`boolens import`: the file's n_ctx is the task's."""
    parse_seeds(seed, None)
    n_ctx = import_tutorial(file).cfg.n_ctx
    made = import_task(task, targets, p, n_ctx, rule_positions, table)
    import_run(file, made, out, seed)
    content = {"run": str(out), "task": made.to_dict()}
    return content, [f"{out}: {made.NAME} {sets_text(made.targets)}, imported from {file}; next: boolens analyze {out}"]


def compare(given: dict[str, Any]) -> Said:
    """`boolens compare`: `given` holds the command's options by name; --out must not hold anything yet."""
    from analyses.compare import compute
    from analyses.compare_report import print_comparison, write_comparison
    from analyses.compare_setting import make_setting

    setting, out = make_setting(given), Path(given["out"])
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BoolensError(f"{out} exists and is not overwritten; choose another --out")
    with progress_bar(setting.n_models, "comparing") as bar:
        result = compute(setting, bar, given.get("device") or "cpu")
    content = write_comparison(result, out)
    if not given.get("as_json"):
        print_comparison(result)
    return content, [*(found.sentence for found in result.sample_sizes), f"written: {out}"]
