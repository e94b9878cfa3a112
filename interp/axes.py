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
d_head      width of queries and keys
d_value     width of values
d_mlp       hidden units of an MLP
vocab       the token's value, 0 or 1; a (src, vocab) pair is a table's column
==========  ==================================================================
"""

from interp.errors import BoolensError

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
    "blocks.0.mlp.hook_pre": ("batch", "d_mlp"),
    "blocks.0.mlp.hook_post": ("batch", "d_mlp"),
    "hook_logit": ("batch",),
}
"""Axes by hook name. In the MLP and linear models, which take bits as numbers, hook_embed is [batch, pos]."""


def axis_of(hook: str, axis: str) -> int:
    """Index of an axis in the activation at `hook`; 'pos' is the query's position (dest) in scores and patterns.

    Raises:
        BoolensError: the activation has no such axis.
    """
    axes = HOOK_AXES[hook]
    name = "dest" if axis == "pos" and "dest" in axes else axis
    if name not in axes:
        raise BoolensError(f"{hook} has axes {axes}, so no {axis!r} axis; leave {axis} out, or choose another hook")
    return axes.index(name)
