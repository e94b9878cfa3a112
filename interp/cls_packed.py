"""Calling the compiled kernel of [CLS] transformers, as `interp.packed` calls that of attention models."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.config import AttentionConfig, ClsConfig, TrainConfig
from interp.packed import Kernel, Packed
from interp.seeds import derive_seed

WEIGHTS = (
    *("W_E", "W_pos", "ln1.w", "ln1.b", "W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O", "ln2.w", "ln2.b"),
    *("mlp.W_in", "mlp.b_in", "mlp.W_out", "mlp.b_out", "ln_final.w", "ln_final.b", "W_readout", "b_readout"),
)
"""In the order in which the kernel wants their offsets."""


def kernel_of(cfg: AttentionConfig | ClsConfig, shapes: dict[str, tuple[int, ...]]) -> Kernel:
    """The kernel for models of a configuration, whose parameters have these shapes."""
    return Kernel(cfg, shapes) if isinstance(cfg, AttentionConfig) else ClsKernel(cfg, shapes)


def dropout_masks(seed: int, step: int, share: float, shape: tuple[int, ...]) -> Float[Tensor, "kind batch d_model"]:
    """A [CLS] transformer's masks of a step, 1 where an entry is kept: a function of (seed, step), on any device.

    They are drawn by counter (`interp.cls_kernel_parts.draw_masks`) from the seed's stream "dropout".
    """
    from interp.cls_kernel_parts import draw_masks

    out = torch.empty(shape)
    draw_masks(np.uint64(derive_seed(seed, "dropout")), step, share, out.view(-1).numpy())
    return out.ne_(0)


class ClsKernel(Kernel):
    """The kernel's functions for [CLS] transformers of one configuration."""

    def __init__(self, cfg: ClsConfig, shapes: dict[str, tuple[int, ...]]) -> None:
        ends = np.cumsum([np.prod(shape, dtype=np.int64) for shape in shapes.values()])
        names = [name.removeprefix("blocks.0.").removeprefix("attn.") for name in shapes]
        offsets = dict(zip(names, [0, *ends.tolist()], strict=False))
        shape = (cfg.n_ctx, cfg.d_model, cfg.n_heads, cfg.d_head, cfg.d_mlp, int(cfg.norm))
        self.dropout = cfg.dropout
        self.layout = np.array([offsets.get(name, -1) for name in WEIGHTS]), shape

    def data(self, inputs: Packed) -> tuple[np.ndarray, ...]:
        return (inputs.codes.numpy(),)

    def logits(
        self, flat: Float[Tensor, "model parameter"], inputs: Packed
    ) -> tuple[Float[Tensor, "model batch"], Bool[Tensor, " model"]]:
        from interp import cls_kernel

        out = torch.empty(len(flat), inputs.codes.shape[1])
        return out, self.call(cls_kernel.logits, (flat.contiguous(),), inputs, (), (out,))

    def gradient(
        self,
        flat: Float[Tensor, "model parameter"],
        inputs: Packed,
        y: Float[Tensor, "model batch"],
        keep: Float[Tensor, "model 2 batch d_model"] | None = None,
    ) -> tuple[Float[Tensor, "model parameter"], Bool[Tensor, " model"]]:
        from interp import cls_kernel

        n_models, n_rows = y.shape
        out = torch.empty_like(flat, memory_format=torch.contiguous_format)
        masks = torch.empty(n_models, 0) if keep is None else keep.flatten(1).float() / (1 - self.dropout)
        rows = np.broadcast_to(np.arange(n_rows), (n_models, 1, n_rows)).copy()
        keys = np.zeros((n_models, 1), dtype=np.uint64)
        common = (np.array([n_rows]), 0, 0.0, 0.0, 0.0)
        by_model = (y.contiguous(), rows, keys, masks, out)
        state = (flat.contiguous(),) * 3
        return out, self.call(cls_kernel.train, state, inputs, common, by_model) > 0

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
        from interp import cls_kernel

        keys = np.array([[derive_seed(seed, "dropout")] for seed in seeds], dtype=np.uint64)
        common = (sizes, taken, cfg.lr, cfg.weight_decay, self.dropout)
        none = torch.empty(len(y), 0)
        return self.call(cls_kernel.train, parameters, inputs, common, (y.contiguous(), rows, keys, none, none))
