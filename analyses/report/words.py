"""A run in words: its task, its model, its place."""

from pathlib import Path

from analyses.report.formats import capital, listed, number, plural
from analyses.runs import Run
from tasks import Junta, TableTask, Task

MODELS = {"attention": "attention model", "cls": "[CLS] transformer", "mlp": "MLP", "linear": "linear model"}
FUNCTIONS = {
    "sparse-and": "The label is True where all targets are 1",
    "or": "The label is True where some target is 1",
    "majority": "The label is True where more than half of the targets are 1",
    "parity": "The label is True where an odd number of targets is 1",
}

OWN = "The label is a function of the targets alone"
"""Of a task that is not among ours."""


def title(run: Run) -> str:
    """Task, architecture and seed in one line."""
    return capital(f"{task_name(run.task)}, {model_name(run)}, seed {run.seed}")


def task_name(task: Task) -> str:
    if isinstance(task, TableTask):
        return f"{task.source.get('label', 'label')} from {plural(task.n_ctx, 'feature')}"
    sizes = sorted({len(targets) for targets in task.targets})
    of = " or ".join(str(size) for size in sizes)
    return f"{task.NAME}, {of} of {task.n_ctx} bits"


def model_name(run: Run) -> str:
    n_heads = run.config.model.to_dict().get("n_heads")
    name = MODELS[run.architecture]
    return f"{name} with {plural(n_heads, 'head')}" if n_heads else name


def positions(task: Task, indices: tuple[int, ...]) -> str:
    """Indices, or the features' names."""
    return listed(task.position_names[i] if task.position_names else i for i in indices)


def task_sentences(task: Task) -> list[str]:
    """What the task asks, in a few plain sentences."""
    if isinstance(task, TableTask):
        origin = {"fitted": "the AND with the fewest errors on the training rows"}.get(task.origin, "as it was given")
        return [
            f"The label {task.source.get('label', '')} of {plural(task.n_rows, 'row')} of a table, from "
            f"{plural(task.n_ctx, 'feature')} that are each 0 or 1.",
            f"Hypothesis ({origin}): {' AND '.join(task.features[i] for i in task.targets[0])}. It is wrong on "
            f"{task.errors} training and {task.held_out_errors} held-out rows.",
            "The label of an input that is not in the table is unknown, so there is no certificate, and what is said "
            "here is said of the hypothesis.",
        ]
    likely = f"A bit is 1 with probability {number(task.p)}, so that the label is True with probability "
    chance = f"{likely}{number(task.p_true)}."
    if task.rule_positions:
        bits = [
            f"{listed(f'x{p} = {b}' for p, b in zip(task.rule_positions, task.rule_bits(r), strict=True))} "
            f"asks for {positions(task, targets)}"
            for r, targets in enumerate(task.targets)
        ]
        rule = "The rule bit chooses" if len(task.rule_positions) == 1 else "The rule bits choose"
        return [f"{rule} which targets must all be 1: {'; '.join(bits)}.", f"Rule bits are fair. {chance}"]
    targets = f"position{'s' if len(task.targets[0]) > 1 else ''} {positions(task, task.targets[0])}"
    if isinstance(task, Junta):
        return [f"The label is a truth table's ({task.table}, first target most significant) of {targets}.", chance]
    return [f"{FUNCTIONS.get(task.NAME, OWN)}: {targets} of 0 to {task.n_ctx - 1}.", chance]


def model_sentences(run: Run) -> list[str]:
    """The model's shape, and how it came to be."""
    cfg, n = run.config.model, sum(p.numel() for p in run.model.parameters())
    fields = {k: v for k, v in cfg.to_dict().items() if k not in ("n_ctx", "init_std", "positions", "dropout")}
    shape = ", ".join(f"{k} {'yes' if v is True else 'no' if v is False else number(v)}" for k, v in fields.items())
    training, source = run.config.training, run.config.source
    made = f"{capital(model_name(run))}, {plural(n, 'parameter')}{f' ({shape})' if shape else ''}."
    if training is None:
        return [made, f"Imported from {source.removeprefix('imported:')}; how it was trained is not recorded here."]
    batch = f"batches of {training.batch_size}" if training.batch_size else "full batches"
    how = f"Trained on {training.n_train:,} samples, at most {training.steps:,} steps of Adam (learning rate "
    how += f"{number(training.lr)}, {batch})"
    if source == "certified":
        how = (
            f"Trained on fresh batches and counterexamples until certified, rounds of {training.steps:,} steps of Adam"
        )
    return [made, f"{how}; validated on {training.n_valid:,} others."]


def shown(path: Path) -> str:
    """A path as a command takes it, without the folders of this machine that lie above it."""
    if not path.is_absolute():
        return str(path)
    return str(Path(path.parent.name, path.name)) if path.name.startswith("seed-") else path.name
