"""Interventions as values: what is done, at which hook point, and to which of its cells. Nothing here runs a model.

Cells are selected by index along an axis: pos, head, dest, src, each an int, a sequence of ints or None for all of
them; an intervention acts where all its selections meet. Negative indices count from the end. In scores and patterns
pos is dest, the query's position.

Values are frozen, compare equal where they say the same, and keep copies of the tensors that they are given.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import BoolensError

SCORES = "blocks.0.attn.hook_attn_scores"
Cells = int | Sequence[int] | None
Rows = Literal["flag", "renormalise", "keep"]
AXES = ("pos", "head", "dest", "src")


@dataclass(frozen=True, eq=False, repr=False)
class Intervention:
    """What all kinds share: equality, hashing and printing that know tensors."""

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if isinstance(value, Tensor):
                object.__setattr__(self, name, value.detach().clone())
            elif name in AXES and value is not None:
                object.__setattr__(self, name, _indices(name, value))

    @property
    def selected(self) -> dict[str, tuple[int, ...]]:
        """The indices selected on each axis that is restricted."""
        return {axis: getattr(self, axis) for axis in AXES if getattr(self, axis, None) is not None}

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        kept = (getattr(self, f.name) for f in fields(self))
        return hash((type(self), *(value.shape if isinstance(value, Tensor) else value for value in kept)))

    def __repr__(self) -> str:
        shown = []
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                shown.append(f"{f.name}=<{str(value.dtype).removeprefix('torch.')} {list(value.shape)}>")
            elif f.default is not value:
                shown.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, eq=False, repr=False)
class AtHook(Intervention):
    """An intervention on the activation at a hook point.

    Attributes:
        hook: name of the hook point.
        pos, head, dest, src: the cells, see the module's docstring.
        rows: what happens where a pattern's row no longer sums to 1: 'flag' warns with RowSumWarning, 'renormalise'
            divides every row that was touched by its sum, 'keep' leaves it, unmentioned.
    """

    hook: str
    pos: Cells = field(default=None, kw_only=True)
    head: Cells = field(default=None, kw_only=True)
    dest: Cells = field(default=None, kw_only=True)
    src: Cells = field(default=None, kw_only=True)
    rows: Rows = field(default="flag", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows not in get_args(Rows):
            raise BoolensError(f"rows is {self.rows!r}; choose one of {get_args(Rows)}")
        if self.rows == "renormalise" and not self.at_pattern:
            raise BoolensError(f"rows of a pattern alone can be renormalised, not those of {self.hook}; leave rows out")

    @property
    def at_pattern(self) -> bool:
        return self.hook.endswith("hook_pattern")

    @property
    def renormalises(self) -> bool:
        """Whether rows that it touched are divided by their sum."""
        return self.rows == "renormalise"


class ZeroAblate(AtHook):
    """Zero in place of the activation."""


@dataclass(frozen=True, eq=False, repr=False)
class MeanAblate(AtHook):
    """The mean over a whole reference set, per position and head, in place of the activation.

    Attributes:
        reference: the inputs; None takes those that the model is run on.
    """

    reference: Int[Tensor, "reference pos"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ResampleAblate(AtHook):
    """The activations of other inputs of the same batch, under a derangement: the same one for every cell.

    Attributes:
        seed: of the derangement.
    """

    seed: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class OptimalAblate(AtHook):
    """The constant that hurts least: it minimises the mean binary cross-entropy over a reference set (Li and Janson
    2024, "Optimal ablation for interpretability"). In a sweep every cell gets its own.

    Found by L-BFGS from the better of zero and mean, so it is never worse than these. A global minimum where the
    logit is affine in the activation (v, pattern, z), else a local one.

    Attributes:
        reference: the inputs.
        labels: what the logit should say about them.
        tolerance: the search has converged when no derivative of the mean loss (nats per unit of the activation) is
            larger; where it stops before, ConvergenceWarning says so.
    """

    reference: Int[Tensor, "reference pos"] = field(kw_only=True)
    labels: Bool[Tensor, " reference"] | Int[Tensor, " reference"] = field(kw_only=True)
    tolerance: float = field(default=1e-4, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels.shape != (n := len(self.reference),) or n == 0:
            raise BoolensError(
                f"{n} reference inputs, labels of shape {tuple(self.labels.shape)}; "
                "give at least one input, and one label for each"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Patch(AtHook):
    """The activation from another run, or given values, in place of the activation.

    Attributes:
        source: inputs, row by row those that the model is run on are patched from; their run is unedited.
        values: as large as the activation; the batch axis may be 1. Exactly one of the two must be given.
    """

    source: Int[Tensor, "batch pos"] | None = None
    values: Float[Tensor, "..."] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.source is None) == (self.values is None):
            raise BoolensError("Patch takes either source (inputs to run) or values (an activation), and one of them")
        if self.source is not None and self.source.is_floating_point():
            raise BoolensError(
                f"source has type {self.source.dtype}; give inputs (integers), or an activation as values="
            )


class Freeze(AtHook):
    """The activation from the unedited run on the same inputs, so that what else is done does not pass through it."""


@dataclass(frozen=True, eq=False, repr=False)
class RemoveKey(AtHook):
    """Take src positions away from queries: the softmax renormalises the rest.

    At the scores (the default) they become -inf; at a pattern they become 0 and the row is divided by its sum.

    Attributes:
        src: the keys that are removed.
    """

    src: Cells = None
    hook: str = field(default=SCORES, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pos is not None:
            raise BoolensError(f"pos = {self.pos}: name the key as src, and the query, if one, as dest")
        if not (self.at_pattern or self.hook.endswith("hook_attn_scores")):
            raise BoolensError(f"keys are removed at attention scores or patterns, not at {self.hook}")

    @property
    def renormalises(self) -> bool:
        return self.at_pattern


@dataclass(frozen=True, eq=False, repr=False)
class FlipBit(Intervention):
    """Flip bits of the input; None flips all of them."""

    pos: Cells = None


def _indices(axis: str, value: Any) -> tuple[int, ...]:
    try:
        given = tuple(operator.index(i) for i in (value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        given = ()
    if not given or len(set(given)) < len(given) or isinstance(value, bool):
        raise BoolensError(f"{axis} = {value!r}: give an int or a sequence of distinct ints, at least one")
    return given


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
    return type(a) is type(b) and not isinstance(a, Tensor) and a == b
