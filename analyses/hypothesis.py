"""Hypothesis files: claims that a method finds exactly these indices on top.

alpha: 0.01              # level of the permutation tests, after Holm over all claims, methods and rules
methods: [patching]      # for claims that name none
claims:
  - name: the logit depends on the targets
    targets: task        # each run's own; or [3, 7, 12]; or one list a rule, [[3, 7], [2, 5]]
    methods: [patching, weights]
  - name: attention looks at them
    targets: task
    methods: [attention]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from interp.errors import BoolensError
from interp.recovery import METHODS
from tasks import Task


@dataclass(frozen=True)
class Claim:
    """That each of some methods finds exactly these indices on top, under every rule.

    Attributes:
        name: in words.
        targets: one index set a rule, one for all rules, or None for the task's own.
        methods: of `interp.recovery`; () for all that apply.
    """

    name: str
    targets: tuple[tuple[int, ...], ...] | None = None
    methods: tuple[str, ...] = ()

    def sets(self, task: Task) -> tuple[tuple[int, ...], ...]:
        """The index set claimed under each rule of a task.

        Raises:
            BoolensError: another number of sets than rules, or an index that is no candidate.
        """
        sets = task.targets if self.targets is None else self.targets
        if len(sets) not in (1, task.n_rules):
            raise BoolensError(
                f"claim {self.name!r} has {len(sets)} index sets for {task.n_rules} rules; give one each"
            )
        sets = sets * task.n_rules if len(sets) == 1 else sets
        candidates = getattr(task, "candidates", range(task.n_ctx))
        for index in (i for chosen in sets for i in chosen):
            if index not in candidates:
                raise BoolensError(
                    f"claim {self.name!r} names index {index}, which is no candidate of this task "
                    f"(n_ctx = {task.n_ctx}, rule positions left out); correct its targets"
                )
        return sets


@dataclass(frozen=True)
class Hypothesis:
    """Claims that are tested together, at level alpha."""

    claims: tuple[Claim, ...]
    alpha: float = 0.01


DEFAULT = Hypothesis((Claim("exactly the targets are on top"),))


def load_hypothesis(path: str | Path) -> Hypothesis:
    """A hypothesis file's content.

    Raises:
        BoolensError: no such file, not YAML, unknown or missing fields, values that cannot be.
    """
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BoolensError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BoolensError(f"{path} is not YAML: {str(error).splitlines()[0]}") from None
    _check_fields(path, content, {"claims"}, {"alpha", "methods", "claims"})
    alpha = content.get("alpha", DEFAULT.alpha)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 1:
        raise BoolensError(f"{path}: alpha is {alpha!r}; it must be a number between 0 and 1")
    if not isinstance(content["claims"], list) or not content["claims"]:
        raise BoolensError(f"{path}: claims must be a list of at least one claim")
    common = _methods(path, content.get("methods", []))
    claims = [_claim(path, entry, common) for entry in content["claims"]]
    if len({claim.name for claim in claims}) < len(claims):
        raise BoolensError(f"{path}: two claims have the same name; give each its own")
    return Hypothesis(tuple(claims), float(alpha))


def _claim(path: Path, entry: Any, common: tuple[str, ...]) -> Claim:
    _check_fields(path, entry, {"name", "targets"}, {"name", "targets", "methods"})
    name, targets = entry["name"], entry["targets"]
    if not isinstance(name, str) or not name.strip():
        raise BoolensError(f"{path}: a claim's name is {name!r}; it must be text")
    methods = _methods(path, entry["methods"]) if "methods" in entry else common
    if targets == "task":
        return Claim(name, None, methods)
    sets = targets if isinstance(targets, list) and targets and isinstance(targets[0], list) else [targets]
    for chosen in sets:
        whole = isinstance(chosen, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in chosen)
        if not whole or not chosen or len(set(chosen)) < len(chosen):
            raise BoolensError(
                f"{path}: targets of {name!r} are {targets!r}; give 'task', a list of distinct indices, or one a rule"
            )
    return Claim(name, tuple(tuple(sorted(chosen)) for chosen in sets), methods)


def _methods(path: Path, methods: Any) -> tuple[str, ...]:
    if not isinstance(methods, list) or any(method not in METHODS for method in methods):
        raise BoolensError(f"{path}: methods are {methods!r}; give a list of some of {', '.join(METHODS)}")
    return tuple(dict.fromkeys(methods))


def _check_fields(path: Path, content: Any, needed: Sequence[str] | set[str], known: set[str]) -> None:
    if not isinstance(content, dict):
        raise BoolensError(f"{path}: expected fields {sorted(known)}, found {content!r}")
    missing, unknown = sorted(set(needed) - content.keys()), sorted(map(str, content.keys() - known))
    if missing or unknown:
        raise BoolensError(f"{path}: missing fields {missing}, unknown fields {unknown}; they are {sorted(known)}")
