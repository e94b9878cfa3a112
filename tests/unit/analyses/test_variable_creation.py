"""Claims tested on runs where the answer is known."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import commands
from analyses import variable_creation as analysis
from analyses.hypothesis import Claim, Hypothesis
from analyses.overview import write_claims
from analyses.runs import Run
from analyses.variable_creation import summarise
from interp.errors import BoolensError
from interp.plots import plot_claims
from interp.statistics import clopper_pearson
from tasks import SparseAnd


@pytest.fixture
def misleading(asking_model: Callable, write_run: Callable, tmp_path: Path) -> Run:
    """Right on every input, with attention on the sinks 0 and 6 instead of the targets."""
    task = SparseAnd(20, (2, 5, 9))
    return write_run(tmp_path / "run", asking_model(20, (2, 5, 9), (0, 6, 11)), task)


def test_right_wrong_and_misled(misleading: Run) -> None:
    claims = (
        Claim("targets", None, ("patching", "weights", "attention")),
        Claim("sinks", ((0, 6, 11),), ("patching", "attention")),
    )
    result = analysis.compute(misleading, Hypothesis(claims))
    assert {(one.claim, one.method): one.status for one in result.tested} == {
        ("targets", "patching"): "holds",
        ("targets", "weights"): "holds",
        ("targets", "attention"): "fails",
        ("sinks", "patching"): "fails",
        ("sinks", "attention"): "holds",
    }
    by_name = {(one.claim, one.method): one for one in result.tested}
    right = by_name["targets", "patching"]
    assert (right.auroc, right.precision, right.chance) == ((1,), (1,), 1 / math.comb(20, 3))
    assert right.p_value == pytest.approx(1 / math.comb(20, 3))
    assert right.p_holm == pytest.approx(5 / math.comb(20, 3))
    assert by_name["targets", "attention"].precision == (0,)
    assert all(math.isnan(one.initial_auroc[0]) for one in result.tested)  # imported


def test_too_few_sets_to_exclude_chance(weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", weighing_model([8, 1, 8], 12.5), SparseAnd(3, (0, 2)))
    (one,) = analysis.compute(run, Hypothesis((Claim("a", None, ("patching",)),))).tested
    assert (one.status, one.p_value) == ("undecided", pytest.approx(1 / 3))
    (tied,) = analysis.compute(run, Hypothesis((Claim("a", ((0,),), ("weights",)),), alpha=0.9)).tested
    assert (tied.status, tied.tie) == ("undecided", (True,))


def test_initialisation_is_the_run_s_own(analysed: Callable[[str], Run]) -> None:
    run = analysed("sparse")
    start = analysis.initial_run(run)
    assert start.config == run.config
    assert not np.allclose(start.model.W_readout.detach(), run.model.W_readout.detach())  # pyright: ignore
    again = analysis.initial_run(run)
    assert np.array_equal(start.model.W_readout.detach(), again.model.W_readout.detach())  # pyright: ignore
    result = analysis.compute(run, Hypothesis((Claim("a", None, ("patching",)),)))
    assert 0 <= result.tested[0].initial_auroc[0] <= 1


def test_by_default_every_method_that_applies(result_of: Callable[[str, str], Any]) -> None:
    methods = [one["method"] for one in result_of("rule", "variable-creation")["result"]["tested"]]
    assert methods == ["attention", "effective-attention", "contribution", "ablation", "patching", "weights"]
    assert [one["method"] for one in result_of("mlp", "variable-creation")["result"]["tested"]] == ["patching"]


def test_a_method_that_does_not_apply(analysed: Callable[[str], Run]) -> None:
    with pytest.raises(BoolensError, match="attention does not apply to a mlp model; leave it out"):
        analysis.compute(analysed("mlp"), Hypothesis((Claim("a", None, ("attention",)),)))


def test_over_runs(misleading: Run) -> None:
    one = analysis.compute(misleading, Hypothesis((Claim("a", None, ("patching",)),)))

    def with_status(*words: str) -> list[analysis.VariableCreation]:
        return [replace(one, tested=(replace(one.tested[0], status=word),)) for word in words]  # pyright: ignore

    def verdict(*words: str) -> str:
        (row,) = summarise(with_status(*words))
        assert row["runs"] == row["holds"] + row["fails"] + row["undecided"] == len(words)
        return row["verdict"]

    assert [verdict(word) for word in ("holds", "fails", "undecided")] == ["supported", "rejected", "undecided"]
    assert verdict(*["holds"] * 8) == "supported"
    assert verdict(*["holds"] * 4) == "undecided"  # 4 of 4: the interval begins at 0.40
    assert verdict(*["fails"] * 8) == "rejected"
    assert verdict(*["holds"] * 4, *["fails"] * 4) == "undecided"
    (row,) = summarise(with_status(*["holds"] * 6, *["fails"] * 2))
    assert row["interval"] == pytest.approx([0.349, 0.968], abs=1e-3)
    assert not row["too_few"]
    enough = row["runs_for_support"]
    assert clopper_pearson(enough - 2, enough)[0] > 0.5 >= clopper_pearson(enough - 3, enough - 1)[0]


def test_too_few_runs_for_any_verdict_say_so(misleading: Run, tmp_path: Path) -> None:
    """(1/40) ** (1/n), the lower limit of n of n, is above a half from n = 6 on."""
    one = analysis.compute(misleading, Hypothesis((Claim("a", None, ("patching",)),)))
    said = {}
    for n in (1, 2, 4, 5, 6):
        (row,) = summarise([replace(one, tested=(replace(one.tested[0], status="holds"),))] * n)
        assert row["too_few"] == (1 < n < 6)
        assert row["runs_for_support"] == 6
        (said[n],) = write_claims(tmp_path, [replace(one, tested=(replace(one.tested[0], status="holds"),))] * n)
    ending = "; too few runs for any verdict: if it holds in all further ones, 6 runs in all would support it"
    assert [n for n, line in said.items() if line.endswith(ending)] == [2, 4, 5]
    assert not any("further" in said[n] for n in (1, 6))
    assert json.loads((tmp_path / "analyses" / "claims.json").read_text())["claims"][0]["runs_for_support"] == 6


def test_the_command(analysed: Callable[[str], Run], tmp_path: Path) -> None:
    shutil.copytree(analysed("sparse").path, tmp_path / "run")
    file = tmp_path / "claims.yaml"
    file.write_text("claims: [{name: it uses 0, targets: [0], methods: [patching]}]")
    content, lines = commands.analyze(tmp_path / "run", (), hypothesis=file, quiet=True)
    assert list(content) == ["variable-creation"]
    assert lines[0].startswith("rejected: it uses 0 (patching): holds in 0 of 1 runs")
    claims = json.loads((tmp_path / "run" / "analyses" / "claims.json").read_text())["claims"]
    assert claims[0]["verdict"] == "rejected"
    with pytest.raises(BoolensError, match="samples takes no --hypothesis; variable-creation does"):
        commands.analyze(tmp_path / "run", ["samples"], hypothesis=file, quiet=True)


def test_the_figure() -> None:
    auroc, initial = np.array([[1.0, 0.9], [0.4, 0.6]]), np.array([[0.5, 0.55], [np.nan, np.nan]])
    fig = plot_claims(auroc, initial, claims=["a", "b"], methods=["patching", "attention"], status=["holds", "fails"])
    (ax,) = fig.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a: patching", "b: attention"]
    dots = [line for line in ax.lines if line.get_linestyle() == "None"]
    np.testing.assert_array_equal([np.asarray(line.get_xdata()) for line in dots[1::2]], auroc)
    np.testing.assert_array_equal([np.asarray(line.get_xdata()) for line in dots[0::2]], initial)
    assert dots[1].get_color() != dots[3].get_color()
    assert dots[1].get_marker() != dots[3].get_marker()  # in greyscale too
    assert [text.get_text() for text in fig.legends[0].texts] == ["holds", "fails", "at initialisation"]
