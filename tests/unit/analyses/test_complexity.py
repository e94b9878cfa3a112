"""The sample complexity: quantiles from few counts, nested data, laws, cells and the command."""

import json
import math

import numpy as np
import pytest
import torch

from analyses.cli import main
from analyses.complexity.cell import Cell, Options, Stream, cells, compute_cell, expected_seconds
from analyses.complexity.fits import PUBLISHED, fit_laws
from analyses.complexity.quantile import Count, Levels, find_quantile, size_grid
from interp.errors import BoolensError
from tasks import SparseAnd

SIZES = size_grid(400)
FEW = {"lr": 0.1, "steps": 60, "n_valid": 40, "log_every": 10}


def test_the_grid_is_fine_and_ends_at_the_largest():
    ratios = np.array(SIZES[1:]) / np.array(SIZES[:-1])
    assert SIZES[0] == 2
    assert SIZES[-1] == 400
    assert (np.diff(SIZES) > 0).all()
    assert ratios[SIZES.index(20) :].max() < 1.1


def test_levels_are_the_binomial_tests():
    assert Levels.of(50, 0.5) == Levels(18, 25, 33)
    assert Levels.of(4, 0.5) == Levels(0, 2, 5)  # too few for a bound
    assert Levels.of(20, 0.9).need == 18


@pytest.mark.parametrize("start", [2, 30, 400])
def test_steps_are_found_exactly(start):
    thresholds = np.sort(np.random.default_rng(1).integers(30, 90, 50))
    levels = Levels.of(50, 0.5)

    def probe(m):
        k = int((thresholds <= m).sum())
        return Count(k, 50 - k, 50)

    asked = next(m for m in SIZES if m >= thresholds[24]), max(m for m in SIZES if m < thresholds[17])
    above = next(m for m in SIZES if m >= thresholds[32])
    assert find_quantile(probe, SIZES, levels, start) == (*asked, above)


def test_out_of_reach_is_infinite_and_reached_by_the_smallest_is_0():
    levels = Levels.of(20, 0.5)
    assert find_quantile(lambda m: Count(0, 20, 20), SIZES, levels, 50) == (math.inf, 400.0, math.inf)
    assert find_quantile(lambda m: Count(20, 0, 20), SIZES, levels, 50) == (2.0, 0.0, 2.0)


@pytest.mark.parametrize("steepness", [3, 12])
@pytest.mark.parametrize("nested", [True, False])
def test_intervals_cover_the_truth(steepness, nested):
    """Success curve 1 / (1 + (m / 61)**-steepness), so that m* of half the trials is 61."""
    rng, levels, hits, runs = np.random.default_rng(2), Levels.of(50, 0.5), 0, 400
    for _ in range(runs):
        fixed = rng.random(50)

        def probe(m, fixed=fixed):
            u = fixed if nested else rng.random(50)
            k = int((u < 1 / (1 + (m / 61) ** -steepness)).sum())
            return Count(k, 50 - k, 50)

        _, low, high = find_quantile(probe, SIZES, levels, 50)
        hits += low <= 61 <= high
    assert hits / runs > 0.93


def test_streams_are_nested_whatever_was_asked_before():
    task = SparseAnd(7, (1, 4), 0.6)
    first, second = Stream(task, 3), Stream(task, 3)
    long = first.rows(150)
    assert torch.equal(second.rows(10).x, long.x[:10])
    assert torch.equal(second.rows(150).x, long.x)
    assert torch.equal(first.rows(70).y, long.y[:70])
    assert not torch.equal(Stream(task, 4).rows(10).x, long.x[:10])


LAW = {"log": lambda t: -60 + 25 * np.log(t), "linear": lambda t: 20 + 0.1 * t, "power": lambda t: 6 * t**0.4}


@pytest.mark.parametrize("law", LAW)
@pytest.mark.parametrize("n", [4, 6])
def test_known_laws_are_recovered(law, n):
    t = np.array([50, 100, 200, 400, 800, 1600])[-n:]
    m = LAW[law](t) * (1 + 0.004 * np.resize([1, -1, 0.5, -0.7], n))
    fit = fit_laws(t.tolist(), m.tolist(), (0.9 * m).tolist(), (1.1 * m).tolist())
    assert fit["weighted"]
    assert max(fit["laws"], key=lambda name: fit["laws"][name]["weight"]) == law
    assert math.fsum(f["weight"] for f in fit["laws"].values()) == pytest.approx(1)
    assert math.isnan(fit["laws"][law]["aicc"]) == (n == 4)
    b, low, high = fit["exponent"]
    assert low < b < high
    if law == "power":
        assert low < 0.4 < high
        assert b == pytest.approx(0.4, abs=0.02)


def test_published_points_give_the_known_fits():
    laws = fit_laws(list(PUBLISHED), list(PUBLISHED.values()))["laws"]
    assert laws["log"]["r2"] == pytest.approx(0.915, abs=0.001)
    assert laws["linear"]["r2"] == pytest.approx(0.941, abs=0.002)


def test_three_sizes_tell_no_laws_apart():
    assert fit_laws([50, 100, 200], [40, 50, 60])["laws"] is None
    assert not fit_laws([50, 100, 200], [40, 50, 60])["defined"]


def test_a_cell_finds_where_half_of_the_trials_succeed():
    options = Options(models=("linear",), n_ctx=(6,), n_targets=2, trials=5, accuracy=0.9, largest=200)
    config = json.loads(json.dumps(cells(Options(**{**vars(options), "training_options": FEW}))[0]))
    told = []
    rows = compute_cell(config, lambda part, text: told.append((part, text)))
    *probes, summary = rows
    assert all(row.keys() == summary.keys() for row in rows)
    by_size = {row["n_train"]: row["reached"] for row in probes}
    star = int(summary["m_star"])
    assert by_size[star] >= 3 > by_size[max(m for m in by_size if m < star)]
    assert Cell(config).probe(star).reached == by_size[star]  # each probe is a function of the configuration
    floors = sorted(stream.floor(200) for stream in Cell(config).streams)
    assert summary["floor"] == floors[2]
    assert summary["ratio"] == pytest.approx(star / floors[2])
    assert summary["low"] is None is summary["high"]  # five trials give no 95 % bounds
    assert [part for part, _ in told] == sorted(part for part, _ in told)
    assert told[-1] == (1.0, "linear, sparse-and, T = 6")
    assert expected_seconds(config) > 0


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["sample-complexity", *arguments])
    return ended.value.code, capsys.readouterr()


SMALL = ("--model", "linear", "--n-targets", "1", "--trials", "6", "--accuracy", "0.9", "--steps", "80")


def test_the_command_writes_tables_fits_and_figure(tmp_path, capsys):
    out = tmp_path / "found"
    arguments = (*SMALL, "--n-ctx", "4,5,6,7", "--largest", "40", "--n-valid", "30", "--lr", "0.1", "--json")
    code, said = run(capsys, *arguments, "--out", str(out))
    assert code == 0, said.err
    found = json.loads(said.out)
    assert [cell["n_ctx"] for cell in found["cells"]] == [4, 5, 6, 7]
    files = {path.name for path in out.iterdir()}
    written = {"complexity.csv", "fits.json", "figure.png", "figure.svg", "results.parquet", "sweep.json", "cells"}
    assert written <= files
    assert json.loads((out / "fits.json").read_text())["fits"]["linear, sparse-and"]["defined"]
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert len(before) == 4
    code, again = run(capsys, *arguments, "--out", str(out))
    assert json.loads(again.out) == found
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == before  # nothing computed again
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    code, said = run(capsys, *arguments, "--out", str(tmp_path / "other"))
    assert code == 2
    assert "holds no sample complexity to go on with" in said.err


def test_a_dry_run_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = run(capsys, *SMALL, "--n-ctx", "5,8", "--dry-run")
    assert code == 0
    assert "linear, sparse-and, T = 5: about" in said.out
    assert "2 cells, about" in said.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--n-ctx", "5,x"), "--n-ctx '5,x' is not a list"),
        (("--n-ctx", "5,5"), "T [5, 5] must be different"),
        (("--model", "tree"), "model 'tree' is not known; choose cls, attention"),
        (("--task", "rule-and"), "task 'rule-and' is not known; choose sparse-and"),
        (("--share", "1"), "share 1.0 must be above 0 and below 1"),
        (("--trials", "0"), "0 trials of at most 3200"),
        (("--seed", "-1"), "seed is -1"),
        (("--n-ctx", "2"), "3 target indices asked for"),
        (("--d-model", "3"), "a linear model has no --d-model"),
        ((), "--out is missing"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, words):
    code, said = run(capsys, "--model", "linear", *arguments)
    assert code == 2
    assert words in said.err
    assert said.err.count("\n") == 1


def test_what_is_not_a_grid_is_refused():
    with pytest.raises(BoolensError, match=r"models .* at least one"):
        cells(Options(models=()))
