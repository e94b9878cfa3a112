"""Checks of what callers hand in; every error names the value, the limit and the way out."""

from collections.abc import Sequence
from operator import index as as_index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from interp.errors import BoolensError


class AxisLengths:
    """Collects the lengths of named axes from one array to the next, and refuses what disagrees."""

    def __init__(self) -> None:
        self.lengths: dict[str, tuple[int, str]] = {}  # axis -> (length, who said so)

    def __getitem__(self, axis: str) -> int:
        return self.lengths[axis][0]

    def array(self, name: str, value: ArrayLike, axes: str) -> NDArray[np.generic]:
        """`value` as an array with exactly `axes` (names with spaces between)."""
        array = np.asarray(value)
        names = axes.split()
        if array.ndim != len(names):
            raise BoolensError(
                f"{name} has shape {array.shape}, but {len(names)} axes are expected ({axes}); "
                "an axis of length one is kept, so reshape it"
            )
        for axis, length in zip(names, array.shape, strict=True):
            self.length(f"{name} along {axis}", length, axis)
        return array

    def numbers(self, name: str, value: ArrayLike, axes: str) -> NDArray[np.float64]:
        """The same in double precision, whatever kind of number comes in."""
        array = self.array(name, value, axes)
        if array.dtype.kind not in "biuf":
            raise BoolensError(f"{name} has dtype {array.dtype}, but real numbers are expected; convert it first")
        return array.astype(np.float64)

    def names(self, name: str, value: Sequence[str], axis: str) -> list[str]:
        """One name for each entry of `axis`."""
        if isinstance(value, str):
            raise BoolensError(f"{name} is the string {value!r}, but a sequence of names is expected; pass [{value!r}]")
        self.length(name, len(value), axis)
        return [str(entry) for entry in value]

    def length(self, name: str, length: int, axis: str) -> None:
        """Notes or compares one length."""
        if length < 1:
            raise BoolensError(f"{name} has length 0, but at least 1 is needed to draw")
        known, source = self.lengths.setdefault(axis, (length, name))
        if known != length:
            raise BoolensError(f"{name} has length {length}, but {source} has {known}; make them agree on {axis}")

    def targets(self, targets: Sequence[Sequence[int]], n_ctx: int) -> list[list[int]]:
        """One list of positions a rule, each within `n_ctx`."""
        if any(np.ndim(entry) != 1 for entry in targets):
            raise BoolensError(f"targets is {targets!r}, but one sequence a rule is expected, e.g. [[3, 7]]")
        self.length("targets", len(targets), "rule")
        return [positions_within(f"targets[{rule}]", entry, n_ctx) for rule, entry in enumerate(targets)]


def positions_within(name: str, indices: Sequence[int], n_ctx: int) -> list[int]:
    """`indices` with negative ones counted from the end; out of range raises."""
    where = []
    for entry in indices:
        try:
            position = as_index(entry)
        except TypeError:
            raise BoolensError(f"{name} holds {entry!r}, but positions are integers") from None
        if not -n_ctx <= position < n_ctx:
            raise BoolensError(f"{name} holds {position}, but positions run from 0 to {n_ctx - 1}; drop or correct it")
        where.append(position % n_ctx)
    return where


def rule_of_sample(lengths: AxisLengths, rule: ArrayLike, n_rules: int, axis: str) -> NDArray[np.generic]:
    """The rule index of each sample, each within `n_rules`."""
    array = lengths.array("rule", rule, axis)
    if array.dtype.kind not in "biu":
        raise BoolensError(f"rule has dtype {array.dtype}, but rule indices are integers; convert it first")
    if array.min() < 0 or array.max() >= n_rules:
        raise BoolensError(
            f"rule holds {array.min()} to {array.max()}, but targets names rules 0 to {n_rules - 1}; "
            "pass one target set for each rule"
        )
    return array.astype(np.int64)


def boolean(lengths: AxisLengths, name: str, value: ArrayLike, shape: str) -> NDArray[np.bool_]:
    """True and False; 0 and 1 are taken as well, other numbers are refused."""
    array = lengths.array(name, value, shape)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise BoolensError(f"{name} holds values other than True and False (or 1 and 0); threshold it first")
    return array.astype(bool)
