"""Reading tables: what is binary, what is made so, and what is refused by name."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tasks.errors import TaskError
from tasks.table_reading import MAX_CATEGORIES, Table, read_table

ROWS = """age,smokes,colour,dose,empty_some,ill
30,yes,red,0.5,1,1
45,no,blue,1.5,0,0
50,Yes,green,2.5,,1
61,NO,red,3.5,1,0
"""


def write(folder: Path, text: str = ROWS) -> Path:
    path = folder / "patients.csv"
    path.write_text(text)
    return path


def bits(table: Table, rows: list[bool] | None = None) -> tuple[list[str], list[list[int]]]:
    names, x = table.bits(np.array(rows or [True] * len(table.y)))
    return names, x.astype(int).tolist()


def test_each_column_gets_its_rule(tmp_path: Path) -> None:
    rules = "age=threshold:45,colour=one-hot,quantile:0.5"
    table = read_table(write(tmp_path), "ill", rules, "drop-columns")
    assert bits(table) == (
        ["age>45", "smokes", "colour=blue", "colour=green", "colour=red", "dose>2"],
        [[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0], [1, 1, 0, 1, 0, 1], [1, 0, 0, 0, 1, 1]],
    )
    assert table.y.tolist() == [True, False, True, False]
    assert table.source["missing_by_column"] == {"empty_some": 1}
    assert table.source["rows_read"] == 4
    assert len(table.source["sha256"]) == 64


def test_quantiles_look_at_the_training_rows_alone(tmp_path: Path) -> None:
    table = read_table(write(tmp_path), "ill", "quantile:0.5,colour=drop", "drop-columns")
    assert table.looks_at_rows
    names, x = bits(table, [True, True, False, False])
    assert names == ["age>37.5", "smokes", "dose>1"]
    assert [row[0] for row in x] == [0, 1, 1, 1]


def test_missing_values_are_refused_or_treated_on_request(tmp_path: Path) -> None:
    path = write(tmp_path)
    rules = "quantile,colour=drop"
    with pytest.raises(TaskError, match=r"missing \(empty_some: 1 of 4 rows\)"):
        read_table(path, "ill", rules)
    assert len(read_table(path, "ill", rules, "drop-rows").y) == 3
    kept = read_table(path, "ill", rules, "false")
    assert [row[3] for row in bits(kept)[1]] == [1, 0, 0, 1]
    with pytest.raises(TaskError, match="--missing 'mean' is not known"):
        read_table(path, "ill", rules, "mean")


def test_a_missing_number_is_below_every_threshold(tmp_path: Path) -> None:
    path = write(tmp_path, "age,ill\n30,1\n,0\n50,1\n")
    assert bits(read_table(path, "ill", "threshold:10", "false"))[1] == [[1], [0], [1]]
    assert bits(read_table(path, "ill", "quantile:0.5", "false")) == (["age>40"], [[0], [0], [1]])
    assert bits(read_table(path, "ill", "one-hot", "false")) == (["age=30.0", "age=50.0"], [[1, 0], [0, 0], [0, 1]])


def test_parquet_reads_as_csv_does(tmp_path: Path) -> None:
    frame = pd.read_csv(write(tmp_path))
    frame.to_parquet(tmp_path / "patients.parquet")
    rules = "quantile:0.5,one-hot"
    csv, parquet = (read_table(tmp_path / f"patients.{kind}", "ill", rules, "drop-rows") for kind in ("csv", "parquet"))
    assert bits(csv) == bits(parquet)
    assert csv.y.tolist() == parquet.y.tolist()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (None, r"column 'age' holds numbers from 30 to 61 \(3 different\), not 0/1, true/false or yes/no"),
        ("quantile", "column 'colour' holds 2 different texts such as 'red', 'blue'"),
        ("colour=quantile,quantile", "which quantile does not fit"),
        ("weight=quantile", r"--binarise names \['weight'\]"),
        ("ill=quantile", r"--binarise names \['ill'\]"),
        ("age=threshold", "'threshold' is no rule"),
        ("age=quantile:2", "'quantile:2' is no rule"),
        ("age=median", "'median' is no rule"),
        ("drop", "would leave every column out"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, rules: str | None, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_table(write(tmp_path), "ill", rules, "drop-rows")


def test_too_many_values_are_not_one_hot(tmp_path: Path) -> None:
    many = "".join(f"name{i},{i % 2}\n" for i in range(MAX_CATEGORIES + 1))
    with pytest.raises(TaskError, match="65 different texts"):
        read_table(write(tmp_path, "who,ill\n" + many), "ill", "one-hot")


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        ("a,a,ill\n1,0,1\n", "ill", r"repeat \(\['a'\]\)"),
        ("a,,ill\n1,0,1\n", "ill", "are empty"),
        ("a,ill\n1,0\n", "sick", "no column 'sick' for the label; the columns are a, ill"),
        ("a,ill\n1,mild\n0,none\n", "ill", "--label 'ill=mild'"),
        ("a,ill\n1,mild\n0,none\n", "ill=severe", "no row has ill = 'severe'"),
        ("a,ill\n1,\n0,1\n", "ill", "of the label only drop-rows"),
        ("a,ill\n", "ill", "0 rows"),
        ("ill\n1\n0\n", "ill", "0 feature columns"),
        ("", "ill", "cannot be read as a table"),
    ],
)
def test_impossible_files_are_refused(tmp_path: Path, text: str, label: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_table(write(tmp_path, text), label)


def test_a_label_may_name_the_value_that_is_true(tmp_path: Path) -> None:
    path = write(tmp_path, "a,ill\n1,mild\n0,none\n1,none\n")
    assert read_table(path, "ill=none").y.tolist() == [False, True, True]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "patients.xls").write_text("a")
    (tmp_path / "broken.parquet").write_text("a")
    for name, message in (
        ("patients.xls", "neither"),
        ("none.csv", "not a file"),
        ("broken.parquet", "cannot be read"),
    ):
        with pytest.raises(TaskError, match=message):
            read_table(tmp_path / name, "ill")
