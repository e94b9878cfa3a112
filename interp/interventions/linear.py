"""Where the logit is affine in an activation, one backward pass gives the effect of every edit there.

The effect of replacing a cell is then its gradient times its change, exactly but for rounding. That the logit is affine
is read off the graph that autograd has recorded: on every way from the activation to the logit only sums, views,
and products with something that does not depend on the activation. A dependence that autograd does not see (a
comparison, a detached factor) is caught by running the model on some of the edits.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.hooks import LogitReader, run

_SUMS_AND_VIEWS = {
    f"{name}Backward{i}"
    for name in (
        *("Add", "Sub", "Neg", "Sum", "Mean", "Cat", "Stack", "Clone", "ToCopy"),
        *("View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Expand", "Squeeze", "Unsqueeze"),
        *("Slice", "Select"),
    )
    for i in range(4)
}
_PRODUCTS = {
    **{f"{name}Backward0": (0, 1) for name in ("Mul", "Mm", "Bmm", "Mv", "Dot")},
    **{f"{name}Backward0": (1, 2) for name in ("Addmm", "Addmv", "Baddbmm", "Addbmm")},
}
"""Which operands are multiplied: at most one of them may depend on the activation."""


def downstream_gradient(
    model: Any, x: Int[Tensor, "batch pos"], hook: str, logit: LogitReader | None = None
) -> Float[Tensor, "batch *axes"] | None:
    """The derivative of each input's logit by its activation at `hook` if the logit is affine in it, else None.

    As everywhere in this package, inputs of a batch must not affect each other.
    """
    if torch.is_inference_mode_enabled():
        return None
    leaves: list[Tensor] = []

    def leaf(activation: Tensor, hook: Any) -> Tensor:
        torch.set_grad_enabled(True)  # `run` puts the mode back; nothing before this point is recorded
        leaves.append(activation.detach().clone().requires_grad_())
        return leaves[-1].clone()

    logits, _ = run(model, x, [(hook, leaf)], logit=logit)
    if len(leaves) != 1 or not logits.requires_grad or not _affine(logits.grad_fn, leaves[0]):
        return None
    return torch.autograd.grad(logits.sum(), leaves[0])[0]


def _affine(root: Any, leaf: Tensor) -> bool:
    """Whether a graph's output is affine in a leaf, and depends on it. Cost: one visit a node."""
    depends: dict[Any, bool] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        operands = [operand for operand, _ in node.next_functions]
        waiting = [operand for operand in operands if operand is not None and operand not in depends]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        reached = [operand is not None and depends[operand] for operand in operands]
        depends[node] = any(reached) or getattr(node, "variable", None) is leaf
        name = type(node).__name__
        if not any(reached) or name in _SUMS_AND_VIEWS:
            continue
        if name == "DivBackward0" and not reached[1]:
            continue
        if name not in _PRODUCTS or sum(reached[i] for i in _PRODUCTS[name]) > 1:
            return False
    return depends[root]


def agrees(
    model: Any,
    x: Int[Tensor, "batch pos"],
    hook: str,
    clean: Float[Tensor, " batch"],
    change: Float[Tensor, "batch *axes"],
    gradient: Float[Tensor, "batch *axes"],
    logit: LogitReader | None = None,
) -> bool:
    """Whether gradient times change is what the model does, for the whole change and for a random half of it."""
    terms = change * gradient
    scale = (clean.abs() + terms.abs().unsqueeze(-1).flatten(1).sum(dim=1)).amax()
    tolerance = torch.finfo(clean.dtype).eps ** 0.75 * scale
    half = torch.rand(change.shape[1:], generator=torch.Generator().manual_seed(0)) < 0.5
    for chosen in (torch.ones_like(half), half):
        part = torch.where(chosen.to(change.device), change, 0)
        actual, _ = run(model, x, [(hook, lambda activation, hook, part=part: activation + part)], logit=logit)
        expected = clean + torch.where(chosen.to(change.device), terms, 0).unsqueeze(-1).flatten(1).sum(dim=1)
        if not ((actual - expected).abs() <= tolerance).all():
            return False
    return True
