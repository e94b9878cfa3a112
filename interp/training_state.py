"""What a training keeps in a run's folder to go on from after a kill."""

from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

from interp.checkpoint import read_tensors
from interp.errors import BoolensError
from interp.files import write_atomic

STATE = "resume.safetensors"
"""Kept in the run's folder while it trains: weights, Adam's moments, step and history."""


@dataclass
class State:
    """Attributes: step: steps taken; flat, m, v: parameters and Adam's moments in a row each; history: rows so far."""

    step: int
    flat: Float[Tensor, " parameter"]
    m: Float[Tensor, " parameter"]
    v: Float[Tensor, " parameter"]
    history: list[tuple[float, ...]]


def save_state(folder: Path | None, state: State) -> None:
    """Write the state, atomically; nothing without a folder."""
    if folder is None:
        return
    tensors = {"flat": state.flat, "m": state.m, "v": state.v, "step": torch.tensor(state.step)}
    tensors["history"] = torch.tensor(state.history, dtype=torch.float64)
    write_atomic(folder / STATE, safetensors.torch.save({k: t.detach().cpu().clone() for k, t in tensors.items()}))


def restore_state(folder: Path | None, flat: Float[Tensor, " parameter"], steps: int) -> State:
    """The state in a folder, or that of a training that starts from `flat`.

    Raises:
        BoolensError: the state is damaged, of another model, or past the last step.
    """
    if folder is None or not (folder / STATE).exists():
        return State(0, flat, torch.zeros_like(flat), torch.zeros_like(flat), [])
    path = folder / STATE
    tensors = read_tensors(path)
    if not {"step", "history"} <= tensors.keys() or int(tensors["step"]) > steps:
        done = f"step {int(tensors['step'])}" if "step" in tensors else "no step"
        raise BoolensError(f"{path} is at {done}, but this training has {steps}; delete it to train from the start")
    for name in ("flat", "m", "v"):
        found = tensors.get(name)
        if found is None or found.shape != flat.shape or found.dtype != flat.dtype:
            what = "nothing" if found is None else f"{tuple(found.shape)} of {found.dtype}"
            raise BoolensError(
                f"{path} does not fit the model: {name} should be {tuple(flat.shape)} of {flat.dtype}, found {what}; "
                "delete it to train from the start"
            )
    rows: list[tuple[float, ...]] = [(int(row[0]), *row[1:].tolist()) for row in tensors["history"]]
    return State(int(tensors["step"]), tensors["flat"], tensors["m"], tensors["v"], rows)
