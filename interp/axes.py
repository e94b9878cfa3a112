"""The glossary of axes, and which axes the activation at each hook point has.

Shape annotations are jaxtyping's, with these names, in this order wherever they meet:

==========  ==================================================================
model       a stack of independently trained models
batch       inputs
pos         position in the input, 0 to n_ctx - 1
head        attention head
dest        the query's position (a row of scores and pattern)
src         the key's position (a column); patterns sum to 1 over src
d_model     width of embeddings
d_head      width of queries and keys; of HookedCls's values, too
d_value     width of values
d_mlp       hidden units of an MLP
vocab       the token's value, 0 or 1; a (src, vocab) pair is a table's column
==========  ==================================================================
"""

import re

from interp.errors import BoolensError

_RESIDUAL, _HEADS = ("batch", "pos", "d_model"), ("batch", "pos", "head", "d_head")
_NORMS = ("blocks.0.ln1", "blocks.0.ln2", "ln_final")

HOOK_AXES: dict[str, tuple[str, ...]] = {
    "hook_embed": ("batch", "pos", "d_model"),
    "hook_pos_embed": ("batch", "pos", "d_model"),
    "blocks.0.hook_resid_pre": ("batch", "pos", "d_model"),
    "blocks.0.attn.hook_q": ("batch", "pos", "head", "d_head"),
    "blocks.0.attn.hook_k": ("batch", "pos", "head", "d_head"),
    "blocks.0.attn.hook_v": ("batch", "pos", "head", "d_value"),
    "blocks.0.attn.hook_attn_scores": ("batch", "head", "dest", "src"),
    "blocks.0.attn.hook_pattern": ("batch", "head", "dest", "src"),
    "blocks.0.attn.hook_z": ("batch", "pos", "head", "d_value"),
    "blocks.0.attn.hook_result": ("batch", "pos", "head", "d_model"),
    **dict.fromkeys(
        (f"blocks.0.hook_{name}" for name in ("attn_out", "resid_mid", "mlp_out", "resid_post")), _RESIDUAL
    ),
    **dict.fromkeys((f"{norm}.hook_{name}" for norm in _NORMS for name in ("scale", "normalized")), _RESIDUAL),
    "blocks.0.mlp.hook_pre": ("batch", "d_mlp"),
    "blocks.0.mlp.hook_post": ("batch", "d_mlp"),
    "hook_logit": ("batch",),
}
"""Axes by hook name. In the MLP and linear models, which take bits as numbers, hook_embed is [batch, pos]. In HookedCls
mlp.hook_pre and mlp.hook_post are [batch, pos, d_mlp] and a norm's hook_scale is [batch, pos, 1]; pos and src are
n_ctx + 1 long with the [CLS] token last, but along pos and dest what belongs to the one query (q, and all from the
scores on) is 1 long.
"""

_OTHER_MODELS: dict[str, tuple[str, ...]] = {
    "hook_in": _RESIDUAL,
    **dict.fromkeys(("hook_out", "embed.hook_out", "pos_embed.hook_out", "attn.hook_in", "attn.hook_out"), _RESIDUAL),
    **{f"{norm}.{point}": _RESIDUAL for norm in ("ln1", "ln2", "ln_final") for point in ("hook_in", "hook_out")},
    **dict.fromkeys(("attn.q.hook_out", "attn.k.hook_out", "attn.v.hook_out", "attn.o.hook_in"), _HEADS),
    "the input": ("batch", "pos"),
    "mlp.hook_pre": ("batch", "pos", "d_mlp"),
    "mlp.hook_post": ("batch", "pos", "d_mlp"),
}
"""Points that other models with TransformerLens' names have, without their block; a TransformerBridge's own too."""

_IN_BLOCK = re.compile(r"^blocks\.\d+\.")
_KNOWN: dict[str, list[tuple[str, ...]]] = {}
for _name, _axes in (*HOOK_AXES.items(), *_OTHER_MODELS.items(), ("hook_embed", ("batch", "pos"))):
    _KNOWN.setdefault(_IN_BLOCK.sub("", _name), []).append(_axes)


def hook_axes(hook: str, n_axes: int) -> tuple[str, ...]:
    """The names of the axes of the activation at `hook`, of which there are n_axes; unknown ones are 'axis 1', ...

    Any block's points are known by TransformerLens' names, in models with positions in the MLP and without.
    """
    for axes in _KNOWN.get(_IN_BLOCK.sub("", hook), []):
        if len(axes) == n_axes:
            return axes
    return ("batch", *(f"axis {i}" for i in range(1, n_axes)))[:n_axes]


def axis_of(hook: str, axis: str, n_axes: int | None = None) -> int:
    """Index of an axis in the activation at `hook`; 'pos' is the query's position (dest) in scores and patterns.

    Args:
        hook: name of the hook point.
        axis: name of the axis; not 'batch', over which nothing is selected.
        n_axes: number of axes that the activation has, for points that differ between models (see `hook_axes`).

    Raises:
        BoolensError: the activation has no such axis.
    """
    axes = HOOK_AXES[hook] if n_axes is None else hook_axes(hook, n_axes)
    name = "dest" if axis == "pos" and "dest" in axes else axis
    if name not in axes[1:]:
        raise BoolensError(f"{hook} has axes {axes}, so no {axis!r} axis; leave {axis} out, or choose another hook")
    return axes.index(name)
