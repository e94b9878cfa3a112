"""A table's rows for training and held-out rows, without leakage; and the task that follows."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int

from tasks.errors import TaskError
from tasks.fewest_errors import best_and
from tasks.table_reading import Table
from tasks.tabular import TableTask, check_table

HELD_OUT = 0.3
"""Share of the rows that is held out where no numbers are given."""
SPARE = 0.1
"""Share kept back where quantiles come from the training rows: rows that these make equal across parts are left out."""
Contradictions = Literal["keep", "drop", "majority"]


def make_table_task(
    table: Table,
    generator: torch.Generator,
    *,
    n_train: int | None = None,
    n_valid: int | None = None,
    contradictions: str = "keep",
    targets: Sequence[int | str] | None = None,
    n_targets: int = 3,
) -> TableTask:
    """Split a table and make its task.

    Equal inputs are in one part. The hypothesis is found from the training rows alone, quantiles from rows that are not
    held out (training rows, and those in no part where the numbers leave some over). Where quantiles
    are asked for, a first split is made with those of all rows, which decides only which rows go together; of rows that
    the training rows' own quantiles then make equal across the parts, those of one part are left out.

    Args:
        table: what `read_table` read.
        generator: the split's.
        n_train, n_valid: exact numbers of rows; by default HELD_OUT of them are held out and the rest is for training.
        contradictions: what becomes of equal rows with different labels: 'keep', 'drop', or 'majority' (all get the
            more frequent label; where both are equally frequent they are dropped).
        targets: the hypothesis, by name or index; by default `best_and` of up to n_targets features.
        n_targets: at most so many features of a hypothesis that is found.

    Raises:
        TaskError: numbers that the rows do not allow, a part without both labels, or no such feature.
    """
    if contradictions not in get_args(Contradictions):
        raise TaskError(
            f"--contradictions {contradictions!r} is not known; choose {', '.join(get_args(Contradictions))}"
        )
    every = np.ones(len(table.y), dtype=bool)
    names, x = table.bits(every)
    check_table(names, x, table.y)
    y, kept = resolved(x, table.y, every, contradictions)
    n_train, n_valid = sizes(int(kept.sum()), n_train, n_valid, spare_rows(x, kept, table.looks_at_rows))
    if table.looks_at_rows:
        n_first = round(n_train / (n_train + n_valid) * kept.sum())
        train, held_out = split_rows(x, y, kept, n_first, int(kept.sum()) - n_first, generator, exact=False)
        names, x = table.bits(train)
        y, kept = resolved(x, table.y, train | held_out, contradictions)
        train, held_out = parted(x, train & kept, held_out & kept)
        train, held_out = trimmed(train, n_train, generator), trimmed(held_out, n_valid, generator)
    else:
        train, held_out = split_rows(x, y, kept, n_train, n_valid, generator)
    found = {
        "contradictions": contradictions,
        **counted(names, x, table.y),
        "rows_left_out": len(y) - n_train - n_valid,
    }
    source = table.source | found
    if targets is not None:
        return TableTask(names, x, y, train, held_out, named(targets, names), source=source)
    best = best_and(x[train], y[train], min(n_targets, len(names)))
    return TableTask(names, x, y, train, held_out, best.targets, origin="fitted", ties=best.ties, source=source)


def spare_rows(x: Bool[np.ndarray, "row pos"], rows: Bool[np.ndarray, " row"], looks_at_rows: bool) -> int:
    """How many rows are kept back by default, so that every split has the same sizes.

    SPARE of them where thresholds depend on the split; as many as the largest group of equal rows where there are too
    few single ones to make up for it.
    """
    size = np.bincount(groups_of(x)[rows])
    uneven = 0 if (size == 1).sum() >= size.max() else int(size.max())
    return max(uneven, round(SPARE * rows.sum()) if looks_at_rows else 0)


def sizes(n_rows: int, n_train: int | None, n_valid: int | None, spare: int = 0) -> tuple[int, int]:
    """The numbers of training and held-out rows.

    >>> sizes(100, None, None), sizes(100, 60, None), sizes(100, None, None, spare=10)
    ((70, 30), (60, 40), (63, 27))

    Raises:
        TaskError: fewer than two of either, or more than there are.
    """
    usable = n_rows - spare
    if n_valid is None:
        n_valid = round(HELD_OUT * usable) if n_train is None else usable - n_train
    if n_train is None:
        n_train = usable - n_valid
    if n_train < 2 or n_valid < 2 or n_train + n_valid > n_rows:
        raise TaskError(
            f"{n_train} training and {n_valid} held-out rows of {n_rows}; each part needs at least 2, and both "
            "together have at most all: change --n-train or --n-valid"
        )
    return n_train, n_valid


def parted(
    x: Bool[np.ndarray, "row pos"], train: Bool[np.ndarray, " row"], held_out: Bool[np.ndarray, " row"]
) -> tuple[Bool[np.ndarray, " row"], Bool[np.ndarray, " row"]]:
    """The parts without an input in both: of equal rows, those of the part that has fewer of them are left out."""
    group = groups_of(x)
    n_train, n_held = (np.bincount(group, weights=part.astype(float))[group] for part in (train, held_out))
    return train & (n_train >= n_held), held_out & (n_held > n_train)


def groups_of(x: Bool[np.ndarray, "row pos"]) -> Int[np.ndarray, " row"]:
    """A number for each row, the same for equal rows."""
    return np.unique(np.packbits(x, axis=1), axis=0, return_inverse=True)[1].ravel()


def resolved(
    x: Bool[np.ndarray, "row pos"], y: Bool[np.ndarray, " row"], rows: Bool[np.ndarray, " row"], policy: str
) -> tuple[Bool[np.ndarray, " row"], Bool[np.ndarray, " row"]]:
    """The labels, and which of the rows are kept, under a policy for contradictions among these rows."""
    if policy == "keep":
        return y, rows
    group = groups_of(x)
    n, n_true = (np.bincount(group, weights=w.astype(float))[group] for w in (rows, rows & y))
    if policy == "drop":
        return y, rows & ((n_true == 0) | (n_true == n))
    return np.where(rows, 2 * n_true > n, y), rows & (2 * n_true != n)


def counted(names: Sequence[str], x: Bool[np.ndarray, "row pos"], y: Bool[np.ndarray, " row"]) -> dict[str, Any]:
    """How many rows are equal to an earlier one, how many are in groups with both labels, and constant features."""
    group = groups_of(x)
    n, n_true = np.bincount(group), np.bincount(group, weights=y.astype(float))
    mixed = (n_true > 0) & (n_true < n)
    constant = [name for name, column in zip(names, x.T, strict=True) if (column == column[0]).all()]
    return {
        "duplicates": len(y) - len(n),
        "contradictory_inputs": int(mixed.sum()),
        "contradictory_rows": int(n[mixed].sum()),
        "constant_features": constant,
    }


def split_rows(
    x: Bool[np.ndarray, "row pos"],
    y: Bool[np.ndarray, " row"],
    rows: Bool[np.ndarray, " row"],
    n_train: int,
    n_valid: int,
    generator: torch.Generator,
    *,
    exact: bool = True,
) -> tuple[Bool[np.ndarray, " row"], Bool[np.ndarray, " row"]]:
    """Training and held-out rows, drawn at random by groups of equal rows, with labels shared out as groups allow.

    Of a group that is too large for what is left some rows are in no part. If not `exact`, fewer may be held out.

    Raises:
        TaskError: groups so large that the held-out rows cannot be so many.
    """
    group = groups_of(x)
    size = np.bincount(group, weights=rows.astype(float)).astype(int)
    n_true = np.bincount(group, weights=(rows & y).astype(float))
    order = torch.randperm(len(size), generator=generator).numpy()
    is_true = 2 * n_true > size
    wanted_true = round(n_valid * size[is_true].sum() / size.sum())
    held = np.zeros(len(size), dtype=bool)
    for members, wanted in (
        (order[is_true[order]], wanted_true),
        (order[~is_true[order]], n_valid - wanted_true),
        (order, None),
    ):
        left = n_valid - int(size[held].sum()) if wanted is None else wanted
        for g in members:
            if not held[g] and 0 < size[g] <= left:
                held[g] = True
                left -= size[g]
    left = n_valid - int(size[held].sum())
    enough = [g for g in order if not held[g] and size[g] >= left]
    if exact and left and enough:
        held[min(enough, key=lambda g: size[g])] = True
    held_out = rows & held[group]
    train = trimmed(rows & ~held_out, n_train, generator)
    return train, trimmed(held_out, n_valid, generator) if exact else held_out


def trimmed(rows: Bool[np.ndarray, " row"], n: int, generator: torch.Generator) -> Bool[np.ndarray, " row"]:
    """n of the rows, drawn at random.

    Raises:
        TaskError: fewer than n.
    """
    where = np.flatnonzero(rows)
    if len(where) < n:
        raise TaskError(
            f"{len(where)} rows are left for a part of {n}, since equal inputs must not be in both parts; lower "
            "--n-train or --n-valid, or take another seed"
        )
    kept = np.zeros_like(rows)
    kept[where[torch.randperm(len(where), generator=generator)[:n].numpy()]] = True
    return kept


def named(targets: Sequence[int | str], names: Sequence[str]) -> list[int]:
    """Positions of features given by name or index.

    Raises:
        TaskError: no such feature.
    """
    found = []
    for target in targets:
        if target in names:
            found.append(list(names).index(str(target)))
            continue
        try:
            found.append(int(target))
        except ValueError:
            few = ", ".join(names[:12]) + (f", ... ({len(names)})" if len(names) > 12 else "")
            raise TaskError(f"there is no feature {target!r}; the features are {few}") from None
    return found
