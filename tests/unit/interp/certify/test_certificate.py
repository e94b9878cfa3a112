"""Certificates against the truth by enumeration, for every architecture and task."""

import numpy as np
import pytest
import torch

from interp.certify.certificate import Certificate, certify
from interp.certify.mlp import MLPSide
from interp.certify.side import RatioSide
from interp.config import LinearConfig
from interp.errors import BoolensError
from interp.models import AnyModel, HookedAttention, HookedLinear
from tasks import Junta, Majority, Or, Parity, RuleAnd, SparseAnd
from tasks.base import Task
from tests.unit.interp.certify.certify_cases import (
    KINDS,
    all_logits,
    n_counted,
    output_bias,
    output_weight,
    random_model,
    scale_scores,
    side_maker,
    task_boxes,
    trained_model,
)

TASKS: dict[str, Task] = {
    "sparse-and": SparseAnd(7, (1, 4, 5)),
    "all targets": SparseAnd(5, range(5)),
    "one target": SparseAnd(6, (3,)),
    "one bit": SparseAnd(1, (0,)),
    "rule-and": RuleAnd(7, ((0, 3), (1, 2))),
    "two rule bits": RuleAnd(8, ((0, 3), (1,), (1, 2, 4), (5,)), rule_positions=(6, 7)),
    "or": Or(7, (0, 6)),
    "majority": Majority(7, (1, 2, 6)),
    "parity": Parity(6, (2, 4)),
    "junta": Junta(7, (0, 3, 5), "01101100"),
}


def certificate(model: AnyModel, task: Task, change: int = 0, **options: object) -> Certificate:
    boxes, p = task_boxes(task, change), np.array(task.bit_probability)
    return certify(side_maker(model), boxes, p, np.random.default_rng(0), **options)  # pyright: ignore[reportArgumentType]


def check(found: Certificate, model: AnyModel, task: Task, change: int = 0) -> None:
    """Everything that a certificate says, where no logit lies within rounding of 0."""
    x, logits, label = task.enumerate(), all_logits(model), task.label(task.enumerate()).numpy()
    assert np.abs(logits).min() > 10 * found.margin
    wrong = (logits > 0) != label
    changes = np.empty(len(x), dtype=np.int64)
    for rule in range(task.n_rules):
        counted = np.full(task.n_ctx, change)
        counted[[*task.targets[rule], *task.rule_positions]] = -1
        of_rule = (task.rule(x) == rule).numpy()
        changes[of_rule] = n_counted(x.numpy(), counted)[of_rule]
    assert found.verdict == ("refuted" if wrong.any() else "verified")
    assert found.n_inputs == len(x)
    assert found.n_wrong == wrong.sum()
    probability = float(task.log_probability(x).exp().numpy()[wrong].sum())
    assert found.lower == pytest.approx(probability, rel=1e-12, abs=1e-15)
    assert found.upper == pytest.approx(probability, rel=1e-12, abs=1e-15)
    assert found.open == 0
    if not wrong.any():
        assert found.radius == (int(changes.max()), int(changes.max()))
        assert (found.counterexample, found.worst, found.n_changes) == (None, None, None)
        return
    fewest = int(changes[wrong].min())
    assert found.radius == (fewest - 1, fewest - 1)
    assert found.n_changes == fewest
    assert found.counterexample is not None
    assert found.worst is not None
    nearest, worst = (
        int(bits @ 2 ** np.arange(task.n_ctx - 1, -1, -1)) for bits in (found.counterexample, found.worst)
    )
    assert wrong[nearest]
    assert changes[nearest] == fewest
    assert wrong[worst]
    assert abs(logits[worst]) == pytest.approx(np.abs(logits[wrong]).max(), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TASKS)
def test_certificates_are_the_truth(name: str, kind: str) -> None:
    task = TASKS[name]
    for seed in range(2):
        for change in (0, 1):
            model = random_model(kind, task.n_ctx, seed)
            check(certificate(model, task, change), model, task, change)


@pytest.mark.parametrize("kind", KINDS)
def test_trained_models(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with boxes so small that counting has to split and to find boxes that are all wrong by their bounds."""
    verdicts = []
    for name in ("sparse-and", "rule-and", "or", "majority", "parity"):
        for seed, steps in ((0, 15), (1, 60)):
            model = trained_model(kind, TASKS[name], seed, steps)
            for leaf in (19, 2):
                monkeypatch.setattr(RatioSide, "leaf", leaf)
                monkeypatch.setattr(MLPSide, "leaf", min(leaf, 12))
                found = certificate(model, TASKS[name])
                check(found, model, TASKS[name])
            verdicts.append(found.verdict)
    assert "refuted" in verdicts
    assert "verified" in verdicts


@pytest.mark.parametrize("kind", ["heads", "mlp", "linear"])
@pytest.mark.parametrize("off", [1e-12, -1e-12])
def test_a_logit_of_1e_12_decides(kind: str, off: float) -> None:
    """The largest logit of an input that should be False lies 1e-12 above or below 0, all others on their side."""
    task = TASKS["or"]
    for seed in range(3):
        model = trained_model(kind, task, seed, 60)
        label = task.label(task.enumerate()).numpy()
        with torch.no_grad():
            output_weight(model).mul_(1e-3)  # so that margins are small
            logits = all_logits(model)
            assert logits[label].min() > logits[~label].max() + 1e-7
            output_bias(model).sub_(float(logits[~label].max()) - off)
        found = certificate(model, task)
        assert found.margin < 5e-13
        assert found.verdict == ("refuted" if off > 0 else "verified")
        assert found.n_wrong == (off > 0)


def test_a_logit_of_0_is_never_verified() -> None:
    task = SparseAnd(3, (0, 2))
    model = random_model("linear", 3, 0)
    assert isinstance(model, HookedLinear)
    with torch.no_grad():
        model.W.copy_(torch.tensor([1.0, 0.0, 1.0]))
        model.b.fill_(-1.0)
    found = certificate(model, task)
    assert (found.verdict, found.n_wrong, found.method) == ("undecided", None, "logits within rounding of 0")
    assert found.lower == 0
    assert found.upper == pytest.approx(float(torch.tensor([task.p * (1 - task.p) * 2])))
    assert found.radius == (-1, 1)
    with torch.no_grad():
        model.b.fill_(-1.0 - 1e-12)
    assert certificate(model, task).verdict == "verified"
    with torch.no_grad():
        model.b.fill_(-1.0 + 1e-12)
    check(certificate(model, task), model, task)


@pytest.mark.parametrize("kind", ["attention", "heads"])
def test_queries_that_are_not_read(kind: str) -> None:
    task = TASKS["sparse-and"]
    model = random_model(kind, 7, 2)
    assert isinstance(model, HookedAttention)
    with torch.no_grad():
        model.W_readout.zero_()
        if model.b_readout is not None:
            model.b_readout.fill_(-1)
    found = certificate(model, task)
    if model.b_readout is not None:
        check(found, model, task)
        return
    assert found.verdict == "undecided"
    assert found.upper == pytest.approx(1.0)


@pytest.mark.parametrize("gap", [700.0, 2000.0])
def test_scores_hundreds_apart(gap: float) -> None:
    task = TASKS["sparse-and"]
    for seed in range(4):
        model = random_model("attention", 7, seed, 1.0)
        assert isinstance(model, HookedAttention)
        scale_scores(model, gap / 10)
        check(certificate(model, task), model, task)


def test_time_that_runs_out_leaves_bounds() -> None:
    task = SparseAnd(16, (1, 4, 5))
    model = random_model("mlp", 16, 0)
    wrong = (all_logits(model) > 0) != task.label(task.enumerate()).numpy()
    probability = float(task.log_probability(task.enumerate()).exp().numpy()[wrong].sum())
    found = certificate(model, task, seconds=1e-9)
    assert found.lower <= probability <= found.upper
    assert found.open == pytest.approx(1.0)
    assert found.n_wrong is None


def test_without_counting() -> None:
    for seed in range(4):
        model = trained_model("mlp", TASKS["or"], seed, 20)
        wrong = (all_logits(model) > 0) != TASKS["or"].label(TASKS["or"].enumerate()).numpy()
        found = certificate(model, TASKS["or"], count=False)
        assert found.verdict == ("refuted" if wrong.any() else "verified")
        assert found.n_counted == 0


@pytest.mark.parametrize("kind", ["heads", "mlp", "linear"])
@pytest.mark.parametrize("shift", [-30.0, 0.0, 30.0])
def test_boxes_that_are_all_wrong_by_their_bounds(kind: str, shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no boxes left for the radius, what counting knows without evaluating an input is enough."""
    monkeypatch.setattr(RatioSide, "leaf", 0)
    monkeypatch.setattr(MLPSide, "leaf", 0)
    monkeypatch.setattr(RatioSide, "boxes", 0)
    monkeypatch.setattr(MLPSide, "boxes", 0)
    for name in ("sparse-and", "rule-and", "majority"):
        model = random_model(kind, 7, 5, 0.7)
        with torch.no_grad():
            output_bias(model).add_(shift)
        for change in (0, 1):
            check(certificate(model, TASKS[name], change), model, TASKS[name], change)


def test_nothing_to_certify() -> None:
    model = random_model("linear", 3, 0)
    with pytest.raises(BoolensError, match="0 boxes of inputs, 60"):
        certify(side_maker(model), [], np.full(3, 0.5), np.random.default_rng(0))
    with pytest.raises(BoolensError, match="-1 seconds; give at least one box and some time"):
        certificate(model, SparseAnd(3, (0,)), seconds=-1)


def test_boxes_that_are_wrong_throughout_need_no_counting() -> None:
    """A model that answers True to everything, at more bits than are counted one by one."""
    n_ctx, task = 22, SparseAnd(22, (3, 8), p=0.7)
    model = HookedLinear(LinearConfig(n_ctx)).double().eval()
    with torch.no_grad():
        model.W.zero_()
        model.b.fill_(1.0)
    found = certificate(model, task)
    assert (found.verdict, found.n_wrong, found.n_counted) == ("refuted", 3 * 2 ** (n_ctx - 2), 0)
    assert found.lower == found.upper == pytest.approx(1 - 0.7**2)
    assert (found.n_changes, found.radius) == (0, (-1, -1))
    assert found.by_changes is not None
    assert sum(found.by_changes.values()) == found.n_wrong
    assert found.by_changes[1] == 3 * (n_ctx - 2)
