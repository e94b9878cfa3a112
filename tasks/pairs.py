"""Clean and corrupted inputs that differ in one named variable."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.base import checked_indices
from tasks.boolean import TargetFunction
from tasks.conjunction import Conjunction
from tasks.errors import TaskError

PairKind = Literal["target", "non-target", "rule"]


@dataclass(frozen=True)
class Pairs:
    """Inputs that differ, row by row, in exactly one bit.

    Attributes:
        clean, corrupted: the inputs.
        position: which bit differs.
        rule: the rule in force in the clean input.
        clean_label, corrupted_label: the task's labels.
    """

    clean: Int[Tensor, "batch pos"]
    corrupted: Int[Tensor, "batch pos"]
    position: Int[Tensor, " batch"]
    rule: Int[Tensor, " batch"]
    clean_label: Bool[Tensor, " batch"]
    corrupted_label: Bool[Tensor, " batch"]


def flip_bits(x: Int[Tensor, "batch pos"], position: Int[Tensor, " batch"]) -> Int[Tensor, "batch pos"]:
    """x with one bit of each row flipped.

    Raises:
        TaskError: not one position a row.
    """
    if position.shape != (len(x),):
        raise TaskError(f"{tuple(position.shape)} positions for {len(x)} inputs; give one position for each input")
    flipped = x.clone()
    rows = torch.arange(len(x))
    flipped[rows, position] = 1 - flipped[rows, position]
    return flipped


def draw_pairs(
    task: Conjunction | TargetFunction,
    kind: PairKind,
    n: int,
    generator: torch.Generator,
    *,
    rule: int = 0,
    position: int | None = None,
) -> Pairs:
    """Draw n pairs under a rule, without rejection, from the task's distribution given what the kind says of them.

    * 'target': clean's label is True; corrupted has one target of `rule` flipped, the given `position` or one drawn
      for each pair, and its label is False. (For an AND: every target is set, and one cleared.)
    * 'non-target': the same clean inputs; one bit that is neither target of `rule` nor rule bit flips, so the
      label stays True.
    * 'rule': clean satisfies `rule`; a rule bit flips (the given `position` or the last one), and one target of
      the rule that then holds is cleared in both inputs, so the label goes from True to False.

    Raises:
        TaskError: an unknown kind, n < 1, no such rule, a position out of range or of the wrong kind, no non-target
            bit, or rules that no input can tell apart (the new rule's targets are all among the old one's).
    """
    if kind not in get_args(PairKind):
        raise TaskError(f"kind {kind!r} is not known; choose one of {get_args(PairKind)}")
    if position is not None:
        (position,) = checked_indices((position,), task.n_ctx, "position")
    targets = task.targets[rule] if 0 <= rule < task.n_rules else ()
    clean = task.sample(n, generator, rule=rule)
    if isinstance(task, TargetFunction):
        return _of_function(task, kind, clean, generator, position)
    clean[:, list(targets)] = 1
    if kind == "rule":
        clean, where = _satisfy_only(task, clean, rule, generator, position)
    else:
        allowed = targets if kind == "target" else [i for i in task.candidates if i not in targets]
        where = _positions(allowed, kind, n, generator, position)
    corrupted = flip_bits(clean, where)
    return Pairs(clean, corrupted, where, task.rule(clean), task.label(clean), task.label(corrupted))


def _of_function(
    task: TargetFunction, kind: PairKind, clean: Tensor, generator: torch.Generator, position: int | None
) -> Pairs:
    """Pairs of a task without rules; `clean` is drawn and then made to depend on a target in every row."""
    if kind == "rule":
        raise TaskError(_no_rule_bit(task))
    targets = task.targets[0]
    chosen = _positions(targets, "target", len(clean), generator, position if kind == "target" else None)
    for which, target in enumerate(targets):
        rows = chosen == target
        if rows.any():
            bits = task.draw_sensitive(which, int(rows.sum()), generator)
            clean[rows.nonzero(), torch.tensor(targets)] = bits
    others = [i for i in task.candidates if i not in targets]
    where = chosen if kind == "target" else _positions(others, kind, len(clean), generator, position)
    corrupted = flip_bits(clean, where)
    return Pairs(clean, corrupted, where, task.rule(clean), task.label(clean), task.label(corrupted))


def _no_rule_bit(task: Conjunction | TargetFunction) -> str:
    return f"{task.NAME} has no rule bit to flip; use kind 'target' or 'non-target'"


def _satisfy_only(
    task: Conjunction, clean: Tensor, rule: int, generator: torch.Generator, position: int | None
) -> tuple[Tensor, Tensor]:
    """Clear one target of the rule that holds after the flip, so that the flip changes the label."""
    if not task.rule_positions:
        raise TaskError(_no_rule_bit(task))
    where = _positions(
        [task.rule_positions[-1]] if position is None else task.rule_positions, "rule", len(clean), generator, position
    )
    other = int(task.rule(flip_bits(clean[:1], where[:1])))
    only_other = [i for i in task.targets[other] if i not in task.targets[rule]]
    if not only_other:
        raise TaskError(
            f"every target of rule {other} {task.targets[other]} is one of rule {rule} {task.targets[rule]}: no input "
            f"is True under rule {rule} and False under rule {other}; start from rule {other}"
        )
    cleared = torch.tensor(only_other)[torch.randint(len(only_other), (len(clean),), generator=generator)]
    clean[torch.arange(len(clean)), cleared] = 0
    return clean, where


def _positions(allowed, kind: str, n: int, generator: torch.Generator, position: int | None) -> Tensor:
    allowed = list(allowed)
    if not allowed:
        raise TaskError(f"this task has no {kind} position to flip")
    if position is None:
        return torch.tensor(allowed)[torch.randint(len(allowed), (n,), generator=generator)]
    if position not in allowed:
        raise TaskError(f"position {position} is not a {kind} position; those are {allowed}")
    return torch.full((n,), position)
