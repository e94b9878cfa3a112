"""One seed, many streams: all different, all reproducible, the global state untouched."""

import itertools
from typing import get_args

import numpy as np
import pytest
import torch

from interp.errors import BoolensError
from interp.seeds import Stream, derive_seed, numpy_generator, torch_generator

STREAMS = get_args(Stream)


def test_streams_seeds_and_counters_never_share_a_number() -> None:
    # 2**32 and above: a list of 32-bit words would read them as a smaller seed and another stream.
    seeds = [0, 1, 2, 7, 2**32, 2**32 + 1, 2**33, 3 * 2**32 + 1, 2**63 - 1]
    counters = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (2,), (0, 0, 0)]
    derived = [derive_seed(s, stream, *c) for s, stream, c in itertools.product(seeds, STREAMS, counters)]
    assert len(set(derived)) == len(derived) == len(seeds) * len(STREAMS) * len(counters)
    assert all(0 <= seed < 2**63 for seed in derived)


def test_the_numbers_do_not_change_between_versions() -> None:
    # A run is identified by its seed, so a change here changes what every run computes.
    assert derive_seed(0, "init") == 2440950710608614359
    assert derive_seed(5, "batches", 3) == 4204656027252352409


def test_generators_start_at_their_stream() -> None:
    draws = [torch.rand(4, generator=torch_generator(3, stream)) for stream in ("train", "train", "valid", "analysis")]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[2], draws[3])
    expected = torch.Generator().manual_seed(derive_seed(3, "train"))
    assert torch.equal(draws[0], torch.rand(4, generator=expected))
    numbers = numpy_generator(3, "statistics", 1).random(4)
    assert np.array_equal(numbers, np.random.default_rng(derive_seed(3, "statistics", 1)).random(4))
    assert not np.array_equal(numbers, numpy_generator(3, "statistics", 2).random(4))


def test_the_global_state_is_untouched() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=torch_generator(0, "init"))
    numpy_generator(0, "init").random(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_impossible_seeds() -> None:
    with pytest.raises(BoolensError, match="seed is -1; it must be a whole number of at least 0"):
        derive_seed(-1, "init")
    with pytest.raises(ValueError, match="not in tuple"):
        derive_seed(0, "weights")  # pyright: ignore[reportArgumentType]
