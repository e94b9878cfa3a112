"""The options of sweeps, from the command line on, and the maps that they draw."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import activation_patching, commands
from analyses.runs import Run
from analyses.sweeps import SweepOptions, in_parts, plot_cells, sweep_options
from interp.errors import BoolensError


def test_from_the_command_line() -> None:
    assert sweep_options({"hook": None, "kind": None}) is None
    given = {"hook": "z, pattern", "kind": "mean,remove-key", "mode": "noise", "metric": "loss", "over": "head,pos"}
    assert sweep_options(given) == SweepOptions(
        ("z", "pattern"), ("mean", "remove key"), ("noise",), "loss", ("head", "pos")
    )
    assert sweep_options({"metric": "accuracy"}) == SweepOptions(metric="accuracy")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "logits"}, "metric 'logits' is not known; choose one of logit, probability, loss, accuracy"),
        ({"over": "pos,head"}, "over 'pos,head' is not known; choose one of pos; head; head,pos; head,dest,src"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BoolensError, match=message):
        sweep_options(given)


def test_hooks_by_full_or_last_name() -> None:
    names = ["hook_embed", "blocks.0.attn.hook_z", "blocks.0.attn.hook_pattern"]
    assert SweepOptions(("z", "hook_embed", "hook_z")).hooks_of(names, []) == [names[1], names[0], names[1]]
    assert SweepOptions(over=("head", "pos")).hooks_of(names, names) == names[1:]
    assert SweepOptions(over=("head", "dest", "src")).hooks_of(names, names) == names[2:]
    with pytest.raises(BoolensError, match="no hook point 'y'"):
        SweepOptions(("y",)).hooks_of(names, [])


def test_in_parts() -> None:
    values = np.random.default_rng(0).normal(size=(3, 700, 5))  # more cells than are taken at once
    low, high = in_parts(lambda part: (part.min(axis=0), part.max(axis=0)), values)
    np.testing.assert_array_equal(low, values.min(axis=-1))
    np.testing.assert_array_equal(high, values.max(axis=-1))


def test_a_map_for_each_title_rule_and_head() -> None:
    cells = {("a", 0): np.full((2, 5, 7), 1.0), ("a", 1): np.full((2, 5, 7), -3.0)}
    figure = plot_cells(cells, ("head", "dest", "src"), "effect", [[1], [2]], [4])
    titles = [ax.get_title() for ax in figure.axes if ax.images]
    assert titles == ["a, head 0, rule 0", "a, head 1, rule 0", "a, head 0, rule 1", "a, head 1, rule 1"]
    assert {ax.images[0].get_clim() for ax in figure.axes if ax.images} == {(-3, 3)}


def test_patching_of_heads_and_its_intervals(analysed: Callable[[str], Run]) -> None:
    options = SweepOptions(hooks=("z",), modes=("noise",), over=("head",))
    result = activation_patching.compute(analysed("sparse"), options)
    assert result.directions == ("noise",)
    assert result.fraction.shape == (1, 1, 5, 2)
    shown = ~np.array(result.is_control)
    np.testing.assert_allclose(result.fraction[:, :, shown].sum(axis=-1), 1, atol=1e-4)  # z's heads add up
    assert (result.low[:, :, shown] <= result.fraction[:, :, shown]).all()
    assert (result.fraction[:, :, shown] <= result.high[:, :, shown]).all()
    assert result.to_rows().columns[3] == "head"


@pytest.mark.parametrize("over", ["pos", "head", "head,pos", "head,dest,src"])
def test_the_command_writes_what_it_was_asked(over: str, analysed: Callable[[str], Run], tmp_path: Path) -> None:
    import shutil

    shutil.copytree(analysed("rule").path, tmp_path / "run")
    names = ["ablation", "activation-patching", "attribution"]
    given = {"hook": "pattern", "kind": None, "metric": "probability", "over": over}
    content, lines = commands.analyze(tmp_path / "run", names, given, quiet=True)
    assert list(content) == names
    assert len(lines) == 3
    for name in names:
        result = json.loads((tmp_path / "run" / "analyses" / name / "result.json").read_text())["result"]
        assert (result["metric"], result["over"]) == ("probability", over.split(","))
        assert result["hooks"] == ["blocks.0.attn.hook_pattern"]
        assert (tmp_path / "run" / "analyses" / name / "figure.png").stat().st_size > 5000


def test_analyses_that_take_no_options(analysed: Callable[[str], Run]) -> None:
    with pytest.raises(
        BoolensError, match=r"samples takes no --hook, .*; ablation, activation-patching, attribution do"
    ):
        commands.analyze(analysed("linear").path, ["samples"], {"metric": "loss"}, quiet=True)
