"""Estimates of what patching each cell does, from gradients, beside the exact answer.

* `attribution_patching`: gradient × difference, the first-order estimate of every cell's patch from one backward pass
  (Nanda 2023, "Attribution Patching: Activation Patching At Industrial Scale").
* `integrated_gradients`: the same gradient averaged along the straight path from the run's activation to the values
  (Sundararajan, Taly & Yan 2017, "Axiomatic Attribution for Deep Networks").
A change here is metric(patched) − metric(unpatched), the metric being the logit unless another is given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.axes import axis_of, hook_axes
from interp.effects import Mode
from interp.errors import BoolensError
from interp.exact import covers, exact_sweep
from interp.hooks import HookFunction, LogitReader, hooked, quietly, read_logit, resolve_hooks
from interp.interventions.edits import fitted

Rule = Literal["gauss-legendre", "trapezoid"]


@dataclass(frozen=True)
class Attribution:
    """Estimated changes of the metric, and what they estimate.

    Attributes:
        estimate: of the change when the values are put into each cell alone.
        exact: that change itself; None where the exact engine does not cover the model, hook point or axes.
        whole: the change when all cells are replaced at once, from a run.
    """

    estimate: Float[Tensor, "*cell batch"]
    exact: Float[Tensor, "*cell batch"] | None
    whole: Float[Tensor, " batch"]

    @property
    def error(self) -> Float[Tensor, "*cell batch"]:
        """estimate − exact. Integrated gradients share what cells do together among them, patches of one cell do not.

        Raises:
            BoolensError: the exact changes are not known.
        """
        if self.exact is None:
            raise BoolensError("the exact changes are not known here, so neither is the error; `gap` is")
        return self.estimate - self.exact

    @property
    def gap(self) -> Float[Tensor, " batch"]:
        """The estimates' sum − whole. For integrated gradients (completeness) it is the error of the integral."""
        return (
            self.estimate.flatten(0, -2).sum(dim=0) - self.whole
            if self.estimate.ndim > 1
            else self.estimate - self.whole
        )


def pair_values(
    model: Any, clean: Int[Tensor, "batch pos"], corrupted: Int[Tensor, "batch pos"], hook: str, mode: Mode
) -> tuple[Int[Tensor, "batch pos"], Tensor]:
    """The inputs to run and the values to put at `hook`, for pairs of inputs.

    Args:
        model: a hooked model.
        clean, corrupted: pairs, row by row.
        hook: name of the hook point.
        mode: "denoise" puts clean values into the corrupted run, "noise" corrupted ones into the clean run.

    Raises:
        BoolensError: shapes that differ, another mode, no such hook.
    """
    if clean.shape != corrupted.shape:
        raise BoolensError(
            f"inputs of shapes {tuple(clean.shape)} and {tuple(corrupted.shape)}; pairs must match row by row"
        )
    if mode not in get_args(Mode):
        raise BoolensError(f"mode {mode!r} is not known; choose one of {get_args(Mode)}")
    into, source = (corrupted, clean) if mode == "denoise" else (clean, corrupted)
    return into, _recorded(model, source, hook, None)[1]


def attribution_patching(
    model: Any,
    x: Int[Tensor, "batch pos"],
    hook: str,
    values: Float[Tensor, "..."],
    over: Sequence[str],
    *,
    logit: LogitReader | None = None,
    budget: int = 2**30,
) -> Attribution:
    """First-order estimate of putting `values` into each cell: gradient on the run on x × (values − activation).

    Args:
        model: any TransformerLens HookedRootModule whose inputs do not affect each other.
        x: inputs.
        hook: name of the hook point.
        values: [batch or 1, *the activation's other axes], finite.
        over: the axes of the cells, in the result's order; in scores and patterns "pos" is dest.
        logit: from the model's output to the metric, one number an input; needed where the output is not [batch].
        budget: bytes for the exact changes (see `exact_sweep`).

    Raises:
        BoolensError: no such hook or axis, values that do not fit or are not finite, an output that is not one number
            an input, or one that does not depend on the activation.
    """
    return _attribute(model, x, hook, values, over, [(0.0, 1.0)], logit, budget)


def integrated_gradients(
    model: Any,
    x: Int[Tensor, "batch pos"],
    hook: str,
    values: Float[Tensor, "..."],
    over: Sequence[str],
    *,
    nodes: int = 16,
    rule: Rule = "gauss-legendre",
    logit: LogitReader | None = None,
    budget: int = 2**30,
) -> Attribution:
    """Gradient averaged along the straight path from the activation to `values`, × (values − activation).

    All cells move along the path together. Cost: `nodes` forward and backward passes.

    Args:
        nodes: points on the path; `gap` says whether they are enough.
        rule: where they lie and how they are weighted.
        model, x, hook, values, over, logit, budget: as in `attribution_patching`.

    Raises:
        BoolensError: what `attribution_patching` raises; too few nodes; another rule.
    """
    return _attribute(model, x, hook, values, over, quadrature(nodes, rule), logit, budget)


def quadrature(nodes: int, rule: Rule) -> list[tuple[float, float]]:
    """(t, weight) of each node in [0, 1]; the weights sum to 1.

    Raises:
        BoolensError: no node, one alone for the trapezoid rule, or another rule.
    """
    least = {"gauss-legendre": 1, "trapezoid": 2}
    if rule not in least:
        raise BoolensError(f"rule {rule!r} is not known; choose one of {get_args(Rule)}")
    if nodes < least[rule]:
        raise BoolensError(f"{nodes} nodes are too few; the {rule} rule needs at least {least[rule]}")
    if rule == "trapezoid":
        t, weight = np.linspace(0, 1, nodes), np.full(nodes, 1 / (nodes - 1))
        weight[[0, -1]] /= 2
    else:
        t, weight = np.polynomial.legendre.leggauss(nodes)
        t, weight = (t + 1) / 2, weight / 2
    return list(zip(t.tolist(), weight.tolist(), strict=True))


def _attribute(
    model: Any,
    x: Tensor,
    hook: str,
    values: Tensor,
    over: Sequence[str],
    path: list[tuple[float, float]],
    logit: LogitReader | None,
    budget: int,
) -> Attribution:
    before, activation = _recorded(model, x, hook, logit)
    names, axes = _axes(hook, activation.ndim, over)
    difference = fitted(values.detach(), activation, hook) - activation
    if not bool(difference.isfinite().all()):
        raise BoolensError(f"{hook}: attribution needs finite values; remove keys with the exact engine instead")
    gradient = torch.zeros_like(activation)
    for t, weight in path:
        gradient += weight * _gradient(model, x, hook, activation + t * difference, logit)
    terms = gradient * difference
    other = [i for i, name in enumerate(names) if name not in ("batch", *axes)]
    left = [name for name in names if name in ("batch", *axes)]
    estimate = (terms.sum(dim=other) if other else terms).permute(*(left.index(name) for name in (*axes, "batch")))
    with quietly(model):
        whole = _metric(model, x, hook, lambda *_, **__: activation + difference, logit) - before
    exact = None
    if covers(model, hook) and {"pos", "head", "dest", "src"}.issuperset(axes):
        swept = exact_sweep(model, x, hook, values, axes, budget=budget)
        exact = (swept if logit is None else _each_cell(swept, logit)) - before
    return Attribution(estimate, exact, whole)


def _axes(hook: str, n_axes: int, over: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The activation's axes, and those in `over` by the same names."""
    names = hook_axes(hook, n_axes)
    axes = tuple(names[axis_of(hook, axis, n_axes)] for axis in over)
    if len(set(axes)) < len(axes):
        raise BoolensError(f"{hook}: over = {tuple(over)} names an axis twice; name each axis once")
    return names, axes


def _each_cell(swept: Float[Tensor, "*cell batch"], logit: LogitReader) -> Float[Tensor, "*cell batch"]:
    return torch.stack([logit(row) for row in swept.reshape(-1, swept.shape[-1])]).view_as(swept)


def _recorded(model: Any, x: Tensor, hook: str, logit: LogitReader | None) -> tuple[Tensor, Tensor]:
    """The metric of a run, and a copy of its activation at `hook`."""
    kept: list[Tensor] = []
    with quietly(model):
        return _metric(model, x, hook, lambda activation, **_: kept.append(activation.clone()), logit), kept[0]


def _gradient(model: Any, x: Tensor, hook: str, activation: Tensor, logit: LogitReader | None) -> Tensor:
    """Gradient of each input's metric by its activation at `hook`, where that is the one given."""
    leaf = activation.detach().requires_grad_()
    with quietly(model), torch.enable_grad():
        total = _metric(model, x, hook, lambda *_, **__: leaf, logit).sum()
        gradient = torch.autograd.grad(total, leaf, allow_unused=True)[0] if total.requires_grad else None
    if gradient is None:
        raise BoolensError(f"the metric does not depend on what is put at {hook}; choose another hook point")
    return gradient


def _metric(model: Any, x: Tensor, hook: str, function: HookFunction | Any, logit: LogitReader | None) -> Tensor:
    """The metric of a run with one hook, [batch]."""
    (name,) = resolve_hooks(model.hook_dict, hook)
    with hooked(model.hook_dict, [(name, function)]):
        return read_logit(model(x), len(x), logit)
