"""How much faster are the exact and the general engine than TransformerLens' generic_activation_patch?

    python -m tests.benchmarks.patching [--quick] [--full] [--engines exact,general] [--threads N]

Denoising on one HookedAttention (T = 30, 4 heads), 256 pairs that differ in one bit: all (head, dest, src) cells of the
pattern and all (pos) cells of q, k, v and z, 3720 cells in all, one logit a cell and pair.

Ratios, all in this process with the same number of threads, medians of interleaved runs, summed over the five sweeps:
time of generic_activation_patch / time of an engine. TransformerLens is given the clean activations; the engines' time
contains the clean run. Its runs take the same time whatever the cell: it is timed on 120 cells a sweep, spread evenly,
and the time scaled to all of them, unless --full has it run every cell each time.

Weights and times are float32. In float64 (which generic_activation_patch rounds to float32 at the end) every engine's
result is compared with TransformerLens' to 1e-6, absolute or of the largest logit, on all cells (on the timed ones with
--quick), or the benchmark fails. Peak memory is what tensors hold at once, the result included.

The last line is one JSON object.
"""

import argparse
import copy
import io
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from transformer_lens import patching

from interp.config import AttentionConfig
from interp.exact import exact_sweep
from interp.hooks import run
from interp.interventions import Patch, sweep
from interp.models import HookedAttention
from tests.peak_memory import peak_bytes

T, HEADS, PAIRS, TIMED = 30, 4, 256, 120
POS, CELL = ("pos",), ("head", "dest", "src")
SWEEPS: dict[str, tuple[str, ...]] = {"pattern": CELL, "q": POS, "k": POS, "v": POS, "z": POS}
SIZES = {"pos": T, "head": HEADS, "dest": T, "src": T}


def make_model() -> HookedAttention:
    """Weights large enough for patterns that are neither even nor one-hot."""
    cfg = AttentionConfig(T, d_model=16, n_heads=HEADS, d_head=4, d_value=4, bias=True, init_std=0.3)
    return HookedAttention(cfg, torch.Generator().manual_seed(0)).eval()


def make_pairs() -> tuple[Tensor, Tensor]:
    """Clean inputs and the same with one bit flipped."""
    generator = torch.Generator().manual_seed(1)
    clean = torch.randint(2, (PAIRS, T), generator=generator)
    corrupted, flipped = clean.clone(), torch.randint(T, (PAIRS,), generator=generator)
    corrupted[torch.arange(PAIRS), flipped] = 1 - corrupted[torch.arange(PAIRS), flipped]
    return clean, corrupted


def cells_of(name: str) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(SIZES[axis]) for axis in SWEEPS[name])))


def some_of(name: str) -> list[int]:
    """Numbers of at most TIMED cells, spread evenly."""
    n = len(cells_of(name))
    return list(range(n)) if n <= TIMED else [i * n // TIMED for i in range(TIMED)]


def transformer_lens(model: HookedAttention, corrupted: Tensor, cache: Any, name: str, cells: Sequence[int]) -> Tensor:
    """[cell, batch] by generic_activation_patch, with its own setters."""
    every = cells_of(name)
    index = pd.DataFrame([(0, *every[i]) for i in cells], columns=["layer", *SWEEPS[name]])
    setter = (
        patching.layer_pos_patch_setter
        if SWEEPS[name] == POS
        else patching.layer_head_dest_src_pos_pattern_patch_setter
    )
    patch_all: Any = patching.generic_activation_patch
    with torch.no_grad(), redirect_stderr(io.StringIO()):  # it draws a progress bar
        result = patch_all(model, corrupted, cache, lambda logits: logits, setter, name, index_df=index, reduce="none")
    return result.values  # noqa: PD011


def exact(model: HookedAttention, clean: Tensor, corrupted: Tensor, name: str, budget: int) -> Tensor:
    hook = f"blocks.0.attn.hook_{name}"
    values = run(model, clean, record=[hook])[1][hook]
    return exact_sweep(model, corrupted, hook, values, SWEEPS[name], budget=budget)


def general(model: HookedAttention, clean: Tensor, corrupted: Tensor, name: str, budget: int) -> Tensor:
    patch = Patch(f"blocks.0.attn.hook_{name}", source=clean, rows="keep")
    return sweep(model, corrupted, patch, SWEEPS[name], engine="general", budget=budget)


ENGINES: dict[str, Callable[..., Tensor]] = {"exact": exact, "general": general}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """Of corresponding logits, relative to the largest logit where that is above 1."""
    scale = max(1.0, float(theirs.abs().max()))
    return float((ours - theirs).abs().max()) / scale


def measure(engines: list[str], *, repeats: int, timed_only: bool, full: bool, budget: int) -> dict[str, Any]:
    """Per sweep: milliseconds of each side, largest differences, peak bytes."""
    model, (clean, corrupted) = make_model(), make_pairs()
    double = copy.deepcopy(model).double()
    (_, cache), (_, double_cache) = model.run_with_cache(clean), double.run_with_cache(clean)
    rows = {}
    for name in SWEEPS:
        n = len(cells_of(name))
        timed = list(range(n)) if full else some_of(name)
        checked = timed if timed_only else list(range(n))
        works = {engine: partial(ENGINES[engine], model, clean, corrupted, name, budget) for engine in engines}
        theirs = transformer_lens(double, corrupted, double_cache, name, checked)
        difference = {}
        for engine in engines:
            ours = ENGINES[engine](double, clean, corrupted, name, budget)
            difference[engine] = largest_difference(ours.flatten(0, -2)[checked], theirs)
        for engine, off in difference.items():
            if off > 1e-6:
                raise SystemExit(
                    f"{engine}, hook_{name}: results differ from TransformerLens' by {off:.2e}, above 1e-6"
                )
        loop = partial(transformer_lens, model, corrupted, cache, name, timed)
        times = [[seconds(loop) * n / len(timed), *map(seconds, works.values())] for _ in range(repeats)]
        medians = [statistics.median(column) * 1e3 for column in zip(*times, strict=True)]
        rows[name] = {
            "cells": n,
            "timed_cells": len(timed),
            "checked_cells": len(checked),
            "ms": dict(zip(("transformer_lens", *engines), medians, strict=True)),
            "largest_difference": difference,
            "peak_mib": {engine: peak_bytes(work) / 2**20 for engine, work in works.items()},
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a minute at most: fewer repeats, timed cells checked only"
    )
    parser.add_argument("--full", action="store_true", help="time TransformerLens on every cell")
    parser.add_argument("--engines", default="exact,general", help="which engines are measured")
    parser.add_argument("--budget", type=int, default=2**30, help="bytes")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    engines = options.engines.split(",")
    repeats = 3 if options.quick else 5
    rows = measure(engines, repeats=repeats, timed_only=options.quick, full=options.full, budget=options.budget)
    total = {side: sum(row["ms"][side] for row in rows.values()) for side in ("transformer_lens", *engines)}
    within = all(peak <= options.budget / 2**20 for row in rows.values() for peak in row["peak_mib"].values())
    scaled = "every cell" if options.full else "timed_cells of each sweep, scaled to all its cells"
    result = {
        "benchmark": "patching",
        "threads": options.threads,
        "ratios": {f"{engine}_vs_transformer_lens": total["transformer_lens"] / total[engine] for engine in engines},
        "detail": {
            "pairs": PAIRS,
            "n_ctx": T,
            "heads": HEADS,
            "transformer_lens_timed_on": scaled,
            "repeats": repeats,
            "total_ms": total,
            "budget_mib": options.budget / 2**20,
            "peak_within_budget": within,
            "sweeps": rows,
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
