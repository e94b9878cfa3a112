"""What every hooked model shares: checked inputs, checked hook names, logits [batch]."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn
from transformer_lens import HookedRootModule

from interp.config import ModelConfig
from interp.errors import BoolensError
from interp.hooks import resolve_hooks

C = TypeVar("C", bound=ModelConfig)


class HookedModel(HookedRootModule, Generic[C]):
    """A TransformerLens HookedRootModule that maps bits [batch, pos] to logits [batch]."""

    cfg: C

    def __init__(self, cfg: C) -> None:
        super().__init__()
        self.cfg = cfg

    def forward(self, x: Integer[Tensor, "batch pos"] | Bool[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        """Logits of label = True.

        Raises:
            BoolensError: x is not a batch of n_ctx bits.
        """
        return self.logits(self.check(x))

    def check(self, x: Integer[Tensor, "batch pos"] | Bool[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """x as int64, if it is a batch of n_ctx bits; else BoolensError."""
        n_ctx = self.cfg.n_ctx
        if x.ndim != 2 or x.shape[1] != n_ctx or x.is_floating_point() or x.is_complex():
            raise BoolensError(
                f"inputs have shape {tuple(x.shape)} and type {x.dtype}; "
                f"this model takes integers [batch, pos] with pos = {n_ctx}"
            )
        x = x.long()
        if x.numel() and not 0 <= int(x.min()) <= int(x.max()) <= 1:
            raise BoolensError(f"inputs range from {int(x.min())} to {int(x.max())}; every bit must be 0 or 1")
        return x

    def logits(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        """The forward pass for checked bits (int64, 0 or 1)."""
        raise TypeError(f"{type(self).__name__} defines no forward pass")

    @property
    def hook_names(self) -> list[str]:
        """The hook points that this architecture has."""
        return list(self.hook_dict)

    def hooks(self, fwd_hooks: Any = (), bwd_hooks: Any = (), *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """TransformerLens' context manager; a name or filter that matches no hook point raises BoolensError."""
        fwd_hooks, bwd_hooks = list(fwd_hooks), list(bwd_hooks)
        for name, _ in (*fwd_hooks, *bwd_hooks):
            resolve_hooks(self.hook_dict, name)
        return super().hooks(fwd_hooks, bwd_hooks, *args, **kwargs)

    def add_hook(self, name: Any, *args: Any, **kwargs: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """TransformerLens' method, behind add_perma_hook too, with names checked as in `hooks`."""
        resolve_hooks(self.hook_dict, name)
        super().add_hook(name, *args, **kwargs)

    def add_caching_hooks(self, names_filter: Any = None, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """TransformerLens' method, with names checked as in `hooks`."""
        return super().add_caching_hooks(self._selected(names_filter), *args, **kwargs)

    def get_caching_hooks(self, names_filter: Any = None, *args: Any, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """TransformerLens' caching hooks (for run_with_cache), with names checked as in `hooks`; they keep copies."""
        cache, *hooks = super().get_caching_hooks(self._selected(names_filter), *args, **kwargs)
        return cache, *([(name, _on_copy(save)) for name, save in pairs] for pairs in hooks)

    def _selected(self, names_filter: Any) -> list[str] | None:
        if names_filter is None:
            return None
        given = names_filter if isinstance(names_filter, list | tuple) else [names_filter]
        return [point for name in given for point in resolve_hooks(self.hook_dict, name)]


def _on_copy(save: Callable[..., Any]) -> Callable[..., None]:
    def save_copy(activation: Tensor, hook: Any) -> None:
        save(activation.clone(), hook=hook)

    return save_copy


def normal_parameter(shape: tuple[int, ...], std: float, generator: torch.Generator) -> nn.Parameter:
    """A parameter drawn from N(0, std**2) by the given generator (float32)."""
    return nn.Parameter(torch.empty(shape).normal_(0, std, generator=generator))


class Dropout(nn.Module):
    """Sets a share of the entries to zero and scales the others up, in training only, from a generator of its own."""

    def __init__(self, share: float, generator: torch.Generator) -> None:
        super().__init__()
        self.share = share
        self.generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return x
        keep = torch.empty(x.shape).bernoulli_(1 - self.share, generator=self.generator)
        return x * keep.to(x) / (1 - self.share)
