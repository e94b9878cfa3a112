"""Which target sets a labelled sample leaves possible: no learner needs fewer rows than leave only one."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from tasks.base import Task
from tasks.errors import TaskError

KINDS = ("sparse-and", "or", "majority", "parity")
MOST_SUMS = 20_000_000
"""Sums of half a target set that parity's meet in the middle may hold."""
LISTED = 4096
"""So many sets are listed, rather than bisected, in the search for the smallest identifying sample."""


class Consistent(NamedTuple):
    """Target sets that explain every label of a sample, each sorted; `more` where the limit cut the list."""

    sets: tuple[tuple[int, ...], ...]
    more: bool


def consistent_sets(
    x: Int[Tensor, "row pos"], y: Bool[Tensor, " row"], kind: str, n_targets: int, limit: int
) -> Consistent:
    """Up to `limit` of the sets of n_targets indices whose function `kind` has the label y on every row; exact.

    AND, OR and majority ask for at least so many ones: a search branches on the row that the fewest indices can still
    satisfy. Parity meets in the middle: sums of half a set, sorted, against those of the other half.

    Args:
        x: bits.
        y: labels.
        kind: one of KINDS.
        n_targets: at least 1.
        limit: at least 1.

    Raises:
        TaskError: another kind, n_targets or limit out of range, or a parity of so
            many targets that the sums of half a set are more than MOST_SUMS.
    """
    _check(kind, limit)
    if not 1 <= n_targets <= x.shape[1]:
        raise TaskError(f"n_targets = {n_targets}; a set of indices out of {x.shape[1]} has 1 to {x.shape[1]}")
    bits, labels = x.numpy().astype(bool), y.numpy().astype(bool)
    if kind == "parity":
        found = _parity_sets(bits, labels, n_targets)
    else:
        least = {"sparse-and": n_targets, "or": 1, "majority": n_targets // 2 + 1}[kind]
        found = _threshold_sets(bits, labels, n_targets, least)
    return _first(found, limit)


def minimal_and_sets(x: Int[Tensor, "row pos"], y: Bool[Tensor, " row"], limit: int) -> Consistent:
    """Up to `limit` of the minimal index sets, of any size, whose AND has the label y on every row; exact.

    They are the minimal hitting sets of the False rows' zeros among the positions that are 1 in every True row, listed
    without repeats by MMCS (Murakami and Uno 2014). Without False rows it is the empty set, whose AND is True.

    Raises:
        TaskError: limit below 1.
    """
    _check("sparse-and", limit)
    bits, labels = x.numpy().astype(bool), y.numpy().astype(bool)
    always = _mask(np.all(bits[labels], axis=0, keepdims=True)[0])
    rows = [_mask(~row) & always for row in bits[~labels]]
    return _first(_minimal_hitting_sets(rows), limit)


def smallest_identifying_sample(task: Task, x: Int[Tensor, "row pos"], y: Bool[Tensor, " row"]) -> float:
    """The smallest m for which the rows[:m] leave exactly one target set possible; inf if all of them leave more.

    Sets only drop out as rows are added, so m is bisected until the sets left are few enough to list; then it is one
    more than the longest time that a wrong set agrees with the labels.

    Args:
        task: tells kind and number of targets, but not the answer.
        x, y: the sample, in order.

    Raises:
        TaskError: not a task of KINDS, or labels that no such target set explains.
    """
    kind, s = task.NAME, len(task.targets[0])
    many, one = 0, len(x) + 1  # more than LISTED sets are left; at most one is
    m = min(len(x), math.ceil(math.log2(math.comb(x.shape[1], s))) + 1)
    while True:
        sets, more = consistent_sets(x[:m], y[:m], kind, s, LISTED)
        if not sets:
            raise TaskError(f"no {kind} of {s} indices has the labels of the first {m} rows; give the task's own")
        if len(sets) > 1 and not more:
            agree = sorted(_agreement(x, y, kind, chosen) for chosen in sets)
            return math.inf if agree[-2] == len(x) else agree[-2] + 1
        many, one = (m, one) if more else (many, m)
        if one - many <= 1:
            return float(one) if one <= len(x) else math.inf
        m = (many + one) // 2 if one <= len(x) else min(len(x), 2 * m)


def _agreement(x: Tensor, y: Tensor, kind: str, chosen: Sequence[int]) -> int:
    """How many rows from the first on have the label that a target set gives them."""
    count, s = x[:, list(chosen)].sum(dim=1), len(chosen)
    label = {"sparse-and": count == s, "or": count > 0, "majority": 2 * count > s, "parity": count % 2 == 1}[kind]
    wrong = (label != y).nonzero()
    return int(wrong[0]) if len(wrong) else len(x)


def _check(kind: str, limit: int) -> None:
    if kind not in KINDS:
        raise TaskError(f"index sets of {kind!r} are not searched for; choose from {', '.join(KINDS)}")
    if limit < 1:
        raise TaskError(f"limit = {limit} sets; ask for at least 1")


def _first(found: Iterator[tuple[int, ...]], limit: int) -> Consistent:
    sets = []
    for chosen in found:
        if len(sets) == limit:
            return Consistent(tuple(sets), True)
        sets.append(chosen)
    return Consistent(tuple(sets), False)


def _mask(bits: np.ndarray) -> int:
    """Bits as a whole number, the first the least significant."""
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _members(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _threshold_sets(bits: np.ndarray, labels: np.ndarray, s: int, least: int) -> Iterator[tuple[int, ...]]:
    """Sets of s whose number of ones is at least `least` in True rows, and below it in False ones."""
    right = bits == labels[:, None]
    rows = list({(_mask(row), s - least if label else least - 1) for row, label in zip(right, labels, strict=True)})
    masks, spare = [mask for mask, _ in rows], [wrong for _, wrong in rows]  # wrong: bits that may vote wrongly

    def extend(chosen: tuple[int, ...], allowed: int, spare: list[int]) -> Iterator[tuple[int, ...]]:
        left = s - len(chosen)
        for mask, wrong in zip(masks, spare, strict=True):
            if wrong == 0:
                allowed &= mask
        if allowed.bit_count() < left:
            return
        # a row in which not all of those left may be wrong needs one that is right
        needy = [mask & allowed for mask, wrong in zip(masks, spare, strict=True) if 0 < wrong < left]
        if left and not needy:
            yield from (tuple(sorted(chosen + rest)) for rest in combinations(_members(allowed), left))
            return
        if not left:
            yield tuple(sorted(chosen))
            return
        for index in _members(min(needy, key=int.bit_count)):
            allowed &= ~(1 << index)
            after = [wrong - (not mask >> index & 1) for mask, wrong in zip(masks, spare, strict=True)]
            yield from extend((*chosen, index), allowed, after)

    return extend((), (1 << bits.shape[1]) - 1, spare)


def _parity_sets(bits: np.ndarray, labels: np.ndarray, s: int) -> Iterator[tuple[int, ...]]:
    """Sets of s whose columns sum to the labels modulo 2.

    Every column is a 64-bit key: up to 64 rows its bits, beyond them random sums of them (which keep sums, so that no
    set is missed; those found are checked).
    """
    n_rows, n_ctx = bits.shape
    n_small = s // 2
    if math.comb(n_ctx, s - n_small) > MOST_SUMS:
        raise TaskError(
            f"parity of {s} out of {n_ctx} indices has {math.comb(n_ctx, s - n_small)} half sums, above {MOST_SUMS}; "
            "take fewer targets or positions"
        )
    if n_rows <= 64:
        weights = np.uint64(1) << np.arange(n_rows, dtype=np.uint64)
    else:
        weights = np.random.default_rng(0).integers(0, 2**64, n_rows, dtype=np.uint64)
    keys = np.bitwise_xor.reduce(np.where(bits, weights[:, None], np.uint64(0)), axis=0, initial=np.uint64(0))
    goal = np.bitwise_xor.reduce(weights[labels], initial=np.uint64(0))
    small, large = _combinations(n_ctx, n_small), _combinations(n_ctx, s - n_small)
    small_sums = np.bitwise_xor.reduce(keys[small], axis=1, initial=np.uint64(0)) ^ goal
    large_sums = np.bitwise_xor.reduce(keys[large], axis=1, initial=np.uint64(0))
    order = np.argsort(small_sums, kind="stable")
    sorted_sums = small_sums[order]
    start, end = (np.searchsorted(sorted_sums, large_sums, side=side) for side in ("left", "right"))
    for i in np.flatnonzero(end > start):
        for j in order[start[i] : end[i]]:
            if n_small and small[j, -1] >= large[i, 0]:  # each set once: its smaller indices come from `small`
                continue
            chosen = np.concatenate([small[j], large[i]])
            if n_rows <= 64 or (bits[:, chosen].sum(axis=1) % 2 == labels).all():
                yield tuple(chosen.tolist())


def _combinations(n: int, size: int) -> np.ndarray:
    """All sorted choices of `size` out of n, [choice, place]."""
    if size == 0:
        return np.empty((1, 0), dtype=np.int64)
    if size == 2:
        return np.stack(np.triu_indices(n, 1), axis=1)
    flat = np.fromiter((i for chosen in combinations(range(n), size) for i in chosen), dtype=np.int64)
    return flat.reshape(-1, size)


def _minimal_hitting_sets(rows: list[int]) -> Iterator[tuple[int, ...]]:
    """Index sets that meet every row's mask, of which no part does."""
    every = 0
    for row in rows:
        every |= row

    def extend(chosen: dict[int, list[int]], unmet: list[int], allowed: int) -> Iterator[tuple[int, ...]]:
        # chosen: for each index the rows that it alone meets; an index without one would be superfluous
        if not unmet:
            yield tuple(sorted(chosen))
            return
        options = min((row & allowed for row in unmet), key=int.bit_count)
        allowed &= ~options
        for index in _members(options):
            bit = 1 << index
            alone = {i: [row for row in own if not row & bit] for i, own in chosen.items()}
            if all(alone.values()):
                alone[index] = [row for row in unmet if row & bit]
                yield from extend(alone, [row for row in unmet if not row & bit], allowed)
            allowed |= bit

    return extend({}, sorted(set(rows)), every)
