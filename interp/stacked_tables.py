"""The tables of a stack of attention models, their forward pass, and its gradient written out.

`interp.tables` says why tables. This is the same computation for K models at once, arranged for speed:

* The key of bit 1 is that of bit 0 plus a constant, so a query's weights e1 and e0 (e = exp(score)) on the two bits
  have the same ratio at every src. Of the two, call one lo and the other hi, and b the bit that is 1 where hi is
  present. Then each sum over keys is Σ lo + Σ (hi − lo) · b: one column a position instead of two, which halves the
  matrix products, and one table entry a position instead of two. A sum far below Σ lo would lose precision by that
  factor, which is lo / hi at most; so hi is chosen, for each model and query bit, to keep that small, and models with a
  sum that is too small all the same (`smallest_sum`) are computed again in float64.
* Denominators and numerators for both query bits are rows of one product; the bit at the query's position selects.
* The inner length is padded to a multiple of 32, which the matrix library runs up to twice as fast.
* The products run over a few models at a time, so that what they make stays in the processor's cache.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

AT_A_TIME = 32
"""Models whose products are made together."""


def largest_score(dtype: torch.dtype) -> float:
    """Largest |score| for which exp, every sum of them and its gradient stay finite and normal."""
    return 0.45 * math.log(torch.finfo(dtype).max)


def smallest_sum(dtype: torch.dtype, wanted: torch.dtype, *, precise: bool) -> float:
    """Least Σ lo + Σ (hi − lo) · b, as a share of Σ lo, that `dtype` gives as well as `wanted` needs it.

    It costs 5 of float32's bits (8 where it need not be precise), 16 of float64's own, or 26 of float64's where it
    stands in for float32.
    """
    if dtype == torch.float32:
        return 2.0**-5 if precise else 2.0**-8
    return 2.0**-16 if wanted == torch.float64 else 2.0**-26


@dataclass(frozen=True)
class StackedTables:
    """Tables of K models, with query bit u and dest before src.

    Attributes:
        lo: score of each query (u, dest) on the lo bit at src.
        log_ratio: score on the hi bit less that on the lo bit.
        value: values of the lo bit at src, for each query bit.
        step: value of the hi bit less that of the lo bit.
        readout: the readout's weights.
        bias: added to each model's logits.
        hi_is_one: whether hi is bit 1, for each query bit.
    """

    lo: Float[Tensor, "model head 2 dest src"]
    log_ratio: Float[Tensor, "model head 2 dest"]
    value: Float[Tensor, "model head d_value 2 src"]
    step: Float[Tensor, "model head d_value 2"]
    readout: Float[Tensor, "model head d_value dest"]
    bias: Float[Tensor, " model"]
    hi_is_one: Bool[Tensor, "2 model"]

    def part(self, models: slice | list[int], dtype: torch.dtype) -> Self:
        """The tables of some models, without gradient."""
        cut = {name: getattr(self, name).detach()[models].to(dtype) for name in TABLES}
        return type(self)(**cut, hi_is_one=self.hi_is_one[:, models])


TABLES = tuple(f.name for f in fields(StackedTables) if f.name != "hi_is_one")
"""The tables that have gradients, in order."""


class Bits:
    """The inputs of a stack in the layouts that the products want, and the memory that they reuse.

    Attributes:
        x: the bits; ones: the same as numbers, [model, pos, batch].
    """

    def __init__(self, x: Int[Tensor, "model batch pos"], dtype: torch.dtype) -> None:
        self.x = x
        self.ones = x.transpose(1, 2).to(dtype).contiguous()
        n_models, n_ctx, batch = self.ones.shape
        self.width = -(-(n_ctx + 1) // 32) * 32
        self.choices = self.ones.new_zeros(2, n_models, self.width, batch)
        self.choices[0, :, :n_ctx], self.choices[1, :, :n_ctx] = 1 - self.ones, self.ones
        self.choices[:, :, n_ctx] = 1
        self.chosen: Tensor | None = None
        self.factors = self.choices
        self.memory: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        self.wide: tuple[list[int], Bits] | None = None

    def widened(self, models: list[int]) -> "Bits":
        """The inputs of some models in float64; kept until other models are asked for."""
        if self.wide is None or self.wide[0] != models:
            self.wide = models, Bits(self.x[models], torch.float64)
        return self.wide[1]

    def choose(self, hi_is_one: Bool[Tensor, "2 model"]) -> None:
        """Set `factors`, [query bit, model, column, batch]: b of each position, a row of ones, and padding."""
        if self.chosen is None:
            self.chosen, self.factors = torch.zeros_like(hi_is_one), self.choices[:1].repeat(2, 1, 1, 1)
        for query_bit, model in (self.chosen != hi_is_one).nonzero().tolist():
            self.factors[query_bit, model] = self.choices[int(hi_is_one[query_bit, model]), model]
        self.chosen = hi_is_one.clone()

    def scratch(self, name: str, *shape: int) -> Tensor:
        """Memory of that shape, zero at first and the same at every call."""
        if (name, shape) not in self.memory:
            self.memory[name, shape] = self.ones.new_zeros(shape)
        return self.memory[name, shape]


@dataclass
class Pass:
    """A forward pass of some of the models, with what its gradient needs (c = 1 + d_value: denominator, numerators)."""

    tables: StackedTables
    terms: Float[Tensor, "model head c 2 dest src"]
    product: Float[Tensor, "2 model head c dest batch"]
    selected: Float[Tensor, "model head c dest batch"]
    inverse: Float[Tensor, "model head 1 dest batch"]
    z: Float[Tensor, "model head d_value dest batch"]
    ratio: Float[Tensor, "model head 2 dest"]
    growth: Float[Tensor, "model head 2 dest 1"]
    jump: Float[Tensor, "model head d_value 2 dest 1"]
    factors: Float[Tensor, "2 model column batch"]
    ones: Float[Tensor, "model 1 1 dest batch"]
    logits: Float[Tensor, "model batch"]


def forward(part: StackedTables, bits: Bits, models: slice) -> Pass:
    """Logits of some models of `bits`, whose tables `part` holds; `bits` keeps the arrays until the next call."""
    n, n_heads, _, n_ctx = part.lo.shape[:4]
    c, batch = 1 + part.value.shape[2], bits.ones.shape[2]
    terms = bits.scratch("terms", n, n_heads, c, 2, n_ctx, n_ctx)
    torch.exp(part.lo, out=terms[:, :, 0])
    terms[:, :, 0].div_(terms[:, :, 0].sum(dim=-1, keepdim=True))
    torch.mul(terms[:, :, :1], part.value[:, :, :, :, None], out=terms[:, :, 1:])
    matrix = bits.scratch("matrix", 2, n, n_heads, c, n_ctx, bits.width)
    by_query = matrix.movedim(0, 3)
    ratio, growth = part.log_ratio.exp(), part.log_ratio.expm1()[..., None]
    jump = (ratio[:, :, None] * part.step[..., None])[..., None]
    torch.mul(terms, growth[:, :, None], out=by_query[..., :n_ctx])
    by_query[:, :, 1:, ..., :n_ctx].addcmul_(terms[:, :, :1], jump)
    torch.sum(terms, dim=-1, out=by_query[..., n_ctx])
    product = bits.scratch("product", 2, n, n_heads, c, n_ctx, batch)
    factors, ones = bits.factors[:, models], bits.ones[models, None, None]
    for query_bit in (0, 1):
        torch.bmm(
            matrix[query_bit].view(n, -1, bits.width), factors[query_bit], out=product[query_bit].view(n, -1, batch)
        )
    selected = bits.scratch("selected", n, n_heads, c, n_ctx, batch)
    torch.lerp(product[0], product[1], ones, out=selected)  # exact, since ones is 0 or 1
    inverse = bits.scratch("inverse", n, n_heads, 1, n_ctx, batch)
    torch.reciprocal(selected[:, :, :1], out=inverse)
    z = bits.scratch("z", n, n_heads, c - 1, n_ctx, batch)
    torch.mul(selected[:, :, 1:], inverse, out=z)
    logits = torch.baddbmm(part.bias[:, None, None], part.readout.reshape(n, 1, -1), z.view(n, -1, batch))[:, 0]
    return Pass(part, terms, product, selected, inverse, z, ratio, growth, jump, factors, ones, logits)


def backward(done: Pass, bits: Bits, g: Float[Tensor, "model batch"]) -> tuple[Tensor, ...]:
    """Gradients of lo, log_ratio, value, step, readout and bias, given that of the logits."""
    t, terms = done.tables, done.terms
    n, n_heads, d_value, n_ctx, batch = done.z.shape
    a, values = terms[:, :, 0], t.value[:, :, :, :, None]
    g_readout = torch.bmm(g[:, None], done.z.view(n, -1, batch).transpose(1, 2)).view_as(t.readout)
    g_z = torch.bmm(t.readout.reshape(n, -1, 1), g[:, None]).view_as(done.z)
    g_selected = done.selected
    torch.mul(g_z, done.inverse, out=g_selected[:, :, 1:])
    if d_value == 1:  # the denominator's gradient; its sign comes below
        torch.mul(g_selected[:, :, 1], done.z[:, :, 0], out=g_selected[:, :, 0])
    else:
        torch.sum(g_selected[:, :, 1:] * done.z, dim=2, out=g_selected[:, :, 0])
    torch.mul(g_selected, done.ones, out=done.product[1])
    torch.sub(g_selected, done.product[1], out=done.product[0])
    g_matrix = bits.scratch("gradient", 2, n, n_heads, 1 + d_value, n_ctx, bits.width)
    for query_bit in (0, 1):
        rows = done.product[query_bit].view(n, -1, batch)
        torch.bmm(rows, done.factors[query_bit].transpose(1, 2), out=g_matrix[query_bit].view(n, -1, bits.width))
    g_matrix[:, :, :, 0].neg_()
    by_query = g_matrix.movedim(0, 3)
    g_b, g_sum = by_query[..., :n_ctx], by_query[..., n_ctx : n_ctx + 1]
    weighted = torch.addcmul(g_b[:, :, 0], g_b[:, :, 1], values[:, :, 0])
    for j in range(1, d_value):
        weighted.addcmul_(g_b[:, :, 1 + j], values[:, :, j])
    g_a = torch.addcmul(g_sum[:, :, 0], weighted, done.growth)
    for j in range(d_value):
        g_a.addcmul_(g_b[:, :, 1 + j], done.jump[:, :, j]).addcmul_(g_sum[:, :, 1 + j], values[:, :, j])
    on_keys = g_b[:, :, 1:] * a[:, :, None]
    over_src = on_keys.sum(dim=-1)
    g_step = (over_src * done.ratio[:, :, None]).sum(dim=-1)
    g_ratio = (weighted * a).sum(dim=-1) + (over_src * t.step[..., None]).sum(dim=2)
    over_dest = done.growth[:, :, None].transpose(-1, -2) @ on_keys + g_sum[:, :, 1:].transpose(-1, -2) @ a[:, :, None]
    g_value = over_dest[..., 0, :]
    return g_a.mul_(a), g_ratio.mul_(done.ratio), g_value, g_step, g_readout, g.sum(dim=1)


def tables_logits(tables: StackedTables, bits: Bits) -> Float[Tensor, "model batch"]:
    """Logits of every model, without gradient, right for any finite scores."""
    logits = tables.lo.new_empty(len(bits.x), bits.x.shape[1])
    for models, some, _ in _passes(tables, bits, precise=True):
        logits[models] = some.to(logits.dtype)
    return logits


def tables_gradient(
    tables: StackedTables, bits: Bits, y: Float[Tensor, "model batch"], *, precise: bool = True
) -> list[Tensor]:
    """Gradients of each model's mean binary cross-entropy with labels y by its tables, in the order of TABLES."""
    gradients = [torch.empty_like(getattr(tables, name), memory_format=torch.contiguous_format) for name in TABLES]
    for models, logits, finish in _passes(tables, bits, precise=precise):
        some = finish(logits.sigmoid().sub_(y[models]).mul_(1 / logits.shape[1]))
        for gradient, values in zip(gradients, some, strict=True):
            gradient[models] = values.to(gradient.dtype)
    return gradients


Models = slice | list[int]
Finish = Callable[[Tensor], tuple[Tensor, ...]]


def _passes(tables: StackedTables, bits: Bits, *, precise: bool) -> Iterator[tuple[Models, Tensor, Finish]]:
    """Which models, their logits, and what makes the tables' gradient of the logits'; later ones replace earlier ones.

    First all models in the tables' own precision, a few at a time; then those whose sums came out too small or not
    finite in float64; then those for which that does not do, through a softmax.
    """
    dtype = tables.lo.dtype
    tables = _shifted(tables)
    bits.choose(tables.hi_is_one)
    left: list[int] = []
    for start in range(0, len(bits.x), AT_A_TIME):
        models = slice(start, min(start + AT_A_TIME, len(bits.x)))
        done = forward(tables.part(models, dtype), bits, models)
        left += [start + m for m in _imprecise(done, dtype, precise=precise)]
        yield models, done.logits, partial(backward, done, bits)
    if left and dtype != torch.float64:
        wide = bits.widened(left)
        wide.choose(tables.hi_is_one[:, left])
        done = forward(tables.part(left, torch.float64), wide, slice(None))
        again = [left[m] for m in _imprecise(done, dtype, precise=precise)]
        yield left, done.logits, partial(backward, done, wide)
        left = again
    if left:
        yield left, *_softmax_pass(tables.part(left, dtype), bits.x[left])


def _imprecise(done: Pass, wanted: torch.dtype, *, precise: bool) -> list[int]:
    """The models of a pass with a sum, in units of Σ lo, that is too small or can become too large."""
    kind = done.terms.dtype
    least = done.selected[:, :, 0].flatten(1).amin(dim=1)  # amin and not aminmax, which is many times slower
    grown = done.tables.log_ratio.flatten(1).amax(dim=1)
    fits = (least >= smallest_sum(kind, wanted, precise=precise)) & (grown <= 2 * largest_score(kind))
    return [] if bool(fits.all()) else (~fits).nonzero()[:, 0].tolist()


def _shifted(tables: StackedTables) -> StackedTables:
    """The same softmax with scores that exp can take: a constant comes off each query's scores where they are large.

    The largest score on a lo bit comes off. Sums are taken in units of Σ lo, so no present key is lost unseen: where
    hi is far above lo the sum is large, and where it is far below it is small, and `_imprecise` sees both.
    """
    lo = tables.lo.detach()
    if float(lo.abs().amax()) <= largest_score(lo.dtype):
        return tables
    return replace(tables, lo=lo - lo.amax(dim=-1, keepdim=True))


def _softmax_pass(part: StackedTables, x: Int[Tensor, "model batch pos"]) -> tuple[Tensor, Finish]:
    """The same through every input's own scores and a softmax: right for any finite scores, and slow."""
    leaves = [getattr(part, name).requires_grad_() for name in TABLES]
    with torch.enable_grad():
        logits = torch.stack([_softmax_logits(part, m, x[m]) for m in range(len(x))])
    return logits.detach(), lambda g: torch.autograd.grad(logits, leaves, g)


def _softmax_logits(t: StackedTables, m: int, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
    dest = torch.arange(x.shape[1], device=x.device)
    hi_present = x[:, None, :] == t.hi_is_one[x, m].long()[:, :, None]
    scores = t.lo[m][:, x, dest] + t.log_ratio[m][:, x, dest][..., None] * hi_present
    value = t.value[m][:, :, x] + t.step[m][:, :, x][..., None] * hi_present
    z = (scores.softmax(dim=-1)[:, None] * value).sum(dim=-1)
    return (z * t.readout[m][:, :, None]).sum(dim=(0, 1, 3)) + t.bias[m]
