"""A [CLS] model as a `Side`: closed form where its logit's sign is that of ratios, evaluation of inputs where not.

Without an MLP the residual stream at the [CLS] token is r = r0 + sum over heads of z_h · W_O, and each z_h a ratio of
two sums over keys, the [CLS] token's own among them. Read out linearly, that is a sum of one ratio a head: `cls_terms`.
A last LayerNorm divides what is read out by a scale, which is above 0, and adds a constant; if that is 0 the logit has
the sign of the numerator, which is again linear in r. With one head the ratio is above 0 where a linear function of
the bits is, so bounds over boxes are attained and one box of inputs of one label takes one bound.
"""

import itertools
import threading
from collections.abc import Callable
from math import comb as binomial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.certify.cls_rounding import attended, length, logit_margin, on_ratio
from interp.certify.count import Counted
from interp.certify.side import RatioSide, Side
from interp.certify.terms import UNIT, Terms
from interp.cls_tables import ClsTables, cls_tables
from interp.errors import BoolensError

if TYPE_CHECKING:
    from interp.models import HookedCls

ENUMERATED = 2**16
"""A box of at most so many inputs is bounded by evaluating them all."""
BLOCK = 2**14
"""Inputs evaluated at a time, at most."""
WIDEST = 600.0
"""Spread of a head's scores up to which one scale serves every input."""
PROBED = 512
"""Inputs that say how small a norm's scale is."""
STEPS = 60
"""Of a climb, at most."""


def cls_side_maker(model: "HookedCls") -> Callable[[bool, Int[np.ndarray, " pos"]], Side]:
    """The model against a label, for `certify`: `RatioSide` where `cls_terms` has terms, else `ClsSide`.

    Raises:
        BoolensError: weights that are not finite.
    """
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise BoolensError(f"{name} is not finite: nothing can be said about the logits; train the model again")
    tables = cls_tables(model, torch.float64)
    terms = cls_terms(tables)
    values = None if terms is not None else Values(tables)

    def make(label: bool, counted: Int[np.ndarray, " pos"]) -> Side:
        if values is not None:
            return ClsSide(values, label, counted)
        assert terms is not None
        return RatioSide(terms, label, counted)

    return make


def cls_terms(tables: ClsTables) -> Terms | None:
    """The ratios that have the logit's sign, one a head; None for a model with an MLP, or a norm and then a constant.

    Without norms they add up to the logit; with them to the logit times the last norm's scale. The [CLS] token's key,
    which every input has, is one key with that of position 0: a weight of the sum of both, a value of their mean.
    """
    model = tables.model
    readout, constant = model.W_readout, model.b_readout
    if model.cfg.d_mlp:
        return None
    on_readout = 0.0
    if model.ln_final is not None:
        biases = (model.ln_final.b, constant)
        if any(bias is not None and bool((bias != 0).any()) for bias in biases):
            return None
        weighted = model.ln_final.w * readout
        readout, constant = weighted - weighted.mean(), None
        on_readout = 4 * (len(readout) + 4) * UNIT * length(weighted)
    attn = model.attn
    write = torch.einsum("hdm,m->hd", attn.W_O, readout)
    value = torch.einsum("hcd,hd->hc", tables.value, write).numpy()
    resid = tables.resid if attn.b_O is None else tables.resid + attn.b_O
    bias = float(resid @ readout) + (0.0 if constant is None else float(constant))
    score = tables.scores.numpy()
    own = score[:, -1:]
    joint = np.logaddexp(score[:, :2], own)
    share = np.exp(score[:, :2] - joint)
    value[:, :2] = share * value[:, :2] + np.exp(own - joint) * value[:, -1:]
    score = np.concatenate([joint, score[:, 2:-1]], axis=1).reshape(len(score), 1, -1, 2).repeat(2, axis=1)
    value = value[:, :-1].reshape(len(score), -1, 2)

    found, width = attended(tables), len(readout)
    w_o = torch.linalg.vector_norm(attn.W_O, dim=(1, 2)).numpy()
    size_readout = length(readout) + on_readout
    products = (width + model.cfg.d_head + 8) * UNIT
    size_value = found.value.size + found.value.error
    on_value = w_o * (found.value.error * size_readout + size_value * (on_readout + products * size_readout))
    size = np.abs(value).max(axis=(1, 2))
    on_sum = (len(size) + 4) * UNIT
    on_bias = (width + 4) * UNIT * (found.resid.size + length(attn.b_O)) * size_readout
    on_bias += found.resid.error * size_readout + (found.resid.size + length(attn.b_O)) * on_readout
    on_bias += on_sum * (abs(bias) + size.sum())
    margin = 2 * (float((size * on_ratio(found, tables) + on_value).sum()) + on_bias)
    n_ctx = tables.n_ctx
    return Terms(score, value, np.full(len(score), -1), np.zeros((n_ctx, 2)), bias, margin)


class Values:
    """The logits of any inputs, quickly: sums over keys by one product with the one-hot inputs.

    An input that is not as far from constant, before a norm, as the margin assumes has the logit 0, so it counts
    neither as right nor as wrong. What is assumed is half of the least scale in a sample of PROBED inputs.

    Attributes:
        least: that scale by the hook's name.
        margin: how far rounding can move a logit.
    """

    def __init__(self, tables: ClsTables) -> None:
        self.tables = tables
        score = tables.scores.numpy()
        by_bit = score[:, :-1].reshape(len(score), -1, 2)
        low = np.maximum(by_bit.min(axis=2).max(axis=1), score[:, -1])  # present in every input, or less than it
        self.wide = bool((score - low[:, None]).max() > WIDEST)
        weight = np.exp(np.minimum(score - low[:, None], WIDEST))[..., None]
        terms = np.concatenate([weight, weight * tables.value.numpy()], axis=-1)  # head column (1 + d_head)
        self.shape = (len(score), terms.shape[-1])
        flat = terms.transpose(1, 0, 2).reshape(terms.shape[1], -1)
        self.adds = flat[1:-1:2] - flat[:-1:2]  # of a bit that is 1, [pos, head (1 + d_head)]
        self.zeros, self.ones, self.own = flat[:-1:2], flat[1:-1:2], flat[-1]
        self.lock = threading.Lock()
        self.scales: dict[str, torch.Tensor] = {}
        self.least: dict[str, float] = {}
        model = tables.model
        for name in ("blocks.0.ln2.hook_scale", "ln_final.hook_scale"):
            if name in model.hook_dict:
                model.add_perma_hook(name, self._keep)
        generator = np.random.default_rng(0)
        self.logits((generator.random((PROBED, tables.n_ctx)) < generator.random((PROBED, 1))).astype(np.int64))
        self.least = {name: 0.5 * float(scale.min()) for name, scale in self.scales.items()}
        self.margin = logit_margin(tables, self.least)

    def sums(self, x: Int[np.ndarray, "batch pos"]) -> Float[np.ndarray, "batch column"]:
        bits = x.astype(np.float64)
        return bits @ self.ones + (1 - bits) @ self.zeros + self.own

    def of_sums(self, sums: Float[np.ndarray, "batch column"]) -> Float[np.ndarray, " batch"]:
        each = torch.from_numpy(sums.reshape(-1, *self.shape))
        return self.of_z(each[..., 1:] / each[..., :1])

    def _keep(self, tensor: torch.Tensor, *, hook: Any) -> None:
        self.scales[hook.name] = tensor[:, 0, 0]

    def of_z(self, z: Float[torch.Tensor, "batch head d_head"]) -> Float[np.ndarray, " batch"]:
        with self.lock:  # boxes are counted by several threads, and the scales are one call's
            logits = self.tables.logits_of_z(z)
            for name, least in self.least.items():
                logits[~(self.scales[name] > 1.001 * least)] = 0.0
        return logits.numpy()

    @torch.no_grad()
    def logits(self, x: Int[np.ndarray, "batch pos"]) -> Float[np.ndarray, " batch"]:
        if self.wide:
            block = max(1, BLOCK // self.tables.n_ctx)
            rows = [torch.from_numpy(x[i : i + block]) for i in range(0, len(x), block)]
            return np.concatenate([np.zeros(0), *(self.of_z(self.tables.z(row)) for row in rows)])
        parts = [self.of_sums(self.sums(x[i : i + BLOCK])) for i in range(0, len(x), BLOCK)]
        return np.concatenate([np.zeros(0), *parts])

    @torch.no_grad()
    def flipped(self, x: Int[np.ndarray, " pos"], free: Int[np.ndarray, " free"]) -> Float[np.ndarray, " free"]:
        """The logits with one of the free positions flipped; differences of sums, for a search and no proof."""
        turned = np.where(x[free] == 1, -1.0, 1.0)[:, None] * self.adds[free]
        if not self.wide:
            with np.errstate(all="ignore"):
                return np.nan_to_num(self.of_sums(self.sums(x[None]) + turned), nan=-np.inf)
        one = np.repeat(x[None], len(free), axis=0)
        one[np.arange(len(free)), free] ^= 1
        return self.logits(one)


class ClsSide:
    """A [CLS] model against one label, by evaluating inputs: boxes of more than ENUMERATED have no bound."""

    leaf = 16
    boxes = 16
    proof = "every input evaluated"

    def __init__(self, values: Values, label: bool, counted: Int[np.ndarray, " pos"]) -> None:
        self.values, self.sign = values, -1.0 if label else 1.0
        self.counted = np.asarray(counted, dtype=np.int8)
        self.margin = self.slack = values.margin

    def logits(self, x: Int[np.ndarray, "batch pos"]) -> Float[np.ndarray, " batch"]:
        return self.sign * self.values.logits(np.asarray(x, dtype=np.int64))

    def bound(
        self, boxes: Int[np.ndarray, "box pos"], limit: Int[np.ndarray, " box"]
    ) -> tuple[Float[np.ndarray, " box"], Int[np.ndarray, "box pos"], Float[np.ndarray, "box pos"]]:
        upper, best = np.full(len(boxes), np.inf), np.where(boxes >= 0, boxes, 1 - np.maximum(self.counted, 0))
        for i, (fixed, most) in enumerate(zip(boxes, limit, strict=True)):
            x = self.inputs(fixed, int(most))
            if x is not None:
                logits = self.logits(x)
                upper[i], best[i] = logits.max(), x[logits.argmax()]
        return upper, best.astype(np.int8), (boxes < 0).astype(np.float64)

    def inputs(self, fixed: Int[np.ndarray, " pos"], limit: int) -> Int[np.ndarray, "input pos"] | None:
        """All inputs of a box with at most `limit` counted bits at free positions; None where they are too many."""
        counted = np.flatnonzero((fixed < 0) & (self.counted >= 0))
        other = np.flatnonzero((fixed < 0) & (self.counted < 0))
        limit, n_other = min(limit, len(counted)), len(other)
        if n_other > ENUMERATED.bit_length():
            return None
        n_sets = 0
        for n in range(limit + 1):
            n_sets += binomial(len(counted), n)
            if n_sets * 2**n_other > ENUMERATED:
                return None
        base = np.where(fixed >= 0, fixed, 1 - self.counted).astype(np.int64)
        rows = np.repeat(base[None], n_sets, axis=0)
        sets = (chosen for n in range(limit + 1) for chosen in itertools.combinations(counted, n))
        for row, chosen in zip(rows, sets, strict=True):
            row[list(chosen)] = self.counted[list(chosen)]
        x = np.repeat(rows, 2**n_other, axis=0)
        x[:, other] = np.tile(patterns(n_other), (n_sets, 1))
        return x

    def climb(
        self, starts: Int[np.ndarray, "start pos"], fixed: Int[np.ndarray, " pos"]
    ) -> tuple[Int[np.ndarray, "start pos"], Float[np.ndarray, " start"]]:
        """By the best flip of one bit, or all flips that would raise the logit alone where together they raise more."""
        reached, free = starts.astype(np.int64), np.flatnonzero(fixed < 0)
        logit = self.logits(reached)
        for i, x in enumerate(reached):
            for _ in range(STEPS if len(free) else 0):
                gains = self.sign * self.values.flipped(x, free) - logit[i]
                tries = np.repeat(x[None], 2, axis=0)
                tries[0, free[gains.argmax()]] ^= 1
                tries[1, free[gains > 0]] ^= 1
                after = self.logits(tries)
                if not after.max() > logit[i]:
                    break
                x[:], logit[i] = tries[after.argmax()], after.max()
        return reached.astype(np.int8), logit

    def count(self, fixed: Int[np.ndarray, " pos"]) -> Counted:
        free = np.flatnonzero(fixed < 0)
        x = np.repeat(np.asarray(fixed, dtype=np.int64)[None], 2 ** len(free), axis=0)
        x[:, free] = patterns(len(free))
        logits, side = self.logits(x), len(free) + 1
        n_counted = (x[:, free] == self.counted[free]).sum(axis=1)
        bins = side * x[:, free].sum(axis=1) + n_counted
        wrong, unresolved = logits > self.margin, ~(np.abs(logits) > self.margin)
        n_wrong, n_unclear = (
            np.bincount(bins[which], minlength=side**2).reshape(side, side) for which in (wrong, unresolved)
        )
        if not wrong.any():
            return Counted(n_wrong, n_unclear, None, None, -np.inf)
        at = np.flatnonzero(wrong)
        worst = int(logits.argmax())
        return Counted(n_wrong, n_unclear, x[at[n_counted[at].argmin()]], x[worst], float(logits[worst]))


def patterns(n: int) -> Int[np.ndarray, "pattern bit"]:
    """All patterns of n bits, counting upwards."""
    return (np.arange(2**n)[:, None] >> np.arange(n - 1, -1, -1)) & 1
