"""Training: the optimiser by hand, the history, snapshots, and resuming to the bit after being killed."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import interp
from interp.checkpoint import load_model, read_tensors, snapshot_path
from interp.config import RunConfig, TrainConfig
from interp.errors import BoolensError
from interp.files import write_json
from interp.models import AnyModel, HookedMLP
from interp.seeds import torch_generator
from interp.training import (
    HISTORY_COLUMNS,
    batch_rows,
    train,
)
from interp.training_state import STATE
from tests.unit.interp.training_cases import (
    DATA,
    MODELS,
    N_CTX,
    N_TRAIN,
    VALID,
    config,
    content,
    fresh,
    trained,
)

# The optimiser, by hand


def test_two_adam_steps_by_hand() -> None:
    lr = 0.05
    w, b = (value.double().numpy() for value in fresh("linear").state_dict().values())
    x, y = DATA[0].double().numpy(), DATA[1].double().numpy()
    m, v = np.zeros(N_CTX + 1), np.zeros(N_CTX + 1)
    for t in (1, 2):
        residual = 1 / (1 + np.exp(-(x @ w + b))) - y
        g = np.append((residual[:, None] * x).mean(axis=0), residual.mean())
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        step = lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        if t == 1:
            np.testing.assert_allclose(np.abs(step), lr, rtol=1e-4)  # Adam's first step is lr in every weight
        w, b = w - step[:-1], b - step[-1]
        model = fresh("linear").double()
        train(model, DATA, VALID, config(steps=t, lr=lr), 0)
        np.testing.assert_allclose(model.state_dict()["W"].numpy(), w, rtol=0, atol=1e-12)
        np.testing.assert_allclose(model.state_dict()["b"].numpy(), b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batch_size", [0, 5])
@pytest.mark.parametrize("kind", ["attention", "linear"])
def test_training_is_torch_s_adam_on_the_batches(kind: str, batch_size: int) -> None:
    cfg = config(steps=9, batch_size=batch_size, lr=0.02)
    model, plain = fresh(kind).double(), fresh(kind).double()
    train(model, DATA, VALID, cfg, seed=3)
    adam = torch.optim.Adam(plain.parameters(), lr=0.02, fused=False, foreach=False)
    for step in range(9):
        rows = batch_rows(cfg, 3, step) if batch_size else torch.arange(N_TRAIN)
        logits = plain(DATA[0][rows])
        sign = 1 - 2 * DATA[1][rows].double()
        adam.zero_grad()
        torch.log1p((sign * logits).exp()).mean().backward()
        adam.step()
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=1e-9, atol=1e-12)


def test_batches_are_a_permutation_each_epoch() -> None:
    cfg = config(n_train=7, batch_size=3)
    epochs = [[batch_rows(cfg, 5, 3 * epoch + i).tolist() for i in range(3)] for epoch in range(4)]
    for epoch in epochs:
        assert [len(rows) for rows in epoch] == [3, 3, 1]
        assert sorted(row for rows in epoch for row in rows) == list(range(7))
    assert len({str(epoch) for epoch in epochs}) == 4
    assert batch_rows(cfg, 5, 4).tolist() == epochs[1][1]  # of seed and step alone
    assert [batch_rows(cfg, 6, i).tolist() for i in range(3)] != epochs[0]


def test_a_batch_of_the_whole_set_holds_every_row() -> None:
    assert sorted(batch_rows(config(batch_size=N_TRAIN), 0, 2).tolist()) == list(range(N_TRAIN))


# Randomness


@pytest.mark.parametrize("batch_size", [0, 5])
@pytest.mark.parametrize("kind", MODELS)
def test_the_seed_decides(kind: str, batch_size: int) -> None:
    cfg = config(batch_size=batch_size)
    (first, first_history), (again, again_history), (other, _) = (trained(kind, cfg, seed) for seed in (1, 1, 2))
    assert content(first) == content(again)
    assert torch.equal(first_history, again_history)
    uses_seed = batch_size > 0 or kind == "mlp"  # batches and dropout are all that the seed is for
    assert (content(first) != content(other)) is uses_seed


@pytest.mark.parametrize("batch_size", [0, 5])
def test_dropout_masks_are_of_the_seed_and_the_step(batch_size: int) -> None:
    cfg, model, plain = config(steps=9, batch_size=batch_size), fresh("mlp").double(), fresh("mlp").double()
    assert isinstance(model, HookedMLP)
    assert isinstance(plain, HookedMLP)
    own_stream = model.mlp.dropout.generator.get_state()
    train(model, DATA, VALID, cfg, seed=4)
    adam = torch.optim.Adam(plain.parameters(), lr=cfg.lr, fused=False, foreach=False)
    masks: list[Tensor] = []
    for step in range(9):
        rows = batch_rows(cfg, 4, step) if batch_size else torch.arange(N_TRAIN)
        keep = torch.empty(len(rows), 13).bernoulli_(0.8, generator=torch_generator(4, "dropout", step))
        hidden = torch.nn.functional.gelu(DATA[0][rows].double() @ plain.mlp.W_in + plain.mlp.b_in) * keep / 0.8
        logits = hidden @ plain.mlp.W_out + plain.mlp.b_out
        sign = 1 - 2 * DATA[1][rows].double()
        adam.zero_grad()
        torch.log1p((sign * logits).exp()).mean().backward()
        adam.step()
        masks.append(keep[:3].bool())
    assert 0.7 < torch.stack(masks).double().mean().item() < 0.9
    assert len({str(mask.tolist()) for mask in masks}) == 9
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], weight, rtol=1e-9, atol=1e-12)
    assert torch.equal(model.mlp.dropout.generator.get_state(), own_stream)


def test_another_initialisation_gives_other_weights() -> None:
    models = [fresh("attention", seed) for seed in (1, 2)]
    for model in models:
        train(model, DATA, VALID, config(), 0)
    assert content(models[0]) != content(models[1])


@pytest.mark.parametrize("kind", MODELS)
def test_the_global_random_state_is_untouched(kind: str) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, _ = trained(kind, config(batch_size=5))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert content(trained(kind, config(batch_size=5))[0]) == content(first)


# History


@pytest.mark.parametrize(
    ("steps", "log_every", "logged"),
    [(10, 4, [0, 4, 8, 10]), (8, 4, [0, 4, 8]), (3, 7, [0, 3]), (1, 1, [0, 1]), (0, 1, [0])],
)
def test_the_first_and_the_last_step_are_logged(steps: int, log_every: int, logged: list[int]) -> None:
    _, history = trained("linear", config(steps=steps, log_every=log_every))
    assert history.dtype == torch.float64
    assert history.shape == (len(logged), len(HISTORY_COLUMNS))
    assert history[:, 0].tolist() == logged


def row_by_hand(model: AnyModel, step: int) -> list[float]:
    row: list[float] = [step]
    for x, y in (DATA, VALID):
        with torch.no_grad():
            logits = model(x).double().numpy()
        truth = y.numpy()
        row.append(float(np.mean(np.log1p(np.exp(np.where(truth, -logits, logits))))))
        row.append(float(np.mean([(logit > 0) == label for logit, label in zip(logits, truth, strict=True)])))
    return row


@pytest.mark.parametrize("kind", MODELS)
def test_rows_of_the_history_by_hand(kind: str) -> None:
    assert HISTORY_COLUMNS == ("step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy")
    model, history = trained(kind, config(steps=40, lr=0.1, log_every=40))
    np.testing.assert_allclose(history[0].numpy(), row_by_hand(fresh(kind).eval(), 0), rtol=1e-6)
    np.testing.assert_allclose(history[1].numpy(), row_by_hand(model, 40), rtol=1e-6, atol=1e-7)
    assert history[1, 1] < history[0, 1]


def test_a_logit_of_zero_is_false() -> None:
    model = fresh("linear")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    step, loss, accuracy = train(model, DATA, VALID, config(steps=0), 0)[0, [0, 3, 4]].tolist()
    assert step == 0
    assert loss == pytest.approx(np.log(2), rel=1e-6)
    assert accuracy == (~VALID[1]).double().mean().item()


def test_on_step_is_told_the_steps_and_the_last_logged_validation_accuracy() -> None:
    calls: list[tuple[int, float]] = []
    _, history = trained("linear", config(steps=7, log_every=3), on_step=lambda *call: calls.append(call))
    assert [step for step, _ in calls] == [1, 2, 3, 4, 5, 6, 7]
    accuracy = dict(zip(history[:, 0].tolist(), history[:, 4].tolist(), strict=True))
    assert [value for _, value in calls] == [accuracy[0]] * 3 + [accuracy[3]] * 3 + [accuracy[6]]


# Snapshots


def test_snapshots_at_their_steps(tmp_path: Path) -> None:
    cfg = config(steps=10, snapshot_every=4)
    model, _ = trained("attention", cfg, folder=tmp_path)
    steps = [0, 4, 8, 10]
    written = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert written == [f"snapshots/step-{step:06d}.safetensors" for step in steps]
    write_json(tmp_path / "config.json", RunConfig(model.cfg, cfg, 0, "trained", {}).to_dict())
    snapshots = {step: load_model(tmp_path, step) for step in steps}
    assert content(snapshots[0]) == content(fresh("attention"))
    assert content(snapshots[10]) == content(model)
    shorter, _ = trained("attention", config(steps=4))
    assert content(snapshots[4]) == content(shorter)


def test_nothing_is_written_unless_asked(tmp_path: Path) -> None:
    trained("linear", config(), folder=tmp_path)
    assert not list(tmp_path.iterdir())


# Resuming


def resumable(kind: str) -> TrainConfig:
    return config(steps=60, log_every=7, snapshot_every=20, batch_size=5 if kind == "mlp" else 0)


def train_until_killed(kind: str, folder: Path) -> None:
    """Save after every step; hang at step 50, so that this never ends by itself."""

    def hang(step: int, _: float) -> None:
        if step == 50:
            time.sleep(120)

    trained(kind, resumable(kind), folder=folder, save_seconds=0, most_steps=1, on_step=hang)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, AnyModel, Tensor]]:
    """From a kind of model to the folder, model and history of a training in one go, made once."""

    @functools.cache
    def make(kind: str) -> tuple[Path, AnyModel, Tensor]:
        folder = tmp_path_factory.mktemp(kind)
        return folder, *trained(kind, resumable(kind), folder=folder)

    return make


def check_resumes(kind: str, folder: Path, whole: tuple[Path, AnyModel, Tensor]) -> None:
    """Resume in `folder` from other initial weights, and compare every byte with the training in one go."""
    whole_folder, whole_model, whole_history = whole
    resumed = fresh(kind, seed=99)
    history = train(resumed, DATA, VALID, resumable(kind), 0, folder=folder)
    assert content(resumed) == content(whole_model)
    assert history.numpy().tobytes() == whole_history.numpy().tobytes()
    assert history[:, 0].tolist() == [*range(0, 60, 7), 60]
    for step in (0, 20, 40, 60):
        ours, theirs = (snapshot_path(f, step).read_bytes() for f in (folder, whole_folder))
        assert ours == theirs


@pytest.mark.parametrize("kind", ["attention", "mlp"])
def test_a_killed_training_resumes_to_the_bit(kind: str, uninterrupted: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    environment = {**os.environ, "PYTHONPATH": str(Path(interp.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, __file__, kind, str(folder)], env=environment)
    try:
        deadline = time.monotonic() + 100
        while not (folder / STATE).exists() or int(read_tensors(folder / STATE)["step"]) < 7:
            assert process.poll() is None, "the training ended before it could be killed"
            assert time.monotonic() < deadline, "no state was saved"
            time.sleep(0.002)
    finally:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert 7 <= int(read_tensors(folder / STATE)["step"]) < 50  # whole, whenever the kill came
    check_resumes(kind, folder, uninterrupted(kind))


@pytest.mark.parametrize("kind", ["attention", "mlp"])
@pytest.mark.parametrize("stop", [2, 7, 8, 21, 60])
def test_an_interrupted_training_resumes_to_the_bit(
    kind: str, stop: int, uninterrupted: Callable[..., Any], tmp_path: Path
) -> None:
    def interrupt(step: int, _: float) -> None:
        if step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(kind, resumable(kind), folder=tmp_path, save_seconds=-1, most_steps=1, on_step=interrupt)
    assert int(read_tensors(tmp_path / STATE)["step"]) == stop - 1
    check_resumes(kind, tmp_path, uninterrupted(kind))


def test_resuming_after_the_last_step_does_nothing_more(tmp_path: Path) -> None:
    model, history = trained("mlp", config(), folder=tmp_path, save_seconds=-1)
    assert int(read_tensors(tmp_path / STATE)["step"]) == 12
    again = fresh("mlp", seed=99)
    assert torch.equal(train(again, DATA, VALID, config(), 0, folder=tmp_path), history)
    assert content(again) == content(model)


def test_the_state_is_saved_every_so_many_seconds(tmp_path: Path) -> None:
    trained("linear", config(steps=40), folder=tmp_path, save_seconds=3600)
    assert not (tmp_path / STATE).exists()
    trained("linear", config(steps=40), folder=tmp_path, save_seconds=-1)
    assert (tmp_path / STATE).exists()


def test_a_state_of_another_training_is_refused(tmp_path: Path) -> None:
    trained("linear", config(), folder=tmp_path, save_seconds=-1)
    before = (tmp_path / STATE).read_bytes()
    float32 = r"of torch\.float32"
    wrong_size = (
        rf"{STATE} does not fit the model: flat should be \(51,\) {float32}, found \(7,\) {float32}; "
        "delete it to train from the start"
    )
    with pytest.raises(BoolensError, match=rf"{STATE} is at step 12, but this training has 11; delete it to train"):
        trained("linear", config(steps=11), folder=tmp_path)
    with pytest.raises(BoolensError, match=wrong_size):
        trained("attention", config(), folder=tmp_path)
    (tmp_path / STATE).write_bytes(before[:-1])
    with pytest.raises(BoolensError, match=rf"{STATE} is not a whole safetensors file"):
        trained("linear", config(), folder=tmp_path)
    assert (tmp_path / STATE).read_bytes() == before[:-1]


if __name__ == "__main__":
    train_until_killed(sys.argv[1], Path(sys.argv[2]))
