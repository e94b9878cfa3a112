"""Files are whole or as they were, and JSON is strict."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interp.errors import BoolensError
from interp.files import plain, read_json, write_atomic, write_json


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_writes_and_overwrites_and_makes_the_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.bin"
    write_atomic(path, b"first, long")
    write_atomic(path, b"second")
    assert tree(tmp_path) == {"a/b/c.bin": b"second"}


def test_the_old_file_is_whole_until_the_new_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.bin"
    path.write_bytes(b"old")
    seen: list[dict[str, bytes]] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(tree(tmp_path)))
    write_atomic(path, b"new")
    (during,) = seen  # flushed to disk once, before the renaming
    assert during.pop("c.bin") == b"old"
    assert list(during.values()) == [b"new"]
    assert tree(tmp_path) == {"c.bin": b"new"}


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize(("owner", "function"), [(os, "fsync"), (Path, "replace")])
def test_a_failure_in_the_middle_leaves_the_old_file_and_nothing_else(
    owner: Any, function: str, existing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.bin"
    if existing:
        path.write_bytes(b"old")

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(owner, function, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new")
    assert tree(tmp_path) == ({"c.bin": b"old"} if existing else {})


def test_content_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "c.bin"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        write_atomic(path, "text")  # pyright: ignore[reportArgumentType]
    assert tree(tmp_path) == {"c.bin": b"old"}


def test_json_is_indented_utf8_text(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_json(path, {"b": [1, 2.5, None], "a": "ü"})
    assert path.read_bytes() == '{\n  "b": [\n    1,\n    2.5,\n    null\n  ],\n  "a": "ü"\n}\n'.encode()
    assert read_json(path) == {"b": [1, 2.5, None], "a": "ü"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {"a": [float("nan")]}])
def test_json_has_no_nan(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    write_json(path, "old")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, value)
    assert tree(tmp_path) == {"c.json": b'"old"\n'}


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": NaN}', b"[Infinity]", b"[-Infinity]", b"[1,]", b"\xff", b"'a'"])
def test_what_is_not_strict_json_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(BoolensError, match=r"c\.json is not valid JSON \(.*\); restore it or make the run again"):
        read_json(path)
    assert tree(tmp_path) == {"c.json": content}


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BoolensError, match=r"c\.json does not exist"):
        read_json(tmp_path / "c.json")


def test_plain_turns_arrays_tensors_and_tuples_into_json_types() -> None:
    value = {
        "array": np.array([[1, 2], [3, 4]]),
        "tensor": torch.tensor([0.5, float("nan"), float("inf")]),
        "scalars": (np.float64(0.25), np.int32(7), np.bool_(True), torch.tensor(3), torch.tensor(True)),
        "nan": np.float32("nan"),
        5: [(-float("inf"), 1.5), {"deep": (np.array(-0.5),)}],
        "as it is": ["text", None, True, 2, 0.1],
    }
    result = plain(value)
    assert result == {
        "array": [[1, 2], [3, 4]],
        "tensor": [0.5, None, None],
        "scalars": [0.25, 7, True, 3, True],
        "nan": None,
        "5": [[None, 1.5], {"deep": [-0.5]}],
        "as it is": ["text", None, True, 2, 0.1],
    }
    assert [type(v) for v in result["scalars"]] == [float, int, bool, int, bool]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
