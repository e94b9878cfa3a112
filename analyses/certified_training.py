"""Counterexample-guided training: train, find inputs that the model gets wrong, add them and inputs like them, go on.

A round trains for the configured number of steps, from Adam's start, on the run's training set and POOL times as many
rows drawn from all counterexamples so far. It ends as `prove` ends: with a proof, with counterexamples, or undecided;
then inputs from the boxes that are left open take their place.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Bool, Int

from analyses.certificate import boxes_of, side_maker
from analyses.train import Plan, make_job, start_run, write_history
from interp.certify.branch import Budget, prove
from interp.certify.certificate import Box
from interp.checkpoint import WEIGHTS, save_weights
from interp.errors import BoolensError
from interp.files import plain, write_json
from interp.seeds import numpy_generator
from interp.training import Job, train_stack
from tasks import Task

POOL = 2
"""Rows drawn from the counterexamples for each row of the training set."""
N_STARTS = 64
"""Starts of the search in every box of one label; a round adds four times as many rows like the counterexamples."""
MOST_ALIKE = 0.3
"""A row like a counterexample has each bit outside the targets flipped with a probability drawn below this."""


@dataclass
class Progress:
    """One seed's training.

    Attributes:
        rounds: (steps so far, counterexamples found, proven, seconds since the start) after each round.
        pool: the counterexamples and the rows like them.
    """

    job: Job
    task: Task
    rounds: list[tuple[int, int, bool, float]] = field(default_factory=list)
    pool: list[Int[np.ndarray, "row pos"]] = field(default_factory=list)
    history: list[tuple[float, ...]] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        return bool(self.rounds) and self.rounds[-1][2]


def train_until_certified(
    plan: Plan,
    tasks: dict[int, Task],
    most_rounds: int,
    *,
    device: str = "cpu",
    on_round: Callable[[int, Sequence[Progress]], None] | None = None,
) -> dict[int, Progress]:
    """Train all seeds, each until it is proven right on every input or has had `most_rounds` rounds; write their runs.

    RUN/certified.json holds the rounds. Seeds that are finished already stay as they are.

    Raises:
        BoolensError: fewer than one round, or a loss that is no longer finite.
    """
    if most_rounds < 1:
        raise BoolensError(f"{most_rounds} rounds; training until certified needs at least 1")
    seeds = [seed for seed in plan.seeds if not (plan.folder(seed) / WEIGHTS).exists()]
    for seed in seeds:
        start_run(plan, tasks[seed], seed)
    states = {seed: Progress(make_job(tasks[seed], plan.model, plan.training, seed), tasks[seed]) for seed in seeds}
    run_rounds(
        states, plan, most_rounds, device=device, on_round=on_round, on_done=lambda seed: _save(states[seed], plan)
    )
    return states


def run_rounds(
    states: dict[int, Progress],
    plan: Plan,
    most_rounds: int,
    *,
    device: str = "cpu",
    on_round: Callable[[int, Sequence[Progress]], None] | None = None,
    on_done: Callable[[int], None] | None = None,
) -> None:
    """The rounds of `train_until_certified`, without files."""
    started = time.monotonic()
    training = replace(plan.training, snapshot_every=0)
    working = dict(states)
    originals = {seed: state.job.data for seed, state in states.items()}
    for number in range(1, most_rounds + 1):
        if not working:
            return
        train_stack([state.job for state in working.values()], training, device=device)
        for seed, state in list(working.items()):
            job = state.job
            if job.stopped == "diverged":
                raise BoolensError(f"the loss of seed {seed} is no longer finite; lower lr = {plan.training.lr}")
            done = state.rounds[-1][0] if state.rounds else 0
            state.history += [(row[0] + done, *row[1:]) for row in job.history[1 if done else 0 :]]
            generator = numpy_generator(seed, "certificate", number)
            wrong, proven = find_wrong(job.model, boxes_of(state.task), generator)
            steps = done + int(job.history[-1][0])
            state.rounds.append((steps, 0 if proven else len(wrong), proven, time.monotonic() - started))
            if proven or number == most_rounds:
                del working[seed]
                if on_done:
                    on_done(seed)
                continue
            state.pool += [wrong, alike(wrong, state.task, generator)]
            state.job = Job(job.model, enlarged(originals[seed], state, generator), job.valid, seed)
        training = replace(training, n_train=(1 + POOL) * plan.training.n_train)
        if on_round:
            on_round(number, list(states.values()))


def find_wrong(
    model: object, boxes: Sequence[Box], generator: np.random.Generator
) -> tuple[Int[np.ndarray, "row pos"], bool]:
    """Inputs that the model gets wrong, met uphill from random starts; and whether there are proven to be none.

    Without any, inputs of the boxes that the proof leaves open.
    """
    make_side = side_maker(model)
    sides = {box.label: make_side(box.label, box.counted) for box in boxes}
    found = []
    for box in boxes:
        density = generator.random((N_STARTS, 1))
        starts = np.where(box.fixed >= 0, box.fixed, generator.random((N_STARTS, len(box.fixed))) < density)
        side = sides[box.label]
        for x, logit in ((starts, side.logits(starts)), side.climb(starts.astype(np.int8), box.fixed)):
            found.append(x[logit > side.margin])
    wrong = np.unique(np.concatenate(found), axis=0).astype(np.int64)
    if len(wrong):
        return wrong, False
    budget, proven, left = Budget(min(side.boxes for side in sides.values())), True, []
    for label, side in sides.items():
        searched = prove(side, [box.fixed for box in boxes if box.label == label], budget)
        proven &= searched.proven
        left += [] if searched.counterexample is None else [searched.counterexample]
        left += [np.where(box < 0, generator.integers(0, 2, len(box)), box) for box in searched.open[:N_STARTS]]
    return (np.array(left, dtype=np.int64) if left else wrong), proven


def alike(
    wrong: Int[np.ndarray, "row pos"], task: Task, generator: np.random.Generator
) -> Int[np.ndarray, "other_row pos"]:
    """Rows that differ from counterexamples in some bits outside the targets."""
    rows = wrong[generator.integers(0, len(wrong), 4 * N_STARTS)]
    flips = generator.random(rows.shape) < MOST_ALIKE * generator.random((len(rows), 1))
    flips[:, sorted({*task.rule_positions}.union(*task.targets))] = False
    return np.where(flips, 1 - rows, rows)


def enlarged(
    data: tuple[Int[torch.Tensor, "row pos"], Bool[torch.Tensor, " row"]],
    state: Progress,
    generator: np.random.Generator,
) -> tuple[Int[torch.Tensor, "other_row pos"], Bool[torch.Tensor, " other_row"]]:
    """The training set with POOL times as many rows from the pool."""
    x = data[0]
    pool = np.concatenate(state.pool)
    more = torch.from_numpy(pool[generator.integers(0, len(pool), POOL * len(x))])
    rows = torch.cat([x, more])
    return rows, state.task.label(rows)


def _save(state: Progress, plan: Plan) -> None:
    folder = plan.folder(state.job.seed)
    write_history(folder, state.history)
    names = ("steps", "counterexamples", "proven", "seconds")
    rounds = [dict(zip(names, each, strict=True)) for each in state.rounds]
    write_json(folder / "certified.json", plain({"verified": state.verified, "rounds": rounds}))
    save_weights(state.job.model, folder / WEIGHTS)
