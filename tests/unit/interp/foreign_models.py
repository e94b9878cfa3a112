"""Models that are not this package's, with TransformerLens' standard hook names."""

from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge


def points(module: nn.Module, names: str) -> None:
    for name in names.split():
        module.add_module(f"hook_{name}", HookPoint())


class Transformer(HookedRootModule):
    """One causal block: layer norm, attention with W_O, an MLP, both on a residual stream; logits [batch, pos, 2].

    head 3, d_head 7, d_model 11, d_mlp 13; float64.
    """

    def __init__(self, n_ctx: int, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed, self.pos_embed = nn.Embedding(2, 11), nn.Embedding(n_ctx, 11)
            self.ln1, self.ln2, self.ln_final = nn.LayerNorm(11), nn.LayerNorm(11), nn.LayerNorm(11)
            block, attn, mlp = nn.Module(), nn.Module(), nn.Module()
            attn.qkv, attn.out = nn.Linear(11, 3 * 3 * 7), nn.Linear(3 * 7, 11)
            mlp.up, mlp.down = nn.Linear(11, 13), nn.Linear(13, 11)
            self.unembed = nn.Linear(11, 2)
        points(self, "embed pos_embed")
        points(block, "resid_pre attn_out resid_mid mlp_out resid_post")
        points(attn, "q k v attn_scores pattern z")
        points(mlp, "pre post")
        block.attn, block.mlp = attn, mlp
        self.blocks = nn.ModuleList([block])
        self.double()
        self.setup()

    def forward(self, x: Tensor) -> Tensor:
        block: Any = self.blocks[0]
        attn, mlp = block.attn, block.mlp
        where = torch.arange(x.shape[1]).expand(x.shape)
        embed = self.get_submodule("hook_embed")(self.embed(x))
        resid = block.hook_resid_pre(embed + self.get_submodule("hook_pos_embed")(self.pos_embed(where)))
        q, k, v = attn.qkv(self.ln1(resid)).unflatten(-1, (3, 3, 7)).unbind(2)
        q, k, v = attn.hook_q(q), attn.hook_k(k), attn.hook_v(v)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / 7**0.5
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        pattern = attn.hook_pattern(attn.hook_attn_scores(scores).softmax(dim=-1))
        z = attn.hook_z(torch.einsum("bhij,bjhd->bihd", pattern, v))
        resid = block.hook_resid_mid(resid + block.hook_attn_out(attn.out(z.flatten(2))))
        hidden = mlp.hook_post(nn.functional.gelu(mlp.hook_pre(mlp.up(self.ln2(resid)))))
        resid = block.hook_resid_post(resid + block.hook_mlp_out(mlp.down(hidden)))
        return self.unembed(self.ln_final(resid))


class Gated(HookedRootModule):
    """logit = sum over pos of w · e · gate, where the gate depends on e in a way that autograd does not see."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self.gate = gate
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
        points(self, "embed")
        self.setup()

    def forward(self, x: Tensor) -> Tensor:
        embed = self.get_submodule("hook_embed")(x.double() * 2 - 1)
        match self.gate:
            case "none":
                gate = torch.ones_like(embed)
            case "sign":
                gate = (embed > 0).double()
            case "detached":
                gate = embed.detach()
            case _:
                gate = embed
        return ((embed * gate) * self.w).sum(dim=1)


def native_bridge(n_ctx: int, **fields: Any) -> TransformerBridge:
    """TransformerLens' own one-layer, bidirectional, attention-only model: head 3, d_head 5, d_model 11, d_vocab 2."""
    cfg = TransformerBridgeConfig(
        **{
            "n_layers": 1,
            "attn_only": True,
            "attention_dir": "bidirectional",
            "n_ctx": n_ctx,
            "n_heads": 3,
            "d_head": 5,
            "d_model": 11,
            "d_vocab": 2,
            "d_vocab_out": 2,
            "act_fn": "relu",
            "normalization_type": None,
            "seed": 0,
            **fields,
        }
    )
    return TransformerBridge.boot_native(cfg)  # pyright: ignore[reportAttributeAccessIssue]


class Shown(HookedRootModule):
    """A point that is only shown: what a hook puts there is thrown away, as a TransformerBridge does with scores."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(1.0, 6.0))
        points(self, "embed")
        self.setup()

    def forward(self, x: Tensor) -> Tensor:
        embed = x * self.w
        self.get_submodule("hook_embed")(embed)
        return embed.sum(dim=1)
