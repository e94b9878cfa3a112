"""What the explorer in a run's page is given: the trained network, its labels, and inputs worth looking at.

The network runs in the browser (static/network.js), in double precision on the weights in single precision.
"""

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from analyses.report.findings import find
from analyses.runs import Run
from interp.errors import BoolensError
from interp.hooks import run as run_model
from tasks import Task
from tasks.boolean import CountFunction
from tasks.conjunction import Conjunction
from tasks.junta import MAX_TARGETS, patterns

if TYPE_CHECKING:
    from interp.models import AnyModel


def explorer_payload(run: Run) -> dict[str, Any]:
    """Everything that the explorer knows, as strict JSON.

    Keys: schema; architecture, config, weights (`network_payload`); names, one a position; targets, one set a rule;
    rule_positions; label (`label_payload`); inputs, each with name, kind ('typical', 'counterexample', 'worst') and
    bits, a text of 0 and 1; certificate, its verdict and sentence, or None without one of this very network.

    Raises:
        BoolensError: weights too large for single precision, or a certificate that cannot be read.
    """
    task, certificate = run.task, fresh_certificate(run)
    return {
        "schema": 1,
        **network_payload(run.model),
        "names": list(task.position_names or map(str, range(task.n_ctx))),
        "targets": [list(targets) for targets in task.targets],
        "rule_positions": list(task.rule_positions),
        "label": label_payload(task),
        "inputs": [*typical_inputs(run), *found_inputs(certificate)],
        "certificate": certificate and {name: certificate[name] for name in ("verdict", "sentence")},
    }


def network_payload(model: "AnyModel") -> dict[str, Any]:
    """Architecture, configuration, and every parameter and buffer by name: its shape and, in base64, its entries as
    little-endian float32.

    Raises:
        BoolensError: an entry too large for single precision.
    """
    weights = {}
    for name, tensor in model.state_dict().items():
        values = tensor.detach().cpu().float().numpy()
        if not np.isfinite(values).all():
            raise BoolensError(
                f"{name} has entries beyond the range of single precision, in which the page's network is kept; "
                "scale the weights down"
            )
        data = base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")
        weights[name] = {"shape": list(values.shape), "data": data}
    return {"architecture": model.cfg.architecture, "config": model.cfg.to_dict(), "weights": weights}


def label_payload(task: Task) -> dict[str, Any] | None:
    """The task's label, by rule, as a function of the targets' bits; None where it is not known on all inputs.

    {"kind": "count", "labels": [[0, 0, 1], ...]} is by how many targets are 1, {"kind": "table", "labels": ["0001",
    ...]} by the targets' bits read as a binary number, the first target most significant.
    """
    if not task.ON_ALL_INPUTS:
        return None
    if isinstance(task, Conjunction | CountFunction):
        by_count = [torch.ones(len(t) + 1, len(t), dtype=torch.int8).tril(-1) for t in task.targets]
        return {"kind": "count", "labels": [_labels(task, r, bits) for r, bits in enumerate(by_count)]}
    if max(map(len, task.targets)) > MAX_TARGETS:
        return None
    by_pattern = [patterns(len(t)).to(torch.int8) for t in task.targets]
    return {
        "kind": "table",
        "labels": ["".join(map(str, _labels(task, r, bits))) for r, bits in enumerate(by_pattern)],
    }


def _labels(task: Task, rule: int, bits: torch.Tensor) -> list[int]:
    """The labels under a rule where the targets have these bits [batch, target] and all others are 0."""
    x = torch.zeros(len(bits), task.n_ctx, dtype=torch.int8)
    x[:, list(task.rule_positions)] = torch.tensor(task.rule_bits(rule), dtype=torch.int8)
    x[:, list(task.targets[rule])] = bits
    return task.label(x).int().tolist()


def typical_inputs(run: Run) -> list[dict[str, str]]:
    """Of each rule and label the analysis input whose logit is nearest to their median; none where none has the label.

    Of a table these are held-out rows.
    """
    found = []
    for rule in range(run.task.n_rules):
        x = run.inputs(rule)
        logits, labels = run_model(run.model, x)[0].double().numpy(), run.task.label(x).numpy()
        where = f", rule {rule}" if run.task.rule_positions else ""
        for label in (True, False):
            rows = np.flatnonzero(labels == label)
            if len(rows):
                distance = np.abs(logits[rows] - np.median(logits[rows]))
                name = f"typical input, label {label}{where}"
                found.append(_input(name, "typical", x[rows[distance.argmin()]].tolist()))
    return found


def fresh_certificate(run: Run) -> dict[str, Any] | None:
    """The result of the run's certificate, if there is one and it is of these weights, configuration and task.

    Raises:
        BoolensError: result.json is damaged.
    """
    found = find(run, "certificate")
    if found.state in ("missing", "stale"):
        return None
    if found.result is None or not {"verdict", "sentence", "counterexample", "worst"} <= found.result.keys():
        raise BoolensError(
            f"{found.folder / 'result.json'} is no certificate; make it again with `boolens certify {run.path}`"
        )
    return found.result


def found_inputs(certificate: dict[str, Any] | None) -> list[dict[str, str]]:
    """The certificate's counterexample and the worst input that it found; one entry where they are the same."""
    if certificate is None or certificate["counterexample"] is None:
        return []
    bits, worst = certificate["counterexample"], (certificate["worst"] or {}).get("input")
    if worst in (None, bits):
        return [_input("counterexample", "counterexample", bits)]
    return [_input("counterexample", "counterexample", bits), _input("worst input found", "worst", worst)]


def _input(name: str, kind: str, bits: list[int]) -> dict[str, str]:
    return {"name": name, "kind": kind, "bits": "".join(map(str, bits))}
