"""One seed, many independent streams of random numbers. Nothing here touches the global state."""

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from interp.errors import BoolensError

if TYPE_CHECKING:
    import torch

Stream = Literal[
    "targets",
    "init",
    "train",
    "valid",
    "analysis",
    "pairs",
    "batches",
    "dropout",
    "resample",
    "statistics",
    "certificate",
]


def derive_seed(seed: int, stream: Stream, *counters: int) -> int:
    """A 63-bit seed for one named stream; streams, seeds and counters give independent numbers (numpy.SeedSequence).

    Stream and counters go into the spawn key, which numpy keeps apart from the seed. In one list with the seed,
    a counter of 0 would be the same as none, and a seed of 2**32 or more the same as another stream of a small one.

    Raises:
        BoolensError: a negative seed.
    """
    if seed < 0:
        raise BoolensError(f"seed is {seed}; it must be a whole number of at least 0")
    key = (get_args(Stream).index(stream), *counters)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_generator(seed: int, stream: Stream, *counters: int) -> "torch.Generator":
    """A CPU generator at the start of a named stream."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, stream, *counters))


def numpy_generator(seed: int, stream: Stream, *counters: int) -> np.random.Generator:
    """A numpy generator at the start of a named stream."""
    return np.random.default_rng(derive_seed(seed, stream, *counters))
