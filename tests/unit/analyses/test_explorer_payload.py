"""What the explorer is given: weights to the bit, labels, typical inputs, and no certificate of another network."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from analyses import commands
from analyses.report.explorer import explorer_payload, label_payload, network_payload
from analyses.results import load_analysis, result_path, run_analysis
from analyses.runs import Run
from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig
from interp.errors import BoolensError
from interp.files import read_json, write_json
from interp.models import HookedLinear, build_model
from interp.seeds import torch_generator
from tasks import Junta, Majority, Or, Parity, RuleAnd, SparseAnd, TableTask, Task

TARGETS = (2, 5, 6)
WEIGHTS = [3.0 if pos in TARGETS else 1.0 for pos in range(9)]


@pytest.fixture
def make_run(weighing_model: Callable, write_run: Callable[..., Run], tmp_path: Path) -> Callable[..., Run]:
    """From a threshold, and another task than the AND of TARGETS, to a run in the same folder.

    The logit is 3 · targets that are 1, plus the others that are 1, less the threshold.
    """

    def make(threshold: float = 7.5, task: Task | None = None) -> Run:
        return write_run(tmp_path / "run", weighing_model(WEIGHTS, threshold), task or SparseAnd(9, TARGETS))

    return make


def certify(run: Run) -> Run:
    run_analysis(load_analysis("certificate"), run, figures=False)
    return run


def bits_of(payload: dict) -> Tensor:
    return torch.tensor([[int(bit) for bit in entry["bits"]] for entry in payload["inputs"]])


@pytest.mark.parametrize(
    "cfg",
    [
        AttentionConfig(n_ctx=5, d_model=3, positions="sinusoidal", bias=True),
        ClsConfig(n_ctx=4, d_model=6, n_heads=2, d_mlp=5),
        MLPConfig(n_ctx=4, d_mlp=3),
        LinearConfig(n_ctx=4),
    ],
    ids=lambda cfg: cfg.architecture,
)
def test_weights_and_buffers_are_kept_to_the_bit(cfg: ModelConfig) -> None:
    model = build_model(cfg)
    payload = network_payload(model)
    state = model.state_dict()
    assert "W_pos" in state or cfg.architecture in ("mlp", "linear")
    assert payload["weights"].keys() == state.keys()
    assert (payload["architecture"], payload["config"]) == (cfg.architecture, cfg.to_dict())
    for name, packed in payload["weights"].items():
        values = np.frombuffer(base64.b64decode(packed["data"]), "<f4").reshape(packed["shape"])
        np.testing.assert_array_equal(values, state[name].numpy(), strict=True)


def test_weights_beyond_single_precision_are_refused() -> None:
    model = HookedLinear(LinearConfig(n_ctx=3)).double()
    torch.nn.init.constant_(model.W, 1e39)
    with pytest.raises(BoolensError, match=r"^W has entries beyond the range of single precision.* scale the weights"):
        network_payload(model)


def test_a_payload_is_strict_json_with_all_its_parts(make_run: Callable[..., Run]) -> None:
    payload = explorer_payload(certify(make_run()))
    text = json.dumps(payload, allow_nan=False)
    assert json.loads(text) == payload
    assert list(payload) == [
        "schema", "architecture", "config", "weights", "names", "targets", "rule_positions", "label", "inputs",
        "certificate",
    ]  # fmt: skip
    assert payload["schema"] == 1
    assert payload["names"] == ["0", "1", "2", "3", "4", "5", "6", "7", "8"]
    assert (payload["targets"], payload["rule_positions"]) == ([[2, 5, 6]], [])


def test_typical_inputs_are_the_analysis_inputs_nearest_to_the_median_logit(make_run: Callable[..., Run]) -> None:
    payload = explorer_payload(make_run(11.5))
    assert [(entry["name"], entry["kind"]) for entry in payload["inputs"]] == [
        ("typical input, label True", "typical"),
        ("typical input, label False", "typical"),
    ]
    run, x = make_run(11.5), bits_of(payload)
    assert explorer_payload(run) == payload
    assert run.task.label(x).tolist() == [True, False] == (run.model(x) > 0).tolist()
    inputs = run.inputs(0)
    count = inputs @ torch.tensor(WEIGHTS).long()  # the logit is this, less the threshold
    for row, label in zip(x, (True, False), strict=True):
        assert (inputs == row).all(dim=1).any()
        of_label = count[run.task.label(inputs) == label].numpy()
        nearest = np.abs(of_label - np.median(of_label)).min()
        assert abs(row @ torch.tensor(WEIGHTS).long() - np.median(of_label)) == nearest


def test_every_rule_has_typical_inputs(make_run: Callable[..., Run]) -> None:
    task = RuleAnd(9, ((0, 1), (2,), (1, 4, 6), (0, 2)), rule_positions=(8, 3))
    payload = explorer_payload(make_run(task=task))
    assert [entry["name"] for entry in payload["inputs"]] == [
        f"typical input, label {label}, rule {rule}" for rule in range(4) for label in (True, False)
    ]
    x = bits_of(payload)
    assert task.rule(x).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert task.label(x).tolist() == [True, False] * 4
    assert payload["rule_positions"] == [8, 3]


def test_a_label_that_no_analysis_input_has_is_left_out(make_run: Callable[..., Run]) -> None:
    payload = explorer_payload(make_run(task=SparseAnd(9, TARGETS, p=1e-3)))
    assert [entry["name"] for entry in payload["inputs"]] == ["typical input, label False"]


def test_the_certificate_of_this_network_is_shown(make_run: Callable[..., Run]) -> None:
    run = certify(make_run(11.5))
    result = read_json(result_path(run, "certificate"))["result"]
    payload = explorer_payload(run)
    assert payload["certificate"] == {"verdict": "refuted", "sentence": result["sentence"]}
    assert [entry["kind"] for entry in payload["inputs"]] == ["typical", "typical", "counterexample", "worst"]
    wrong = bits_of(payload)[2:]
    assert wrong.tolist() == [result["counterexample"], result["worst"]["input"]]
    assert run.task.label(wrong).tolist() == [False, True]
    assert run.model(wrong).tolist() == pytest.approx([0.5, -2.5])  # two targets and all others; targets, no others


def test_one_entry_where_the_counterexample_is_the_worst(make_run: Callable[..., Run]) -> None:
    payload = explorer_payload(certify(make_run(7.5)))
    assert [entry["name"] for entry in payload["inputs"][2:]] == ["counterexample"]
    assert (bits_of(payload)[2] * torch.tensor(WEIGHTS)).sum() == 12  # two targets and all others


def test_a_verified_network_has_no_counterexample(make_run: Callable[..., Run], weighing_model: Callable) -> None:
    run = certify(make_run(task=SparseAnd(9, range(9)), threshold=14.5))
    payload = explorer_payload(run)
    assert payload["certificate"]["verdict"] == "verified"
    assert {entry["kind"] for entry in payload["inputs"]} == {"typical"}


def test_the_certificate_of_other_weights_or_another_task_is_not_shown(make_run: Callable[..., Run]) -> None:
    certify(make_run())
    for other in ({"threshold": 7.25}, {"task": SparseAnd(9, (2, 5))}):
        stale = make_run(**other)
        assert result_path(stale, "certificate").exists()
        payload = explorer_payload(stale)
        assert payload["certificate"] is None
        assert {entry["kind"] for entry in payload["inputs"]} == {"typical"}
    assert explorer_payload(make_run())["certificate"]["verdict"] == "refuted"


@pytest.mark.parametrize("content", [{}, [], {"run": {}, "result": {}}, {"result": None, "run": None}])
def test_a_damaged_certificate_is_an_error(content: object, make_run: Callable[..., Run]) -> None:
    run = make_run()
    write_json(result_path(run, "certificate"), content)
    with pytest.raises(BoolensError, match=r"result.json is no certificate; make it again with `boolens certify .*"):
        explorer_payload(run)


def test_a_table_s_typical_inputs_are_held_out_rows_and_other_labels_unknown(tmp_path: Path) -> None:
    animals = {"task": "table", "data": "animals", "label": "alive", "binarise": "thing=drop"}
    commands.train({**animals, "steps": 300, "out": tmp_path / "run"})
    run = Run(tmp_path / "run")
    payload = explorer_payload(run)
    assert isinstance(run.task, TableTask)
    assert payload["label"] is None
    assert payload["certificate"] is None
    assert payload["names"] == list(run.task.features)
    x, held_out = bits_of(payload), run.task.part("valid")[0]
    assert run.task.label(x).tolist() == [True, False]
    assert all((held_out == row).all(dim=1).any() for row in x)


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (SparseAnd(6, (1, 4, 5)), [[0, 0, 0, 1]]),
        (SparseAnd(40, range(2, 20)), [[0] * 18 + [1]]),
        (RuleAnd(8, ((0, 1), (2,), (1, 4, 5), (0, 2))), [[0, 0, 1], [0, 1], [0, 0, 0, 1], [0, 0, 1]]),
        (Or(6, (0, 2)), [[0, 1, 1]]),
        (Majority(7, (0, 2, 3, 6)), [[0, 0, 0, 1, 1]]),
        (Majority(30, range(1, 18)), [[0] * 9 + [1] * 9]),
        (Parity(6, (5, 1, 2)), [[0, 1, 0, 1]]),
    ],
    ids=lambda value: value.NAME if isinstance(value, Task) else "",
)
def test_labels_by_how_many_targets_are_1(task: Task, labels: list[list[int]]) -> None:
    assert label_payload(task) == {"kind": "count", "labels": labels}


@dataclass(frozen=True)
class Implication(Task):
    """A user's own task: target 0 without target 1."""

    NAME: ClassVar[str] = "implication"

    def _label(self, x: Tensor) -> Tensor:
        return (x[:, self.targets[0][0]] == 1) & (x[:, self.targets[0][-1]] == 0)

    @property
    def p_true(self) -> float:
        return self.p * (1 - self.p)

    @property
    def variables(self) -> tuple[str, ...]:
        return ("inputs", "label")


def test_labels_of_other_tasks_are_a_table() -> None:
    assert label_payload(Junta(6, (4, 0, 3), "00011010")) == {
        "kind": "table",
        "labels": [Junta(6, (4, 0, 3), "00011010").table],
    }
    wide = Junta.draw(30, 16, torch_generator(0, "targets"))
    assert label_payload(wide) == {"kind": "table", "labels": [wide.table]}
    assert label_payload(Implication(5, ((1, 3),), 0.5)) == {"kind": "table", "labels": ["0010"]}
    assert label_payload(Implication(20, (tuple(range(17)),), 0.5)) is None
