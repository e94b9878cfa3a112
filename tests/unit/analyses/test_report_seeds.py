"""The overview of a folder of seeds, the command, and the demo's index."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analyses.report.formats import number, share
from analyses.runs import Run
from interp.errors import BoolensError
from interp.plots.overview import plot_overview
from interp.statistics import clopper_pearson
from tests.parsed_page import Element, parse_page
from tests.unit.analyses.report_cases import write_seeds

N_SEEDS = 3


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Run]) -> list[Run]:
    return write_seeds(tmp_path_factory.mktemp("report") / "seeds", write_run, N_SEEDS)


@pytest.fixture
def report(seeds: list[Run], boolens: Callable) -> Callable[..., tuple[int, str, str]]:
    """`boolens report`, on the folder of seeds unless another is given: exit code, stdout, stderr."""
    return lambda *arguments: boolens("report", *(arguments or (seeds[0].path.parent,)))


def page_of(path: Path) -> Element:
    return parse_page(path.read_text(encoding="utf-8"))


def results(runs: list[Run], name: str) -> list[dict]:
    return [json.loads((run.path / "analyses" / name / "result.json").read_text())["result"] for run in runs]


def test_every_seed_has_its_row_and_its_page(seeds: list[Run], report: Callable) -> None:
    folder = seeds[0].path.parent
    code, out, err = report()
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    page = page_of(folder / "report.html")
    table = page.one("section", id="seeds").one("table")
    header, *rows = table.rows()
    assert header == [
        *("seed", "targets", "validation accuracy", "majority", "balanced"),
        *("verdict", "certificate", "probability of error", "patching"),
    ]
    recoveries, certificates = results(seeds, "target-recovery"), results(seeds, "certificate")
    for run, row, recovery, certificate in zip(seeds, rows, recoveries, certificates, strict=True):
        assert row == [
            str(run.seed),
            ", ".join(map(str, run.task.targets[0])),
            *(share(recovery["accuracy"][name]) for name in ("valid", "majority", "balanced")),
            recovery["verdict"],
            certificate["verdict"],
            number(certificate["error_probability"]["upper"], 3),
            "yes" if recovery["rules"][0]["methods"]["patching"]["match"] else "no",
        ]
        link = f"{run.path.name}/report.html"
        assert table.one("a", href=link).text == str(run.seed)
        own = page_of(folder / link)
        assert own.one("a", class_="back").attributes["href"] == "../report.html"
        assert own.one("h1").text.endswith(f"seed {run.seed}")
    assert {c["verdict"] for c in certificates} == {"verified", "refuted"}  # so that rows can differ


def test_counts_carry_their_intervals(seeds: list[Run], report: Callable) -> None:
    report()
    page = page_of(seeds[0].path.parent / "report.html")
    verdict = page.one("section", id="verdict")
    counted = dict(verdict.one("table").rows()[1:])
    verified = sum(c["verdict"] == "verified" for c in results(seeds, "certificate"))
    low, high = clopper_pearson(verified, N_SEEDS)
    assert counted["certificate: verified"] == f"{verified} of {N_SEEDS} ({share(low)} to {share(high)})"
    assert len(counted) == 3 + 3 + 1
    figure = page.one("section", id="distributions").one("figure")
    assert f"Dots of {N_SEEDS} seeds" in figure.one("img").attributes["alt"]
    claims = page.one("section", id="claims").one("table").rows()[1:]
    tested = [result["tested"] for result in results(seeds, "variable-creation")]
    for row, same in zip(claims, zip(*tested, strict=True), strict=True):
        holds = sum(one["status"] == "holds" for one in same)
        assert row[:2] == [same[0]["claim"], same[0]["method"]]
        assert row[2].startswith(f"{holds} of {N_SEEDS} (")
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    anchors = [a.attributes["href"] for a in page.all("a") if a.attributes["href"].startswith("#")]
    assert {anchor[1:] for anchor in anchors} <= set(ids)
    assert len(set(ids)) == len(ids)


def test_json_names_every_page(seeds: list[Run], report: Callable) -> None:
    folder = seeds[0].path.parent
    code, out, _ = report(folder, "--json", "--no-analyze")
    content = json.loads(out, parse_constant=lambda constant: pytest.fail(constant))
    assert code == 0
    assert content["report"] == str(folder / "report.html")
    assert content["reports"] == {run.path.name: str(run.path / "report.html") for run in seeds}
    assert content["missing"] == {}
    assert content["verdicts"]["seed-000000"]["certificate"] == "verified"


def test_a_seed_without_results_has_a_row_without_numbers(seeds: list[Run], report: Callable, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(seeds[0].path.parent, tmp_path / "seeds")
    shutil.rmtree(tmp_path / "seeds" / "seed-000001" / "analyses")
    code, out, _ = report(tmp_path / "seeds", "--no-analyze")
    assert code == 0
    assert "not in the page: samples, ablation" in out
    page = page_of(tmp_path / "seeds" / "report.html")
    rows = page.one("section", id="seeds").one("table").rows()
    assert rows[2] == ["1", "1, 4", *["–"] * 7]
    assert "for some seeds" in page.one("section", id="verdict").text
    assert " of 2 (" in page.one("section", id="verdict").one("table").rows()[1][1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "does not exist"),
        (["{seeds}", "--out", "{seeds}"], "is a folder"),
        (["{seeds}", "--jobs", "x"], ""),
    ],
)
def test_bad_input_is_one_line(report: Callable, seeds: list[Run], arguments: list[str], message: str) -> None:
    code, out, err = report(*(text.replace("{seeds}", str(seeds[0].path.parent)) for text in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_distributions_are_the_arrays() -> None:
    accuracy, majority = np.array([0.9, 1.0, 0.8, 0.7]), np.array([0.5, 0.6, 0.55, 0.52])
    auroc = np.array([[0.6, 0.7, np.nan, 0.9], [1.0, 1.0, 1.0, 0.95]])
    state = np.random.get_state(legacy=False)["state"]["key"].copy()  # noqa: NPY002
    figure = plot_overview(accuracy, majority, auroc, methods=["attention", "patching"], error=np.array([1e-6, 0.0]))
    assert (np.random.get_state(legacy=False)["state"]["key"] == state).all()  # noqa: NPY002
    left, middle, right = figure.axes
    dots = [np.asarray(ax.collections[0].get_offsets()) for ax in (left, middle, right)]
    np.testing.assert_allclose(dots[0][:, 1], [*accuracy, *majority])
    np.testing.assert_allclose(np.ma.filled(dots[1][:, 1], np.nan), [0.6, 0.7, 0.9, 1.0, 1.0, 1.0, 0.95])
    assert (np.abs(dots[0][:4, 0]) < 0.21).all()
    assert (np.abs(dots[0][4:, 0] - 1) < 0.21).all()
    np.testing.assert_allclose(dots[2][:, 1], [1e-6, 1e-7])  # 0 stands at the foot of the axis
    assert right.get_yscale() == "log"
    assert len(plot_overview(accuracy, majority, auroc, methods=["a", "b"], error=np.array([])).axes) == 2
    with pytest.raises(BoolensError, match=r"accuracy has 1\.1; it must lie between 0 and 1"):
        plot_overview(accuracy + 0.2, majority, auroc, methods=["a", "b"], error=np.array([]))
