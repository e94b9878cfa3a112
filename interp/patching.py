"""Activation patching between clean and corrupted inputs."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from interp.interventions import Patch, sweep


class UndefinedWarning(UserWarning):
    """A ratio whose denominator is zero: the result is NaN."""


def patch_positions_from(
    model: Any, into: Int[Tensor, "batch pos"], source: Int[Tensor, "batch pos"], hook: str
) -> Float[Tensor, "cell batch"]:
    """The logits on `into` when the activation at `hook` is taken from the run on `source`, one position at a time.

    Denoising patches from clean into corrupted, noising from corrupted into clean.

    Raises:
        BoolensError: numbers of inputs that differ, or no such hook.
    """
    return sweep(model, into, Patch(hook, source=source, rows="keep"), ("pos",))


def recovered(
    patched: Float[np.ndarray, "*#cell"], corrupted: Float[np.ndarray, "*#cell"], clean: Float[np.ndarray, "*#cell"]
) -> Float[np.ndarray, "*cell"]:
    """(patched − corrupted) / (clean − corrupted): 0 is the corrupted run's value, 1 the clean run's.

    Warns:
        UndefinedWarning: where clean equals corrupted the fraction is NaN, never a number.
    """
    patched, corrupted, clean = np.broadcast_arrays(
        *(np.asarray(a, dtype=np.float64) for a in (patched, corrupted, clean))
    )
    difference = clean - corrupted
    undefined = int((difference == 0).sum())
    if undefined:
        warnings.warn(
            f"{undefined} of {difference.size} fractions are undefined: clean and corrupted do not differ there",
            UndefinedWarning,
            stacklevel=2,
        )
    return np.divide(patched - corrupted, difference, out=np.full(difference.shape, np.nan), where=difference != 0)
