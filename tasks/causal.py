"""The causal model that an AND task claims: inputs → rule → selected bits → AND → label; knows no model.

An interchange gives one variable the value that it has in a source input and keeps everything else of the base input
(Geiger et al. 2021, "Causal Abstractions of Neural Networks"); the causal model says what the label then is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.conjunction import Conjunction
from tasks.errors import TaskError

CANDIDATES = 2**13
"""Pairs drawn at a time, from which interchanges are picked."""
MAX_ROUNDS = 32


@dataclass(frozen=True)
class Variable:
    """One variable of the causal model.

    Attributes:
        name: 'rule', 'and', or 'target 3'.
        positions: the input bits that it is a function of.
    """

    name: str
    positions: tuple[int, ...]


@dataclass(frozen=True)
class CausalModel:
    """The variables of an AND task and what it says of interventions on them.

    >>> from tasks import RuleAnd
    >>> model = CausalModel(RuleAnd(5, targets=((0, 1), (2,))))
    >>> [variable.name for variable in model.variables]
    ['rule', 'and', 'target 0', 'target 1', 'target 2']
    """

    task: Conjunction

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The rule (with rule bits), the AND of the selected bits, and every bit that some rule selects."""
        task = self.task
        targets = tuple(sorted({i for t in task.targets for i in t}))
        rule = (Variable("rule", task.rule_positions),) if task.rule_positions else ()
        whole = Variable("and", tuple(sorted((*targets, *task.rule_positions))))
        return (*rule, whole, *(Variable(f"target {i}", (i,)) for i in targets))

    def variable(self, name: str) -> Variable:
        """The variable of a name.

        Raises:
            TaskError: there is none.
        """
        for variable in self.variables:
            if variable.name == name:
                return variable
        known = ", ".join(v.name for v in self.variables)
        raise TaskError(f"{self.task.NAME} has no variable {name!r} to intervene on; choose one of {known}")

    def value(self, name: str, x: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
        """The variable's value for each input: the rule's number, or 0 or 1.

        Raises:
            TaskError: there is no such variable, or x is not a batch of the task's inputs.
        """
        variable = self.variable(name)
        if name == "rule":
            return self.task.rule(x)
        label = self.task.label(x)
        return label.long() if name == "and" else x[:, variable.positions[0]]

    def minimal_source(
        self, name: str, base: Int[Tensor, "batch pos"], source: Int[Tensor, "batch pos"]
    ) -> Int[Tensor, "batch pos"]:
        """The base input with the variable's bits from the source: it has the source's value, and differs nowhere else.

        Raises:
            TaskError: there is no such variable, or the inputs do not match row by row.
        """
        if base.shape != source.shape:
            raise TaskError(
                f"base inputs of shape {tuple(base.shape)}, sources of {tuple(source.shape)}; pairs match row by row"
            )
        positions = list(self.variable(name).positions)
        mixed = base.clone()
        mixed[:, positions] = source[:, positions]
        return mixed

    def intervened_label(
        self, name: str, base: Int[Tensor, "batch pos"], source: Int[Tensor, "batch pos"]
    ) -> Bool[Tensor, " batch"]:
        """label(base) with the variable set to its value in source.

        Raises:
            TaskError: there is no such variable, or the inputs do not match row by row.
        """
        return self.task.label(self.minimal_source(name, base, source))


@dataclass(frozen=True)
class Interchanges:
    """Pairs of inputs for interventions on one variable.

    In half of the pairs the intervention changes the label; within each half, base inputs of both labels and sources
    of both labels are as equally frequent as the task allows. So always answering True, always False, or the base
    input's label is right half of the time; `source_baseline` tells how often the source's label is.

    Attributes:
        variable: what is intervened on.
        base, source: inputs.
        expected: the base input's label with the variable's value from the source.
        base_label, source_label: without intervention.
    """

    variable: Variable
    base: Int[Tensor, "batch pos"]
    source: Int[Tensor, "batch pos"]
    expected: Bool[Tensor, " batch"]
    base_label: Bool[Tensor, " batch"]
    source_label: Bool[Tensor, " batch"]

    @property
    def majority_baseline(self) -> float:
        """Share of the pairs in which the more frequent expected label is right."""
        share = float(self.expected.double().mean())
        return max(share, 1 - share)

    @property
    def base_baseline(self) -> float:
        """Share in which the label without intervention is right."""
        return float((self.base_label == self.expected).double().mean())

    @property
    def source_baseline(self) -> float:
        """Share in which the source's label is right: what putting in all of the source's run achieves."""
        return float((self.source_label == self.expected).double().mean())


def draw_interchanges(model: CausalModel, name: str, n: int, generator: torch.Generator) -> Interchanges:
    """Draw up to n pairs, independent and from the task's distribution within each kind of pair, in random order.

    Kinds are told apart by base label, source label and whether the label changes; see `Interchanges` for their shares.
    Fewer than n pairs come back where a kind is so rare that MAX_ROUNDS * CANDIDATES draws hold too few.

    Raises:
        TaskError: no such variable, n below 2, or no intervention on the variable that changes (or keeps) the label.
    """
    variable, task = model.variable(name), model.task
    if n < 2:
        raise TaskError(f"n = {n} pairs; give at least 2, one that changes the label and one that does not")
    drawn = _candidates(model, name, generator)
    for _ in range(MAX_ROUNDS - 1):
        if int(_available(drawn).sum(dim=(1, 2)).min()) >= n // 2:
            break
        more = _candidates(model, name, generator)
        drawn = Interchanges(variable, *(torch.cat([getattr(d, field) for d in (drawn, more)]) for field in _COLUMNS))
    available = _available(drawn)
    half = min(n // 2, int(available.sum(dim=(1, 2)).min()))
    if half == 0:
        found = "changes" if available[0].any() else "keeps"
        raise TaskError(
            f"no intervention on {name!r} {found} the label in {len(drawn.base)} pairs of inputs of {task.NAME}; "
            "choose another variable, or a p nearer to 'balanced'"
        )
    chosen = []
    for changes, of_half in enumerate(available):
        for label, wanted in enumerate(shared_out(half, of_half.sum(dim=1).tolist())):
            for other, quota in enumerate(shared_out(wanted, of_half[label].tolist())):
                chosen.append((_kind(drawn) == 4 * changes + 2 * label + other).nonzero().flatten()[:quota])
    rows = torch.cat(chosen)
    rows = rows[torch.randperm(len(rows), generator=generator)]
    return Interchanges(variable, *(getattr(drawn, field)[rows] for field in _COLUMNS))


_COLUMNS = ("base", "source", "expected", "base_label", "source_label")


def _candidates(model: CausalModel, name: str, generator: torch.Generator) -> Interchanges:
    base, source = (model.task.sample(CANDIDATES, generator) for _ in range(2))
    expected = model.intervened_label(name, base, source)
    return Interchanges(model.variable(name), base, source, expected, model.task.label(base), model.task.label(source))


def _kind(drawn: Interchanges) -> Int[Tensor, " batch"]:
    changes = drawn.expected != drawn.base_label
    return 4 * changes.long() + 2 * drawn.base_label.long() + drawn.source_label.long()


def _available(drawn: Interchanges) -> Int[Tensor, "changes base_label source_label"]:
    return torch.bincount(_kind(drawn), minlength=8).view(2, 2, 2)


def shared_out(total: int, available: Sequence[int]) -> list[int]:
    """Parts of a total that are as equal as what is available of each allows.

    >>> shared_out(10, [2, 100, 100])
    [2, 4, 4]
    """
    parts = [0] * len(available)
    left = min(total, sum(available))
    for position, index in enumerate(sorted(range(len(available)), key=lambda i: available[i])):
        parts[index] = min(available[index], left // (len(available) - position))
        left -= parts[index]
    return parts
