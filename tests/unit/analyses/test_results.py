"""What lies on disk after `analyze`, for every analysis of every kind of run; and which analyses there are."""

import csv
import hashlib
import shutil
import warnings
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from analyses.results import NAMES, Rows, chosen_analyses, load_analysis, result_path, run_analysis
from analyses.runs import Run
from interp.errors import BoolensError
from interp.files import plain

WITHOUT_ATTENTION = (
    "samples",
    "ablation",
    "activation-patching",
    "attribution",
    "target-recovery",
    "certificate",
    "variable-creation",
)
IMPORTED = tuple(name for name in NAMES if name != "formation")  # without snapshots
APPLY = {
    "sparse": NAMES,
    **dict.fromkeys(("rule", "tutorial"), IMPORTED),
    **dict.fromkeys(("mlp", "linear"), WITHOUT_ATTENTION),
}
CASES = [(run, analysis) for run, analyses in APPLY.items() for analysis in analyses]
each = pytest.mark.parametrize(("name", "analysis"), CASES)

FIELDS = {
    "samples": {"targets", "rule_positions", "p_true", "x", "label", "rule", "logit"},
    "attention-patterns": {"n_inputs", "targets", "rule_positions", "mean", "sd", "heatmap"},
    "effective-attention": {"n_inputs", "logit_error", "selection", "by_src", "by_dest", "flips", "channels", "targets"}
    | {"rule_positions", "mean", "low", "high", "contribution", "strength"},
    "ablation": {"n_inputs", "kinds", "hooks", "whole", "effect", "low", "high", "absolute", "accuracy", "targets"}
    | {"rule_positions"},
    "activation-patching": {
        "n_pairs",
        "directions",
        "groups",
        "hooks",
        "is_control",
        "difference",
        "fraction",
        "change",
    }
    | {"targets", "rule_positions"},
    "attribution": {
        "n_pairs",
        "groups",
        "hooks",
        "kinds",
        "modes",
        "metric",
        "over",
        "exact",
        "estimate",
        "low",
        "high",
    }
    | {"error", "gap", "structure", "targets", "rule_positions"},
    "target-recovery": {"rules", "accuracy", "verdict"},
    "certificate": {
        "verdict",
        "n_inputs",
        "n_wrong",
        "error_probability",
        "counterexample",
        "logit",
        "method",
        "seconds",
    }
    | {"worst", "radius", "wrong_by_changes", "changes"},
    "variable-creation": {"alpha", "tested"},
    "circuits": {"qk", "ov", "readout", "value", "bias", "targets", "rule_positions", "rows"},
    "formation": {"steps", "band", "measures"},
    "abstraction": {"variables", "n_pairs", "sources", "sites", "unpatched", "majority", "source", "iia", "low", "high"}
    | {"search_hooks", "search", "best", "alignment_hooks", "directions", "aligned", "alignment", "alignment_low"}
    | {"alignment_high", "weight", "scrubbed", "base_loss", "targets", "rule_positions"},
}
"""At least these; DESIGN.md's for target-recovery."""


def table(run: Run, analysis: str) -> list[dict[str, str]]:
    with (run.path / "analyses" / analysis / "data.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@each
def test_the_four_files(name: str, analysis: str, analysed: Callable[[str], Run]) -> None:
    folder = analysed(name).path / "analyses" / analysis
    assert sorted(p.name for p in folder.iterdir()) == ["data.csv", "figure.png", "figure.svg", "result.json"]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert xml.etree.ElementTree.parse(folder / "figure.svg").getroot().tag.endswith("}svg")


@pytest.mark.parametrize("name", APPLY)
def test_exactly_the_analyses_that_apply(name: str, analysed: Callable[[str], Run]) -> None:
    folder = analysed(name).path / "analyses"
    assert sorted(p.name for p in folder.iterdir()) == sorted(APPLY[name])


@each
def test_the_envelope(name: str, analysis: str, analysed: Callable[[str], Run], result_of: Callable) -> None:
    run, content = analysed(name), result_of(name, analysis)
    assert content.keys() == {"schema", "analysis", "run", "result"}
    assert (content["schema"], content["analysis"]) == (1, analysis)
    assert content["run"] == run.provenance
    weights = (run.path / "model.safetensors").read_bytes()
    assert content["run"]["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert content["run"]["task"] == run.task.to_dict()
    assert content["run"]["model"]["architecture"] == run.architecture
    assert content["result"].keys() >= FIELDS[analysis]


@pytest.mark.parametrize(("name", "analysis"), [case for case in CASES if case[0] != "tutorial"])
def test_the_same_numbers_again_and_no_trace(name: str, analysis: str, analysed: Callable, result_of: Callable) -> None:
    """Computed anew from the folder, with other global random states, the result is the same to the last digit."""
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002  # pyright: ignore
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    run = Run(analysed(name).path)
    run.model.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        again = load_analysis(analysis).compute(run)
    assert plain(again.to_json()) == result_of(name, analysis)["result"]
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002  # pyright: ignore
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, gradients)
    assert run.model.training
    assert not any(point.fwd_hooks or point._forward_hooks for point in run.model.hook_points())
    assert all(p.grad is None for p in run.model.parameters())


def cells_of_samples(result: Any) -> list[dict[str, Any]]:
    return [
        {"sample": i, "rule": rule, "label": int(label), "logit": logit, **{f"x{p}": bit for p, bit in enumerate(x)}}
        for i, (x, label, rule, logit) in enumerate(
            zip(result["x"], result["label"], result["rule"], result["logit"], strict=True)
        )
    ]


def cells_of_patterns(result: Any) -> list[dict[str, Any]]:
    mean, sd = np.array(result["mean"]), np.array(result["sd"])
    return [
        {"rule": r, "head": h, "src": p, "is_target": p in result["targets"][r], "mean": m, "sd": sd[r, h, p]}
        for (r, h, p), m in np.ndenumerate(mean)
    ]


def cells_of_effective(result: Any) -> list[dict[str, Any]]:
    names = ("mean", "low", "high", "contribution")
    arrays = {name: np.array(result[name]) for name in names}
    return [
        {"rule": r, "channel": result["channels"][c], "src": p, "is_target": p in result["targets"][r]}
        | {name: arrays[name][r, c, p] for name in names}
        | {f"flip_{side}": of_side[r][p] for side, of_side in result["flips"].items()}
        for r, c, p in np.ndindex(arrays["mean"].shape)
    ]


def cells_of_ablation(result: Any) -> list[dict[str, Any]]:
    named = {
        "effect": "effect",
        "low": "low",
        "high": "high",
        "absolute": "absolute_change",
        "accuracy": "accuracy_lost",
    }
    arrays = {name: np.array(result[name], dtype=float) for name in named}
    return [
        {"rule": r, "hook": result["hooks"][h], "kind": result["kinds"][k], "pos": p}
        | {"is_target": p in result["targets"][r]}
        | {column: arrays[name][r, h, k, p] for name, column in named.items()}
        for r, h, k, p in np.ndindex(arrays["effect"].shape)
        if np.isfinite(arrays["effect"][r, h, k, p])
    ]


def cells_of_patching(result: Any) -> list[dict[str, Any]]:
    fraction, change = np.array(result["fraction"], dtype=float), np.array(result["change"], dtype=float)
    return [
        {"direction": result["directions"][d], "hook": result["hooks"][h], "group": result["groups"][g], "pos": p}
        | {"fraction": fraction[d, h, g, p], "absolute_change": change[d, h, g, p]}
        | {"difference": result["difference"][g]}
        for d, h, g, p in np.ndindex(fraction.shape)
    ]


def cells_of_attribution(result: Any) -> list[dict[str, Any]]:
    exact, estimate, error = (np.array(result[name]) for name in ("exact", "estimate", "error"))
    return [
        {
            "kind": result["kinds"][k],
            "mode": result["modes"][m],
            "hook": result["hooks"][h],
            "group": result["groups"][g],
        }
        | {"pos": p, "exact": exact[m, h, g, p], "estimate": estimate[k, m, h, g, p]}
        | {"mean_absolute_error": error[k, m, h, g, p]}
        for k, m, h, g, p in np.ndindex(estimate.shape)
    ]


def cells_of_recovery(result: Any) -> list[dict[str, Any]]:
    return [
        {"rule": r, "method": method, "pos": p, "is_target": p in rule["targets"], "in_top": p in found["top"]}
        | {"score": score}
        for r, rule in enumerate(result["rules"])
        for method, found in rule["methods"].items()
        for p, score in enumerate(found["scores"])
    ]


def cells_of_claims(result: Any) -> list[dict[str, Any]]:
    return [
        {"claim": one["claim"], "method": one["method"], "status": one["status"], "rule": r}
        | {"top": " ".join(map(str, one["top"][r])), "auroc": one["auroc"][r], "p_holm": one["p_holm"]}
        for one in result["tested"]
        for r in range(len(one["sets"]))
    ]


def cells_of_circuits(result: Any) -> list[dict[str, Any]]:
    def role(pos: int) -> str:
        if pos in result["rule_positions"]:
            return "rule"
        return "target" if any(pos in entry for entry in result["targets"]) else "other"

    return [
        {"circuit": name, "head": h, "dest": dest, "dest_vocab": u if name == "QK" else None, "dest_role": role(dest)}
        | {"src": src, "src_vocab": v, "src_role": role(src), "value": value}
        for name in ("QK", "OV")
        for (h, dest, u, src, v), value in np.ndenumerate(np.array(result[name.lower()]["table"]))
    ]


def cells_of_formation(result: Any) -> list[dict[str, Any]]:
    return [
        {"step": step, **{name: measure["values"][i] for name, measure in result["measures"].items()}}
        for i, step in enumerate(result["steps"])
    ]


def cells_of_abstraction(result: Any) -> list[dict[str, Any]]:
    columns = ("value", "low", "high")
    whole = [np.array(result[name], dtype=float) for name in ("iia", "low", "high")]
    along = [np.array(result[name]) for name in ("alignment", "alignment_low", "alignment_high")]
    search = np.array(result["search"])
    cells = [
        {"method": f"interchange, {result['sources'][s]} source", "variable": result["variables"][v]}
        | {"site": result["sites"][i], "pos": ""}
        | dict(zip(columns, (each[s, v, i] for each in whole), strict=True))
        for s, v, i in np.ndindex(whole[0].shape)
    ]
    cells += [
        {"method": "search", "variable": result["variables"][v], "site": result["search_hooks"][h], "pos": pos}
        | {"value": search[h, v, pos], "low": "", "high": ""}
        for h, v, pos in np.ndindex(search.shape)
    ]
    cells += [
        {"method": f"direction, {result['directions'][d]}", "variable": result["aligned"][v]}
        | {"site": result["alignment_hooks"][h], "pos": ""}
        | dict(zip(columns, (each[h, v, d] for each in along), strict=True))
        for h, v, d in np.ndindex(along[0].shape)
    ]
    return cells + [
        {"method": "scrubbing", "variable": name, "value": each["recovered"], "low": each["low"], "high": each["high"]}
        for name, each in result["scrubbed"].items()
    ]


def cells_of_certificate(result: Any) -> list[dict[str, Any]]:
    worst = result["worst"] and result["worst"]["input"]
    return [
        {"input": name, "pos": pos, "bit": bit}
        for name, bits in (("counterexample", result["counterexample"]), ("worst", worst))
        for pos, bit in enumerate(bits or ())
    ]


CELLS = {
    "certificate": cells_of_certificate,
    "samples": cells_of_samples,
    "attention-patterns": cells_of_patterns,
    "effective-attention": cells_of_effective,
    "ablation": cells_of_ablation,
    "activation-patching": cells_of_patching,
    "attribution": cells_of_attribution,
    "target-recovery": cells_of_recovery,
    "variable-creation": cells_of_claims,
    "circuits": cells_of_circuits,
    "formation": cells_of_formation,
    "abstraction": cells_of_abstraction,
}


def text(value: Any) -> str:
    """A cell as data.csv writes it; undefined is empty."""
    return "" if value is None or value != value else str(value)


@each
def test_the_table_holds_the_json_s_values(name: str, analysis: str, analysed: Callable, result_of: Callable) -> None:
    rows = table(analysed(name), analysis)
    expected = CELLS[analysis](result_of(name, analysis)["result"])
    assert len(rows) == len(expected)
    assert rows or analysis == "certificate"  # verified: no wrong input to list
    for row, cells in zip(rows, expected, strict=True):
        assert {column: row[column] for column in cells} == {column: text(value) for column, value in cells.items()}


class TestWhichAnalyses:
    def test_every_name_has_its_module(self) -> None:
        for name in NAMES:
            analysis = load_analysis(name)
            assert name == analysis.NAME
            assert callable(analysis.compute)
            assert callable(analysis.plot)

    @pytest.mark.parametrize("name", ["attention", "cli", "runs", "attention_patterns", "", "../x"])
    def test_one_that_does_not_exist(self, name: str) -> None:
        with pytest.raises(BoolensError, match=f"there is no analysis '{name}'; choose from samples, attention-patt"):
            load_analysis(name)

    def test_all_that_apply_in_order(self, analysed: Callable[[str], Run]) -> None:
        for name, expected in (("rule", IMPORTED), ("mlp", WITHOUT_ATTENTION), ("linear", WITHOUT_ATTENTION)):
            assert [a.NAME for a in chosen_analyses(analysed(name))] == list(expected)

    def test_named_ones_in_the_order_of_naming_and_once(self, analysed: Callable[[str], Run]) -> None:
        chosen = chosen_analyses(analysed("rule"), ["ablation", "samples", "ablation"])
        assert [a.NAME for a in chosen] == ["ablation", "samples"]

    @pytest.mark.parametrize("name", ["mlp", "linear"])
    def test_one_that_does_not_apply(self, name: str, analysed: Callable[[str], Run]) -> None:
        run = analysed(name)
        message = f"attention-patterns does not apply to {run.path}: a {name} model has no attention to look at"
        with pytest.raises(BoolensError, match=message):
            chosen_analyses(run, ["samples", "attention-patterns"])


def test_result_path(tmp_path: Path) -> None:
    assert result_path(Run(tmp_path), "samples") == tmp_path / "analyses" / "samples" / "result.json"


def test_undefined_cells_are_empty_and_null(analysed: Callable[[str], Run], tmp_path: Path) -> None:
    """In the table an undefined cell is empty, in the JSON null; True, numpy's numbers and text are as they are."""
    source = analysed("linear").path
    for file in ("config.json", "task.json", "model.safetensors"):
        shutil.copy(source / file, tmp_path)
    cells = (np.float64(0.1), float("nan"), np.bool_(True), np.int64(3), "a,b", float("-inf"))
    result = SimpleNamespace(
        to_json=lambda: {"value": np.array([1.5, np.nan])}, to_rows=lambda: Rows(list("uvwxyz"), [cells])
    )
    analysis: Any = SimpleNamespace(NAME="made-up", compute=lambda run: result, plot=lambda result: Figure())
    assert run_analysis(analysis, Run(tmp_path)) is result
    folder = tmp_path / "analyses" / "made-up"
    assert (folder / "data.csv").read_text() == 'u,v,w,x,y,z\n0.1,,True,3,"a,b",\n'
    assert '"value": [\n      1.5,\n      null\n    ]' in (folder / "result.json").read_text()
