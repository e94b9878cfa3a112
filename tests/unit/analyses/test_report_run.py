"""The page of one run: what it says is what result.json says, and nothing else is in it."""

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
import torch

from analyses.report.findings import find_all, wanting
from analyses.report.formats import number, share
from analyses.report.provenance import train_command
from analyses.report.writing import write_report
from analyses.runs import Run
from interp.checkpoint import WEIGHTS, save_weights
from interp.errors import BoolensError
from tests.parsed_page import Element, parse_page
from tests.unit.analyses.report_cases import HOSTILE, attention, write_hostile, write_rule

RULE_SECTIONS = [
    *("samples", "attention-patterns", "effective-attention", "circuits", "ablation", "activation-patching"),
    *("attribution", "target-recovery", "abstraction", "certificate", "variable-creation"),
]
ANALYSED = [name for name in RULE_SECTIONS if name != "abstraction"]  # see report_cases
TABLE_SECTIONS = [
    name for name in RULE_SECTIONS if name not in ("activation-patching", "attribution", "abstraction", "certificate")
]


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Run]) -> Run:
    run = write_rule(tmp_path_factory.mktemp("report") / "rule", write_run)
    write_report(run.path, analyze=False)
    return run


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Run]) -> Run:
    run = write_hostile(tmp_path_factory.mktemp("report") / "table", write_run)
    write_report(run.path, analyze=False)
    return run


@pytest.fixture
def copied(rule: Run, tmp_path: Path) -> Run:
    """A copy to spoil."""
    shutil.copytree(rule.path, tmp_path / "rule")
    return Run(tmp_path / "rule")


def page_of(path: Path) -> Element:
    return parse_page(path.read_text(encoding="utf-8"))


def result_of(run: Run, name: str) -> dict:
    return json.loads((run.path / "analyses" / name / "result.json").read_text())["result"]


def facts(section: Element) -> dict[str, str]:
    return {dt.text: dd.text for dt, dd in zip(section.one("dl").all("dt"), section.one("dl").all("dd"), strict=True)}


def test_sections_come_in_order_after_the_verdict(rule: Run, hostile: Run) -> None:
    for run, names in ((rule, RULE_SECTIONS), (hostile, TABLE_SECTIONS)):
        page = page_of(run.path / "report.html")
        ids = [section.attributes["id"] for section in page.one("main").all("section") if "id" in section.attributes]
        assert [i for i in ids if i != "explorer"] == ["top", "verdict", *names, "provenance"]
        assert ids[1] == "verdict"
        for name in names:
            section = page.one("section", id=name)
            if name == "abstraction":
                assert section.one("code").text == "boolens analyze rule abstraction"
                continue
            assert len(section.all("figure")) == 1
            assert section.one("a", href=f"analyses/{name}/result.json").text == "result.json"


@pytest.mark.parametrize("which", ["rule", "hostile"])
def test_the_page_is_whole_and_loads_nothing(which: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(which)
    path = run.path / "report.html"
    assert path.stat().st_size < 3_000_000
    page = page_of(path)
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(set(ids)) == len(ids)
    for link in page.all("a"):
        target = link.attributes["href"]
        if target.startswith("#"):
            assert target[1:] in ids
        else:
            assert not re.match(r"[a-z]+:", target)
            assert (path.parent / unquote(target)).is_file()
    for image in page.all("img"):
        assert image.attributes["src"].startswith("data:image/webp;base64,")
        assert len(image.attributes["alt"]) > 40
        assert (image.attributes["width"], image.attributes["height"]) == ("120", "65")
    for element in page.all():
        for name in ("src", "srcset", "data", "poster", "action", "background"):
            assert not element.attributes.get(name, "").startswith(("http", "//", "file"))
        assert not [name for name in element.attributes if name.startswith("on")]
    assert not page.all("link")
    assert not page.all("iframe")
    assert not re.search(r"url\(|@import", " ".join(style.text for style in page.all("style")))
    policy = page.one("meta", **{"http_equiv": "Content-Security-Policy"}).attributes["content"]
    assert policy.startswith("default-src 'none'; img-src data:;")
    levels = [int(element.name[1]) for element in page.all() if re.fullmatch(r"h[1-6]", element.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.one("html").attributes["lang"] == "en"
    assert page.one("title").text.endswith("Boolens")
    for script in page.all("script", type="application/json"):
        json.loads(script.text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


def test_the_verdict_is_that_of_the_results(rule: Run) -> None:
    recovery, certificate = result_of(rule, "target-recovery"), result_of(rule, "certificate")
    verdict = page_of(rule.path / "report.html").one("section", id="verdict")
    accuracy, recovered, certified = (part.text for part in verdict.all("div", class_="finding"))
    for name in ("valid", "low", "high", "majority", "balanced"):
        assert share(recovery["accuracy"][name]) in accuracy
    assert recovery["sentence"] in recovered
    for sentence in recovery["disagreements"]:
        assert " ".join(sentence.split()) in recovered
    assert certificate["sentence"].removeprefix(certificate["verdict"] + ": ")[1:] in certified
    assert [badge.text for badge in verdict.all("span") if badge.attributes.get("class", "").startswith("badge")] == [
        recovery["verdict"],
        certificate["verdict"],
    ]
    header, *rows = verdict.one("table", class_="matrix").rows()
    assert header == ["method", "rule 0: 1, 3", "rule 1: 0, 2", "joint p"]
    assert [row[0] for row in rows] == list(recovery["rules"][0]["methods"])
    for method, *cells, joint in rows:
        assert joint == number(recovery["joint"][method]["p_holm"], 2)
        for cell, of_rule in zip(cells, recovery["rules"], strict=True):
            found = of_rule["methods"][method]
            assert ("yes" in cell, ", tied" in cell) == (found["match"], found["tie"])
            assert f"p {number(found['p_holm'], 2)}" in cell
            assert found["match"] or f"top: {', '.join(map(str, sorted(found['top'])))}" in cell


def test_key_numbers_are_those_of_the_results(rule: Run) -> None:
    page = page_of(rule.path / "report.html")
    certificate, samples = result_of(rule, "certificate"), result_of(rule, "samples")
    shown = facts(page.one("section", id="certificate"))
    assert shown["inputs"] == "64"
    assert shown["wrong inputs"] == str(certificate["n_wrong"])
    assert shown["probability of error"].startswith(number(certificate["error_probability"]["upper"], 3))
    if certificate["counterexample"]:
        bits = "".join(map(str, certificate["counterexample"]))
        assert shown["wrong input with the fewest changes"].startswith(f"{bits[:5]} {bits[5:]} logit")
    right = sum((z > 0) == y for z, y in zip(samples["logit"], samples["label"], strict=True))
    assert facts(page.one("section", id="samples"))["answered rightly by the model"] == f"{right} of 24"
    patterns = torch.tensor(result_of(rule, "attention-patterns")["mean"])
    for r, targets in enumerate(rule.task.targets):
        said = facts(page.one("section", id="attention-patterns"))[f"mean attention on the targets, rule {r}"]
        assert said.startswith(share(float(patterns[r].mean(0)[list(targets)].sum())))
    by_kind = facts(page.one("section", id="ablation"))
    effect = torch.tensor(
        [[[[float("nan") if v is None else v for v in kind] for kind in hook] for hook in r]
         for r in result_of(rule, "ablation")["effect"]]
    )  # fmt: skip
    for k, kind in enumerate(result_of(rule, "ablation")["kinds"]):
        assert by_kind[f"largest effect, {kind}"].startswith(number(float(effect[:, :, k].nan_to_num(-1e9).max())))


def test_tables_are_the_csv_files(rule: Run) -> None:
    page = page_of(rule.path / "report.html")
    for name in ANALYSED:
        header, *rows = _csv(rule.path / "analyses" / name / "data.csv")
        table = page.one("section", id=name).one("table")
        shown_header, *shown = table.rows()
        assert shown_header == [column.replace("_", " ") for column in header]
        assert len(shown) == min(len(rows), 200)
        assert len(table.all("button")) == len(header)
        note = page.one("section", id=name).one("details").text
        assert (f"of {len(rows):,} rows" in note) == (len(rows) > 200)
        if len(rows) <= 200:
            for cells, row in zip(shown, rows, strict=True):
                for cell, text in zip(cells, row, strict=True):
                    _same(cell, text)


def _csv(path: Path) -> list[list[str]]:
    import csv

    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _same(cell: str, text: str) -> None:
    plain = cell.replace(",", "").replace("\N{MINUS SIGN}", "-")
    if re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", text):
        assert float(plain) == pytest.approx(float(text), rel=6e-4, abs=1e-300)
    else:
        assert cell == {"": "–", "True": "yes", "False": "no"}.get(text, " ".join(text.split()))


def test_hostile_names_are_text(hostile: Run) -> None:
    path = hostile.path / "report.html"
    page = page_of(path)
    assert not page.all("img", src="x")
    for script in page.all("script"):
        if script.attributes.get("type") != "application/json":
            assert "alert(" not in script.text
    assert "<img src=x onerror=alert(2)> from 5 features" in page.one("h1").text
    matrix = page.one("table", class_="matrix").rows()[0]
    assert matrix[1] == f"{HOSTILE[0]}, {HOSTILE[1]}"
    positions = {row[2] for row in page.one("section", id="attention-patterns").one("table").rows()[1:]}
    assert positions == {" ".join(name.split()) for name in HOSTILE}
    certificate = page.one("section", id="verdict").all("div", class_="finding")[-1].text
    assert certificate.startswith("Certificate None: a table says nothing of the inputs that it does not hold")


def test_results_of_other_weights_are_refused(copied: Run) -> None:
    """Weights are exchanged: nothing of the old results is left in the page, and all of them are to be made anew."""
    old = {name: result_of(copied, name) for name in ("target-recovery", "certificate")}
    save_weights(attention(6, seed=9), copied.path / WEIGHTS)
    content, lines = write_report(copied.path, analyze=False)
    assert content["missing"] == {"rule": RULE_SECTIONS}
    assert content["verdicts"] == {"rule": {"target-recovery": None, "certificate": None}}
    page = page_of(copied.path / "report.html")
    assert not page.all("figure")
    assert old["target-recovery"]["sentence"] not in page.text
    assert old["certificate"]["sentence"][10:] not in page.text
    for name in ANALYSED:
        section = page.one("section", id=name)
        assert "of other weights or another configuration" in section.text
        assert section.one("code").text == f"boolens analyze rule {name}"
    assert "not in the page: samples" in lines[0]
    assert wanting(find_all(Run(copied.path))) == RULE_SECTIONS


@pytest.mark.parametrize("spoil", ["result.json", "figure.png", "other configuration", "not JSON"])
def test_what_is_missing_is_said_and_made(copied: Run, spoil: str) -> None:
    folder = copied.path / "analyses" / "samples"
    path = folder / "result.json"
    match spoil:
        case "other configuration":
            content = json.loads(path.read_text())
            content["run"]["config_sha256"] = "0" * 64
            path.write_text(json.dumps(content))
        case "not JSON":
            path.write_text('{"result": NaN}')
        case name:
            (folder / name).unlink()
    before = (copied.path / "analyses" / "circuits" / "result.json").stat().st_mtime_ns
    write_report(copied.path, analyze=False)
    section = page_of(copied.path / "report.html").one("section", id="samples")
    assert not section.all("figure")
    assert "boolens analyze rule samples" in section.text
    assert bool(section.all("dl")) == (spoil == "figure.png")
    assert wanting(find_all(copied)) == ["samples", "abstraction"]
    if spoil != "result.json":
        return
    write_report(copied.path)
    page = page_of(copied.path / "report.html")
    assert all(len(page.one("section", id=name).all("figure")) == 1 for name in RULE_SECTIONS)
    assert not page.one("section", id="verdict").all("div", class_="notice")
    assert (copied.path / "analyses" / "circuits" / "result.json").stat().st_mtime_ns == before


def test_out_puts_the_page_elsewhere_with_links_that_hold(copied: Run, tmp_path: Path) -> None:
    (copied.path / "report.html").unlink()
    page = tmp_path / "a folder" / "page #1.html"
    content, lines = write_report(copied.path, page, analyze=False)
    assert content["report"] == str(page)
    assert lines[-1] == f"report: {page}"
    assert not (copied.path / "report.html").exists()
    hrefs = [a.attributes["href"] for a in page_of(page).all("a") if not a.attributes["href"].startswith("#")]
    assert hrefs
    assert all((page.parent / unquote(href)).is_file() for href in hrefs)
    with pytest.raises(BoolensError, match="is a folder; --out is the page's file"):
        write_report(copied.path, tmp_path)


def test_no_run_no_page(tmp_path: Path) -> None:
    with pytest.raises(BoolensError, match="does not exist; train a run"):
        write_report(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_training_command_is_given_only_where_it_is_certain(
    rule: Run, hostile: Run, tmp_path: Path, boolens: Callable
) -> None:
    assert train_command(rule) is None  # imported
    assert train_command(hostile) is None
    options = "--model mlp --d-mlp 12 --dropout 0.2 --steps 3 --n-train 20 --n-valid 10 --seed 4 --lr 0.02"
    code, _, err = boolens(
        *("train", "rule-and", "--n-ctx", 7, "--targets", "1,3/0,4", "--rule-positions", "2", "--p", 0.6),
        *options.split(),
        *("--out", tmp_path / "first"),
    )
    assert (code, err) == (0, "")
    first = Run(tmp_path / "first")
    command = train_command(first)
    assert command is not None
    *arguments, out_flag, _ = command.removeprefix("boolens ").split()
    code, _, err = boolens(*arguments, out_flag, tmp_path / "second")
    assert (code, err) == (0, "")
    second = Run(tmp_path / "second")
    assert second.provenance["weights_sha256"] == first.provenance["weights_sha256"]
    assert second.provenance["config_sha256"] == first.provenance["config_sha256"]
