"""How many threads small tensors deserve."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

ONE_THREAD_BELOW = 4_000_000
"""Elements of the largest activation below which a second CPU thread costs more than it gives.

Threads wait for each other after every operation; on a busy machine that wait made a step of the tutorial's model 15 to
40 times slower with two threads than with one.
"""


@contextmanager
def suited_threads(n_elements: int) -> Iterator[None]:
    """One thread for activations of fewer than ONE_THREAD_BELOW elements; the number from before is restored."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if n_elements < ONE_THREAD_BELOW else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
