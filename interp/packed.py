"""Calling the compiled kernel: the inputs as it wants them, and models shared out between threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import sinusoidal_encoding
from interp.config import AttentionConfig, TrainConfig

WEIGHTS = ("W_E", "W_pos", "W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_readout", "b_readout")
"""In the order in which the kernel wants their offsets."""


class Packed:
    """Inputs of a stack for the kernel, which finds the patterns of a few bits in tables (see `interp.kernel`).

    Attributes:
        bits, codes: as in `interp.kernel`, with a leading axis; of `bits` nothing for [CLS] transformers.
        which: for each model, its index on that axis.
    """

    def __init__(self, x: Int[Tensor, "model batch pos"], *, with_bits: bool = True) -> None:
        from interp.kernel_parts import BITS

        n_models, batch, self.n_ctx = x.shape
        width = 16 if self.n_ctx <= 16 else 32
        n_tiles, n_groups = -(-self.n_ctx // width), -(-self.n_ctx // BITS)
        self.bits = torch.zeros(n_models, batch, n_tiles if with_bits else 0, width)
        if with_bits:
            self.bits.flatten(2)[..., : self.n_ctx] = x
        in_groups = torch.zeros(n_models, batch, n_groups, BITS, dtype=torch.uint8)
        in_groups.flatten(2)[..., : self.n_ctx] = x
        self.codes = in_groups.mul_(2 ** torch.arange(BITS, dtype=torch.uint8)).sum(dim=-1, dtype=torch.uint8)
        self.which = np.arange(n_models)

    def keep(self, models: list[int]) -> None:
        """Go on with some models, in that order."""
        self.which = self.which[models]

    def x(self, model: int) -> Int[Tensor, "batch pos"]:
        """One model's inputs."""
        from interp.kernel_parts import BITS

        codes = self.codes[self.which[model]].long()
        return (codes[..., None] >> torch.arange(BITS)).bitwise_and_(1).flatten(1)[:, : self.n_ctx]


class Kernel:
    """The kernel's functions for models of one configuration."""

    def __init__(self, cfg: AttentionConfig, shapes: dict[str, tuple[int, ...]]) -> None:
        offset = 0
        offsets: dict[str, int] = dict.fromkeys(WEIGHTS, -1)
        for name, shape in shapes.items():
            offsets[name.rsplit(".", 1)[-1]] = offset
            offset += int(np.prod(shape, dtype=np.int64))
        fixed = cfg.positions != "learned"
        W_pos = sinusoidal_encoding(cfg.n_ctx, cfg.d_model) if fixed else torch.zeros(cfg.n_ctx, cfg.d_model)
        self.layout = (
            np.array([offsets[name] for name in WEIGHTS]),
            (cfg.n_ctx, cfg.d_model, cfg.n_heads, cfg.d_head, cfg.d_value),
            W_pos.float().numpy(),
        )

    def data(self, inputs: Packed) -> tuple[np.ndarray, ...]:
        """The inputs in the form that the functions take."""
        return inputs.bits.numpy(), inputs.codes.numpy()

    def logits(
        self, flat: Float[Tensor, "model parameter"], inputs: Packed
    ) -> tuple[Float[Tensor, "model batch"], Bool[Tensor, " model"]]:
        """Logits, and for which models they are right."""
        from interp import kernel

        out = torch.empty(len(flat), inputs.bits.shape[1])
        return out, self.call(kernel.logits, (flat.contiguous(),), inputs, (), (out,))

    def gradient(
        self,
        flat: Float[Tensor, "model parameter"],
        inputs: Packed,
        y: Float[Tensor, "model batch"],
        keep: Float[Tensor, "model ..."] | None = None,
    ) -> tuple[Float[Tensor, "model parameter"], Bool[Tensor, " model"]]:
        """The gradient of the mean binary cross-entropy on all rows, and for which models it is right.

        `keep` are dropout's masks, 1 where an entry is kept, for models that have it.
        """
        from interp import kernel

        assert keep is None

        out = torch.empty_like(flat, memory_format=torch.contiguous_format)
        rows = np.arange(y.shape[1])
        return out, self.call(kernel.gradients, (flat.contiguous(),), inputs, (), (y.contiguous(), rows, out))

    def train(
        self,
        parameters: tuple[Tensor, Tensor, Tensor],
        inputs: Packed,
        y: Float[Tensor, "model row"],
        rows: Int[np.ndarray, "model batches in_batch"],
        sizes: Int[np.ndarray, " step"],
        taken: int,
        cfg: TrainConfig,
        seeds: Sequence[int] = (),
    ) -> Int[Tensor, " model"]:
        """Take steps of Adam on (flat, m, v), in place; return how many each model took before float32 did not do.

        Args:
            parameters: flat, m and v, contiguous.
            inputs, y: the training set.
            rows: the rows of each step's batch, of which the first `sizes[step]` count; with one step for all, the same
                rows at every step.
            sizes: rows of each of the steps to take.
            taken: steps before these.
            cfg: learning rate and weight decay.
            seeds: each model's, for dropout's masks.
        """
        from interp import kernel

        return self.call(
            kernel.train, parameters, inputs, (sizes, taken, cfg.lr, cfg.weight_decay), (y.contiguous(), rows)
        )

    def call(
        self,
        function: Callable[..., np.ndarray],
        parameters: tuple[Tensor, ...],
        inputs: Packed,
        common: tuple,
        by_model: tuple[Tensor | np.ndarray, ...],
    ) -> Tensor:
        """The function's results for all models, which are shared out between the threads."""
        arrays = [a.numpy() if isinstance(a, Tensor) else a for a in (*parameters, *by_model)]
        n_models, threads = len(parameters[0]), torch.get_num_threads()
        size = n_models if threads == 1 else -(-n_models // (4 * threads))
        data = self.data(inputs)

        def call(start: int) -> np.ndarray:
            part = [a[start : start + size] if a.ndim > 1 else a for a in arrays]
            own, rest = part[: len(parameters)], part[len(parameters) :]
            return function(*own, *self.layout, *data, inputs.which[start : start + size], *common, *rest)

        starts = range(0, n_models, size)
        if len(starts) == 1:
            return torch.from_numpy(call(0))
        with ThreadPoolExecutor(threads, initializer=torch.set_flush_denormal, initargs=(True,)) as pool:
            return torch.from_numpy(np.concatenate(list(pool.map(call, starts))))
