"""Training one model: Adam on binary cross-entropy, resumable to the bit."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp.checkpoint import load_tensors, read_tensors, save_weights, snapshot_path
from interp.config import TrainConfig
from interp.errors import BoolensError
from interp.files import write_atomic
from interp.hooks import quietly
from interp.seeds import derive_seed, torch_generator
from interp.threads import suited_threads

if TYPE_CHECKING:
    from interp.models import AnyModel

HISTORY_COLUMNS = ("step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy")
Labelled = tuple[Int[Tensor, "batch pos"], Bool[Tensor, " batch"]]
"""Inputs and their labels."""
LabelledApart = tuple[Int[Tensor, "other_batch pos"], Bool[Tensor, " other_batch"]]
"""The same, of another number of rows than the Labelled beside it."""
STATE = "resume.safetensors"
"""Kept in the run's folder while it trains: weights, Adam's moments, step and history."""


def evaluate(model: "AnyModel", data: Labelled) -> tuple[float, float]:
    """Mean binary cross-entropy (nats) and accuracy (in [0, 1]) in evaluation mode; a logit of 0 counts as False."""
    x, y = data
    with quietly(model):
        logits = model(x)
    return binary_cross_entropy_with_logits(logits, y.to(logits)).item(), ((logits > 0) == y).double().mean().item()


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Flush denormal floats to zero (they slow CPU training several-fold once the loss is small); restored after."""
    tiny = torch.finfo(torch.float32).tiny
    were_kept = (torch.tensor(tiny) / 2).item() != 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(not were_kept)


@contextmanager
def _training_mode(model: "AnyModel") -> Iterator[None]:
    """Training mode inside; evaluation mode and no gradients after, also after an exception."""
    model.train()
    try:
        yield
    finally:
        model.eval()
        model.zero_grad()


def batch_rows(cfg: TrainConfig, seed: int, step: int) -> Int[Tensor, " rows"]:
    """The rows of the mini-batch of a step: a function of (seed, step) alone, so that resuming needs no state."""
    per_epoch = -(-cfg.n_train // cfg.batch_size)
    epoch, index = divmod(step, per_epoch)
    order = torch.randperm(cfg.n_train, generator=torch_generator(seed, "batches", epoch))
    return order[index * cfg.batch_size : (index + 1) * cfg.batch_size]


def train(
    model: "AnyModel",
    data: Labelled,
    valid: LabelledApart,
    cfg: TrainConfig,
    seed: int,
    *,
    folder: Path | None = None,
    device: str = "cpu",
    save_seconds: float = 5.0,
    on_step: Callable[[int, float], None] | None = None,
) -> Float[Tensor, "row column"]:
    """Train in place; return the history, float64 with HISTORY_COLUMNS as columns.

    Args:
        model: moved to `device`, left there in evaluation mode.
        data, valid: training and validation sets of cfg.n_train and cfg.n_valid rows.
        cfg: steps, learning rate and so on.
        seed: of mini-batches and dropout.
        folder: where snapshots go, and the state to resume from, which is saved every `save_seconds` and picked up
            when it is there: the final weights are those of an uninterrupted training, bit for bit.
        on_step: called after every step with the number of steps done and the last logged validation accuracy.

    Raises:
        BoolensError: sizes that differ from cfg, a device that is not there, a state in the folder that is not this
            training's, or a loss that is no longer finite.
    """
    for field, samples in (("n_train", data), ("n_valid", valid)):
        sizes = [len(part) for part in samples]
        if sizes != [getattr(cfg, field)] * 2:
            raise BoolensError(
                f"{sizes[0]} inputs and {sizes[1]} labels given, but {field} = {getattr(cfg, field)}; make them equal"
            )
    model.to(check_device(device))
    data, valid = ((x.to(device), y.to(device)) for x, y in (data, valid))
    x, target = data[0], data[1].to(next(model.parameters()).dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    start, history = _restore(model, optimizer, folder, cfg.steps)
    saved_at = time.monotonic()
    widest = (cfg.batch_size or cfg.n_train) * getattr(model.cfg, "n_heads", 1) * x.shape[1] ** 2
    with suited_threads(widest), denormals_flushed(), _training_mode(model):
        for step in range(start, cfg.steps + 1):
            last = step == cfg.steps
            if step % cfg.log_every == 0 or last:
                history.append((step, *evaluate(model, data), *evaluate(model, valid)))
                if not all(map(torch.isfinite, torch.tensor(history[-1]))):
                    raise BoolensError(f"the loss is {history[-1][1]} at step {step}; lower lr = {cfg.lr}")
            if folder and cfg.snapshot_every and (step % cfg.snapshot_every == 0 or last):
                save_weights(model, snapshot_path(folder, step))
            if last:
                break
            _reseed_dropout(model, seed, step)
            rows = batch_rows(cfg, seed, step).to(device) if cfg.batch_size else slice(None)
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(model(x[rows]), target[rows]).backward()
            optimizer.step()
            if on_step:
                on_step(step + 1, history[-1][-1])
            if folder and time.monotonic() - saved_at > save_seconds:
                _save(model, optimizer, step + 1, history, folder)
                saved_at = time.monotonic()
    return torch.tensor(history, dtype=torch.float64)


def check_device(device: str) -> str:
    """The device's name, if torch can use it; else BoolensError."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BoolensError(f"device {device!r} is not available ({str(error).splitlines()[0]}); use cpu") from None
    return device


def _reseed_dropout(model: "AnyModel", seed: int, step: int) -> None:
    for module in model.modules():
        generator = getattr(module, "dropout_generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(derive_seed(seed, "dropout", step))


def _save(model: "AnyModel", optimizer: torch.optim.Optimizer, step: int, history: list[tuple], folder: Path) -> None:
    tensors = {f"weights.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{name}": tensor for name, tensor in moments.items()}
    tensors |= {"step": torch.tensor(step), "history": torch.tensor(history, dtype=torch.float64)}
    write_atomic(folder / STATE, safetensors.torch.save({k: t.detach().cpu().contiguous() for k, t in tensors.items()}))


def _restore(
    model: "AnyModel", optimizer: torch.optim.Optimizer, folder: Path | None, steps: int
) -> tuple[int, list[tuple]]:
    if folder is None or not (folder / STATE).exists():
        return 0, []
    path = folder / STATE
    tensors = read_tensors(path)
    if not {"step", "history"} <= tensors.keys() or int(tensors["step"]) > steps:
        done = f"step {int(tensors['step'])}" if "step" in tensors else "no step"
        raise BoolensError(f"{path} is at {done}, but this training has {steps}; delete it to train from the start")
    weights = {k.removeprefix("weights."): t for k, t in tensors.items() if k.startswith("weights.")}
    load_tensors(model, weights, str(path))
    state = optimizer.state_dict()
    for name, tensor in tensors.items():
        if name.startswith("adam."):
            _, index, moment = name.split(".")
            state["state"].setdefault(int(index), {})[moment] = tensor
    optimizer.load_state_dict(state)
    rows = [(int(row[0]), *row[1:].tolist()) for row in tensors["history"]]
    return int(tensors["step"]), rows
