"""Path patching in a one-layer attention model: embedding of chosen positions → q, k or v of a head → z → logit.

Wang et al. 2022 ("Interpretability in the Wild", section 3.1); Goldowsky-Dill et al. 2023 ("Localizing Model Behavior
with Path Patching"). Only what lies on the path sees the patched embedding; everything else is as in the unedited run.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention import attention_scores
from interp.errors import BoolensError
from interp.exact import EMBED, POS_EMBED, RESID, K, Q, V, Z, chunks, require
from interp.exact_terms import reads, row_outputs
from interp.hooks import run
from interp.interventions import Edit, index_in

if TYPE_CHECKING:
    from interp.models import HookedAttention

Into = Literal["q", "k", "v"]
ROUTES = ("q", "k", "v", "qk", "qv", "kv", "qkv")
"""The paths into a head, one by one, and what two or three of them do only together."""


@dataclass(frozen=True)
class Path:
    """A route through the model.

    Attributes:
        into: which of a head's inputs see the patched embedding: "q", "k", "v", or several, "qk".
        pos: positions whose embedding is patched; None is all.
        head: heads on the path; None is all.
        dest: positions whose z is on the path; None is all.
        start: what is patched: hook_embed, hook_pos_embed or blocks.0.hook_resid_pre.
    """

    into: str
    pos: int | Sequence[int] | None = None
    head: int | Sequence[int] | None = None
    dest: int | Sequence[int] | None = None
    start: str = EMBED


def patch_path(
    model: "HookedAttention", x: Int[Tensor, "batch pos"], source: Tensor, path: Path
) -> Float[Tensor, " batch"]:
    """The logits on x when only the path sees the source's embedding. Two hooked runs.

    Args:
        model: a HookedAttention without hooks of its own.
        x: inputs.
        source: inputs [batch or 1, pos], in whose run the embedding is taken, or the embedding itself
            [batch or 1, pos, d_model].
        path: what is patched, and on which route.

    Raises:
        BoolensError: an unknown route or start, an index out of range, a source that does not fit, hooks on the model.
    """
    require(model, path.start)
    into = _into(path.into)
    pos, dest = (_indices(chosen, model.cfg.n_ctx, "pos") for chosen in (path.pos, path.dest))
    head = _indices(path.head, model.cfg.n_heads, "head")
    put = _source_values(model, x, source, path.start)
    _, cache = run(model, x, record=[EMBED, POS_EMBED, RESID, Z])
    resid = _patched(cache, put, path.start, pos)

    def projected(name: str) -> Any:
        def edit(activation: Tensor, hook: Any) -> Tensor:
            edited = activation.clone()
            new = model.attn.project(resid, name.upper())
            edited[:, :, head] = new[:, :, head]
            return edited

        return edit

    def only_dest(z: Tensor, hook: Any) -> Tensor:
        edited = cache[Z].clone()
        edited[:, dest] = z[:, dest]
        return edited

    edits: list[Edit] = [({"q": Q, "k": K, "v": V}[name], projected(name)) for name in into]
    return run(model, x, [*edits, (Z, only_dest)])[0]


@dataclass(frozen=True)
class PathEffects:
    """A patched embedding's change of the logit, split exactly into the routes by which it gets there.

    Attributes:
        effects: change by each of ROUTES, head and dest. Of one route: what patching it alone changes; of several:
            what is left when they are patched together beside all that fewer of them do (inclusion–exclusion).
        total: change when the embedding itself is patched, from a run; the effects' sum but for rounding.
    """

    effects: Float[Tensor, "route head dest batch"]
    total: Float[Tensor, " batch"]

    @property
    def gap(self) -> Float[Tensor, " batch"]:
        """The effects' sum − total."""
        return self.effects.sum(dim=(0, 1, 2)) - self.total


def path_effects(
    model: "HookedAttention",
    x: Int[Tensor, "batch pos"],
    source: Tensor,
    *,
    pos: int | Sequence[int] | None = None,
    start: str = EMBED,
    budget: int = 2**30,
) -> PathEffects:
    """Main effects and interactions of the paths into q, k and v, for every head and dest; 4 patterns an input.

    Args:
        model: a HookedAttention without hooks of its own.
        x: inputs.
        source: as in `patch_path`.
        pos: positions whose embedding is patched; None is all.
        start: hook_embed, hook_pos_embed or blocks.0.hook_resid_pre.
        budget: bytes that the result and the work on it may take together.

    Raises:
        BoolensError: what `patch_path` and `exact_sweep` raise.
    """
    require(model, start)
    x = model.check(x)
    where = _indices(pos, model.cfg.n_ctx, "pos")
    put = _source_values(model, x, source, start)
    shape = (len(ROUTES), model.cfg.n_heads, model.cfg.n_ctx, len(x))
    parts = chunks(model, len(x), torch.Size(shape).numel() * model.W_readout.element_size(), budget)
    effects = model.W_readout.new_empty(shape)
    for rows in parts:
        _, cache = run(model, x[rows], record=[EMBED, POS_EMBED, RESID, Q, K, V])
        resid = _patched(cache, put if len(put) == 1 else put[rows], start, where)
        with torch.no_grad():
            effects[..., rows] = _route_effects(model, cache, resid)
    before, cache = run(model, x, record=[start])
    edited = cache[start].clone()
    edited[:, where] = put.expand_as(edited)[:, where]
    return PathEffects(effects, run(model, x, [(start, lambda *_, **__: edited)])[0] - before)


def _route_effects(model: "HookedAttention", cache: dict[str, Tensor], resid: Tensor) -> Tensor:
    """[route, head, dest, batch]."""
    inputs = {
        name: (cache[hook], model.attn.project(resid, name.upper()))
        for name, hook in zip("qkv", (Q, K, V), strict=True)
    }
    read = [reads(model.W_readout, value) for value in inputs["v"]]
    outputs: dict[str, Tensor] = {}
    for q, k in itertools.product((0, 1), repeat=2):
        scores = attention_scores(inputs["q"][q], inputs["k"][k])
        for v in (0, 1):
            outputs["q" * q + "k" * k + "v" * v] = row_outputs(scores, read[v])
    effects = {"": outputs[""]}
    for route in ROUTES:
        parts = ("".join(part) for n in range(len(route)) for part in itertools.combinations(route, n))
        effects[route] = outputs[route] - sum(effects[part] for part in parts)
    return torch.stack([effects[route] for route in ROUTES]).movedim(1, -1)


def _patched(cache: dict[str, Tensor], put: Tensor, start: str, pos: Tensor) -> Tensor:
    """The residual stream when `put` replaces the activation at `start` at those positions."""
    edited = cache[start].clone()
    edited[:, pos] = put.expand_as(edited)[:, pos]
    return edited + {EMBED: cache[POS_EMBED], POS_EMBED: cache[EMBED], RESID: 0}[start]


def _source_values(model: "HookedAttention", x: Tensor, source: Tensor, start: str) -> Tensor:
    if start not in (EMBED, POS_EMBED, RESID):
        raise BoolensError(f"a path starts at one of {EMBED}, {POS_EMBED} and {RESID}, not at {start!r}")
    values = source if source.is_floating_point() else run(model, source, record=[start])[1][start]
    wanted = (len(x), model.cfg.n_ctx, model.cfg.d_model)
    if values.shape[1:] != wanted[1:] or values.shape[:1] not in ((1,), wanted[:1]):
        raise BoolensError(
            f"a source of shape {tuple(source.shape)} does not fit; give inputs {wanted[:2]} or values {wanted} "
            f"at {start}, of which only the batch axis may be 1"
        )
    return values.detach().to(model.W_readout)


def _into(into: str) -> str:
    if not into or set(into) - set("qkv") or len(set(into)) < len(into):
        raise BoolensError(f"a path goes into {get_args(Into)}, or several as in 'qk', not into {into!r}")
    return into


def _indices(chosen: int | Sequence[int] | None, size: int, what: str) -> Int[Tensor, " chosen"]:
    if chosen is None:
        return torch.arange(size)
    return torch.tensor([index_in(i, size, what) for i in ([chosen] if isinstance(chosen, int) else chosen)])
