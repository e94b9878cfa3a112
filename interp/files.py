"""Files that are either whole or absent: written beside and renamed; JSON without NaN."""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from interp.errors import BoolensError


def write_atomic(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to disk, then rename over it; a killed process leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Strict, indented, UTF-8 JSON; raises ValueError for NaN or infinity (turn them into null with `plain`)."""
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    write_atomic(path, (text + "\n").encode())


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A header and rows, with lines ending in a line feed; NaN and infinities are left empty (`plain`)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([plain(row) for row in rows])
    write_atomic(path, text.getvalue().encode())


def read_json(path: Path) -> Any:
    """Parse a JSON file.

    Raises:
        BoolensError: no such file, or not strict JSON.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except FileNotFoundError:
        raise BoolensError(f"{path} does not exist") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise BoolensError(f"{path} is not valid JSON ({error}); restore it or make the run again") from None


def plain(value: Any) -> Any:
    """numpy and torch scalars and arrays, tuples and containers as JSON types; NaN and infinities as null."""
    kind = type(value)
    if kind is str or kind is int:  # most of what there is
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
