"""The network in JavaScript against the hooked models: every activation, under every kind of edit, in Chromium."""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch
from torch import Tensor

import analyses.report.explorer as explorer
from analyses import commands
from analyses.runs import Run
from interp.attention import contributions, dest_contributions, effective_attention
from interp.checkpoint import import_tutorial
from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig
from interp.errors import BoolensError
from interp.hooks import run as run_model
from interp.interventions import SCORES, Freeze, Intervention, Patch, RemoveKey, UnchangedWarning, intervene
from interp.models import AnyModel, build_model
from interp.readout import SCALE, direct_readout
from interp.recovery import PATTERN, VALUE, Z
from interp.seeds import torch_generator
from tasks import Junta, Majority, Or, Parity, RuleAnd, SparseAnd, Task

NETWORK = Path(explorer.__file__).parent / "static" / "network.js"
TUTORIAL = Path(__file__).parents[1] / "data" / "tutorial"
N_INPUTS = 100
ATTENTION: dict[str, Any] = {"n_ctx": 5, "n_heads": 3, "d_model": 11, "d_head": 7, "d_value": 2, "bias": True}
CLS: dict[str, Any] = {"n_ctx": 6, "n_heads": 3, "d_model": 12, "d_head": 4, "d_mlp": 9}
CONFIGS: dict[str, ModelConfig] = {
    "tutorial-sized": AttentionConfig(n_ctx=13),
    "attention": AttentionConfig(**ATTENTION),
    "attention, sinusoidal, no bias": AttentionConfig(**{**ATTENTION, "positions": "sinusoidal", "bias": False}),
    "cls": ClsConfig(**CLS),
    "cls without norms": ClsConfig(**CLS, norm=False),
    "cls without biases": ClsConfig(**CLS, bias=False),
    "cls without an MLP": ClsConfig(**{**CLS, "d_mlp": 0, "d_head": 5}),
    "cls, attention alone": ClsConfig(**{**CLS, "d_mlp": 0, "n_heads": 1, "d_head": 5}, norm=False, bias=False),
    "mlp": MLPConfig(n_ctx=6, d_mlp=17),
    "linear": LinearConfig(n_ctx=7),
}
FILES = {
    "imported sparse-and": TUTORIAL / "sparse_and_T30_s3_seed0.pt",
    "imported rule-and": TUTORIAL / "rule_and_T11_s2_seed1.pt",
}
WITH_ATTENTION = [*FILES] + [name for name, cfg in CONFIGS.items() if cfg.architecture in ("attention", "cls")]
Edits = dict[str, list[dict[str, Any]]]
Interventions = Callable[[Any], list[Intervention]]
"""From a model, for what is patched in may be its own."""


def model_of(name: str) -> AnyModel:
    """In float32; if not imported, with weights so large that GELUs bend, norms matter and patterns are sharp."""
    if name in FILES:
        return import_tutorial(FILES[name])
    model, generator = build_model(CONFIGS[name]).eval(), torch_generator(3, "init")
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.7, generator=generator)
    return model


def random_bits(n: int, pos: int) -> Tensor:
    return torch.randint(2, (n, pos), generator=torch_generator(3, "analysis"))


@pytest.fixture
def in_browser(open_page: Callable[..., Any]) -> Callable[[str, Any], Any]:
    """From a JavaScript function and its argument to what it returns on a page that has the network's script."""
    page = open_page(f"<!doctype html><meta charset='utf-8'><script>{NETWORK.read_text('utf-8')}</script>")
    return page.evaluate


@pytest.fixture
def run_all(in_browser: Callable[[str, Any], Any]) -> Callable[..., list[dict[str, Any]]]:
    """From a model, inputs and an input's edits to the activations on each input."""

    def run_all_(payload: dict[str, Any], x: Tensor, edits: list[Edits]) -> list[dict[str, Any]]:
        code = """(given) => {
            const [payload, inputs, edits] = JSON.parse(given);
            const net = BoolensNetwork.load(payload);
            return JSON.stringify(inputs.map((bits, i) => BoolensNetwork.run(net, bits, edits[i])));
        }"""
        return json.loads(in_browser(code, json.dumps([payload, x.tolist(), edits])))  # much faster than without JSON

    return run_all_


def payload_of(model: AnyModel) -> dict[str, Any]:
    return {"schema": 1, **explorer.network_payload(model)}


def edits_of(kind: str, x: Tensor, other: Tensor, cfg: Any) -> tuple[list[Edits], Interventions]:
    """One kind of edit, for each input as the browser takes it and for the batch as interp.interventions does."""
    n_src, n_dest = (cfg.n_ctx + 1, 1) if cfg.architecture == "cls" else (cfg.n_ctx, cfg.n_ctx)
    head, dest, src = cfg.n_heads - 1, n_dest - 1, n_src - 2
    key, all_keys = {"src": src, "head": head}, [{"src": 1, "head": None}, {"src": n_src - 1, "head": None}]
    remove_one, remove_all = RemoveKey(src, head=head), RemoveKey([1, n_src - 1])

    def rows(of_head: int | None, source: Tensor, removed: Sequence[Any] = ()) -> list[list[dict[str, Any]]]:
        own = {"removed": removed} if removed else {}
        return [[{"dest": dest, "head": of_head, "bits": bits, **own}] for bits in source.tolist()]

    def patch(of_head: int | None) -> Patch:
        return Patch(PATTERN, source=other, dest=dest, head=of_head)

    def row_without_keys(model: Any) -> list[Intervention]:
        _, cache = intervene(model, other, [remove_all, remove_one], record=[PATTERN])
        return [Patch(PATTERN, values=cache[PATTERN], dest=dest)]

    none: list[list[Any]] = [[]] * len(x)
    kinds: dict[str, tuple[list[Any], list[list[Any]], list[Intervention] | Interventions]] = {
        "none": ([], none, []),
        "key of one head": ([key], none, [remove_one]),
        "keys of all heads": (all_keys, none, [remove_all]),
        "row of one head": ([], rows(head, other), [patch(head)]),
        "row of all heads": ([], rows(None, other), [patch(None)]),
        "frozen row": ([*all_keys, key], rows(None, x), [remove_all, remove_one, Freeze(PATTERN, dest=dest)]),
        "row without keys": ([], rows(None, other, [*all_keys, key]), row_without_keys),
        "keys and rows": (
            [*all_keys, key],
            [a + b for a, b in zip(rows(None, x), rows(0, other), strict=True)],
            [remove_all, remove_one, Freeze(PATTERN, dest=dest), Patch(PATTERN, source=other, dest=dest, head=0)],
        ),
    }
    removed, by_input, interventions = kinds[kind]
    edits = [{"removed": removed, "rows": of_input} for of_input in by_input]
    return edits, interventions if callable(interventions) else lambda model: interventions


KINDS = ["none", "key of one head", "keys of all heads", "row of one head", "row of all heads", "frozen row",
         "row without keys", "keys and rows"]  # fmt: skip


def activations(model: Any, x: Tensor, interventions: list[Intervention]) -> dict[str, np.ndarray]:
    """What the browser computes, by the hooked model in its own precision."""
    scale = [SCALE] if SCALE in model.hook_dict else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnchangedWarning)  # one head alone can have nothing that changes
        logit, cache = intervene(model, x, interventions, record=[SCORES, PATTERN, VALUE, Z, *scale])
    readout = direct_readout(model, x)
    if scale:  # that of the edited run
        readout = readout * (run_model(model, x, record=scale)[1][SCALE] / cache[SCALE])[..., None]
    effective = effective_attention(cache[PATTERN], readout)
    by_dest = (
        dest_contributions(cache[Z], readout)
        if readout.ndim == 3
        else torch.einsum("bqhd,bqhd->bq", cache[Z], readout.expand_as(cache[Z]))
    )
    found = {
        "scores": cache[SCORES],
        "pattern": cache[PATTERN],
        "values": cache[VALUE].transpose(1, 2),
        "z": cache[Z].transpose(1, 2),
        "effective": effective,
        "contribution": contributions(effective, cache[VALUE]),
        "dest_contribution": by_dest,
        "logit": logit,
        "probability": logit.sigmoid(),
    }
    found["rest"] = logit - found["contribution"].sum(dim=(1, 2))
    return {name: value.detach().double().numpy() for name, value in found.items()}


def array(found: list[dict[str, Any]], name: str) -> np.ndarray:
    """One activation on all inputs; what is null is -inf, the score of a key that is removed."""
    return np.nan_to_num(np.array([entry[name] for entry in found], dtype=float), nan=-np.inf)


def check_agreement(found: list[dict[str, Any]], model: Any, x: Tensor, interventions: Interventions) -> None:
    """To 1e-5 with the stored model, and to 1e-9 with the same weights in double precision, of the largest entry."""
    whole = array(found, "contribution").sum(axis=(1, 2)) + array(found, "rest")
    np.testing.assert_allclose(whole, array(found, "logit"), rtol=1e-12, atol=1e-12)
    stored = activations(model, x, interventions(model))
    wide = activations(model.double(), x, interventions(model))
    for truth, tolerance in ((stored, 1e-5), (wide, 1e-9)):
        assert set(found[0]) == set(truth)
        for name, expected in truth.items():
            got = array(found, name)
            assert got.shape == expected.shape, name
            of = truth["logit"] if name == "rest" else expected  # what is left of a logit is rounded as the logit is
            largest = max(1.0, np.abs(of[np.isfinite(of)]).max())
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * largest, err_msg=name)


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_every_activation_agrees_under_every_kind_of_edit(name: str, run_all: Callable[..., Any]) -> None:
    model = model_of(name)
    payload, x = payload_of(model), random_bits(2 * N_INPUTS, model.cfg.n_ctx)
    x, other = x[:N_INPUTS], x[N_INPUTS:]
    unedited = None
    for kind in KINDS:
        edits, interventions = edits_of(kind, x, other, model.cfg)
        found = run_all(payload, x, edits)
        check_agreement(found, model.float(), x, interventions)
        unedited = array(found, "logit") if unedited is None else unedited
        changed = np.abs(array(found, "logit") - unedited).max()
        restored = kind == "none" or (kind == "frozen row" and model.cfg.architecture == "cls")  # its only row
        assert (changed < 1e-9) == restored


@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_networks_without_attention_agree(name: str, run_all: Callable[..., Any]) -> None:
    model = model_of(name)
    x = random_bits(N_INPUTS, model.cfg.n_ctx)
    found = run_all(payload_of(model), x, [{}] * N_INPUTS)
    nothing = ("scores", "pattern", "values", "z", "effective", "dest_contribution")
    assert all(entry[part] is None for entry in found for part in nothing)
    for precise, tolerance in ((False, 1e-5), (True, 1e-9)):
        logit, _ = run_model(model.double() if precise else model, x)
        np.testing.assert_allclose(
            array(found, "logit"), logit, rtol=0, atol=tolerance * max(1.0, float(logit.abs().max()))
        )
        np.testing.assert_allclose(array(found, "probability"), logit.sigmoid(), rtol=0, atol=tolerance)
    if name == "mlp":
        assert all(entry["contribution"] is None and entry["rest"] == entry["logit"] for entry in found)
        return
    weights = model.state_dict()
    terms = x * weights["W"]
    np.testing.assert_allclose(array(found, "contribution"), terms[:, None], rtol=0, atol=1e-12)
    assert array(found, "rest") == pytest.approx(float(weights["b"]))


def test_gelu_is_the_exact_one(run_all: Callable[..., Any]) -> None:
    """One hidden unit, and one bit a time that is 1: the logit is GELU of that bit's weight."""
    at = torch.cat([torch.linspace(-9, 9, 301), torch.tensor([1e-3, -1e-6, 1e-20, 2**1.5, -(2**1.5), 30, -30])])
    model = build_model(MLPConfig(n_ctx=len(at), d_mlp=1))
    for name, parameter in model.named_parameters():
        parameter.data = at[:, None] if name.endswith("W_in") else torch.full_like(parameter, float("W_out" in name))
    found = array(run_all(payload_of(model), torch.eye(len(at)).long(), [{}] * len(at)), "logit")
    expected = at.double().numpy() * scipy.special.ndtr(at.double().numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-15, atol=2e-15)


@pytest.mark.parametrize("name", ["attention", "cls"])
def test_a_removed_key_gets_no_share_and_the_rest_all(name: str, in_browser: Callable[[str, Any], Any]) -> None:
    code = """([payload, bits, edits]) => BoolensNetwork.run(BoolensNetwork.load(payload), bits, edits)"""
    payload, bits = payload_of(model_of(name)), [1, 0, 0, 1, 1, 0][: CONFIGS[name].n_ctx]
    edits = {"removed": [{"src": 2, "head": 1}, {"src": 0, "head": None}, {"src": 0, "head": 0}], "rows": []}
    found = in_browser(code, [payload, bits, edits])
    pattern = np.array(found["pattern"])
    assert pattern.sum(axis=-1) == pytest.approx(1, abs=1e-14)
    gone = np.zeros(pattern.shape, dtype=bool)
    gone[1, :, 2] = gone[:, :, 0] = True
    np.testing.assert_array_equal(pattern == 0, gone)
    assert {score for head in found["scores"] for row in head for score in row if not isinstance(score, float)} == {
        None
    }
    np.testing.assert_array_equal(np.array(found["scores"], dtype=object) == None, gone)  # noqa: E711


@pytest.mark.parametrize(
    ("name", "bits", "edits", "message"),
    [
        ("attention", [1, 0, 1], {}, "the input has 3 bits; this network takes an array of 5"),
        ("attention", "10110", {}, "takes an array of 5"),
        ("linear", [1] * 8, {}, "the input has 8 bits; this network takes an array of 7"),
        ("mlp", [0, 1, 2, 0, 0, 0], {}, "the input holds 2; every bit must be 0 or 1"),
        ("cls", [0, 1, None, 0, 0, 0], {}, "the input holds null; every bit must be 0 or 1"),
        ("mlp", [0] * 6, {"removed": [{"src": 1, "head": None}]}, "architecture mlp: it has no attention to edit"),
        ("linear", [0] * 7, {"rows": [{"dest": 0, "head": 0, "bits": [1] * 7}]}, "linear: it has no attention to edit"),
        ("attention", [0] * 5, {"removed": [{"src": 5, "head": 0}]}, "src 5 is out of range; there are 5, 0 to 4"),
        ("cls", [0] * 6, {"removed": [{"src": -1, "head": 0}]}, "src -1 is out of range; there are 7, 0 to 6"),
        ("cls", [0] * 6, {"removed": [{"src": 1, "head": 3}]}, "head 3 is out of range; there are 3, 0 to 2"),
        ("cls", [0] * 6, {"rows": [{"dest": 1, "head": 0, "bits": [1] * 6}]}, "dest 1 is out of range; there are 1"),
        ("cls", [0] * 6, {"rows": [{"dest": 0, "head": 0, "bits": [1] * 7}]}, "the input has 7 bits"),
        (
            "attention",
            [0] * 5,
            {"removed": [{"src": src, "head": 1} for src in range(5)]},
            "removing all 5 keys of head 1 leaves nothing to attend to; keep at least one of the keys",
        ),
    ],
)
def test_what_cannot_be_run_is_an_error(
    name: str, bits: Any, edits: Any, message: str, in_browser: Callable[[str, Any], Any]
) -> None:
    code = """([payload, bits, edits]) => {
        const net = BoolensNetwork.load(payload);
        try { BoolensNetwork.run(net, bits, edits); } catch (error) { return error.message; }
        return "no error";
    }"""
    assert message in in_browser(code, [payload_of(model_of(name)), bits, edits])


def test_the_last_key_is_not_removed_in_python_either() -> None:
    removal = RemoveKey(range(5), head=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(BoolensError, match="leaves nothing to attend to; keep at least one of the keys"):
        intervene(model_of("attention"), random_bits(2, 5), removal)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "the payload has schema 2; this version reads schema 1"),
        ({"architecture": "toString"}, "architecture toString is not known; they are attention, cls, mlp, linear"),
        ({"weights": {"W": {"shape": [7], "data": "AACAPw=="}}}, "W has 4 bytes; shape [7] needs 28"),
    ],
)
def test_a_damaged_payload_is_an_error(change: Any, message: str, in_browser: Callable[[str, Any], Any]) -> None:
    code = """(payload) => { try { BoolensNetwork.load(payload); } catch (error) { return error.message; } }"""
    assert in_browser(code, payload_of(model_of("linear")) | change) == message


TASKS: list[Task] = [
    SparseAnd(6, (1, 4, 5)),
    RuleAnd(7, ((0, 1), (2,), (1, 4, 6), (0, 2)), rule_positions=(5, 3)),
    Or(6, (0, 2)),
    Majority(7, (0, 2, 3, 6)),
    Parity(6, (5, 1, 2)),
    Junta(6, (4, 0, 3), table="00011010"),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.NAME)
def test_labels_agree_on_all_inputs(task: Task, in_browser: Callable[[str, Any], Any]) -> None:
    code = "([payload, inputs]) => inputs.map((bits) => BoolensNetwork.label(payload, bits))"
    payload = {
        "config": {"n_ctx": task.n_ctx},
        "rule_positions": task.rule_positions,
        "targets": task.targets,
        "label": explorer.label_payload(task),
    }
    inputs = task.enumerate()
    assert in_browser(code, [payload, inputs.tolist()]) == task.label(inputs).tolist()
    assert in_browser(code, [payload | {"label": None}, inputs[:3].tolist()]) == [None, None, None]


def test_an_imported_run_s_inputs_are_what_its_payload_says(
    tmp_path: Path, in_browser: Callable[[str, Any], Any]
) -> None:
    commands.import_checkpoint(FILES["imported rule-and"], "rule-and", "3,9/4,6", tmp_path / "run", None, "tutorial", 0)
    run = Run(tmp_path / "run")
    code = """(payload) => {
        const net = BoolensNetwork.load(payload);
        const inputs = payload.inputs.map((input) => Array.from(input.bits, Number));
        return inputs.map((bits) => [BoolensNetwork.label(payload, bits), BoolensNetwork.run(net, bits).logit]);
    }"""
    payload = explorer.explorer_payload(run)
    x = torch.tensor([[int(bit) for bit in entry["bits"]] for entry in payload["inputs"]])
    labels, logits = zip(*in_browser(code, payload), strict=True)
    assert labels == (True, False, True, False)
    np.testing.assert_allclose(logits, run_model(run.model, x)[0], rtol=1e-5, atol=1e-5)
