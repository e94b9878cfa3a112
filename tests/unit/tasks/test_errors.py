"""Tasks that cannot exist: each message names the value, the limit and the way out."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from tasks import RuleAnd, SparseAnd, Task, TaskError

NO_CONTEXT = "a task needs a whole number of input bits, at least 1"
NO_PROBABILITY = "is not a probability; give a number in (0, 1), 'balanced' or 'tutorial'"
OUTSIDE = "is outside (0, 1); 'balanced' makes both labels equally likely"

CASES: list[tuple[Callable[[], Task], str]] = [
    (lambda: SparseAnd(0, (0,)), f"n_ctx is 0; {NO_CONTEXT}"),
    (lambda: SparseAnd(-4, (0,)), f"n_ctx is -4; {NO_CONTEXT}"),
    (lambda: SparseAnd(2.5, (0,)), f"n_ctx is 2.5; {NO_CONTEXT}"),  # pyright: ignore[reportArgumentType]
    (lambda: SparseAnd(True, (0,)), f"n_ctx is True; {NO_CONTEXT}"),
    (lambda: SparseAnd("5", (0,)), f"n_ctx is '5'; {NO_CONTEXT}"),  # pyright: ignore[reportArgumentType]
    (lambda: RuleAnd(0, ((0,), (1,))), f"n_ctx is 0; {NO_CONTEXT}"),
    (lambda: RuleAnd(5.5, ((0,), (1,))), f"n_ctx is 5.5; {NO_CONTEXT}"),  # pyright: ignore[reportArgumentType]
    (lambda: RuleAnd("5", ((0,), (1,))), f"n_ctx is '5'; {NO_CONTEXT}"),  # pyright: ignore[reportArgumentType]
    (lambda: SparseAnd(5, ()), "the target set of rule 0 is empty; give at least one index"),
    (lambda: RuleAnd(5, ((0,), ())), "the target set of rule 1 is empty; give at least one index"),
    (lambda: SparseAnd(5, (5,)), "targets of rule 0: index 5 is outside [0, 5)"),
    (lambda: SparseAnd(5, (-6,)), "targets of rule 0: index -6 is outside [0, 5)"),
    (lambda: RuleAnd(5, ((0,), (1, 9))), "targets of rule 1: index 9 is outside [0, 5)"),
    (lambda: SparseAnd(5, (1.0,)), "index 1.0 is outside [0, 5)"),  # pyright: ignore[reportArgumentType]
    (lambda: SparseAnd(5, (True,)), "index True is outside [0, 5)"),
    (lambda: SparseAnd(5, (1, 1)), "targets of rule 0: index 1 is given twice; name each index once"),
    (lambda: SparseAnd(5, (1, 3, -4)), "targets of rule 0: index 1 is given twice; name each index once"),
    # more targets than bits can only be had with a repeat or an index out of range
    (lambda: SparseAnd(3, range(4)), "targets of rule 0: index 3 is outside [0, 3)"),
    (lambda: RuleAnd(5, ((0,), (1, 1))), "targets of rule 1: index 1 is given twice; name each index once"),
    (lambda: RuleAnd(5, ((0,),)), "1 target sets; rule-and needs 2, 4, 8, ... (2**k for k rule bits)"),
    (lambda: RuleAnd(5, ()), "0 target sets; rule-and needs 2, 4, 8, ... (2**k for k rule bits)"),
    (lambda: RuleAnd(5, ((0,), (1,), (2,))), "3 target sets; rule-and needs 2, 4, 8, ... (2**k for k rule bits)"),
    (lambda: RuleAnd(9, ((0,),) * 6), "6 target sets; rule-and needs 2, 4, 8, ... (2**k for k rule bits)"),
    (lambda: RuleAnd(2, ((0,),) * 8), "3 rule bits do not fit into n_ctx = 2 positions; raise n_ctx"),
    (
        lambda: RuleAnd(5, ((0,), (1,)), rule_positions=(3, 4)),
        "2 target sets for 2 rule bits; give 4, one for each value of the rule bits",
    ),
    (
        lambda: RuleAnd(5, ((0,), (1,)), rule_positions=()),
        "2 target sets for 0 rule bits; give 1, one for each value of the rule bits",
    ),
    (
        lambda: RuleAnd(5, ((0,), (1, 4))),
        "position 4 is both a rule position and a target of rule 1; choose another",
    ),
    (
        lambda: RuleAnd(5, ((0, 2), (1,)), rule_positions=(-3,)),
        "position 2 is both a rule position and a target of rule 0; choose another",
    ),
    (lambda: RuleAnd(5, ((0,), (1,)), rule_positions=(5,)), "rule_positions: index 5 is outside [0, 5)"),
    (
        lambda: RuleAnd(5, ((0,),) * 4, rule_positions=(4, -1)),
        "rule_positions: index 4 is given twice; name each index once",
    ),
    (lambda: SparseAnd(5, (0,), p=0), f"p = 0 {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p=1.0), f"p = 1.0 {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p=-0.5), f"p = -0.5 {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p=7), f"p = 7 {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p=float("nan")), f"p = nan {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p=float("inf")), f"p = inf {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p=True), f"p = True {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p=None), f"p = None {OUTSIDE}"),  # pyright: ignore[reportArgumentType]
    (lambda: RuleAnd(5, ((0,), (1,)), p=2.0), f"p = 2.0 {OUTSIDE}"),
    (lambda: SparseAnd(5, (0,), p="half"), f"p = 'half' {NO_PROBABILITY}"),  # pyright: ignore[reportArgumentType]
    (lambda: RuleAnd(5, ((0,), (1,)), p="0.5"), f"p = '0.5' {NO_PROBABILITY}"),  # pyright: ignore[reportArgumentType]
]


@pytest.mark.parametrize(("make", "message"), CASES, ids=[message[:40] for _, message in CASES])
@pytest.mark.usefixtures("unchecked")
def test_impossible_tasks(make: Callable[[], Task], message: str) -> None:
    with pytest.raises(TaskError, match=f"{re.escape(message)}$"):
        make()


def test_a_task_error_is_a_value_error() -> None:
    assert issubclass(TaskError, ValueError)


def test_p_is_kept_as_a_float() -> None:
    assert type(SparseAnd(5, (0,), p=np.float64(0.25)).p) is float
