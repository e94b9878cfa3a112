"""Do the targets reach the logit as keys or as queries, and in whose rows? Why attention does not rank them on top.

Mean attention onto src weighs all rows and both bits alike and sees a position as a key alone. It can be blind in two
ways: the targets act as *queries* (their own bit changes what their own row looks at), or they act as keys in rows that
the readout takes far more of than of the others. It also drowns a key that is looked at only while its bit has one
value; the mean over just those inputs does not, and stands beside it, by bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from einops import einsum, reduce
from jaxtyping import Float, Int
from torch import Tensor

from analyses.runs import Run
from interp.flip_routes import SIDES, flip_routes
from interp.hooks import run as run_model
from interp.readout import direct_readout
from interp.recovery import PATTERN, VALUE, flip_scores, rank

if TYPE_CHECKING:
    from interp.models import HookedAttention

Kind = Literal["keys", "keys in target rows", "queries", "both", "neither"]
KINDS: tuple[Kind, ...] = ("keys", "keys in target rows", "queries", "both", "neither")
MOST = 0.5
"""A position acts as key (or query) if more than this share of its flip's effect comes by that side alone."""
READ = 1.5
"""Keys act 'in target rows' if the readout on the targets' rows is at least this many times that on the others."""


@dataclass(frozen=True)
class SelectionSide:
    """Under one rule, over its analysis inputs.

    Attributes:
        kind: 'keys': every target acts as key (see MOST); 'keys in target rows': and those are the rows that are read
            (see READ); 'queries': every target acts as query; 'both': neither of these; 'neither': the flips do not
            have exactly the targets on top, so that no selection of them is found on either side.
        shares: of the targets' flips' mean absolute effect, what comes by each of SIDES; they add up to 1, and one may
            be negative or above 1. NaN where no flip changes anything.
        target_sides: of each target, 'key', 'query' or 'both'.
        readout_ratio: mean readout strength of the targets' rows over that of all others: |readout| times the standard
            deviation of the value, added over heads and d_value. Infinite where only the targets are read, NaN where
            nothing is or there are no others, and of a [CLS] transformer, which has one row.
        attention: share of the mean pattern that is on the targets, all rows alike, in [0, 1].
        read_attention: the same with heads and rows weighed by readout strength.
        read_match: whether the mean pattern so weighed has exactly the targets on top.
        uniform: the same if attention were spread evenly.
        by_bit: mean pattern onto each src over the inputs in which its bit is 0, and over those in which it is 1.
        by_bit_match: for either bit, whether that has exactly the targets on top.
        flips: mean absolute change of the logit by each bit's flip, split by SIDES, in logit.
    """

    rule: int
    targets: tuple[int, ...]
    kind: Kind
    shares: dict[str, float]
    target_sides: tuple[str, ...]
    readout_ratio: float
    attention: float
    read_attention: float
    read_match: bool
    uniform: float
    by_bit: Float[np.ndarray, "vocab pos"]
    by_bit_match: tuple[bool, bool]
    flips: Float[np.ndarray, "side pos"]

    def to_json(self) -> dict[str, Any]:
        names = ("kind", "shares", "target_sides", "readout_ratio", "attention", "read_attention", "uniform")
        names += ("read_match", "by_bit", "by_bit_match")
        return {name: getattr(self, name) for name in names}

    def why(self, method: str) -> str:
        """Why 'attention' or 'effective-attention' does not rank the targets on top, with numbers; '' if not known."""
        if self.kind == "neither":
            return ""
        bits = [str(bit) for bit in (0, 1) if self.by_bit_match[bit]]
        by_bit = (
            f"onto keys whose bit is {' or '.join(bits)}, mean attention has exactly the targets on top" if bits else ""
        )
        return "; ".join(filter(None, (self._cause(method), by_bit if method == "attention" else "")))

    def _cause(self, method: str) -> str:
        query, key = (f"{100 * self.shares[side]:.0f} %" for side in ("query", "key"))
        if self.kind == "queries":
            return (
                f"the targets act as queries: their own queries carry {query} of what their flips change (their keys "
                f"and values {key}) and {self._read()}, so the pattern onto src is about something else"
            )
        if self.kind == "both":
            sides = ", ".join(f"{t} as {s}" for t, s in zip(self.targets, self.target_sides, strict=True))
            return f"the targets do not act by one side ({sides}; by queries {query}, by keys and values {key})"
        rows = f"in their own rows: {self._read()}, and" if self.kind == "keys in target rows" else ""
        if method != "attention" or not (rows or self.read_match):
            return ""
        rows = rows or "in the rows that are read, while"
        return (
            f"the targets act as keys ({key} of what their flips change), but {rows} "
            f"mean attention weighs all rows alike (it has {self.attention:.2f} on the targets, "
            f"{self.read_attention:.2f} with rows weighed by the readout, {self.uniform:.2f} if spread evenly)"
        )

    def _read(self) -> str:
        if np.isinf(self.readout_ratio):
            return "only their rows are read"
        return f"the readout on their rows is {self.readout_ratio:.2g} times that on others"


def selection_sides(run: Run) -> tuple[SelectionSide, ...]:
    """The side of each rule; for a run with attention."""
    return tuple(_of_rule(run, rule) for rule in range(run.task.n_rules))


def why_missed(run: Run, method: str, rules: Sequence[int]) -> str:
    """Sentences on why the method misses the targets of these rules, each after a space; '' where nothing is known."""
    if method not in ("attention", "effective-attention"):
        return ""
    said = [(rule, _of_rule(run, rule).why(method)) for rule in rules]
    return "".join(
        f" Under rule {rule} {why}." if run.task.n_rules > 1 else f" {why[0].upper()}{why[1:]}."
        for rule, why in said
        if why
    )


def _of_rule(run: Run, rule: int) -> SelectionSide:
    model, task = cast("HookedAttention", run.model), run.task
    x, targets = run.inputs(rule), list(task.targets[rule])
    if run.is_cls:  # the one query is the same for all inputs, so bits act as keys alone
        zero = torch.zeros(task.n_ctx, dtype=torch.float64)
        by_side = {"query": zero, "key": flip_scores(model, x).double(), "together": zero}
    else:
        by_side = flip_routes(model, x).by_side()
    flips = np.stack([by_side[side].numpy() for side in SIDES])
    whole = flips.sum(axis=0)

    def on_top(scores: Float[np.ndarray, " pos"]) -> bool:
        ranking = rank(scores, task.candidates, len(targets))
        return set(ranking.top) == set(targets) and not ranking.tie

    sides = tuple(_side(flips[:, t]) for t in targets)
    _, cache = run_model(model, x, record=[PATTERN, VALUE])
    onto, value = cache[PATTERN][..., : task.n_ctx].double(), cache[VALUE][:, : task.n_ctx].double()
    readout = direct_readout(model, x).double()
    strength = _strength(readout.abs().mean(dim=0) if run.is_cls else readout, value)
    by_bit = _by_bit(reduce(onto, "batch head dest src -> batch src", "mean"), x).numpy()
    pattern = onto.mean(dim=0)
    read = einsum(pattern, strength, "head dest src, dest head -> src") / strength.sum()
    ratio = float("nan") if run.is_cls else _ratio(strength.sum(dim=1).numpy(), targets)
    total = whole[targets].sum()
    share = flips[:, targets].sum(axis=1) / total if total > 0 else np.full(len(SIDES), np.nan)
    return SelectionSide(
        rule=rule,
        targets=tuple(targets),
        kind=_kind(sides, ratio) if on_top(whole) else "neither",
        shares=dict(zip(SIDES, share.tolist(), strict=True)),
        target_sides=sides,
        readout_ratio=ratio,
        attention=float(reduce(pattern, "head dest src -> src", "mean")[targets].sum()),
        read_attention=float(read[targets].sum()),
        read_match=on_top(read.numpy()),
        uniform=len(targets) / task.n_ctx,
        by_bit=by_bit,
        by_bit_match=(on_top(by_bit[0]), on_top(by_bit[1])),
        flips=flips,
    )


def _by_bit(onto: Float[Tensor, "batch src"], x: Int[Tensor, "batch src"]) -> Float[Tensor, "vocab src"]:
    """The mean over the inputs in which the key's own bit is 0, and in which it is 1."""
    has = torch.stack([x == bit for bit in (0, 1)]).double()
    return (onto * has).sum(dim=1) / has.sum(dim=1)


def _side(flip: Float[np.ndarray, " side"]) -> str:
    for side in ("key", "query"):
        if flip[list(SIDES).index(side)] > MOST * flip.sum():
            return side
    return "both"


def _kind(sides: Sequence[str], readout_ratio: float) -> Kind:
    if set(sides) == {"query"}:
        return "queries"
    if set(sides) == {"key"}:
        return "keys in target rows" if readout_ratio >= READ else "keys"
    return "both"


def _strength(
    readout: Float[Tensor, "dest head d_value"], value: Float[Tensor, "batch src head d_value"]
) -> Float[Tensor, "dest head"]:
    """How much of each row the readout takes; the same however scale is shared out between values and readout."""
    spread = value.flatten(0, 1).std(dim=0, correction=0)
    return (readout.abs() * spread).sum(dim=-1)


def _ratio(strength: Float[np.ndarray, " pos"], targets: Sequence[int]) -> float:
    others = np.delete(strength, targets)
    if not len(others) or not strength.any():
        return float("nan")
    return float(strength[list(targets)].mean() / others.mean()) if others.any() else float("inf")
