"""Drawing rows of independent bits, with or without repeats, and index sets."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tasks.errors import TaskError

LIST_ALL_UP_TO = 16
"""Up to this many free bits, distinct rows are drawn exactly from the list of all of them."""
MAX_ROUNDS = 100
"""Rounds of drawing and dropping repeats before a larger problem is called hopeless."""


def draw_independent(n: int, probability: Sequence[float], generator: torch.Generator) -> Int[Tensor, "batch pos"]:
    """n rows of bits, P(bit = 1) = probability[pos]; probabilities 0 and 1 fix a bit."""
    p = torch.tensor(probability, dtype=torch.float64)
    uniform = torch.rand(n, len(probability), generator=generator, dtype=torch.float64)
    return (uniform < p).to(torch.int64)


def draw_distinct(n: int, probability: Sequence[float], generator: torch.Generator) -> Int[Tensor, "batch pos"]:
    """n different rows, distributed as rows drawn one by one with every repeat drawn again.

    With few free bits this is successive sampling over all rows, by Gumbel keys (Efraimidis and
    Spirakis 2006: the order of log p + Gumbel noise is that of successive draws without replacement).

    Raises:
        TaskError: fewer than n rows exist, or the rows are so concentrated that n were not found.
    """
    free = [i for i, p in enumerate(probability) if 0 < p < 1]
    if n > 2 ** len(free):
        raise TaskError(
            f"{n} distinct samples asked for, but only 2**{len(free)} = {2 ** len(free)} inputs exist; ask for fewer"
        )
    if len(free) <= LIST_ALL_UP_TO:
        rows = torch.tensor(probability, dtype=torch.float64).round().to(torch.int64).repeat(2 ** len(free), 1)
        numbers = torch.arange(2 ** len(free))
        rows[:, free] = (numbers[:, None] >> torch.arange(len(free))) & 1
        p = torch.tensor(probability, dtype=torch.float64)[free]
        log_p = torch.where(rows[:, free] == 1, p.log(), torch.log1p(-p)).sum(dim=1)
        uniform = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        gumbel = -torch.log(-torch.log(uniform.clamp(min=1e-300)))
        return rows[(log_p + gumbel).topk(n).indices]
    kept = np.empty((0, len(probability)), dtype=np.int64)
    for _ in range(MAX_ROUNDS):
        rows = np.concatenate([kept, draw_independent(n, probability, generator).numpy()])
        _, first = np.unique(np.packbits(rows.astype(np.uint8), axis=1), axis=0, return_index=True)
        kept = rows[np.sort(first)[:n]]
        if len(kept) == n:
            return torch.from_numpy(kept)
    raise TaskError(
        f"only {len(kept)} of {n} distinct samples turned up in {MAX_ROUNDS * n} draws; "
        "ask for fewer, or choose p nearer to 0.5"
    )


def draw_target_sets(
    n_ctx: int, sizes: Sequence[int], generator: torch.Generator, *, exclude: Sequence[int] = ()
) -> tuple[tuple[int, ...], ...]:
    """Disjoint index sets of the given sizes, uniform over [0, n_ctx) without `exclude`.

    Raises:
        TaskError: a size below 1, or fewer positions than the sizes need.
    """
    allowed = [i for i in range(n_ctx) if i not in exclude]
    if any(size < 1 for size in sizes):
        raise TaskError(f"target sets of sizes {list(sizes)}; each needs at least 1 index")
    if sum(sizes) > len(allowed):
        raise TaskError(
            f"{sum(sizes)} target indices asked for, but only {len(allowed)} positions are free (n_ctx = {n_ctx}, "
            f"{len(exclude)} rule bits); ask for fewer, or name overlapping sets with targets="
        )
    order = torch.randperm(len(allowed), generator=generator).tolist()
    picked = [allowed[i] for i in order]
    ends = [sum(sizes[: r + 1]) for r in range(len(sizes))]
    return tuple(tuple(sorted(picked[end - size : end])) for size, end in zip(sizes, ends, strict=True))


def balanced_p(sizes: Sequence[int]) -> float:
    """The p for which the mean over rules of p**size is one half, so that both labels are equally likely.

    For one size s this is 0.5**(1/s). For several it is found by bisection; the mean is monotone in p.
    """
    if len(set(sizes)) == 1:
        return 0.5 ** (1 / sizes[0])
    low, high = 0.0, 1.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if math.fsum(middle**s for s in sizes) / len(sizes) < 0.5:
            low = middle
        else:
            high = middle
