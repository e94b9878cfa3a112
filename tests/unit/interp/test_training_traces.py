"""What training leaves as it was, and what it refuses."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from interp.errors import BoolensError
from interp.training import (
    Labelled,
    check_device,
    denormals_flushed,
    train,
)
from tests.unit.interp.training_cases import (
    DATA,
    MODELS,
    VALID,
    config,
    content,
    flushing,
    fresh,
    samples,
    trained,
)


@pytest.fixture
def denormals_kept() -> Iterator[None]:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush denormals")
    yield
    torch.set_flush_denormal(False)


# Traces


@pytest.mark.usefixtures("denormals_kept")
@pytest.mark.parametrize("before", [False, True])
def test_denormals_are_flushed_in_training_only(before: bool) -> None:
    torch.set_flush_denormal(before)
    seen: list[bool] = []
    trained("linear", config(), on_step=lambda *_: seen.append(flushing()))
    assert seen == [True] * 12
    assert flushing() is before


@pytest.mark.usefixtures("denormals_kept")
@pytest.mark.parametrize("before", [False, True])
def test_denormals_are_as_before_after_an_exception(before: bool) -> None:
    torch.set_flush_denormal(before)
    inside: list[bool] = []

    def flush_and_fail() -> None:
        with denormals_flushed():
            inside.append(flushing())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        flush_and_fail()
    assert inside == [True]
    assert flushing() is before


def fail(*_: Any) -> None:
    raise ZeroDivisionError


@pytest.mark.usefixtures("denormals_kept")
@pytest.mark.parametrize("kind", MODELS)
def test_the_model_is_in_evaluation_mode_without_gradients_after_training_and_after_an_exception(kind: str) -> None:
    finished = fresh(kind)
    train(finished, DATA, VALID, config(), 0)
    failed = fresh(kind)
    with pytest.raises(ZeroDivisionError):
        train(failed, DATA, VALID, config(), 0, on_step=fail)
    for model in (finished, failed):
        assert not any(module.training for module in model.modules())
        assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert not flushing()


# What cannot be trained


@pytest.mark.parametrize("kind", ["attention", "linear"])
def test_a_diverging_training_raises(kind: str) -> None:
    with pytest.raises(BoolensError, match=r"the loss is (nan|inf) at step \d+; lower lr = 3e\+38"):
        trained(kind, config(steps=20, lr=3e38, log_every=1))
    assert not flushing()


def test_a_diverging_training_raises_at_the_last_step_at_the_latest() -> None:
    with pytest.raises(BoolensError, match=r"at step 20; lower lr"):
        trained("attention", config(steps=20, lr=3e38, log_every=1000))


@pytest.mark.parametrize(
    ("data", "valid", "message"),
    [
        (samples(22, 1), VALID, "22 inputs and 22 labels given, but n_train = 23; make them equal"),
        (DATA, samples(18, 1), "18 inputs and 18 labels given, but n_valid = 17; make them equal"),
        ((DATA[0], DATA[1][:-1]), VALID, "23 inputs and 22 labels given, but n_train = 23; make them equal"),
        (DATA, (VALID[0], VALID[1][:1]), "17 inputs and 1 labels given, but n_valid = 17; make them equal"),
        ((DATA[0][:, :-1], DATA[1]), VALID, r"inputs have shape \(23, 5\).* with pos = 6"),
        ((DATA[0] * 2, DATA[1]), VALID, r"inputs range from 0 to 2; every bit must be 0 or 1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_wrong_sizes_are_refused(data: Labelled, valid: Labelled, message: str) -> None:
    model = fresh("linear")
    with pytest.raises(BoolensError, match=message):
        train(model, data, valid, config(), 0)
    assert content(model) == content(fresh("linear"))


def test_devices_that_are_not_there() -> None:
    assert check_device("cpu") == "cpu"
    model = fresh("linear")
    with pytest.raises(BoolensError, match=r"device 'abacus' is not available \(.*\); use cpu"):
        train(model, DATA, VALID, config(), 0, device="abacus")
    for device in ("", "cuda:99"):
        with pytest.raises(BoolensError, match=rf"device '{device}' is not available \(.*\); use cpu"):
            check_device(device)
    assert content(model) == content(fresh("linear"))
