"""Training one model or a stack of hundreds: Adam on binary cross-entropy, resumable to the bit."""

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.checkpoint import save_weights, snapshot_path
from interp.cls_packed import dropout_masks, kernel_of
from interp.config import AttentionConfig, ClsConfig, MLPConfig, ModelConfig, TrainConfig
from interp.errors import BoolensError
from interp.memory import models_at_once
from interp.seeds import torch_generator
from interp.stack import Inputs, ParameterBlock, mask_shape, mean_loss, stack_gradient, stack_logits, wide_gradient
from interp.threads import suited_threads
from interp.training_state import State, restore_state, save_state

if TYPE_CHECKING:
    from interp.models import AnyModel

HISTORY_COLUMNS = ("step", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy")
Labelled = tuple[Int[Tensor, "batch pos"], Bool[Tensor, " batch"]]
"""Inputs and their labels."""
LabelledApart = tuple[Int[Tensor, "other_batch pos"], Bool[Tensor, " other_batch"]]
"""The same, of another number of rows than the Labelled beside it."""


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


def batch_rows(cfg: TrainConfig, seed: int, step: int) -> Int[Tensor, " rows"]:
    """The rows of the mini-batch of a step: a function of (seed, step) alone, so that resuming needs no state."""
    per_epoch = -(-cfg.n_train // cfg.batch_size)
    epoch, index = divmod(step, per_epoch)
    return _epoch_order(cfg.n_train, seed, epoch)[index * cfg.batch_size : (index + 1) * cfg.batch_size]


@functools.lru_cache(maxsize=512)
def _epoch_order(n_train: int, seed: int, epoch: int) -> Int[Tensor, " rows"]:
    """The order of the rows in an epoch, kept while its batches are taken."""
    return torch.randperm(n_train, generator=torch_generator(seed, "batches", epoch))


@dataclass
class Job:
    """One model to train, and what came of it.

    Attributes:
        model: trained in place and left in evaluation mode.
        data, valid: training and validation sets of n_train and n_valid rows.
        seed: of mini-batches and dropout.
        folder: where snapshots go, and the state to resume from; None writes nothing.
        history: rows of HISTORY_COLUMNS.
        stopped: why training ended: 'steps', 'loss', 'accuracy', 'patience', or 'diverged'; '' before the end.
    """

    model: "AnyModel"
    data: Labelled
    valid: LabelledApart
    seed: int
    folder: Path | None = None
    history: list[tuple[float, ...]] = field(default_factory=list)
    stopped: str = ""


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
    most_steps: int | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> Float[Tensor, "row column"]:
    """Train one model in place (`train_stack` of one); return the history, float64 with HISTORY_COLUMNS as columns.

    Raises:
        BoolensError: as `train_stack`, and when the loss is no longer finite.
    """
    job = Job(model, data, valid, seed, folder)
    told = None if on_step is None else lambda step, jobs: on_step(step, jobs[0].history[-1][-1])
    train_stack([job], cfg, device=device, save_seconds=save_seconds, most_steps=most_steps, on_step=told)
    if job.stopped == "diverged":
        raise BoolensError(f"the loss is {job.history[-1][1]} at step {job.history[-1][0]}; lower lr = {cfg.lr}")
    return torch.tensor(job.history, dtype=torch.float64)


def train_stack(
    jobs: Sequence[Job],
    cfg: TrainConfig,
    *,
    device: str = "cpu",
    save_seconds: float = 5.0,
    at_once: int | None = None,
    most_steps: int | None = None,
    on_step: Callable[[int, list[Job]], None] | None = None,
    on_done: Callable[[Job], None] | None = None,
) -> None:
    """Train independent models of one configuration together, in place.

    Each model has its own targets, data, initialisation and seed. Its result does not depend on the others: not at all
    for float32 attention models and [CLS] transformers on a CPU, else but for the order of floating-point sums. A model
    that meets the stopping rule (`TrainConfig`), or whose loss is no longer finite, leaves the stack at once, so that
    time goes to those still learning.

    Args:
        jobs: the models; those with a state in their folder go on from it.
        cfg: steps, learning rate, stopping rule and so on.
        device: where to compute; the models stay where they are.
        save_seconds: how often the states are saved; a training that is killed and resumed with the same jobs ends in
            the weights of an uninterrupted one, bit for bit.
        at_once: models trained together; by default as many as fit (`models_at_once`).
        most_steps: most steps from one call of `on_step` to the next, which changes nothing else; by default 1, or for
            float32 attention and cls models on a CPU, which are trained many steps at a time, what takes about 0.1 s.
        on_step: called after every step or few with the steps done and the jobs that took them, at least as often as
            the history has rows.
        on_done: called with each job as soon as its `model`, `history` and `stopped` are final.

    Raises:
        BoolensError: sizes that differ from cfg, models of different configurations, a device that is not there, or a
            state in a folder that is not this training's.
    """
    check_jobs(jobs, cfg)
    check_device(device)
    if at_once is not None and at_once < 1:
        raise BoolensError(f"at_once = {at_once} models; train at least 1 at once, or leave it out for as many as fit")
    block = ParameterBlock(jobs[0].model)
    rows = block.flatten([job.model for job in jobs])
    states = [restore_state(job.folder, row, cfg.steps) for job, row in zip(jobs, rows, strict=True)]
    order = sorted(range(len(jobs)), key=lambda i: states[i].step)
    size = at_once or models_at_once(jobs[0].model.cfg, cfg, device)
    cfg_one, kernel = jobs[0].model.cfg, Inputs.compiled(jobs[0].model.cfg, rows.dtype, device)
    widest = min(size, len(jobs)) * (cfg.batch_size or cfg.n_train) * cfg_one.n_ctx * getattr(cfg_one, "n_heads", 8)
    with ExitStack() as stack:
        for job in jobs:
            stack.callback(job.model.eval)
        if not kernel:  # which shares out models, not the elements of a tensor
            stack.enter_context(suited_threads(widest))
        stack.enter_context(denormals_flushed())
        stack.enter_context(torch.no_grad())
        for _, group in groupby(order, key=lambda i: states[i].step):
            members = list(group)
            for start in range(0, len(members), size):
                part = members[start : start + size]
                chunk = _Chunk([jobs[i] for i in part], [states[i] for i in part], block, cfg, device)
                chunk.run(save_seconds, most_steps, on_step, on_done)


class _Chunk:
    """The models that are trained together, all at the same step."""

    def __init__(
        self, jobs: list[Job], states: list[State], block: ParameterBlock, cfg: TrainConfig, device: str
    ) -> None:
        self.jobs, self.block, self.cfg, self.device = jobs, block, cfg, device
        self.model_cfg: ModelConfig = jobs[0].model.cfg
        self.step = states[0].step
        for job, state in zip(jobs, states, strict=True):
            job.history = list(state.history)
        self.flat, self.m, self.v = (
            torch.stack([getattr(state, name) for state in states]).to(device) for name in ("flat", "m", "v")
        )
        (self.inputs, self.y), (self.valid, self.valid_y) = (
            self.load([getattr(job, name) for job in jobs]) for name in ("data", "valid")
        )

    def load(self, data: list[Labelled]) -> tuple[Inputs, Tensor]:
        """The models' inputs in the form that the architecture takes, and labels [model, row]."""
        x, y = (torch.stack([part[i] for part in data]).to(self.device) for i in (0, 1))
        return Inputs(self.model_cfg, x, self.flat.dtype), y.to(self.flat.dtype)

    def run(
        self,
        save_seconds: float,
        most_steps: int | None,
        on_step: Callable[[int, list[Job]], None] | None,
        on_done: Callable[[Job], None] | None,
    ) -> None:
        """Train until the last model has left."""
        saved_at, pace = time.monotonic(), 1
        while True:
            last = self.step == self.cfg.steps
            if self.step % self.cfg.log_every == 0 or last:
                self.log()
            every = self.cfg.snapshot_every
            leaving = [i for i, job in enumerate(self.jobs) if self.reason_to_stop(job, last)]
            for i, job in enumerate(self.jobs):
                if job.folder and every and (self.step % every == 0 or i in leaving):
                    self.block.write(self.flat[i], job.model)
                    save_weights(job.model, snapshot_path(job.folder, self.step))
            if leaving:
                self.leave(leaving, on_done)
            if not self.jobs:
                return
            start = time.monotonic()
            n_steps = min(pace if most_steps is None else most_steps, self.steps_until_event())
            self.take_steps(n_steps)
            if self.inputs.packed:
                pace = max(1, int(0.1 * n_steps / max(time.monotonic() - start, 1e-9)))
            if on_step:
                on_step(self.step, self.jobs)
            if time.monotonic() - saved_at > save_seconds:
                for i, job in enumerate(self.jobs):
                    save_state(job.folder, State(self.step, self.flat[i], self.m[i], self.v[i], job.history))
                saved_at = time.monotonic()

    def steps_until_event(self) -> int:
        """Steps until the next row of the history, snapshot or end."""
        ends = [self.cfg.steps, self.step + self.cfg.log_every - self.step % self.cfg.log_every]
        if self.cfg.snapshot_every:
            ends.append(self.step + self.cfg.snapshot_every - self.step % self.cfg.snapshot_every)
        return min(ends) - self.step

    def take_steps(self, n_steps: int) -> None:
        """Steps of Adam, between which there is no event."""
        if self.inputs.packed:
            self.take_compiled_steps(n_steps)
        else:
            for _ in range(n_steps):
                self.adam(slice(None), self.gradient(), self.step)
                self.step += 1

    def take_compiled_steps(self, n_steps: int) -> None:
        """The same by the kernel; models that it cannot compute take the steps that are left in float64."""
        assert self.inputs.packed
        assert isinstance(self.model_cfg, AttentionConfig | ClsConfig)
        if self.cfg.batch_size:
            batches = [[batch_rows(self.cfg, job.seed, self.step + i) for i in range(n_steps)] for job in self.jobs]
            sizes = np.array([len(rows) for rows in batches[0]])
            rows = np.zeros((len(self.jobs), n_steps, self.cfg.batch_size), dtype=np.int64)
            for own, by_step in zip(rows, batches, strict=True):
                for to, chosen in zip(own, by_step, strict=True):
                    to[: len(chosen)] = chosen.numpy()
        else:
            sizes = np.full(n_steps, self.cfg.n_train)
            rows = np.broadcast_to(np.arange(self.cfg.n_train), (len(self.jobs), 1, self.cfg.n_train)).copy()
        kernel, parameters = kernel_of(self.model_cfg, self.block.shapes), (self.flat, self.m, self.v)
        seeds = [job.seed for job in self.jobs]
        taken = kernel.train(parameters, self.inputs.packed, self.y, rows, sizes, self.step, self.cfg, seeds)
        widest = int(sizes.max()) * self.model_cfg.n_ctx * self.model_cfg.n_heads
        with suited_threads(widest):  # of one model; the kernel shares models out between as many as there are
            for i in (taken < n_steps).nonzero()[:, 0].tolist():
                x = self.inputs.x(i)
                for step in range(int(taken[i]), n_steps):
                    chosen = rows[i, step % rows.shape[1], : sizes[step]]
                    keep = self.dropout(len(chosen), [self.jobs[i]], self.step + step)
                    masks = None if keep is None else keep[0]
                    g = wide_gradient(self.model_cfg, self.block, self.flat[i], x[chosen], self.y[i][chosen], masks)
                    self.adam(i, g, self.step + step)
        self.step += n_steps

    def gradient(self) -> Tensor:
        """Of every model, on this step's batch."""
        inputs, y = self.inputs, self.y
        if self.cfg.batch_size:
            rows = torch.stack([batch_rows(self.cfg, job.seed, self.step) for job in self.jobs]).to(self.device)
            inputs, y = inputs.batch(rows), y.gather(1, rows)
        keep = self.dropout(y.shape[1], self.jobs, self.step)
        return stack_gradient(self.model_cfg, self.block, self.flat, inputs, y, keep)

    def adam(self, models: int | slice, g: Tensor, step: int) -> None:
        """One step of Adam (Kingma and Ba 2015; betas 0.9 and 0.999, eps 1e-8), as torch.optim.Adam takes it."""
        m, v = self.m[models], self.v[models]
        if self.cfg.weight_decay:
            g = g.add(self.flat[models], alpha=self.cfg.weight_decay)
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        root = v.sqrt().div_(math.sqrt(1 - 0.999 ** (step + 1))).add_(1e-8)
        rate = min(self.cfg.lr / (1 - 0.9 ** (step + 1)), torch.finfo(self.flat.dtype).max)
        self.flat[models].addcdiv_(m, root, value=-rate)

    def dropout(self, batch: int, jobs: list[Job], step: int) -> Tensor | None:
        """The masks of a step, from each seed's own stream."""
        if not isinstance(self.model_cfg, ClsConfig | MLPConfig) or not mask_shape(self.model_cfg, batch):
            return None
        share, keep = self.model_cfg.dropout, torch.empty(len(jobs), *mask_shape(self.model_cfg, batch))
        for mask, job in zip(keep, jobs, strict=True):
            if isinstance(self.model_cfg, ClsConfig):
                mask[:] = dropout_masks(job.seed, step, share, tuple(mask.shape))
            else:
                mask.bernoulli_(1 - share, generator=torch_generator(job.seed, "dropout", step))
        return keep.to(self.device, self.flat.dtype)

    def log(self) -> None:
        """A row of history for every model."""
        columns = []
        for inputs, y in ((self.inputs, self.y), (self.valid, self.valid_y)):
            logits = stack_logits(self.model_cfg, self.block, self.flat, inputs)
            columns += [mean_loss(logits, y).tolist(), ((logits > 0) == (y > 0)).double().mean(dim=1).tolist()]
        for job, *row in zip(self.jobs, *columns, strict=True):
            job.history.append((self.step, *row))

    def reason_to_stop(self, job: Job, last: bool) -> str:
        """Sets and returns `job.stopped`; '' to go on. The rule is looked at where the history has a row."""
        step, train_loss, _, valid_loss, valid_accuracy = job.history[-1]
        cfg = self.cfg
        if step == self.step:
            losses = [row[3] for row in job.history]
            if not (math.isfinite(train_loss) and math.isfinite(valid_loss)):
                job.stopped = "diverged"
            elif train_loss < cfg.stop_loss:
                job.stopped = "loss"
            elif 0 < cfg.stop_accuracy <= valid_accuracy:
                job.stopped = "accuracy"
            elif cfg.patience and len(losses) - 1 - losses.index(min(losses)) >= cfg.patience:
                job.stopped = "patience"
            elif last:
                job.stopped = "steps"
        return job.stopped

    def leave(self, leaving: list[int], on_done: Callable[[Job], None] | None) -> None:
        """Hand over models that are finished, and go on with the others."""
        for i in leaving:
            self.block.write(self.flat[i], self.jobs[i].model)
            if on_done:
                on_done(self.jobs[i])
        stay = [i for i in range(len(self.jobs)) if i not in leaving]
        self.jobs = [self.jobs[i] for i in stay]
        if stay:
            self.flat, self.m, self.v = self.flat[stay], self.m[stay], self.v[stay]
            self.y, self.valid_y = self.y[stay], self.valid_y[stay]
            self.inputs.keep(stay)
            self.valid.keep(stay)


def check_jobs(jobs: Sequence[Job], cfg: TrainConfig) -> None:
    """Raise BoolensError unless there are jobs, of one configuration, with as much data as cfg says."""
    if not jobs:
        raise BoolensError("no models to train; give at least one job")
    for job in jobs:
        for field_name, samples in (("n_train", job.data), ("n_valid", job.valid)):
            sizes = [len(part) for part in samples]
            if sizes != [getattr(cfg, field_name)] * 2:
                raise BoolensError(
                    f"{sizes[0]} inputs and {sizes[1]} labels given, but {field_name} = {getattr(cfg, field_name)}; "
                    "make them equal"
                )
        for x, _ in (job.data, job.valid):
            job.model.check(x)
        if job.model.cfg != jobs[0].model.cfg:
            raise BoolensError(
                f"a stack has one configuration, but {job.model.cfg} is not {jobs[0].model.cfg}; split it"
            )


def check_device(device: str) -> str:
    """The device's name, if torch can use it; else BoolensError."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BoolensError(f"device {device!r} is not available ({str(error).splitlines()[0]}); use cpu") from None
    return device


def median_accuracy(jobs: Sequence[Job]) -> float:
    """Median over jobs of the last logged validation accuracy; NaN before the first."""
    logged = [job.history[-1][-1] for job in jobs if job.history]
    return statistics.median(logged) if logged else math.nan
