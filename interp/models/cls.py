"""HookedCls: one transformer block read out at a [CLS] token, as in Edelman et al. 2022 (arXiv 2110.10090).

The [CLS] token stands after the bits. Since the block is the only one, nothing but the [CLS] token's row of attention,
MLP and residual stream reaches the logit, so the other rows are not computed: `dest` has length 1, `src` n_ctx + 1, and
the cost is linear in n_ctx.
"""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from interp.attention import attention_scores
from interp.config import NORM_EPS, ClsConfig
from interp.models.base import Dropout, HookedModel, normal_parameter


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + NORM_EPS) * w + b, the last axis long; no b in a model without biases."""

    def __init__(self, cfg: ClsConfig) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.b = nn.Parameter(torch.zeros(cfg.d_model)) if cfg.bias else None
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        centred = x - x.mean(dim=-1, keepdim=True)
        scale = self.hook_scale((centred.pow(2).mean(dim=-1, keepdim=True) + NORM_EPS).sqrt())
        out = centred / scale * self.w
        return self.hook_normalized(out if self.b is None else out + self.b)


class ClsAttention(nn.Module):
    """Multi-head attention from the last position to all."""

    def __init__(self, cfg: ClsConfig, generator: torch.Generator) -> None:
        super().__init__()
        for name in "QKV":
            weight = normal_parameter((cfg.n_heads, cfg.d_model, cfg.d_head), cfg.init_std, generator)
            self.register_parameter(f"W_{name}", weight)
            bias = nn.Parameter(torch.zeros(cfg.n_heads, cfg.d_head)) if cfg.bias else None
            self.register_parameter(f"b_{name}", bias)
        self.W_O = normal_parameter((cfg.n_heads, cfg.d_head, cfg.d_model), cfg.init_std, generator)
        self.b_O = nn.Parameter(torch.zeros(cfg.d_model)) if cfg.bias else None
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_z, self.hook_result = HookPoint(), HookPoint()

    def project(self, resid: Float[Tensor, "batch pos d_model"], name: str) -> Float[Tensor, "batch pos head d_head"]:
        """resid · W_name + b_name for name in Q, K, V."""
        weight, bias = getattr(self, f"W_{name}"), getattr(self, f"b_{name}")
        out = einsum(resid, weight, "batch pos d_model, head d_model d_head -> batch pos head d_head")
        return out if bias is None else out + bias

    def forward(self, resid: Float[Tensor, "batch src d_model"]) -> Float[Tensor, "batch 1 d_model"]:
        q = self.hook_q(self.project(resid[:, -1:], "Q"))
        k, v = self.hook_k(self.project(resid, "K")), self.hook_v(self.project(resid, "V"))
        pattern = self.hook_pattern(self.hook_attn_scores(attention_scores(q, k)).softmax(dim=-1))
        z = self.hook_z(einsum(pattern, v, "batch head dest src, batch src head d_head -> batch dest head d_head"))
        result = einsum(z, self.W_O, "batch dest head d_head, head d_head d_model -> batch dest head d_model")
        out = self.hook_result(result).sum(dim=2)
        return out if self.b_O is None else out + self.b_O


class ClsMLP(nn.Module):
    """W_in, GELU, W_out."""

    def __init__(self, cfg: ClsConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.W_in = normal_parameter((cfg.d_model, cfg.d_mlp), cfg.init_std, generator)
        self.b_in = nn.Parameter(torch.zeros(cfg.d_mlp)) if cfg.bias else None
        self.W_out = normal_parameter((cfg.d_mlp, cfg.d_model), cfg.init_std, generator)
        self.b_out = nn.Parameter(torch.zeros(cfg.d_model)) if cfg.bias else None
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, resid: Float[Tensor, "batch 1 d_model"]) -> Float[Tensor, "batch 1 d_model"]:
        pre = resid @ self.W_in
        post = self.hook_post(nn.functional.gelu(self.hook_pre(pre if self.b_in is None else pre + self.b_in)))
        out = post @ self.W_out
        return out if self.b_out is None else out + self.b_out


class ClsBlock(nn.Module):
    """Attention and MLP, each from a norm and onto the residual stream, of which the last position goes on."""

    def __init__(self, cfg: ClsConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()
        self.ln1 = LayerNorm(cfg) if cfg.norm else None
        self.attn = ClsAttention(cfg, generator)
        self.mlp = None
        if cfg.d_mlp:
            self.hook_resid_mid, self.hook_mlp_out = HookPoint(), HookPoint()
            self.ln2 = LayerNorm(cfg) if cfg.norm else None
            self.mlp = ClsMLP(cfg, generator)
        self.dropout = Dropout(cfg.dropout, generator)

    def forward(self, resid: Float[Tensor, "batch src d_model"]) -> Float[Tensor, "batch 1 d_model"]:
        resid = self.hook_resid_pre(resid)
        attn_out = self.attn(resid if self.ln1 is None else self.ln1(resid))
        resid = resid[:, -1:] + self.hook_attn_out(self.dropout(attn_out))
        if self.mlp is not None:
            resid = self.hook_resid_mid(resid)
            mlp_out = self.mlp(resid if self.ln2 is None else self.ln2(resid))
            resid = resid + self.hook_mlp_out(self.dropout(mlp_out))
        return self.hook_resid_post(resid)


class HookedCls(HookedModel[ClsConfig]):
    """The [CLS] transformer, hooked; see the module's docstring for what is computed.

    Parameters (shapes; b_* with cfg.bias, ln* with cfg.norm, mlp with cfg.d_mlp): W_E [3, d_model], whose row 2 is the
    [CLS] token, W_pos [pos + 1, d_model]; in blocks.0: ln1.w, ln1.b, ln2.w, ln2.b [d_model], attn.W_Q, W_K, W_V
    [head, d_model, d_head], attn.b_Q, b_K, b_V [head, d_head], attn.W_O [head, d_head, d_model], attn.b_O [d_model],
    mlp.W_in [d_model, d_mlp], b_in [d_mlp], W_out [d_mlp, d_model], b_out [d_model]; ln_final.w, ln_final.b
    [d_model]; W_readout [d_model], b_readout [].
    """

    ln_final: LayerNorm | None

    def __init__(self, cfg: ClsConfig, generator: torch.Generator | None = None) -> None:
        """Initialise from `generator` (seed 0 when it is None); the global random state is not touched."""
        super().__init__(cfg)
        generator = generator or torch.Generator().manual_seed(0)
        self.W_E = normal_parameter((3, cfg.d_model), cfg.init_std, generator)
        self.W_pos = normal_parameter((cfg.n_ctx + 1, cfg.d_model), cfg.init_std, generator)
        self.hook_embed, self.hook_pos_embed, self.hook_logit = HookPoint(), HookPoint(), HookPoint()
        self.blocks = nn.ModuleList([ClsBlock(cfg, generator)])
        self.ln_final = LayerNorm(cfg) if cfg.norm else None
        self.W_readout = normal_parameter((cfg.d_model,), cfg.init_std, generator)
        self.b_readout = nn.Parameter(torch.zeros(())) if cfg.bias else None
        self.setup()

    @property
    def attn(self) -> ClsAttention:
        """The attention layer, blocks.0.attn."""
        return self.blocks[0].attn  # pyright: ignore[reportReturnType]

    def logits(self, x: Int[Tensor, "batch pos"]) -> Float[Tensor, " batch"]:
        tokens = torch.nn.functional.pad(x, (0, 1), value=2)
        embed = self.hook_embed(self.W_E[tokens])
        # expand gives a view of the weights, which a hook that edits in place would write to
        positions = self.hook_pos_embed(self.W_pos.expand(len(x), -1, -1).clone())
        resid = self.blocks[0](embed + positions)
        final = (resid if self.ln_final is None else self.ln_final(resid))[:, 0]
        logit = final @ self.W_readout
        return self.hook_logit(logit if self.b_readout is None else logit + self.b_readout)
