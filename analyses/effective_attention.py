"""With which weight does each position's value enter the logit, and how does the rule change that?

Effective attention is the sum over dest of readout[dest] * pattern[dest, src]; its products with the values add up
to the logit, which `compute` checks on every input. The same logit is a sum over dest of readout[dest] · z[dest], and
a model may pick its targets on either side: as keys whose values enter the logit, or as queries whose rows change what
they attend to. So the variance over inputs of both sums' terms is given, by src and by dest, with the positions on top;
and each bit's flip is split exactly into what it does as query and as key (`analyses.selection_side`).

A [CLS] transformer has one row, whose readout is that of the direct path (`interp.readout.direct_readout`): with norms
each input's own. A head is one channel, the weights of its dimensions added up in size. What the terms of the bits
leave of the logit, by [CLS]'s own key and residual stream and by the MLP, is `beside`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from einops import einsum, rearrange
from jaxtyping import Float

from analyses.results import Rows, strongest
from analyses.runs import N_INPUTS, Run
from analyses.selection_side import SelectionSide, selection_sides
from interp.attention import contributions, dest_contributions, effective_attention
from interp.flip_routes import SIDES
from interp.hooks import run as run_model
from interp.plots import plot_effective_attention
from interp.readout import direct_readout
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
        by_src, by_dest: variance over inputs of the logit's terms, summed by key and by query; logit². Of a [CLS]
            transformer by_dest is NaN.
        sides: of each rule, whether the targets act as keys or as queries, and each bit's flip by side.
        beside: mean and standard deviation over inputs of the logit less the sum of the bits' terms: the bias, and in a
            [CLS] transformer all that reaches the logit otherwise; logit.
        logit_error: largest |sum of contributions + bias − logit| over all inputs, by src or by dest; of a [CLS]
            transformer of their sum, with [CLS]'s own key, − readout · z.
    """

    channels: tuple[str, ...]
    mean: Float[np.ndarray, "rule channel src"]
    low: Float[np.ndarray, "rule channel src"]
    high: Float[np.ndarray, "rule channel src"]
    contribution: Float[np.ndarray, "rule channel src"]
    by_src: Float[np.ndarray, "rule src"]
    by_dest: Float[np.ndarray, "rule dest"]
    beside: Float[np.ndarray, "rule 2"]
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
        """Under each rule, as many positions as it has targets, those of largest score, in order of position.

        Of scores that are NaN, none.
        """
        candidates = [i for i in range(scores.shape[1]) if i not in self.rule_positions]
        return [
            [] if np.isnan(row).any() else sorted(rank(row, candidates, len(t)).top)
            for row, t in zip(scores, self.targets, strict=True)
        ]

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
            "beside": [{"mean": mean, "sd": sd} for mean, sd in self.beside.tolist()],
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
    of_rule = _of_rule_cls if run.is_cls else _of_rule
    found = [of_rule(run, rule) for rule in range(run.task.n_rules)]
    cfg: Any = run.model.cfg
    values = 1 if run.is_cls else cfg.d_value
    names = [f"head {h}" + (f", value {d}" if values > 1 else "") for h in range(cfg.n_heads) for d in range(values)]
    return EffectiveAttention(
        channels=tuple(names),
        **{name: np.stack([arrays[name] for arrays, _ in found]) for name in found[0][0]},
        sides=selection_sides(run),
        logit_error=max(error for _, error in found),
        n_inputs=run.task.n_rules * N_INPUTS,
        targets=run.task.targets,
        rule_positions=run.task.rule_positions,
    )


def _of_rule(run: Run, rule: int) -> tuple[dict[str, np.ndarray], float]:
    """The arrays of EffectiveAttention without their rule axis, and the logit's error.

    Raises:
        ArithmeticError: the terms do not add up to the logit.
    """
    model = cast("HookedAttention", run.model)
    readout = model.W_readout.detach().double()
    bias = 0.0 if model.b_readout is None else float(model.b_readout.detach())
    logit, cache = run_model(model, run.inputs(rule), record=[PATTERN, VALUE, Z])
    effective = effective_attention(cache[PATTERN].double(), readout)
    value = cache[VALUE].double()
    by_src = contributions(effective, value).sum(dim=1)
    by_dest = dest_contributions(cache[Z].double(), readout)
    error = max(float((terms.sum(dim=1) + bias - logit).abs().max()) for terms in (by_src, by_dest))
    _check(error, readout, value, model.W_readout.dtype)
    by_channel = rearrange(effective, "batch head src d_value -> batch (head d_value) src").numpy()
    each = rearrange(value, "batch src head d_value -> batch (head d_value) src").numpy() * by_channel
    return _arrays(run, rule, by_channel, each, by_src, by_dest, logit), error


def _of_rule_cls(run: Run, rule: int) -> tuple[dict[str, np.ndarray], float]:
    """The same of a [CLS] transformer; the error is of readout · z."""
    x, n_ctx = run.inputs(rule), run.task.n_ctx
    logit, cache = run_model(run.model, x, record=[PATTERN, VALUE, Z])
    readout, value = direct_readout(cast(Any, run.model), x).double(), cache[VALUE].double()
    effective = effective_attention(cache[PATTERN].double(), readout)
    terms = contributions(effective, value)
    whole = einsum(cache[Z].double(), readout, "batch dest head d_value, batch dest head d_value -> batch")
    error = float((terms.sum(dim=(1, 2)) - whole).abs().max())
    _check(error, readout, value, cache[Z].dtype)
    by_channel, each = effective.abs().sum(dim=-1)[..., :n_ctx].numpy(), terms[..., :n_ctx]
    by_dest = torch.full((1, n_ctx), torch.nan, dtype=torch.float64)
    return _arrays(run, rule, by_channel, each.numpy(), each.sum(dim=1), by_dest, logit), error


def _check(error: float, readout: torch.Tensor, value: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = 1e-4 if torch.finfo(dtype).eps > 1e-8 else 1e-10
    if error > tolerance * (1 + float(readout.abs().sum()) * max(1.0, float(value.abs().max()))):
        raise ArithmeticError(
            f"contributions miss the logit by {error:.3g}; the orientation of effective attention is wrong"
        )


def _arrays(
    run: Run,
    rule: int,
    by_channel: Float[np.ndarray, "batch channel src"],
    each: Float[np.ndarray, "batch channel src"],
    by_src: Float[torch.Tensor, "batch src"],
    by_dest: Float[torch.Tensor, "any_batch dest"],
    logit: Float[torch.Tensor, " batch"],
) -> dict[str, np.ndarray]:
    low, high = bootstrap_mean(by_channel, numpy_generator(run.seed, "statistics", rule))
    beside = logit.double() - by_src.sum(dim=1)
    return {
        "beside": np.array([float(beside.mean()), float(beside.std(correction=0))]),
        "mean": by_channel.mean(axis=0),
        "low": low,
        "high": high,
        "contribution": each.mean(axis=0),
        "by_src": by_src.var(dim=0, correction=0).numpy(),
        "by_dest": by_dest.var(dim=0, correction=0).numpy(),
    }


def plot(result: EffectiveAttention) -> "Figure":
    shown = strongest(result.mean)
    return plot_effective_attention(
        result.mean[:, shown],
        result.low[:, shown],
        result.high[:, shown],
        result.contribution[:, shown],
        by_src=result.by_src,
        by_dest=result.by_dest,
        flips=result.flips,
        sides=FLIPS,
        channels=[result.channels[c] for c in shown],
        targets=result.targets,
        rule_positions=result.rule_positions,
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
