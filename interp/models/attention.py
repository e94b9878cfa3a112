"""HookedAttention: one bidirectional attention layer read out at every position.

The logit is  sum over dest, head, d_value of  W_readout[dest, head, d_value] * z[dest, head, d_value].
There is no W_O, residual, norm or MLP; with the default configuration this is the tutorial's model, to the
parameter (104 at T = 30, 47 at T = 11).
"""

import torch
from einops import einsum, repeat
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from interp.attention import attention_scores, sinusoidal_encoding
from interp.config import AttentionConfig
from interp.models.base import HookedModel, normal_parameter


class Attention(nn.Module):
    """Multi-head attention from residual stream to z; queries and keys d_head wide, values d_value."""

    def __init__(self, cfg: AttentionConfig, generator: torch.Generator) -> None:
        super().__init__()
        for name, width in (("Q", cfg.d_head), ("K", cfg.d_head), ("V", cfg.d_value)):
            weight = normal_parameter((cfg.n_heads, cfg.d_model, width), cfg.init_std, generator)
            self.register_parameter(f"W_{name}", weight)
            self.register_parameter(f"b_{name}", nn.Parameter(torch.zeros(cfg.n_heads, width)) if cfg.bias else None)
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern, self.hook_z = HookPoint(), HookPoint(), HookPoint()

    def project(self, resid: Float[Tensor, "batch pos d_model"], name: str) -> Float[Tensor, "batch pos head width"]:
        """resid · W_name + b_name for name in Q, K, V."""
        out = einsum(resid, getattr(self, f"W_{name}"), "batch pos d_model, head d_model width -> batch pos head width")
        bias = getattr(self, f"b_{name}")
        return out if bias is None else out + bias

    def forward(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos head d_value"]:
        q = self.hook_q(self.project(resid, "Q"))
        k = self.hook_k(self.project(resid, "K"))
        v = self.hook_v(self.project(resid, "V"))
        scores = self.hook_attn_scores(attention_scores(q, k))
        pattern = self.hook_pattern(scores.softmax(dim=-1))
        z = einsum(pattern, v, "batch head dest src, batch src head d_value -> batch dest head d_value")
        return self.hook_z(z)


class Block(nn.Module):
    """The one block: nothing but attention."""

    def __init__(self, cfg: AttentionConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.hook_resid_pre = HookPoint()
        self.attn = Attention(cfg, generator)

    def forward(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos head d_value"]:
        return self.attn(self.hook_resid_pre(resid))


class HookedAttention(HookedModel[AttentionConfig]):
    """The tutorial's attention model, hooked; see the module's docstring for the function it computes.

    Parameters (shapes): W_E [vocab, d_model], W_pos [pos, d_model] (a buffer when sinusoidal),
    blocks.0.attn.W_Q, W_K [head, d_model, d_head], W_V [head, d_model, d_value], W_readout [pos, head, d_value];
    with cfg.bias also b_Q, b_K, b_V [head, width] and b_readout [].
    """

    def __init__(self, cfg: AttentionConfig, generator: torch.Generator | None = None) -> None:
        """Initialise from `generator` (seed 0 when it is None); the global random state is not touched."""
        super().__init__(cfg)
        generator = generator or torch.Generator().manual_seed(0)
        self.W_E = normal_parameter((2, cfg.d_model), cfg.init_std, generator)
        if cfg.positions == "learned":
            self.W_pos = normal_parameter((cfg.n_ctx, cfg.d_model), cfg.init_std, generator)
        else:
            self.register_buffer("W_pos", sinusoidal_encoding(cfg.n_ctx, cfg.d_model))
        self.hook_embed, self.hook_pos_embed, self.hook_logit = HookPoint(), HookPoint(), HookPoint()
        self.blocks = nn.ModuleList([Block(cfg, generator)])
        self.W_readout = normal_parameter((cfg.n_ctx, cfg.n_heads, cfg.d_value), cfg.init_std, generator)
        self.b_readout = nn.Parameter(torch.zeros(())) if cfg.bias else None
        self.setup()

    @property
    def attn(self) -> Attention:
        """The attention layer, blocks.0.attn."""
        return self.blocks[0].attn  # pyright: ignore[reportReturnType]

    def logits(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        embed = self.hook_embed(self.W_E[x])
        # repeat gives a view of the weights, which a hook that edits in place would write to
        positions = repeat(self.W_pos, "pos d_model -> batch pos d_model", batch=len(x)).clone()
        z = self.blocks[0](embed + self.hook_pos_embed(positions))
        logit = einsum(z, self.W_readout, "batch pos head d_value, pos head d_value -> batch")
        return self.hook_logit(logit if self.b_readout is None else logit + self.b_readout)
