"""How much memory tensors take at once, by torch's own record of what it allocates and frees."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that tensors made while `work` runs hold at once, what it returns included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        kept = work()
    del kept
    events: list[Any] = record.profiler.kineto_results.events()  # pyright: ignore[reportOptionalMemberAccess]
    memory = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(change for _, change in memory), default=0)
