"""Command-line options as tasks, configurations and seeds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interp.config import MODEL_CONFIGS, ModelConfig, TrainConfig
from interp.errors import BoolensError
from interp.seeds import torch_generator
from tasks import TASKS, Junta, Majority, Or, Parity, RuleAnd, SparseAnd, Task, draw_table
from tasks.draws import draw_target_sets

DEFAULT_N_CTX = {**dict.fromkeys(TASKS, 30), "rule-and": 11}
DEFAULT_N_TARGETS = {**dict.fromkeys(TASKS, 3), "rule-and": 2}
DEFAULT_LR = {"attention": 0.01, "cls": 0.001, "mlp": 0.001, "linear": 0.01}

OPTION_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("n_ctx", "n_targets", "n_rule_bits", "d_model", "n_heads", "d_head", "d_value", "d_mlp"), (int,)),
    **dict.fromkeys(("n_train", "n_valid", "steps", "batch_size", "log_every", "snapshot_every", "seed"), (int,)),
    **dict.fromkeys(("patience", "rounds"), (int,)),
    **dict.fromkeys(("dropout", "init_std", "lr", "weight_decay", "stop_loss", "stop_accuracy"), (int, float)),
    **dict.fromkeys(("model", "targets", "table", "rule_positions", "positions", "seeds", "device"), (str,)),
    **dict.fromkeys(("data", "label", "binarise", "missing", "contradictions"), (str,)),
    "p": (int, float, str),
    **dict.fromkeys(("bias", "norm", "until_certified"), (bool,)),
}
"""What a --config file may hold."""


def parse_seeds(seed: int, seeds: str | None) -> tuple[tuple[int, ...], bool]:
    """The seeds and whether they were given as several: '0:32' is 0 to 31, '3,5' is 3 and 5.

    Raises:
        BoolensError: not of that form, empty, negative, or given twice; or a seed beside them.
    """
    if seeds is not None and seed:
        raise BoolensError(f"--seed {seed} and --seeds {seeds} exclude each other; give one")
    if seeds is None:
        found, many = [seed], False
    else:
        try:
            if ":" in seeds:
                start, end = seeds.split(":")
                found = list(range(int(start or 0), int(end)))
            else:
                found = [int(part) for part in seeds.split(",")]
        except ValueError:
            raise BoolensError(f"--seeds {seeds!r} is not a range; write 0:32 (0 to 31) or 3,5,8") from None
        many = True
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise BoolensError(
            f"seeds {seeds if seeds is not None else seed!r} must be different whole numbers of at least 0"
        )
    return tuple(found), many


def parse_index_sets(text: str, option: str = "--targets") -> list[list[int]]:
    """'3,7/2,5' as [[3, 7], [2, 5]].

    Raises:
        BoolensError: not of that form.
    """
    try:
        return [[int(index) for index in part.split(",")] for part in text.split("/")]
    except ValueError:
        raise BoolensError(
            f"{option} {text!r} is not a list of indices; write 3,7,12 or, one set a rule, 3,7/2,5"
        ) from None


def parse_p(text: str | None) -> Any:
    """'balanced' (the default), 'tutorial', or a number; anything else is left for the task to refuse."""
    if text is None:
        return "balanced"
    try:
        return float(text)
    except ValueError:
        return text


def task_maker(
    name: str,
    *,
    n_ctx: int | None = None,
    n_targets: int | None = None,
    targets: str | None = None,
    rule_positions: str | None = None,
    n_rule_bits: int | None = None,
    table: str | None = None,
    p: str | None = None,
) -> Callable[[int], Task]:
    """A function from the seed to the task: what it needs is given, or drawn from the stream of the seed.

    Raises:
        BoolensError: an unknown task, or options that exclude each other.
    """
    if name not in TASKS:
        raise BoolensError(f"there is no task {name!r}; choose from {', '.join(sorted(TASKS))}")
    if name == "table":
        raise BoolensError(
            "a table is made by `boolens train table --data FILE --label COLUMN`; it cannot be made here"
        )
    size, chance = DEFAULT_N_CTX[name] if n_ctx is None else n_ctx, parse_p(p)
    if targets is not None and n_targets is not None:
        raise BoolensError("--targets and --n-targets exclude each other; give one")
    if name != "rule-and" and (rule_positions is not None or n_rule_bits is not None):
        raise BoolensError(f"{name} has no rule bits; leave --rule-positions and --n-rule-bits out, or use rule-and")
    if name != "junta" and table is not None:
        raise BoolensError(f"{name} takes no --table; leave it out, or use junta")
    sets = None if targets is None else parse_index_sets(targets)
    if name == "rule-and":
        return _rule_and_maker(size, n_targets, sets, rule_positions, n_rule_bits, chance)
    if sets is not None and len(sets) > 1:
        raise BoolensError(f"--targets {targets!r} names {len(sets)} sets; {name} has one (rule-and takes 2**k)")
    chosen = None if sets is None else sets[0]
    n = DEFAULT_N_TARGETS[name] if n_targets is None else n_targets
    if name == "junta":
        if table is not None and n_targets is None:
            n = max(1, len(table).bit_length() - 1)
        return lambda seed: _junta(size, n, chosen, table, chance, seed)
    kind = {"sparse-and": SparseAnd, "or": Or, "majority": Majority, "parity": Parity}[name]
    if chosen is not None:
        fixed = kind(size, chosen, chance)
        return lambda seed: fixed
    return lambda seed: kind.draw(size, n, torch_generator(seed, "targets"), chance)


def _rule_and_maker(
    n_ctx: int,
    n_targets: int | None,
    sets: list[list[int]] | None,
    rule_positions: str | None,
    n_rule_bits: int | None,
    p: Any,
) -> Callable[[int], Task]:
    if sets is None:
        if rule_positions is not None:
            raise BoolensError("--rule-positions goes with --targets; drawn tasks have their rule bits last")
        n = DEFAULT_N_TARGETS["rule-and"] if n_targets is None else n_targets
        bits = 1 if n_rule_bits is None else n_rule_bits
        return lambda seed: RuleAnd.draw(n_ctx, n, torch_generator(seed, "targets"), p, bits)
    if n_rule_bits is not None:
        raise BoolensError("--targets says by its number of sets how many rule bits there are; leave --n-rule-bits out")
    positions = None
    if rule_positions is not None:
        positions, *more = parse_index_sets(rule_positions, "--rule-positions")
        if more:
            raise BoolensError(f"--rule-positions {rule_positions!r} names several sets; write one, as 9,10")
    fixed = RuleAnd(n_ctx, sets, p, positions)
    return lambda seed: fixed


def _junta(n_ctx: int, n_targets: int, targets: list[int] | None, table: str | None, p: Any, seed: int) -> Junta:
    """What is not given is drawn, targets first: with neither it is `Junta.draw`."""
    generator = torch_generator(seed, "targets")
    chosen = draw_target_sets(n_ctx, [n_targets], generator)[0] if targets is None else targets
    return Junta(n_ctx, chosen, draw_table(len(chosen), generator) if table is None else table, p)


def model_config(architecture: str, n_ctx: int, given: dict[str, Any]) -> ModelConfig:
    """A model's configuration from the options that were given (those that are None keep their defaults).

    Raises:
        BoolensError: an unknown architecture, an option that it does not have, or a value out of range.
    """
    if architecture not in MODEL_CONFIGS:
        raise BoolensError(f"there is no model {architecture!r}; choose from {', '.join(MODEL_CONFIGS)}")
    kind = MODEL_CONFIGS[architecture]
    fields = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(fields.keys() - kind.__dataclass_fields__.keys())
    if unknown:
        names = ", ".join("--" + name.replace("_", "-") for name in unknown)
        raise BoolensError(f"a {architecture} model has no {names}; leave out, or choose another --model")
    return kind(n_ctx=n_ctx, **fields)


def train_config(architecture: str, given: dict[str, Any]) -> TrainConfig:
    """The training's configuration; the learning rate defaults by architecture (the tutorial's)."""
    fields = {name: value for name, value in given.items() if value is not None}
    fields.setdefault("lr", DEFAULT_LR[architecture])
    return TrainConfig(**fields)


def read_options(path: Path) -> dict[str, Any]:
    """Options from a JSON file, by their names with underscores.

    Raises:
        BoolensError: no such file, not a JSON object, an option that does not exist, or a value of the wrong type.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BoolensError(f"--config {path} does not exist") from None
    except (ValueError, UnicodeDecodeError, IsADirectoryError) as error:
        raise BoolensError(f"--config {path} is not valid JSON ({error})") from None
    if not isinstance(content, dict):
        raise BoolensError(f"--config {path} holds {type(content).__name__}; write an object of options")
    unknown = sorted(content.keys() - OPTION_TYPES.keys())
    if unknown:
        raise BoolensError(f"--config {path}: unknown options {unknown}; there are {', '.join(sorted(OPTION_TYPES))}")
    for name, value in content.items():
        if type(value) not in OPTION_TYPES[name]:
            words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
            kinds = " or ".join(words[kind] for kind in OPTION_TYPES[name])
            raise BoolensError(f"--config {path}: {name} is {value!r}; it must be {kinds}")
    return content


def import_task(
    name: str, targets: str, p: str, n_ctx: int, rule_positions: str | None, table: str | None = None
) -> Task:
    """The task of an imported checkpoint, whose targets (and a junta's table) must be known.

    Raises:
        BoolensError, TaskError: an unknown or impossible task, or a junta without its table.
    """
    if name == "junta" and table is None:
        raise BoolensError("a junta that a checkpoint was trained on is known by its --table, such as 0110; give it")
    return task_maker(name, n_ctx=n_ctx, targets=targets, rule_positions=rule_positions, table=table, p=p)(0)
