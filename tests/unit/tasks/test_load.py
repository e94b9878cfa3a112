"""task.json: round trips, and everything that is not exactly a task refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tasks import (
    TASKS,
    Junta,
    Majority,
    Or,
    Parity,
    RuleAnd,
    SparseAnd,
    TableTask,
    Task,
    TaskError,
    load_task,
    task_from_dict,
)

ALL = [
    SparseAnd(1, (0,)),
    SparseAnd(30, (-3, 12, 24)),
    SparseAnd(7, (2, 5), p=0.1),
    SparseAnd(7, (2, 5), p="tutorial"),
    RuleAnd(11, ((3, 7), (2, 5))),
    RuleAnd(9, ((0,), (2, 3), (0, 2, 6), (3, 5, 6, 7)), p=1 / 3, rule_positions=(8, 1)),
    Or(30, (-3, 12, 24)),
    Majority(9, (1, 2, 4, 7)),
    Parity(7, (2, 5), p=0.1),
    Junta(7, (5, 2), "0100"),
]
SPARSE = SparseAnd(5, (1, 3), p=0.25).to_dict()
RULE = RuleAnd(5, ((0, 1), (2,)), p=0.25).to_dict()
JUNTA = Junta(5, (1, 3), "0110", p=0.25).to_dict()


def test_the_content_by_hand() -> None:
    assert SPARSE == {
        "schema": 1, "task": "sparse-and", "n_ctx": 5, "rule_positions": [], "targets": [[1, 3]], "p": 0.25,
    }  # fmt: skip
    assert RULE == {
        "schema": 1, "task": "rule-and", "n_ctx": 5, "rule_positions": [4], "targets": [[0, 1], [2]], "p": 0.25,
    }  # fmt: skip
    assert JUNTA == {**SPARSE, "task": "junta", "table": "0110"}
    assert Or(5, (1, 3), p=0.25).to_dict() == {**SPARSE, "task": "or"}


@pytest.mark.parametrize("task", ALL, ids=str)
def test_round_trip(task: Task, tmp_path: Path) -> None:
    assert task_from_dict(task.to_dict()) == task
    path = tmp_path / "task.json"
    path.write_text(json.dumps(task.to_dict()))
    for source in (tmp_path, path, str(tmp_path)):
        loaded = load_task(source)
        assert loaded == task
        assert type(loaded) is type(task)
        assert loaded.p == task.p  # to the bit: 'balanced' is stored as its number


def test_every_task_has_a_name() -> None:
    named = {"sparse-and": SparseAnd, "rule-and": RuleAnd, "or": Or, "majority": Majority, "parity": Parity}
    assert {**named, "junta": Junta, "table": TableTask} == TASKS


@pytest.mark.parametrize("content", [SPARSE, RULE])
@pytest.mark.parametrize("field", sorted(SPARSE))
def test_a_missing_field_is_refused(content: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError, match=rf"here: missing fields \['{field}'\], unknown fields \[\]; the fields are"):
        task_from_dict({k: v for k, v in content.items() if k != field}, "here")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TaskError, match=r"missing fields \[\], unknown fields \['seed'\]; the fields are \['n_ctx', "):
        task_from_dict({**SPARSE, "seed": 0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema 2 is not known; this version reads schema 1"),
        ({"schema": "1"}, "schema '1' is not known; this version reads schema 1"),
        ({"schema": True}, "schema True is not known; this version reads schema 1"),
        ({"schema": 1.0}, "schema 1.0 is not known; this version reads schema 1"),
        (
            {"task": "xor"},
            "'xor' is not known; "
            "the tasks are ['junta', 'majority', 'or', 'parity', 'rule-and', 'sparse-and', 'table']",
        ),
        ({"task": None}, "task None is not known"),
        ({"task": []}, "task [] is not known"),
        ({"n_ctx": "5"}, "n_ctx is '5'; a task needs a whole number"),
        ({"n_ctx": 5.0}, "n_ctx is 5.0; a task needs a whole number"),
        ({"n_ctx": True, "targets": [[0]]}, "n_ctx is True; a task needs a whole number"),
        ({"n_ctx": None}, "n_ctx is None; a task needs a whole number"),
        ({"n_ctx": 3}, "targets of rule 0: index 3 is outside [0, 3)"),
        ({"targets": []}, "targets [] must be a list of lists of indices, one a rule"),
        ({"targets": [1, 3]}, "targets [1, 3] must be a list of lists of indices, one a rule"),
        ({"targets": "13"}, "targets '13' must be a list of lists of indices, one a rule"),
        ({"targets": None}, "targets None must be a list of lists of indices, one a rule"),
        ({"targets": [[]]}, "the target set of rule 0 is empty"),
        ({"targets": [[1.0]]}, "index 1.0 is outside [0, 5)"),
        ({"targets": [[True]]}, "index True is outside [0, 5)"),
        ({"targets": [["1"]]}, "index '1' is outside [0, 5)"),
        ({"targets": [[1, 3], [2]]}, "does not describe a sparse-and task; it would read as"),
        ({"targets": [[3, 1]]}, "does not describe a sparse-and task; it would read as"),
        ({"targets": [[-2, 1]]}, "does not describe a sparse-and task; it would read as"),
        ({"rule_positions": [4]}, "does not describe a sparse-and task; it would read as"),
        ({"rule_positions": None}, "rule_positions None must be a list of indices"),
        ({"rule_positions": 4}, "rule_positions 4 must be a list of indices"),
        ({"p": "balanced"}, "does not describe a sparse-and task; it would read as"),
        ({"p": "0.25"}, "p = '0.25' is not a probability"),
        ({"p": None}, "p = None is outside (0, 1)"),
        ({"p": True}, "p = True is outside (0, 1)"),
        ({"p": 1}, "p = 1 is outside (0, 1)"),
        ({"p": float("nan")}, "p = nan is outside (0, 1)"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_values_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=re.escape(message)):
        task_from_dict({**SPARSE, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule_positions": []}, "2 target sets for 0 rule bits"),
        ({"rule_positions": [True]}, "rule_positions: index True is outside [0, 5)"),
        ({"rule_positions": [-1]}, "does not describe a rule-and task; it would read as"),
        ({"rule_positions": [2]}, "position 2 is both a rule position and a target of rule 1"),
        ({"targets": [[0, 1]]}, "1 target sets; rule-and needs 2, 4, 8"),
        ({"task": "sparse-and"}, "does not describe a sparse-and task"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_rules_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=re.escape(message)):
        task_from_dict({**RULE, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": "011"}, "the table has 3 entries; 2 targets need 2**2 = 4"),
        ({"table": "0000"}, "the table is constant"),
        ({"table": "0101"}, "does not depend on targets [1]; leave them out: targets 3 with table 01"),
        ({"table": [0, 1, 1, 0]}, "table [0, 1, 1, 0] is not a text of 0 and 1"),
        ({"table": None}, "table None is not a text of 0 and 1"),
        ({"targets": [[3, 1]]}, "does not describe a junta task; it would read as"),
        ({"rule_positions": [4]}, "does not describe a junta task; it would read as"),
        ({"task": "parity"}, "missing fields [], unknown fields ['table']"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_juntas_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=re.escape(message)):
        task_from_dict({**JUNTA, **change})


def test_a_junta_needs_its_table() -> None:
    with pytest.raises(TaskError, match=r"missing fields \['table'\], unknown fields \[\]; .* 'table', 'targets'"):
        task_from_dict({k: v for k, v in JUNTA.items() if k != "table"})


@pytest.mark.parametrize(("content", "kind"), [([], "list"), ("sparse-and", "str"), (None, "NoneType"), (3, "int")])
def test_only_an_object_is_a_task(content: Any, kind: str) -> None:
    with pytest.raises(TaskError, match=f"task: expected a JSON object, found {kind}"):
        task_from_dict(content)


def test_missing_file(tmp_path: Path) -> None:
    wanted = re.escape(f"{tmp_path / 'task.json'} does not exist; give a run folder, or train one with `boolens train`")
    with pytest.raises(TaskError, match=wanted):
        load_task(tmp_path)
    with pytest.raises(TaskError, match="nowhere does not exist; give a run folder"):
        load_task(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"{", b"{'schema': 1}", b"\xff\xfe", b'{"schema": 1,}'])
def test_a_file_that_is_not_json(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    path.write_bytes(content)
    with pytest.raises(TaskError, match=re.escape(f"{path} is not valid JSON")) as caught:
        load_task(tmp_path)
    assert "restore it or train the run again" in str(caught.value)
    assert path.read_bytes() == content


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    path.write_text(json.dumps({**SPARSE, "schema": 9}))
    with pytest.raises(TaskError, match=re.escape(f"{path}: schema 9 is not known")):
        load_task(tmp_path)
