"""The constants of OptimalAblate: those that minimise a loss over a reference set, one for each cell of a sweep."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp.hooks import LogitReader, run
from interp.interventions.cells import footprint, run_entries, swept_axes
from interp.interventions.edits import cell_mask, merged
from interp.interventions.linear import agrees, downstream_gradient
from interp.interventions.values import OptimalAblate

MAX_ITERATIONS = 1000


class ConvergenceWarning(UserWarning):
    """A search stopped before its tolerance was met."""


def optimal_values(
    model: Any,
    intervention: OptimalAblate,
    over: Sequence[str] = (),
    *,
    budget: int = 2**30,
    logit: LogitReader | None = None,
) -> Float[Tensor, "1 *axes"]:
    """The constants, [1, *axes]: in each cell of a sweep over `over` the one that is best for that cell alone.

    Cost: one run of the reference set a step for every cell, or, where the logit is affine in the activation, one
    product of the reference set's activations and gradients.

    Warns:
        ConvergenceWarning: derivatives larger than the intervention's tolerance were left after MAX_ITERATIONS steps.
    """
    hook, reference = intervention.hook, intervention.reference
    clean, cache = run(model, reference, record=[hook], logit=logit)
    activation = cache[hook]
    swept = swept_axes(activation, intervention, over)
    inside = cell_mask(activation, hook, intervention.selected).expand_as(activation[:1])
    labels = intervention.labels.to(clean)
    n_cells = torch.Size(swept.shape).numel()
    mean = activation.mean(dim=0, keepdim=True)
    gradient = None if intervention.renormalises else downstream_gradient(model, reference, hook, logit)
    if gradient is not None and not agrees(model, reference, hook, clean, mean - activation, gradient, logit):
        gradient = None
    pairs = torch.arange(n_cells * len(reference), device=clean.device)
    per_pass = max(1, budget // (3 * footprint(model, reference, hook, logit).entry))

    def losses(constant: Tensor, differentiate: bool = False) -> Float[Tensor, "*cell"]:
        """The mean loss of each cell; its derivatives by the constant are added to constant.grad."""
        if gradient is not None:
            with torch.set_grad_enabled(differentiate):
                change = torch.where(inside, constant - activation, 0)
                logits = clean + swept.by_cell(gradient * change)
                loss = _cross_entropy(logits, labels).mean(dim=-1)
            if differentiate:
                loss.sum().backward(inputs=[constant])
            return loss.detach()
        total = clean.new_zeros(n_cells)
        for chosen in pairs.split(per_pass):
            entries = torch.unravel_index(chosen, (*swept.shape, len(reference)))
            with torch.set_grad_enabled(differentiate):
                put = merged(constant, activation, intervention)
                logits = run_entries(model, reference, intervention, swept, put, entries, logit)
                loss = _cross_entropy(logits, labels[entries[-1]]) / len(reference)
            if differentiate:
                loss.sum().backward(inputs=[constant])
            total.index_add_(0, chosen // len(reference), loss.detach())
        return total.view(swept.shape)

    def better(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(swept.spread(losses(b) < losses(a), activation.ndim), b, a)

    start = better(mean, torch.zeros_like(mean))
    constant = start.clone(memory_format=torch.contiguous_format).requires_grad_()
    search = torch.optim.LBFGS(
        [constant],
        max_iter=MAX_ITERATIONS,
        max_eval=4 * MAX_ITERATIONS,
        tolerance_grad=intervention.tolerance / 2,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def step() -> Tensor:
        search.zero_grad(set_to_none=False)
        constant.grad = torch.zeros_like(constant)
        return losses(constant, differentiate=True).sum()

    search.step(step)
    step()
    assert constant.grad is not None
    steepest = float(constant.grad.abs().max())
    if not steepest <= intervention.tolerance:
        warnings.warn(
            f"optimal constants at {hook} have not converged in {MAX_ITERATIONS} steps: a derivative of {steepest:.2g} "
            f"is left, above the tolerance of {intervention.tolerance:.2g}; raise it, or give more reference inputs",
            ConvergenceWarning,
            stacklevel=3,
        )
    return better(start, constant.detach())


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, labels.expand_as(logits), reduction="none")
