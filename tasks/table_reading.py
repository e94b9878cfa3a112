"""A CSV or Parquet file as columns that are binary, or are made so by rules that the user asks for."""

import csv
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from jaxtyping import Bool

from tasks.errors import TaskError

WORDS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
ANIMALS = Path(__file__).parent / "data" / "animals.csv"
"""75 things with 14 attributes and whether they are alive; `animals` names it."""
MAX_CATEGORIES = 64
"""Different values of a one-hot column; more are most likely names or numbers of the rows."""
Missing = Literal["refuse", "drop-rows", "drop-columns", "false"]


@dataclass(frozen=True)
class Rule:
    """How a column becomes bits: as it is ('binary'), above a number or a quantile, one bit a value, or not at all."""

    kind: Literal["binary", "threshold", "quantile", "one-hot", "drop"]
    at: float = 0.5


@dataclass(frozen=True)
class Column:
    """Attributes: name; values: [row], bits, numbers or texts as the rule takes them, None or NaN where missing."""

    name: str
    values: np.ndarray
    rule: Rule

    def bits(self, rows: Bool[np.ndarray, " row"]) -> tuple[list[str], Bool[np.ndarray, "row feature"]]:
        """The features' names and all rows' bits, False where missing; `rows` are those that a quantile looks at."""
        if self.rule.kind == "binary":
            return [self.name], np.array([value is True for value in self.values])[:, None]
        if self.rule.kind == "one-hot":
            kinds = categories(self.values)
            names = [f"{self.name}={kind}" for kind in kinds]
            return names, np.array([[str(value) == kind for kind in kinds] for value in self.values])
        at = self.rule.at
        if self.rule.kind == "quantile":
            seen = self.values[rows]
            at = float(np.quantile(seen[~np.isnan(seen)], at))
        return [f"{self.name}>{at:.4g}"], (self.values > at)[:, None]


@dataclass(frozen=True)
class Table:
    """A file's columns and labels.

    Attributes:
        columns: without the label.
        y: [row], the labels.
        source: the file's name and SHA-256, the label, the policy for missing values, and how many there were.
    """

    columns: tuple[Column, ...]
    y: Bool[np.ndarray, " row"]
    source: dict[str, Any]

    @property
    def looks_at_rows(self) -> bool:
        """Whether bits depend on which rows are for training."""
        return any(column.rule.kind == "quantile" for column in self.columns)

    def bits(self, rows: Bool[np.ndarray, " row"]) -> tuple[list[str], Bool[np.ndarray, "row feature"]]:
        """Names and bits of all features, with quantiles of the given rows alone."""
        made = [column.bits(rows) for column in self.columns]
        return [name for names, _ in made for name in names], np.concatenate([bits for _, bits in made], axis=1)


def read_table(path: str | Path, label: str, binarise: str | None = None, missing: str = "refuse") -> Table:
    """Read a table, strictly.

    Args:
        path: a .csv with a header and commas, or a .parquet; "animals" is the table that comes along.
        label: the label's column, binary; or COLUMN=VALUE, True where the column holds the value.
        binarise: rules for columns that are not binary: 'quantile:0.5', 'threshold:40' (True above it) or 'one-hot' for
            all of them, 'age=threshold:40,colour=one-hot' for some, or both; 'quantile' alone is the median, and
            'id=drop' leaves a column out.
        missing: 'refuse', 'drop-rows', 'drop-columns' or 'false' (a missing value makes every bit of its column False).

    Raises:
        TaskError: no such file, not a table, columns that repeat or have no name, a column that is not binary and has
            no rule or one that does not fit, missing values without leave, a label that is not binary.
    """
    if missing not in get_args(Missing):
        raise TaskError(f"--missing {missing!r} is not known; choose one of {', '.join(get_args(Missing))}")
    path = ANIMALS if str(path) == "animals" else Path(path)
    frame = _frame(path)
    names = [str(name) for name in frame.columns]
    holder, value = _label_column(names, label)
    general, by_name = parse_rules(binarise)
    unknown = sorted(set(by_name) - (set(names) - {holder}))
    if unknown:
        raise TaskError(f"--binarise names {unknown}, which are no feature columns; those are {_few(names)}")
    if any(rule.kind == "drop" for rule in general):
        raise TaskError("--binarise drop would leave every column out; name one, as in id=drop")
    dropped = [name for name, rule in by_name.items() if rule.kind == "drop"]
    frame = frame.drop(columns=dropped)
    there = frame.notna()
    lacking = {name: int(n) for name, n in (~there).sum().items() if n}
    report = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "label": label}
    report |= {"rows_read": len(frame), "binarise": binarise, "missing": missing, "missing_by_column": lacking}
    if (lacking and missing == "refuse") or (holder in lacking and missing != "drop-rows"):
        found = ", ".join(f"{name}: {n}" for name, n in list(lacking.items())[:8])
        raise TaskError(
            f"{path}: values are missing ({found}{', ...' if len(lacking) > 8 else ''} of {len(frame)} rows); pass "
            "--missing drop-rows, drop-columns or false"
            + ("; of the label only drop-rows" if holder in lacking else "")
        )
    if missing == "drop-rows":
        frame = frame[there.all(axis=1)]
    if missing == "drop-columns":
        frame = frame.loc[:, [bool(there[name].all()) for name in frame.columns]]
    names = [str(name) for name in frame.columns if name != holder]
    if not len(frame) or not names:
        raise TaskError(f"{path}: {len(frame)} rows and {len(names)} feature columns are left; a table needs some")
    y = _labels(pd.Series(frame[holder]), holder, value)
    columns = [make_column(name, pd.Series(frame[name]), by_name.get(name), general) for name in names]
    return Table(tuple(columns), y, report)


def parse_rules(text: str | None) -> tuple[list[Rule], dict[str, Rule]]:
    """What --binarise asks for: rules for all columns, and rules by column.

    >>> parse_rules("quantile,age=threshold:40")
    ([Rule(kind='quantile', at=0.5)], {'age': Rule(kind='threshold', at=40.0)})
    """
    general, by_name = [], {}
    for part in (text or "").split(",") if text else ():
        name, given, spec = part.rpartition("=")
        rule = _rule(spec.strip())
        if given:
            by_name[name.strip()] = rule
        else:
            general.append(rule)
    return general, by_name


def _rule(spec: str) -> Rule:
    kind, given, number = spec.partition(":")
    try:
        at = float(number) if given else 0.5
    except ValueError:
        at = math.nan
    fits = {
        "one-hot": not given,
        "drop": not given,
        "quantile": 0 < at < 1,
        "threshold": bool(given) and math.isfinite(at),
    }
    if not fits.get(kind, False):
        raise TaskError(
            f"--binarise {spec!r} is no rule; write threshold:NUMBER, quantile:SHARE (between 0 and 1) or one-hot, for "
            "one column as in age=threshold:40; name=drop leaves a column out"
        )
    return Rule(kind, at)  # pyright: ignore[reportArgumentType]


def make_column(name: str, values: pd.Series, chosen: Rule | None, general: Sequence[Rule] = ()) -> Column:
    """The column with its own rule, or as binary, or with the first general rule that fits.

    Raises:
        TaskError: none does.
    """
    bits = as_bits(values)
    if chosen is None and bits is not None:
        return Column(name, bits, Rule("binary"))
    numbers = None if values.dtype == object or isinstance(values.dtype, pd.StringDtype) else values
    numeric = numbers is not None and pd.api.types.is_numeric_dtype(numbers) and not pd.api.types.is_bool_dtype(numbers)
    n_kinds = values.nunique()
    for rule in (chosen,) if chosen else general:
        if rule.kind == "one-hot" and 1 <= n_kinds <= MAX_CATEGORIES:
            return Column(name, values.astype(object).where(values.notna(), None).to_numpy(), rule)
        if rule.kind != "one-hot" and numeric and n_kinds:
            return Column(name, values.to_numpy(dtype=np.float64, na_value=np.nan), rule)
    if not n_kinds:
        holds = "no value at all"
    elif numeric:
        holds = f"numbers from {values.min():g} to {values.max():g} ({n_kinds} different)"
    else:
        holds = f"{n_kinds} different texts such as {', '.join(map(repr, values.dropna().unique()[:3].tolist()))}"
    asked = f"which {chosen.kind} does not fit" if chosen else "not 0/1, true/false or yes/no"
    way = (
        f"pass --binarise '{name}=drop'"
        if not n_kinds
        else (
            f"pass --binarise '{name}=quantile:0.5', '{name}=threshold:NUMBER' '{name}=one-hot' or '{name}=drop'"
            if numeric
            else f"pass --binarise '{name}=one-hot' (up to {MAX_CATEGORIES} values) or '{name}=drop'"
        )
    )
    raise TaskError(f"column {name!r} holds {holds}, {asked}; {way}")


def as_bits(values: pd.Series) -> np.ndarray | None:
    """[row] of True, False and None where missing; None if there is another value, or none at all."""
    found: list[bool | None] = []
    for value in values.tolist():
        if pd.isna(value):
            found.append(None)
        elif isinstance(value, str):
            found.append(WORDS.get(value.strip().lower()))
            if found[-1] is None:
                return None
        elif value in (0, 1):
            found.append(bool(value))
        else:
            return None
    return np.array(found, dtype=object) if any(bit is not None for bit in found) else None


def categories(values: np.ndarray) -> list[str]:
    """The different values as texts, sorted; those of all rows, so that every split has the same features."""
    return sorted({str(value) for value in values if value is not None})


def _frame(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise TaskError(f"--data {path} is not a file; give a .csv or .parquet, or animals")
    try:
        if path.suffix.lower() == ".parquet":
            frame = pd.read_parquet(path)
            names = [str(name) for name in frame.columns]
        elif path.suffix.lower() == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                names = next(csv.reader(file), [])
            frame = pd.read_csv(path, encoding="utf-8-sig", skipinitialspace=True)
        else:
            raise TaskError(f"--data {path} is neither .csv nor .parquet; save it as one of them")
    except (ValueError, UnicodeDecodeError, csv.Error, OSError) as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"--data {path} cannot be read as a table ({' '.join(str(error).split())[:200]})") from None
    names = [name.strip() for name in names]
    repeated = sorted({name for name in names if names.count(name) > 1 and name})
    if repeated or not all(names):
        raise TaskError(f"{path}: column names repeat ({repeated}) or are empty; give each column a name of its own")
    if len(names) != len(frame.columns) or not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index(drop=len(names) == len(frame.columns))
        if len(names) != len(frame.columns):
            raise TaskError(f"{path}: {len(names)} names for {len(frame.columns)} columns; name each column")
    frame.columns = names
    return frame


def _label_column(names: Sequence[str], label: str) -> tuple[str, str | None]:
    if label in names:
        return label, None
    name, given, value = label.rpartition("=")
    if given and name in names:
        return name, value
    raise TaskError(f"there is no column {label!r} for the label; the columns are {_few(names)}")


def _labels(values: pd.Series, name: str, value: str | None) -> Bool[np.ndarray, " row"]:
    if value is not None:
        y = np.array([str(v).strip() == value for v in values.tolist()])
        if not y.any():
            raise TaskError(f"no row has {name} = {value!r}; its values are {_few(categories(values.to_numpy()))}")
        return y
    bits = as_bits(values)
    if bits is None:
        kinds = categories(values.to_numpy())
        raise TaskError(
            f"the label column {name!r} holds {len(kinds)} values ({_few(kinds)}), not 0/1, true/false or yes/no; say "
            f"which one is True with --label '{name}={kinds[0] if kinds else 'VALUE'}'"
        )
    return bits.astype(bool)


def _few(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(map(str, names[:most])) + (f", ... ({len(names)})" if len(names) > most else "")
