"""`boolens compare`: its files agree with each other, its bisection with a scan, its counts with known cases."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from analyses.cli import main
from analyses.compare import Comparison, compute
from analyses.compare_cell import MEASURES
from analyses.compare_report import print_comparison, write_comparison
from analyses.compare_setting import ARCHITECTURES, CONVERGED, TUTORIAL, Setting
from analyses.progress import Bar
from analyses.sample_size import SIZES, SampleSize, bisect_sizes, median_interval

SHORT = tuple(replace(rule, steps=dict.fromkeys(ARCHITECTURES, n)) for rule, n in ((TUTORIAL, 7), (CONVERGED, 40)))
SETTING = Setting((0, 1, 2, 3), n_ctx=6, sparse=2, dense=4, n_train=50, n_valid=60, sizes=(12, 24, 48), rules=SHORT)


@pytest.fixture(scope="module")
def compared() -> tuple[Comparison, Bar]:
    bar = Bar(SETTING.n_models, "comparing")
    return compute(SETTING, bar), bar


@pytest.fixture(scope="module")
def written(compared: tuple[Comparison, Bar], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("compare") / "out"
    write_comparison(compared[0], out)
    return out


def test_every_model_is_counted_once(compared: tuple[Comparison, Bar]) -> None:
    assert compared[1].done == SETTING.n_models == 4 * 3 * (2 * 2 + 2)


def test_means_in_the_json_are_those_of_the_rows(written: Path) -> None:
    content = json.loads((written / "result.json").read_text())
    assert content.keys() == {"schema", "analysis", "run", "result"}
    assert (content["schema"], content["analysis"]) == (1, "compare")
    assert content["run"]["options"]["seeds"] == [0, 1, 2, 3]
    assert content["run"]["options"]["dense"] == 4
    assert content["run"]["versions"].keys() == {"boolens", "torch"}
    assert content["result"].keys() == {"cells", "sample_size", "rules"}
    assert [rule["name"] for rule in content["result"]["rules"]["training"]] == ["tutorial", "converged"]
    with (written / "data.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3 * 4
    for cell in content["result"]["cells"]:
        key = ("density", "training", "architecture")
        mine = [row for row in rows if all(row[name] == cell[name] for name in key)]
        assert [row["seed"] for row in mine] == ["0", "1", "2", "3"]
        for measure in MEASURES:
            values = [float(row[measure]) for row in mine]
            assert cell[measure]["mean"] == pytest.approx(np.mean(values), abs=1e-12)
            assert cell[measure]["median"] == pytest.approx(np.median(values), abs=1e-12)
            low, high = cell[measure]["interval"]
            assert min(values) - 1e-12 <= low <= cell[measure]["mean"] + 1e-12
            assert cell[measure]["mean"] - 1e-12 <= high <= max(values) + 1e-12
        assert cell["perfect"]["count"] == sum(float(row["valid_accuracy"]) == 1 for row in mine)
        assert cell["constant"]["count"] == sum(int(row["constant"]) for row in mine)
        assert sum(cell["stopped"].values()) == 4
        assert {int(row["parameters"]) for row in mine} == {cell["parameters"]}
    parameters = {cell["architecture"]: cell["parameters"] for cell in content["result"]["cells"]}
    assert parameters == {"attention": 2 * 2 + 6 * 2 + 2 * 4 + 2 + 6, "mlp": 6 * 512 + 512 + 512 + 1, "linear": 6 + 1}
    assert (written / "figure.png").stat().st_size > 10_000
    assert (written / "figure.svg").exists()


def test_architectures_of_a_seed_see_the_same_validation_set(compared: tuple[Comparison, Bar]) -> None:
    cells = compared[0].cells
    for density in ("sparse", "dense"):
        majority = [cell.column("majority_accuracy") for cell in cells if cell.density == density]
        assert len(majority) == 6
        assert all((m == majority[0]).all() for m in majority)
        assert len(set(majority[0])) > 1


def test_a_degenerate_task_makes_constant_predictors() -> None:
    rules = (replace(TUTORIAL, steps=dict.fromkeys(ARCHITECTURES, 3)),)
    setting = Setting(
        (0, 1), n_ctx=9, sparse=7, dense=8, n_train=40, n_valid=300, tutorial_balance=True, sizes=(), rules=rules
    )
    found = [cell for cell in compute(setting, Bar(1, "")).cells if cell.architecture == "attention"]
    for cell in found:
        assert cell.constant == (True, True)
        assert (cell.column("balanced_accuracy") == 0.5).all()
        majority = cell.column("majority_accuracy")
        wrong = np.minimum(
            abs(cell.column("valid_accuracy") - majority), abs(cell.column("valid_accuracy") - (1 - majority))
        )
        np.testing.assert_allclose(wrong, 0, atol=1e-12)
        assert cell.to_json()["constant"]["count"] == 2


def scan(succeeds: Callable[[int], bool], sizes: tuple[int, ...]) -> float:
    return next((float(size) for size in sizes if succeeds(size)), math.inf)


def test_bisection_agrees_with_a_scan_where_success_is_monotone() -> None:
    thresholds = [0, 25, 26, 100, 800, 3199, 3200, 3201]
    rounds = []

    def succeed(asked: dict[int, int]) -> dict[int, bool]:
        rounds.append(len(asked))
        return {case: size >= thresholds[case] for case, size in asked.items()}

    found = bisect_sizes(succeed, len(thresholds), SIZES)
    assert found == tuple(scan(lambda size, t=t: size >= t, SIZES) for t in thresholds)
    assert found == (25, 25, 35, 100, 800, 3200, 3200, math.inf)
    assert rounds == [8] * 4  # 15 sizes and 'none': 2**4 outcomes


def test_bisection_ends_at_a_crossing_where_success_is_not_monotone() -> None:
    sizes = (2, 3, 5, 8, 13, 21)
    for pattern in range(2 ** len(sizes)):
        succeeds = {size: bool(pattern >> i & 1) for i, size in enumerate(sizes)}
        asked_about: dict[int, bool] = {}

        def succeed(asked: dict[int, int], succeeds: Any = succeeds, log: Any = asked_about) -> dict[int, bool]:
            log |= {size: succeeds[size] for size in asked.values()}
            return {case: succeeds[size] for case, size in asked.items()}

        (found,) = bisect_sizes(succeed, 1, sizes)
        below = dict(pairwise(sizes))
        before = {after: size for size, after in below.items()}
        if math.isinf(found):
            assert not succeeds[sizes[-1]]
        else:
            assert succeeds[int(found)]
            assert int(found) not in before or not succeeds[before[int(found)]]


def test_sizes_that_do_not_increase_are_refused() -> None:
    for sizes in ((), (3, 3), (5, 2)):
        with pytest.raises(ValueError, match="must increase"):
            bisect_sizes(lambda asked: dict.fromkeys(asked, True), 1, sizes)


def test_the_medians_interval_holds_its_level_and_is_the_shortest_that_does() -> None:
    for n in (6, 7, 16, 33):
        median, low, high = median_interval(range(1, n + 1))
        rank = int(low)
        assert high == n + 1 - rank
        assert median == (n + 1) // 2
        assert 2 * binom.cdf(rank - 1, n, 0.5) <= 0.05 < 2 * binom.cdf(rank, n, 0.5)
    assert median_interval([3.0, 1.0, 2.0, 4.0, 5.0]) == (3, 0, math.inf)
    assert median_interval([math.inf] * 9 + [25] * 7) == (math.inf, 25, math.inf)


def test_sample_sizes_beyond_the_grid_are_never_a_number() -> None:
    none = SampleSize("mlp", (25, 50), (math.inf,) * 8, *median_interval([math.inf] * 8))
    assert none.to_json()["text"] == "> 50 (> 50 to > 50)"
    assert none.sentence.startswith("mlp: 50 training samples are too few")
    some = SampleSize("mlp", (25, 50), (25, 50, 50), *median_interval([25, 50, 50]))
    assert some.to_json()["n_train"] == 50
    assert some.to_json()["text"] == "50 (<= 25 to > 50)"
    assert "(95 % interval <= 25 to > 50; 3 of 3 with at most 50)" in some.sentence


def test_the_command_prints_json_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyses.compare_setting.Setting", partial(Setting, rules=SHORT[:1]))
    command = ["compare", "--seeds", "3,5", "--n-ctx", "5", "--sparse", "2", "--dense", "3", "--n-train", "20"]
    command += ["--n-valid", "24", "--no-sample-size", "--out", str(tmp_path / "c")]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--json"])
    assert stop.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads((tmp_path / "c" / "result.json").read_text())
    assert said["result"]["sample_size"] == []
    assert said["run"]["options"]["seeds"] == [3, 5]
    assert [cell["steps"]["mean"] for cell in said["result"]["cells"]] == [7] * 6
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2
    assert "is not overwritten" in capsys.readouterr().err


def test_the_table_shows_every_cell(compared: tuple[Comparison, Bar], capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compared[0])
    said = capsys.readouterr().out
    assert said.count("sparse, s=2") == said.count("dense, s=4") == 6
    assert said.count("mlp") == 4
    for cell in compared[0].cells:
        assert f"{cell.column('valid_accuracy').mean():.4f}" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-ctx", "6"], "--dense is 15, but targets number from 1 to --n-ctx = 6"),
        (["--sparse", "0"], "--sparse is 0"),
        (["--sparse", "4", "--dense", "4"], "--sparse 4 must be below --dense 4"),
        (["--seeds", "1:1"], "must be different whole numbers"),
        (["--n-train", "0"], "n_train is 0"),
        (["--device", "nowhere"], "device 'nowhere' is not available"),
        (["--tutorial-balance", "--n-train", "3"], "labels are False"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", "--out", str(tmp_path / "c"), *options])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "c").exists()


def test_the_dense_task_is_the_tutorials_with_its_balance() -> None:
    assert Setting((0,)).densities == {"sparse": 3, "dense": 15}
    assert Setting((0,), tutorial_balance=True).densities == {"sparse": 3, "dense": 18}
    assert Setting((0,), tutorial_balance=True, dense=9).densities["dense"] == 9
    assert Setting((0,), tutorial_balance=True).tasks("dense")[0].p == 0.5 ** (1 / 3)
    assert Setting((0,)).tasks("dense")[0].p == 0.5 ** (1 / 15)
