"""Splits without leakage, of the right sizes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.errors import TaskError
from tasks.table_reading import ANIMALS, Table, read_table
from tasks.table_split import make_table_task, sizes, spare_rows, split_rows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_table(folder: Path, n: int, *, numbers: bool) -> Table:
    """Few features, so that many rows are equal, and some of them contradict each other."""
    rng = np.random.default_rng(n)
    values = rng.normal(size=(n, 6)).round(2) if numbers else rng.integers(0, 2, (n, 4))
    y = (values[:, :2] > 0).all(axis=1) ^ (rng.random(n) < 0.1)
    lines = [",".join(map(str, [*row, int(label)])) for row, label in zip(values.tolist(), y, strict=True)]
    path = folder / "table.csv"
    path.write_text("\n".join(["a,b,c,d,e,f,y" if numbers else "a,b,c,d,y", *lines]))
    return read_table(path, "y", "quantile:0.5" if numbers else None)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", ["keep", "drop", "majority"])
def test_no_input_is_in_both_parts(tmp_path: Path, seed: int, policy: str, numbers: bool) -> None:
    table = random_table(tmp_path, 211 if numbers else 61, numbers=numbers)
    task = make_table_task(table, generator(seed), contradictions=policy, n_train=30 if numbers else 20, n_valid=8)
    assert [int(task.in_part(part).sum()) for part in ("train", "valid")] == [30 if numbers else 20, 8]
    train, held = ({tuple(row) for row in task.part(part)[0].tolist()} for part in ("train", "valid"))
    assert train
    assert held
    assert not train & held
    if policy != "keep":
        for part in ("train", "valid"):
            x, y = task.part(part)
            labelled = {(*row, label) for row, label in zip(x.tolist(), y.tolist(), strict=True)}
            assert len(labelled) == len({pair[:-1] for pair in labelled})


def test_thresholds_come_from_the_training_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=(150, 9))
    lines = [",".join(map(str, [*row, int(row[0] + row[1] > 0)])) for row in values.tolist()]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a,b,c,d,e,f,g,h,i,y", *lines]))
    table = read_table(path, "y", "quantile:0.5")
    task = make_table_task(table, generator(1))
    assert [int(task.in_part(part).sum()) for part in ("train", "valid")] == list(sizes(150, None, None, 15))
    held_out = task.in_part("valid")
    middle = np.median(values, axis=0)
    values[held_out] = middle + 100 * np.sign(
        values[held_out] - middle
    )  # far off, on the same side of all rows' medians
    moved = Table(
        tuple(type(c)(c.name, values[:, i], c.rule) for i, c in enumerate(table.columns)), table.y, table.source
    )
    again = make_table_task(moved, generator(1))
    assert again.held_out == task.held_out
    assert again.features == task.features  # the thresholds, too
    assert moved.bits(held_out)[0] != list(task.features)


def test_default_sizes_are_exact_and_labels_shared_out() -> None:
    table = read_table(ANIMALS, "alive", "thing=drop")
    whole = 0
    for seed in range(5):
        task = make_table_task(table, generator(seed))
        assert [int(task.in_part(part).sum()) for part in ("train", "valid")] == [53, 22]
        assert int(task.part("valid")[1].sum()) in (10, 11)  # 35 of 75 are alive
        assert (task.origin, task.errors) == ("fitted", 0)
        if len(task.targets[0]) == 3 and not task.ties:  # two features may do for 53 rows, but not for all 75
            assert [task.features[i] for i in task.targets[0]] == ["grows", "reproduces", "reacts"]
            assert task.held_out_errors == 0
            whole += 1
    assert whole >= 2
    others = [make_table_task(table, generator(seed)).held_out for seed in range(5)]
    assert len(set(others)) == 5
    assert make_table_task(table, generator(3)).held_out == others[3]


def test_every_single_attribute_of_the_hypothesis_is_needed() -> None:
    table = read_table(ANIMALS, "alive", "thing=drop")
    names, x = table.bits(np.ones(75, bool))
    whole = [names.index(name) for name in ("grows", "reproduces", "reacts")]
    assert (x[:, whole].all(axis=1) == table.y).all()
    for left_out in whole:
        rest = [i for i in whole if i != left_out]
        assert (x[:, rest].all(axis=1) != table.y).any()


def test_a_hypothesis_may_be_given_by_name_or_index() -> None:
    table = read_table(ANIMALS, "alive", "thing=drop")
    task = make_table_task(table, generator(), targets=["has_eyes", "0"])
    assert (task.targets, task.origin, task.ties) == (((0, 12),), "given", 0)
    assert task.errors > 0
    with pytest.raises(TaskError, match="no feature 'barks'"):
        make_table_task(table, generator(), targets=["barks"])


@pytest.mark.parametrize(("given", "message"), [((60, 20), "60 training and 20"), ((74, None), "74 training and 1")])
def test_impossible_sizes_are_refused(given: tuple[int, int | None], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        sizes(75, *given)


def test_of_groups_too_large_some_rows_are_in_no_part() -> None:
    x = np.repeat(np.eye(3, dtype=bool), 4, axis=0)
    y = np.arange(12) < 4
    every = np.ones(12, bool)
    train, held_out = split_rows(x, y, every, 4, 5, generator())
    assert (train.sum(), held_out.sum()) == (4, 5)
    assert not (x[train][:, None] == x[held_out][None]).all(axis=2).any()
    assert spare_rows(x, every, False) == 4
    assert spare_rows(np.eye(12, dtype=bool), every, False) == 0
    with pytest.raises(TaskError, match="4 rows are left for a part of 7"):
        split_rows(x, y, every, 7, 5, generator())


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TaskError, match="--contradictions 'vote' is not known"):
        make_table_task(read_table(ANIMALS, "alive", "thing=drop"), generator(), contradictions="vote")
