"""A CSV file's rows as a table of the page: all of a short one, a stated part of a long one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analyses.report.findings import Finding
from analyses.report.formats import number, plural

MOST_ROWS = 200
MOST_COLUMNS = 40
POSITIONS = ("pos", "src", "dest")
"""Columns of positions."""
LARGEST = {
    "ablation": "effect",
    "activation-patching": "absolute_change",
    "attribution": "exact",
    "circuits": "value",
    "abstraction": "value",
}
"""Of a long table of these analyses the rows with the largest sizes of this column are shown, in the file's order."""


@dataclass(frozen=True)
class Cell:
    text: str
    numeric: bool = False
    link: str = ""
    mood: str = ""


@dataclass(frozen=True)
class Table:
    """Attributes: numeric: for each column, whether it is aligned as numbers; note: what is left out, or ''."""

    columns: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def make_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], note: str = "") -> Table:
    """A column is one of numbers if some cell is, and none is a word."""
    numeric = [
        any(cell.numeric for cell in column) and all(cell.numeric or cell.text in ("", "–") for cell in column)
        for column in zip(*rows, strict=True)
    ] or [False] * len(columns)
    return Table(columns, numeric, rows, note)


def data_table(found: Finding, names: Sequence[str] = ()) -> Table:
    """data.csv of an analysis, with at most MOST_ROWS rows and MOST_COLUMNS columns, and a note on what is left out.

    `names` are those of the positions, where they have any.
    """
    header, rows = found.rows()
    n_rows, n_columns = len(rows), len(header)
    by = LARGEST.get(found.name)
    note = ""
    if n_rows > MOST_ROWS:
        if by is not None and by in header:
            i = header.index(by)
            sizes = [abs(float(row[i] or 0)) for row in rows]
            kept = sorted(sorted(range(n_rows), key=lambda row: -sizes[row])[:MOST_ROWS])
            rows = [rows[row] for row in kept]
            which = f"the {MOST_ROWS} with the largest size of {by.replace('_', ' ')}"
        else:
            rows, which = rows[:MOST_ROWS], f"the first {MOST_ROWS}"
        note = f"Shown: {which}, of {plural(n_rows, 'row')}. "
    if n_columns > MOST_COLUMNS:
        note += f"Shown: the first {MOST_COLUMNS} of {plural(n_columns, 'column')}. "
    if note:
        note += "The whole table is the file data.csv."
    named = [names and name in POSITIONS for name in header[:MOST_COLUMNS]]
    shown = [
        [Cell(names[int(text)]) if is_name and text else cell(text) for text, is_name in zip(row, named, strict=False)]
        for row in rows
    ]
    return make_table([name.replace("_", " ") for name in header[:MOST_COLUMNS]], shown, note)


def cell(text: str) -> Cell:
    """A CSV file's cell: numbers with few digits, True and False as yes and no, empty ones as undefined.

    >>> cell("0.12345678").text, cell("7").text, cell("True").text, cell("3,7").numeric, cell("").text, cell("nan").text
    ('0.1235', '7', 'yes', False, '–', 'nan')
    """
    if text in ("True", "False"):
        return Cell("yes" if text == "True" else "no")
    if not text:
        return Cell("–")
    try:
        value: Any = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            return Cell(text)
    if str(value) == "nan" or "_" in text or text != text.strip():
        return Cell(text)  # a word that Python would read as a number
    return Cell(number(value), numeric=True)
