"""table: a user's own binary attributes and labels. Nothing is known of inputs that the table does not hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.base import Task
from tasks.errors import TaskError

MAX_CELLS = 10**6
"""Rows times features; task.json holds them all, in a quarter as many characters."""

Part = Literal["train", "valid"]
Origin = Literal["given", "fitted"]


@dataclass(frozen=True, init=False)
class TableTask(Task):
    """Rows of bits with labels, of which some are for training and others held out.

    Its one target set is a hypothesis, not a truth: that the label is the AND of these features. The distribution of
    inputs is that of the held-out rows, each as likely as the others; `bit_probability` and `p_true` are their shares.

    Attributes:
        p: share of ones among all cells; it describes the table and is the probability of no single bit.
        features: the name of each position.
        rows: the bits of every row, 0 or 1, packed: two hexadecimal digits for eight bits, each row filled up with 0.
        labels: the labels of the rows, packed likewise as one row.
        train, held_out: which rows are for training and which are held out, packed likewise; some may be in neither.
        n_rows: number of rows.
        origin: 'given', or 'fitted': the AND with the fewest errors on the training rows.
        errors: the hypothesis' errors on the training rows.
        ties: how many other index sets of the same size have as few, where it was fitted.
        source: the file's name and SHA-256, the label's column, and what was done and found on reading.
    """

    NAME: ClassVar[str] = "table"
    OWN_FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"features", "rows", "labels", "train", "held_out", "n_rows", "origin", "errors", "ties", "source"}
    )
    ON_ALL_INPUTS: ClassVar[bool] = False

    features: tuple[str, ...]
    rows: str
    labels: str
    train: str
    held_out: str
    n_rows: int
    origin: Origin
    errors: int
    ties: int
    source: dict[str, Any]

    def __init__(
        self,
        features: Sequence[str],
        x: Bool[np.ndarray, "row pos"],
        y: Bool[np.ndarray, " row"],
        train: Bool[np.ndarray, " row"],
        held_out: Bool[np.ndarray, " row"],
        targets: Sequence[int],
        *,
        origin: Origin = "given",
        ties: int = 0,
        source: dict[str, Any] | None = None,
    ) -> None:
        """
        Raises:
            TaskError: lengths that differ, names that repeat or are empty, more than MAX_CELLS cells, only constant
                features, a row in both parts or equal to one in the other, a part without both labels, or targets that
                cannot be.
        """
        x, y, train, held_out = (np.asarray(a, dtype=bool) for a in (x, y, train, held_out))
        check_table(features, x, y)
        if train.shape != y.shape or held_out.shape != y.shape:
            raise TaskError(f"{train.size} and {held_out.size} marks of the parts for {y.size} rows; give one a row")
        for part, rows in (("training", train), ("held-out", held_out)):
            if len(np.unique(y[rows])) < 2:
                raise TaskError(
                    f"the {int(rows.sum())} {part} rows have not both labels; use more rows, or another seed"
                )
        both = set(map(bytes, np.packbits(x[train], axis=1))) & set(map(bytes, np.packbits(x[held_out], axis=1)))
        if both:
            raise TaskError(f"{len(both)} inputs are in both parts; put rows that are equal into one of them")
        if origin not in get_args(Origin):
            raise TaskError(f"origin is {origin!r}; choose one of {get_args(Origin)}")
        assign = object.__setattr__
        assign(self, "features", tuple(features))
        assign(self, "rows", np.packbits(x, axis=1).tobytes().hex())
        for name, marks in (("labels", y), ("train", train), ("held_out", held_out)):
            assign(self, name, np.packbits(marks).tobytes().hex())
        assign(self, "n_rows", len(y))
        assign(self, "origin", origin)
        assign(self, "ties", int(ties))
        assign(self, "source", source or {})
        super().__init__(x.shape[1], (tuple(targets),), float(x.mean()))
        chosen = list(self.targets[0])
        assign(self, "errors", int((x[train][:, chosen].all(axis=1) != y[train]).sum()))

    def __hash__(self) -> int:
        return hash((self.rows, self.labels, self.train, self.targets))

    @cached_property
    def x(self) -> Bool[np.ndarray, "row pos"]:
        """The bits of every row."""
        return unpacked(self.rows, self.n_rows, self.n_ctx)

    @cached_property
    def y(self) -> Bool[np.ndarray, " row"]:
        """The label of every row."""
        return unpacked(self.labels, 1, self.n_rows)[0]

    def in_part(self, part: Part) -> Bool[np.ndarray, " row"]:
        """Which rows belong to a part."""
        return unpacked(self.train if part == "train" else self.held_out, 1, self.n_rows)[0]

    def part(self, part: Part) -> tuple[Int[Tensor, "batch pos"], Bool[Tensor, " batch"]]:
        """The rows of a part and the labels that the table gives them, in the table's order."""
        rows = self.in_part(part)
        return torch.from_numpy(self.x[rows].astype(np.int64)), torch.from_numpy(self.y[rows])

    @cached_property
    def _label_of(self) -> dict[bytes, bool]:
        """Of every input in the table the more frequent label; False where both are equally frequent."""
        packed = np.packbits(self.x, axis=1)
        distinct, which = np.unique(packed, axis=0, return_inverse=True)
        more = np.bincount(which.ravel(), weights=np.where(self.y, 1.0, -1.0)) > 0
        return dict(zip(map(bytes, distinct), more.tolist(), strict=True))

    def _label(self, x: Int[Tensor, "batch pos"]) -> Bool[Tensor, " batch"]:
        found = [self._label_of.get(bytes(row)) for row in np.packbits(x.numpy().astype(bool), axis=1)]
        unknown = found.count(None)
        if unknown:
            raise TaskError(
                f"{unknown} of {len(found)} inputs are not in the table, so that their labels are not known; "
                "a table labels its own rows alone"
            )
        return torch.tensor(found, dtype=torch.bool)

    def sample(
        self, n: int, generator: torch.Generator, *, rule: int | None = None, distinct: bool = False
    ) -> Int[Tensor, "batch pos"]:
        """Draw n of the held-out rows, with repeats unless distinct (then no two inputs are equal).

        Raises:
            TaskError: n < 1, a rule other than 0, or more distinct inputs than are held out.
        """
        if n < 1:
            raise TaskError(f"n = {n} samples; ask for at least 1")
        if rule is not None:
            self.rule_bits(rule)
        x, _ = self.part("valid")
        if not distinct:
            return x[torch.randint(len(x), (n,), generator=generator)]
        x = torch.unique(x, dim=0)
        if n > len(x):
            raise TaskError(f"{n} distinct samples asked for, but {len(x)} different inputs are held out; ask for less")
        return x[torch.randperm(len(x), generator=generator)[:n]]

    @property
    def held_out_errors(self) -> int:
        """The hypothesis' errors on the held-out rows."""
        x, y = self.part("valid")
        return int((x[:, list(self.targets[0])].all(dim=1) != y).sum())

    @property
    def position_names(self) -> tuple[str, ...]:
        return self.features

    @property
    def bit_probability(self) -> tuple[float, ...]:
        return tuple(self.x[self.in_part("valid")].mean(axis=0).tolist())

    @property
    def p_true(self) -> float:
        """The share of held-out rows with the label True."""
        return float(self.y[self.in_part("valid")].mean())

    def log_probability(self, x: Int[Tensor, "batch pos"]) -> Tensor:
        """Natural log of each input's share of the held-out rows, -inf of one that is not there; float64 [batch]."""
        self._check(x)
        held, _ = self.part("valid")
        return torch.stack([(held == row).all(dim=1).double().mean() for row in x]).log()

    @property
    def variables(self) -> tuple[str, ...]:
        return ("inputs", "hypothesis", "label")

    def to_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self.OWN_FIELDS if name != "features"}
        return {**super().to_dict(), **dict(sorted(own.items())), "features": list(self.features)}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        features, n_rows = fields["features"], fields["n_rows"]
        texts = [fields[name] for name in ("rows", "labels", "train", "held_out")]
        if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
            raise TaskError(f"features is {str(features)[:60]!r}; it must be a list of names")
        if type(n_rows) is not int or n_rows < 1 or not all(isinstance(text, str) for text in texts):
            raise TaskError("n_rows must be a whole number of at least 1, and the packed rows and marks must be texts")
        x, *marks = (
            unpacked(text, *shape)
            for text, shape in zip(texts, ((n_rows, len(features)), *((1, n_rows),) * 3), strict=True)
        )
        y, train, held_out = (mark[0] for mark in marks)
        how = {name: fields[name] for name in ("origin", "ties", "source")}
        return cls(features, x, y, train, held_out, fields["targets"][0], **how)


def check_table(features: Sequence[str], x: Bool[np.ndarray, "row pos"], y: Bool[np.ndarray, " row"]) -> None:
    """Raise TaskError unless these are named features of labelled rows from which something can be learned."""
    if x.ndim != 2 or not x.size or y.shape != (len(x),) or len(features) != x.shape[1]:
        raise TaskError(
            f"{len(features)} names, bits of shape {x.shape} and {y.size} labels; a table needs at least one row and "
            "one feature, a name a feature and a label a row"
        )
    if x.size > MAX_CELLS:
        raise TaskError(
            f"{x.shape[0]} rows of {x.shape[1]} features are {x.size} cells; a table has at most {MAX_CELLS}, "
            "leave out rows or columns"
        )
    repeated = sorted({name for name in features if list(features).count(name) > 1})
    if repeated or not all(name.strip() for name in features):
        raise TaskError(f"feature names repeat ({repeated}) or are empty; give each column a name of its own")
    if len(np.unique(y)) < 2:
        raise TaskError(f"all {len(y)} labels are {bool(y[0])}; a task needs both, so choose another --label")
    if (x == x[0]).all():
        raise TaskError(f"all {len(x)} rows are the same input, so that nothing can be told apart; add features")


def unpacked(text: str, n_rows: int, n_columns: int) -> Bool[np.ndarray, "row column"]:
    """What np.packbits(axis=1) and bytes.hex made of so many rows.

    Raises:
        TaskError: not hexadecimal, or of another length.
    """
    wide = -(-n_columns // 8)
    try:
        packed = np.frombuffer(bytes.fromhex(text), np.uint8)
    except ValueError:
        raise TaskError(f"packed bits {text[:40]!r} are not hexadecimal; restore task.json") from None
    if len(packed) != n_rows * wide:
        raise TaskError(f"{len(packed)} bytes of packed bits; {n_rows} rows of {n_columns} bits need {n_rows * wide}")
    return np.unpackbits(packed.reshape(n_rows, wide), axis=1, count=n_columns).astype(bool)
