"""`boolens train table`: a file's rows as the task of every seed, and what is said of them."""

from collections.abc import Callable
from functools import cache
from typing import Any

from analyses.options import DEFAULT_N_TARGETS
from interp.errors import BoolensError
from interp.seeds import torch_generator
from tasks import TableTask

TABLE_OPTIONS = ("data", "label", "binarise", "missing", "contradictions")
FOREIGN = ("n_ctx", "table", "rule_positions", "n_rule_bits")


def table_maker(options: dict[str, Any]) -> Callable[[int], TableTask]:
    """A function from the seed to the task, each with a split of its own; the file is read once.

    Args:
        options: of `boolens train`, by name; those left out or None take their defaults.

    Raises:
        BoolensError, TaskError: options that a table does not take or lacks, or a file that is no such table.
    """
    from tasks.table_reading import read_table
    from tasks.table_split import make_table_task

    foreign = [name for name in FOREIGN if options.get(name) is not None]
    foreign += ["p"] if options.get("p") not in (None, "balanced") else []
    foreign += ["until_certified"] if options.get("until_certified") else []
    if foreign:
        names = ", ".join("--" + name.replace("_", "-") for name in foreign)
        raise BoolensError(f"table takes no {names}; its features and labels are those of the file, leave it out")
    if options.get("data") is None or options.get("label") is None:
        raise BoolensError("table needs a file and its label's column: --data FILE.csv --label COLUMN")
    if options.get("targets") is not None and options.get("n_targets") is not None:
        raise BoolensError("--targets and --n-targets exclude each other; give one")
    read = read_table(options["data"], options["label"], options.get("binarise"), options.get("missing") or "refuse")
    chosen = options.get("targets")
    n_targets = options.get("n_targets")

    @cache
    def draw(seed: int) -> TableTask:
        return make_table_task(
            read,
            torch_generator(seed, "train"),
            n_train=options.get("n_train"),
            n_valid=options.get("n_valid"),
            contradictions=options.get("contradictions") or "keep",
            targets=None if chosen is None else [part.strip() for part in str(chosen).split(",")],
            n_targets=DEFAULT_N_TARGETS["table"] if n_targets is None else n_targets,
        )

    return draw


def part_sizes(task: TableTask) -> dict[str, int]:
    """The numbers of samples that training takes from the table."""
    return {"n_train": int(task.in_part("train").sum()), "n_valid": int(task.in_part("valid").sum())}


def summary(task: TableTask) -> dict[str, Any]:
    """What was read and made of it, for --json."""
    hypothesis = {"features": names_of(task), "origin": task.origin, "errors": task.errors, "ties": task.ties}
    hypothesis["held_out_errors"] = task.held_out_errors
    share = float(task.y.mean())
    return {**task.source, "rows": task.n_rows, "features": task.n_ctx, "true": share, **part_sizes(task)} | {
        "hypothesis": hypothesis
    }


def names_of(task: TableTask) -> list[str]:
    """The features of the hypothesis."""
    return [task.features[i] for i in task.targets[0]]


def reading_line(task: TableTask) -> str:
    """What the file holds."""
    source = task.source
    lacking, constant = source.get("missing_by_column", {}), source.get("constant_features", [])
    missing = f"{sum(lacking.values())} values missing ({source.get('missing')})" if lacking else "no values missing"
    mixed = f"{source.get('contradictory_rows', 0)} rows in {source.get('contradictory_inputs', 0)} inputs"
    return (
        f"{source.get('file', 'table')}: {task.n_rows} rows of {task.n_ctx} features, label "
        f"{source.get('label', '')!r} (True in {100 * float(task.y.mean()):.0f} %); "
        f"{source.get('duplicates', 0)} rows equal to an earlier one, {mixed} with both labels "
        f"({source.get('contradictions', 'keep')}), {missing}, {len(constant)} constant features"
        + (f" ({', '.join(constant[:6])}{', ...' if len(constant) > 6 else ''})" if constant else "")
    )


def split_line(task: TableTask) -> str:
    """The two parts and the hypothesis."""
    size = part_sizes(task)
    parts = f"{size['n_train']} rows for training, {size['n_valid']} held out, no input in both parts"
    return f"{parts}; {hypothesis_line(task)}"


def hypothesis_line(task: TableTask) -> str:
    """The hypothesis, where it comes from, and how well it fits the training rows."""
    how = "given" if task.origin == "given" else "the AND with the fewest errors on the training rows"
    n, n_held = part_sizes(task).values()
    ties = f"; {task.ties} other sets of {len(task.targets[0])} features fit as well" if task.ties else ""
    wrong = f"wrong on {task.errors} of {n} training and {task.held_out_errors} of {n_held} held-out rows"
    return f"hypothesis ({how}): {' AND '.join(names_of(task))}, {wrong}{ties}"
