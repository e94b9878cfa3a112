"""How much faster is a stack of [CLS] transformers than torch's own layer, and than plain torch for one query?

    python -m tests.benchmarks.cls [--quick] [--growth] [--threads N]

T = 400, batch 100, d_model 64, 16 heads, 64 hidden units, LayerNorm, dropout 0.1. A step is forward, backward and Adam.
Ratios, in this process with the same number of threads, times as medians of interleaved runs (of the encoder layer 3,
with --quick 1):

* encoder_layer: time of a step of one nn.TransformerEncoderLayer with a [CLS] token over all T + 1 positions and a
  readout / time of a model and step of the trainer in a stack of 16; of the layer with dropout and without, the faster;
* cls_query_only: the same for a layer in plain torch that computes keys and values of all positions of all rows, but
  the [CLS] token's query alone;
* memory: peak bytes of tensors in a step of the encoder layer (the smaller of the two) / bytes that a model of the
  stack takes. The first is torch's record of what it allocates and frees (`tests.peak_memory`), with the layer's
  parameters and Adam's; the second counts each array of the stack: parameters, Adam's two, inputs as patterns and
  labels, and a thread's scratch memory shared out among the models.

The last line is one JSON object.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from interp import cls_kernel_memory
from interp.cls_packed import ClsKernel
from interp.config import ClsConfig, TrainConfig
from interp.models import build_model
from interp.packed import Packed
from interp.seeds import torch_generator
from interp.stack import ParameterBlock
from interp.training import denormals_flushed
from tests.peak_memory import peak_bytes

T, BATCH, D, HEADS, MLP, DROPOUT, LR, MODELS = 400, 100, 64, 16, 64, 0.1, 1e-3, 16
GROWTH = ((50, 30), (100, 40), (200, 60), (400, 80), (800, 100), (1600, 120))
"""n_ctx and rows of a batch."""


class EncoderLayer(nn.Module):
    """torch's own layer over all positions, read out at [CLS]."""

    def __init__(self, n_ctx: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, D)
        self.pos = nn.Parameter(torch.randn(n_ctx + 1, D) * 0.02)
        self.layer = nn.TransformerEncoderLayer(
            D, HEADS, MLP, dropout, activation="gelu", norm_first=True, batch_first=True
        )
        self.norm, self.readout = nn.LayerNorm(D), nn.Linear(D, 1)

    def forward(self, x: Tensor) -> Tensor:
        resid = self.embed(nn.functional.pad(x, (0, 1), value=2)) + self.pos
        return self.readout(self.norm(self.layer(resid)[:, -1]))[:, 0]


class QueryOnly(nn.Module):
    """The same layer as one would write it for the [CLS] token's query."""

    def __init__(self, n_ctx: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, D)
        self.pos = nn.Parameter(torch.randn(n_ctx + 1, D) * 0.02)
        self.norm1, self.norm2, self.norm = nn.LayerNorm(D), nn.LayerNorm(D), nn.LayerNorm(D)
        self.q, self.kv, self.o = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, MLP), nn.GELU(), nn.Linear(MLP, D))
        self.dropout, self.readout = nn.Dropout(DROPOUT), nn.Linear(D, 1)

    def forward(self, x: Tensor) -> Tensor:
        resid = self.embed(nn.functional.pad(x, (0, 1), value=2)) + self.pos
        seen, cls = self.norm1(resid), resid[:, -1]
        k, v = self.kv(seen).unflatten(-1, (2, HEADS, D // HEADS)).permute(2, 0, 3, 1, 4)
        q = self.q(seen[:, -1:]).unflatten(-1, (HEADS, D // HEADS)).transpose(1, 2)
        z = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(1)
        cls = cls + self.dropout(self.o(z))
        cls = cls + self.dropout(self.mlp(self.norm2(cls)))
        return self.readout(self.norm(cls))[:, 0]


def data(models: int, n_ctx: int, rows: int) -> tuple[Tensor, Tensor]:
    """Bits that are 1 with probability 0.79, and labels: the AND of three."""
    x = (torch.rand(models, rows, n_ctx, generator=torch_generator(0, "train")) < 0.5 ** (1 / 3)).long()
    return x, x[..., :3].amin(dim=-1).float()


def plain_step(model: nn.Module) -> Callable[[], None]:
    """A step of training one model."""
    optimizer, (x, y) = torch.optim.Adam(model.parameters(), lr=LR), data(1, T, BATCH)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x[0]), y[0]).backward()
        optimizer.step()

    return step


class Stack:
    """A stack in training, with what it takes to call the trainer's kernel."""

    def __init__(self, models: int, n_ctx: int, batch: int) -> None:
        self.cfg, self.models = ClsConfig(n_ctx, D, HEADS, d_mlp=MLP, dropout=DROPOUT), models
        built = [build_model(self.cfg, torch_generator(seed, "init")) for seed in range(models)]
        block = ParameterBlock(built[0])
        self.kernel = ClsKernel(self.cfg, block.shapes)
        flat, (x, self.y) = block.flatten(built), data(models, n_ctx, batch)
        self.state = flat, torch.zeros_like(flat), torch.zeros_like(flat)
        self.inputs = Packed(x, with_bits=False)
        self.valid = Packed(data(models, n_ctx, 1000)[0], with_bits=False)
        self.rows = np.broadcast_to(np.arange(batch), (models, 1, batch)).copy()
        self.train_cfg = TrainConfig(n_train=batch, n_valid=1000, steps=1, lr=LR)
        self.taken = 0
        self.step(2)

    def step(self, steps: int) -> None:
        sizes = np.full(steps, self.y.shape[1])
        arguments = self.inputs, self.y, self.rows, sizes, self.taken, self.train_cfg, range(self.models)
        took = self.kernel.train(self.state, *arguments)
        if not bool((took == steps).all()):
            raise RuntimeError(f"the kernel took {took.tolist()} of {steps} steps")
        self.taken += steps

    def validate(self) -> None:
        self.kernel.logits(self.state[0], self.valid)

    def bytes_a_model(self) -> float:
        """Of one model while the stack trains, a thread's scratch memory shared out."""
        own = [*self.state, self.inputs.codes, self.y]
        shape, batch = self.kernel.layout[1], self.y.shape[1]
        scratch = [
            *cls_kernel_memory.new_tables(shape),
            *cls_kernel_memory.new_rows(shape, batch),
            *cls_kernel_memory.new_gradients(self.state[0].shape[1], shape, batch),
        ]
        shared = torch.get_num_threads() * sum(array.nbytes for array in scratch)
        return (sum(tensor.nbytes for tensor in own) + self.rows.nbytes + shared) / self.models


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(repeats: int, *works: Callable[[], object]) -> list[float]:
    """Median seconds of each kind of work, run in turn."""
    times = [[seconds(work) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def step_bytes(model: nn.Module) -> int:
    """Most bytes of tensors in a first step of training one model, its parameters, gradients and Adam's included."""
    return sum(p.nbytes for p in model.parameters()) + peak_bytes(plain_step(model))


def growth(n_ctx: int, batch: int, steps: int) -> dict[str, float]:
    """Milliseconds a model and step, and of a forward pass over 1000 rows, at one size."""
    progress(f"T = {n_ctx}, batch {batch}")
    stack = Stack(8, n_ctx, batch)
    train, valid = interleaved(3, lambda: stack.step(steps), stack.validate)
    return {"n_ctx": n_ctx, "batch": batch, "ms": train / steps / 8 * 1e3, "valid_ms": valid / 8 * 1e3}


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a minute at most: fewer repeats")
    parser.add_argument("--growth", action="store_true", help="also time as T and the batch grow")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    repeats, steps = (3, 10) if options.quick else (7, 30)
    progress("compiling, or reading what is compiled")
    with denormals_flushed():
        stack, query = Stack(MODELS, T, BATCH), QueryOnly(T)
        layer, bare = EncoderLayer(T, DROPOUT), EncoderLayer(T, 0.0)
        progress("memory")
        memory = {"encoder_layer": step_bytes(layer), "encoder_layer_without_dropout": step_bytes(bare)}
        memory["cls_query_only"] = step_bytes(query)
        layer_step, bare_step, query_step = plain_step(layer), plain_step(bare), plain_step(query)
        progress("time")
        bare_step()
        full, without, *_ = interleaved(1 if options.quick else 3, layer_step, bare_step, lambda: stack.step(1))
        own, valid, plain = interleaved(
            repeats, lambda: stack.step(steps), stack.validate, lambda: [query_step() for _ in range(3)]
        )
        rows = [growth(*size, steps) for size in GROWTH] if options.growth else []
    step, query_seconds = own / steps / MODELS, plain / 3
    result = {
        "benchmark": "cls",
        "threads": options.threads,
        "ratios": {
            "encoder_layer": min(full, without) / step,
            "cls_query_only": query_seconds / step,
            "memory": min(memory["encoder_layer"], memory["encoder_layer_without_dropout"]) / stack.bytes_a_model(),
        },
        "detail": {
            "stack_ms_a_model_and_step": step * 1e3,
            "stack_ms_a_model_and_1000_valid_rows": valid / MODELS * 1e3,
            "encoder_layer_ms_a_step": full * 1e3,
            "encoder_layer_without_dropout_ms_a_step": without * 1e3,
            "cls_query_only_ms_a_step": query_seconds * 1e3,
            "n_ctx": T,
            "batch": BATCH,
            "models": MODELS,
            "sizes": {"d_model": D, "n_heads": HEADS, "d_mlp": MLP, "dropout": DROPOUT},
            "memory": "torch's record of allocations for the layers, the sum of the arrays for the stack",
            "stack_mib_a_model": stack.bytes_a_model() / 2**20,
            **{f"{name}_mib": n / 2**20 for name, n in memory.items()},
            "growth": rows,
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
