"""One seed, many independent streams of random numbers. Nothing here touches the global state."""

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    import torch

Stream = Literal[
    "targets", "init", "train", "valid", "analysis", "pairs", "batches", "dropout", "resample", "statistics"
]


def derive_seed(seed: int, stream: Stream, *counters: int) -> int:
    """A 63-bit seed for one named stream; streams, seeds and counters give independent numbers (numpy.SeedSequence)."""
    entropy = [seed, get_args(Stream).index(stream), *counters]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_generator(seed: int, stream: Stream, *counters: int) -> "torch.Generator":
    """A CPU generator at the start of a named stream."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, stream, *counters))


def numpy_generator(seed: int, stream: Stream, *counters: int) -> np.random.Generator:
    """A numpy generator at the start of a named stream."""
    return np.random.default_rng(derive_seed(seed, stream, *counters))
