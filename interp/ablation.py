"""What an activation is replaced by when it is ablated.

Ablation replaces activations, not parameters: biases that enter after the hook point (of the logit, for instance)
stay, and biases that entered before it are part of what is replaced.
"""

from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import BoolensError
from interp.hooks import run

if TYPE_CHECKING:
    from interp.models import AnyModel

AblationKind = Literal["zero", "mean", "resample"]
ABLATION_KINDS: tuple[AblationKind, ...] = get_args(AblationKind)


def derangement(n: int, generator: torch.Generator) -> Int[Tensor, " batch"]:
    """A random permutation that leaves nothing in its place: one cycle through a random order.

    Raises:
        BoolensError: n < 2.
    """
    if n < 2:
        raise BoolensError(f"resample ablation needs at least 2 inputs, got {n}; there is nothing else to take from")
    order = torch.randperm(n, generator=generator)
    source = torch.empty_like(order)
    source[order] = order.roll(-1)
    return source


def ablated_values(
    model: "AnyModel",
    x: Int[Tensor, "batch pos"],
    hook: str,
    kind: AblationKind,
    *,
    reference: Int[Tensor, "reference pos"],
    generator: torch.Generator,
) -> Tensor:
    """What replaces the activation at `hook` on x (batch axis 1 for zero and mean).

    * zero: zeros.
    * mean: the mean over the whole reference set, per position and head, whatever x is.
    * resample: the activations of x under a `derangement` of its rows, the same for every position.

    Raises:
        BoolensError: an unknown kind or hook, an empty reference set, fewer than two inputs to resample.
    """
    if kind == "mean":
        if len(reference) == 0:
            raise BoolensError("mean ablation needs a reference set, and this one is empty")
        return run(model, reference, record=[hook])[1][hook].mean(dim=0, keepdim=True)
    activation = run(model, x, record=[hook])[1][hook]
    if kind == "zero":
        return torch.zeros_like(activation[:1])
    if kind == "resample":
        return activation[derangement(len(x), generator).to(activation.device)]
    raise BoolensError(f"ablation {kind!r} is not known; choose one of {ABLATION_KINDS}")
