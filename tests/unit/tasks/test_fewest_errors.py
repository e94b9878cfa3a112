"""The best AND, against every index set looked at one by one."""

from itertools import combinations

import numpy as np
import pytest

from tasks.errors import TaskError
from tasks.fewest_errors import best_and


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_best_of_all_sets(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.random((37, 7)) < 0.7
    y = x[:, [1, 4, 6]].all(axis=1) ^ (rng.random(37) < 0.15)
    errors = {s: int((x[:, s].all(axis=1) != y).sum()) for k in range(1, most + 1) for s in combinations(range(7), k)}
    least = min(errors.values())
    expected = min((s for s in errors if errors[s] == least), key=lambda s: (len(s), s))
    ties = sum(errors[s] == least for s in errors if len(s) == len(expected)) - 1
    assert best_and(x, y, most) == (expected, least, ties)


def test_too_many_sets_or_targets_are_refused() -> None:
    x = np.zeros((2, 1000), bool)
    with pytest.raises(TaskError, match="too many to try"):
        best_and(x, np.array([True, False]), 3)
    with pytest.raises(TaskError, match="ask for 1 to 1000"):
        best_and(x, np.array([True, False]), 0)
