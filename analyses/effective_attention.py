"""With which weight does each position's value enter the logit, and how does the rule change that?

Effective attention is the sum over dest of readout[dest] * pattern[dest, src]; its products with the values add up
to the logit, which `compute` checks on every input. The same logit is a sum over dest of readout[dest] · z[dest], and
a model may pick its targets on either side: as keys whose values enter the logit, or as queries whose rows change what
they attend to. So the variance over inputs of both sums' terms is given, by src and by dest, with the positions on top;
and each bit's flip is split exactly into what it does as query and as key (`analyses.selection_side`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float

from analyses.results import Rows
from analyses.runs import Run
from analyses.selection_side import SelectionSide, selection_sides
from interp.attention import contributions, dest_contributions, effective_attention
from interp.flip_routes import SIDES
from interp.hooks import run as run_model
from interp.plots import plot_effective_attention
from interp.recovery import PATTERN, VALUE, Z, rank
from interp.seeds import numpy_generator
from interp.statistics import bootstrap_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from interp.models import HookedAttention

NAME = "effective-attention"
FLIPS = ("flip, by query", "flip, by key", "flip, only together")
"""What the figure calls SIDES."""


@dataclass(frozen=True)
class EffectiveAttention:
    """Per rule and channel (one a head and value dimension), over the analysis inputs of the rule.

    Attributes:
        channels: names of the channels.
        mean, low, high: effective attention and its 95 % bootstrap interval over inputs; logit per unit of value.
        contribution: mean of effective attention × value; logit.
        by_src, by_dest: variance over inputs of the logit's terms, summed by key and by query; logit².
        sides: of each rule, whether the targets act as keys or as queries, and each bit's flip by side.
        logit_error: largest |sum of contributions + bias − logit| over all inputs, by src or by dest.
    """

    channels: tuple[str, ...]
    mean: Float[np.ndarray, "rule channel src"]
    low: Float[np.ndarray, "rule channel src"]
    high: Float[np.ndarray, "rule channel src"]
    contribution: Float[np.ndarray, "rule channel src"]
    by_src: Float[np.ndarray, "rule src"]
    by_dest: Float[np.ndarray, "rule dest"]
    sides: tuple[SelectionSide, ...]
    logit_error: float
    n_inputs: int
    targets: tuple[tuple[int, ...], ...]
    rule_positions: tuple[int, ...]

    @property
    def strength(self) -> Float[np.ndarray, "rule src"]:
        """|mean| added over channels: how strongly each position is read."""
        return np.abs(self.mean).sum(axis=1)

    @property
    def flips(self) -> Float[np.ndarray, "rule side pos"]:
        """Mean absolute change of the logit by each bit's flip, split by SIDES; logit."""
        return np.stack([side.flips for side in self.sides])

    def on_top(self, scores: Float[np.ndarray, "rule pos"]) -> list[list[int]]:
        """Under each rule, as many positions as it has targets, those of largest score, in order of position."""
        candidates = [i for i in range(scores.shape[1]) if i not in self.rule_positions]
        return [sorted(rank(row, candidates, len(t)).top) for row, t in zip(scores, self.targets, strict=True)]

    def to_json(self) -> dict[str, Any]:
        names = ("channels", "targets", "rule_positions", "mean", "low", "high", "contribution", "strength")
        selection = [
            {
                "rule": r,
                "targets": self.targets[r],
                "effective_attention": strength,
                "by_src": src,
                "by_dest": dest,
                **self.sides[r].to_json(),
            }
            for r, (strength, src, dest) in enumerate(
                zip(*(self.on_top(scores) for scores in (self.strength, self.by_src, self.by_dest)), strict=True)
            )
        ]
        return {
            "n_inputs": self.n_inputs,
            "logit_error": self.logit_error,
            "selection": selection,
            "by_src": self.by_src,
            "by_dest": self.by_dest,
            "flips": dict(zip(SIDES, self.flips.swapaxes(0, 1), strict=True)),
            **{n: getattr(self, n) for n in names},
        }

    def to_rows(self) -> Rows:
        rows = [
            (
                r,
                self.channels[c],
                src,
                src in self.targets[r],
                mean,
                self.low[r, c, src],
                self.high[r, c, src],
                self.contribution[r, c, src],
                *self.flips[r, :, src],
            )
            for (r, c, src), mean in np.ndenumerate(self.mean)
        ]
        columns = ["rule", "channel", "src", "is_target", "mean", "low", "high", "contribution"]
        return Rows([*columns, *(f"flip_{side}" for side in SIDES)], rows)


def applies(run: Run) -> bool:
    return run.has_attention


def compute(run: Run) -> EffectiveAttention:
    model = cast("HookedAttention", run.model)
    cfg = model.cfg
    readout = model.W_readout.detach().double()
    bias = 0.0 if model.b_readout is None else float(model.b_readout.detach())
    parts: dict[str, list[np.ndarray]] = {
        "mean": [],
        "low": [],
        "high": [],
        "contribution": [],
        "by_src": [],
        "by_dest": [],
    }
    error = largest_value = 0.0
    n_inputs = 0
    for rule in range(run.task.n_rules):
        x = run.inputs(rule)
        logit, cache = run_model(model, x, record=[PATTERN, VALUE, Z])
        effective = effective_attention(cache[PATTERN].double(), readout)
        value = cache[VALUE].double()
        largest_value = max(largest_value, float(value.abs().max()))
        by_src = contributions(effective, value).sum(dim=1)
        by_dest = dest_contributions(cache[Z].double(), readout)
        for terms in (by_src, by_dest):
            error = max(error, float((terms.sum(dim=1) + bias - logit).abs().max()))
        by_channel = rearrange(effective, "batch head src d_value -> batch (head d_value) src").numpy()
        each = rearrange(value, "batch src head d_value -> batch (head d_value) src").numpy() * by_channel
        low, high = bootstrap_mean(by_channel, numpy_generator(run.seed, "statistics", rule))
        arrays = {
            "mean": by_channel.mean(axis=0),
            "low": low,
            "high": high,
            "contribution": each.mean(axis=0),
            "by_src": by_src.var(dim=0, correction=0).numpy(),
            "by_dest": by_dest.var(dim=0, correction=0).numpy(),
        }
        for name, array in arrays.items():
            parts[name].append(array)
        n_inputs += len(x)
    tolerance = 1e-4 if torch.finfo(model.W_readout.dtype).eps > 1e-8 else 1e-10
    scale = 1 + float(readout.abs().sum()) * max(1.0, largest_value)
    if error > tolerance * scale:
        raise ArithmeticError(
            f"contributions miss the logit by {error:.3g}; the orientation of effective attention is wrong"
        )
    names = [
        f"head {h}" + (f", value {d}" if cfg.d_value > 1 else "")
        for h in range(cfg.n_heads)
        for d in range(cfg.d_value)
    ]
    return EffectiveAttention(
        channels=tuple(names),
        **{name: np.stack(arrays) for name, arrays in parts.items()},
        sides=selection_sides(run),
        logit_error=error,
        n_inputs=n_inputs,
        targets=run.task.targets,
        rule_positions=run.task.rule_positions,
    )


def plot(result: EffectiveAttention) -> "Figure":
    return plot_effective_attention(
        result.mean,
        result.low,
        result.high,
        result.contribution,
        by_src=result.by_src,
        by_dest=result.by_dest,
        flips=result.flips,
        sides=FLIPS,
        channels=result.channels,
        targets=result.targets,
        rule_positions=result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
