"""Distributed alignment search in one dimension (Geiger et al. 2024, "Finding Alignments Between Interpretable Causal
Variables and Distributed Neural Representations").

A unit direction u in the space of a site's whole activation a (all axes but batch, flattened) stands for a variable if
a_base + u · (uᵀ a_source − uᵀ a_base) makes the model answer as if the variable had its value from the source.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp.errors import BoolensError
from interp.hooks import check_read, run
from interp.interventions.linear import agrees, downstream_gradient

SHARPNESS = 4.0
"""Standard deviation of the logits that the cross-entropy is taken of: with less, it gains by overshooting the source's
component; with much more, few pairs have a gradient.
"""


@dataclass(frozen=True)
class Pairing:
    """What alignment needs of pairs of inputs at a hook point; made once by `pair_activations`.

    Attributes:
        hook: the hook point.
        base, change: its activation on the base inputs, and source minus base.
        clean: the base inputs' logits.
        gradient: of the logit by the activation where the logit is affine in it; else None.
    """

    model: Any
    x: Int[Tensor, "batch pos"]
    hook: str
    base: Float[Tensor, "batch *axes"]
    change: Float[Tensor, "batch *axes"]
    clean: Float[Tensor, " batch"]
    gradient: Float[Tensor, "batch *axes"] | None

    @property
    def shape(self) -> torch.Size:
        """Of the activation, batch left out."""
        return self.base.shape[1:]

    def rows(self, chosen: Int[Tensor, " row"] | slice) -> "Pairing":
        """Some of the pairs."""
        parts = {name: getattr(self, name)[chosen] for name in ("x", "base", "change", "clean")}
        return replace(self, **parts, gradient=None if self.gradient is None else self.gradient[chosen])


def pair_activations(
    model: Any, base: Int[Tensor, "batch pos"], source: Int[Tensor, "batch pos"], hook: str
) -> Pairing:
    """The activations of pairs at a hook point.

    Raises:
        BoolensError: no pairs, inputs that do not match row by row, no such hook, edits that the model discards.
    """
    if base.shape != source.shape or not len(base):
        raise BoolensError(
            f"base inputs of shape {tuple(base.shape)}, sources of {tuple(source.shape)}; give at least one pair, and "
            "match them row by row"
        )
    check_read(model, base, hook)
    clean, cache = run(model, base, record=[hook])
    change = run(model, source, record=[hook])[1][hook] - cache[hook]
    gradient = downstream_gradient(model, base, hook)
    if gradient is not None and not agrees(model, base, hook, clean, change, gradient):
        gradient = None
    return Pairing(model, base, hook, cache[hook], change, clean, gradient)


def aligned_logits(pairing: Pairing, directions: Float[Tensor, "direction *axes"]) -> Float[Tensor, "direction batch"]:
    """The base inputs' logits with the source's component along each direction; differentiable in the directions.

    Args:
        pairing: of `pair_activations`.
        directions: of any length but 0; only where they point matters.

    Raises:
        BoolensError: directions that do not have the activation's shape.
    """
    if directions.shape[1:] != pairing.shape:
        raise BoolensError(
            f"directions of shape {tuple(directions.shape[1:])} do not fit {pairing.hook}, whose activation is "
            f"{tuple(pairing.shape)} an input"
        )
    unit = directions.flatten(1)
    unit = unit / unit.norm(dim=1, keepdim=True)
    moved = unit @ pairing.change.flatten(1).T
    if pairing.gradient is not None:
        return pairing.clean + moved * (unit @ pairing.gradient.flatten(1).T)
    n_directions, n = moved.shape
    step = (moved[..., None] * unit[:, None]).reshape(n_directions * n, *pairing.shape)

    def edit(activation: Tensor, hook: Any) -> Tensor:
        torch.set_grad_enabled(step.requires_grad)  # `run` puts the mode back
        return activation + step

    return run(pairing.model, pairing.x.repeat(n_directions, 1), [(pairing.hook, edit)])[0].view(n_directions, n)


def learn_direction(
    pairing: Pairing,
    expected: Bool[Tensor, " batch"],
    generator: torch.Generator,
    *,
    threshold: float = 0.0,
    n_starts: int = 2,
    steps: int = 40,
    lr: float = 0.12,
    batch: int = 32,
) -> Float[Tensor, "*axes"]:
    """The unit direction that realises the variable best on the pairs, by Adam on the binary cross-entropy.

    The loss is taken of SHARPNESS · (logit − threshold) over the standard deviation of the base inputs' logits, so that
    a model with tiny logits, such as one at initialisation, is searched as well as a trained one. The best of several
    starts is kept: the change of activation that goes with the expected label; of the directions in which single
    positions differ most, the one with the lowest loss; and random directions.

    Args:
        pairing: of `pair_activations`.
        expected: the labels that the causal model gives for the pairs.
        generator: draws the random starts and the order of the pairs.
        threshold: the logit above which the label is True.
        n_starts: number of starts, at least 1.
        steps: of Adam, at least 1, from each start.
        lr: Adam's, relative to a direction of length 1.
        batch: pairs a step, at most; the loss that the starts are compared by is over all pairs.

    Raises:
        BoolensError: not one label a pair, fewer than one start or step, a site that never differs in the pairs.
    """
    n = len(pairing.clean)
    if expected.shape != (n,) or min(n_starts, steps, batch) < 1:
        raise BoolensError(
            f"{len(expected)} labels for {n} pairs, {n_starts} starts, {steps} steps of {batch} pairs; give one label "
            "a pair, and at least one start, step and pair a step"
        )
    if not pairing.change.any():
        raise BoolensError(f"{pairing.hook} is the same in base and source of every pair; choose another site")
    sign = 2 * expected.to(pairing.change) - 1
    mean = torch.einsum("b,b...->...", sign, pairing.change)[None]
    if not mean.any():
        mean = pairing.change[pairing.change.flatten(1).any(dim=1)][:1]
    spread = float((pairing.clean - threshold).std(correction=0)) or 1.0
    target = expected.to(pairing.clean)

    def losses(directions: Tensor, rows: Tensor) -> Float[Tensor, " direction"]:
        scaled = SHARPNESS * (aligned_logits(pairing.rows(rows), directions) - threshold) / spread
        truth = target[rows].expand_as(scaled)
        return binary_cross_entropy_with_logits(scaled, truth, reduction="none").mean(dim=1)

    single = single_positions(pairing)
    with torch.no_grad():
        best_single = single[losses(single, torch.arange(min(n, batch))).argmin()][None]
    starts = torch.cat([mean, best_single, random_directions(pairing, max(n_starts - 2, 0), generator)])[:n_starts]
    starts = starts / starts.flatten(1).norm(dim=1).view(-1, *(1,) * len(pairing.shape))
    directions = starts.detach().clone().requires_grad_()
    search = torch.optim.Adam([directions], lr=lr)
    with torch.enable_grad():
        for _ in range(steps):
            search.zero_grad()
            losses(directions, torch.randperm(n, generator=generator)[:batch]).sum().backward(inputs=[directions])
            search.step()
    with torch.no_grad():
        best = directions[int(losses(directions, torch.arange(n)).argmin())]
        return (best / best.norm()).detach()


def single_positions(pairing: Pairing) -> Float[Tensor, "pos *axes"]:
    """For each index of the activation's first axis, the direction there in which the pairs differ most."""
    change = pairing.change.flatten(2) if len(pairing.shape) > 1 else pairing.change[..., None]
    most = torch.linalg.eigh(torch.einsum("bpi,bpj->pij", change, change)).eigenvectors[..., -1]
    return (torch.eye(len(most)).to(most)[..., None] * most[:, None]).view(-1, *pairing.shape)


def random_directions(pairing: Pairing, n: int, generator: torch.Generator) -> Float[Tensor, "direction *axes"]:
    """n directions, uniform over the sphere in the activation's space, not normalised."""
    return torch.randn(n, *pairing.shape, generator=generator, dtype=torch.float64).to(pairing.base)
