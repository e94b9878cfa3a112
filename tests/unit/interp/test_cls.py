"""The [CLS] transformer: hook points, the function against torch's own layer and against its tables, dropout."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from interp.axes import hook_axes
from interp.checkpoint import load_model, save_weights
from interp.config import NORM_EPS, ClsConfig, RunConfig, TrainConfig
from interp.errors import BoolensError
from interp.files import write_json
from interp.hooks import run
from interp.interventions import positional_hooks
from interp.models import HookedCls, build_model
from interp.stack import Inputs, ParameterBlock, stack_gradient, stack_logits
from interp.training import Job, train_stack

CFG = ClsConfig(n_ctx=5, d_model=12, n_heads=3, d_head=4, d_mlp=7)
VARIANTS = [
    CFG,
    dataclasses.replace(CFG, norm=False),
    dataclasses.replace(CFG, bias=False),
    dataclasses.replace(CFG, d_mlp=0),
    dataclasses.replace(CFG, d_mlp=0, norm=False, bias=False, n_heads=1, d_head=2),
]
NAMES = [f"norm {c.norm}, bias {c.bias}, mlp {c.d_mlp}, heads {c.n_heads}" for c in VARIANTS]
LENGTHS = {"batch": 2, "head": 3, "d_model": 12, "d_head": 4, "d_value": 4, "d_mlp": 7, "src": 6, "dest": 1}


def random_cls(cfg: ClsConfig, seed: int = 0, std: float = 0.6) -> HookedCls:
    """In float64 and evaluation mode, with no weight or bias at its starting value."""
    model = HookedCls(cfg).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data.normal_(0, std, generator=generator)
    return model


def bits(batch: int, pos: int, seed: int = 0) -> Tensor:
    return torch.randint(2, (batch, pos), generator=torch.Generator().manual_seed(seed))


class TestModel:
    def test_number_of_parameters(self) -> None:
        def count(**fields: Any) -> int:
            return sum(p.numel() for p in HookedCls(ClsConfig(n_ctx=10, **fields)).parameters())

        tokens, heads, mlp = (3 + 11) * 64, 4 * 64 * 64, 2 * 64 * 64
        assert count() == tokens + heads + 4 * 64 + mlp + 2 * 64 + 3 * 2 * 64 + 64 + 1
        assert count(d_mlp=0, norm=False, bias=False) == tokens + heads + 64
        assert count(n_heads=1, d_mlp=0, norm=False, bias=False) == tokens + heads + 64

    @pytest.mark.parametrize("cfg", VARIANTS, ids=NAMES)
    def test_points_exist_where_the_architecture_has_them_and_have_their_axes(self, cfg: ClsConfig) -> None:
        model = random_cls(cfg)
        names = {name.removeprefix("blocks.0.") for name in model.hook_names}
        assert ("mlp.hook_post" in names) == ("hook_mlp_out" in names) == ("hook_resid_mid" in names) == (cfg.d_mlp > 0)
        assert {"ln1.hook_scale", "ln1.hook_normalized", "ln_final.hook_normalized"} <= names or not cfg.norm
        assert ("ln2.hook_scale" in names) == (cfg.norm and cfg.d_mlp > 0)
        _, cache = run(model, bits(2, 5), record=model.hook_names)
        assert set(cache) == set(model.hook_names)
        for name, activation in cache.items():
            axes = hook_axes(name, activation.ndim)
            whole = name.rsplit(".", 1)[-1] in ("hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_k", "hook_v")
            length = {**LENGTHS, "head": cfg.n_heads, "d_head": cfg.d_head, "d_value": cfg.d_head}
            length["pos"] = 6 if whole or "ln1" in name else 1
            if name.endswith("hook_scale"):
                length["d_model"] = 1
            assert tuple(activation.shape) == tuple(length[axis] for axis in axes), name

    def test_default_sweeps_go_over_what_differs(self) -> None:
        assert [name.rsplit(".", 1)[-1] for name in positional_hooks(random_cls(CFG).hook_names)] == [
            "hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_q", "hook_k", "hook_v", "hook_pattern", "hook_z",
            "hook_mlp_out",
        ]  # fmt: skip

    def test_it_is_torchs_encoder_layer_read_out_at_the_last_token(self) -> None:
        model, x = random_cls(CFG), bits(4, 5)
        layer = nn.TransformerEncoderLayer(
            12, 3, 7, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, layer_norm_eps=NORM_EPS,
            dtype=torch.float64,
        )  # fmt: skip
        block: Any = model.blocks[0]
        attn = block.attn

        def by_row(weight: Tensor) -> Tensor:  # torch keeps weights as [out, in]
            return weight.permute(0, 2, 1).flatten(0, 1)

        weights = {
            "self_attn.in_proj_weight": torch.cat([by_row(getattr(attn, f"W_{name}")) for name in "QKV"]),
            "self_attn.in_proj_bias": torch.cat([getattr(attn, f"b_{name}").flatten() for name in "QKV"]),
            "self_attn.out_proj.weight": attn.W_O.flatten(0, 1).T,
            "self_attn.out_proj.bias": attn.b_O,
            "linear1.weight": block.mlp.W_in.T,
            "linear1.bias": block.mlp.b_in,
            "linear2.weight": block.mlp.W_out.T,
            "linear2.bias": block.mlp.b_out,
            "norm1.weight": block.ln1.w,
            "norm1.bias": block.ln1.b,
            "norm2.weight": block.ln2.w,
            "norm2.bias": block.ln2.b,
        }
        layer.load_state_dict({name: weight.detach() for name, weight in weights.items()})
        tokens = torch.cat([x, torch.full((4, 1), 2)], dim=1)
        last = layer(model.W_E[tokens] + model.W_pos)[:, -1]
        ln: Any = model.ln_final
        final = nn.functional.layer_norm(last, (12,), ln.w, ln.b, NORM_EPS)
        torch.testing.assert_close(model(x), final @ model.W_readout + model.state_dict()["b_readout"])

    def test_without_norm_and_mlp_the_logit_is_linear_in_the_heads_outputs(self) -> None:
        model, x = random_cls(VARIANTS[-1]), bits(4, 5)
        logits, cache = run(model, x, record=["blocks.0.attn.hook_pattern", "blocks.0.attn.hook_v"])
        (pattern,), value = cache["blocks.0.attn.hook_pattern"].transpose(0, 1), cache["blocks.0.attn.hook_v"]
        z = torch.einsum("bds,bsv->bv", pattern, value[:, :, 0])
        start = model.W_E[2] + model.W_pos[-1]
        torch.testing.assert_close(logits, (start + z @ model.attn.W_O[0]) @ model.W_readout)

    def test_reloaded_logits_are_bit_identical(self, tmp_path: Any) -> None:
        model = random_cls(CFG).float()
        write_json(tmp_path / "config.json", RunConfig(CFG, None, 3, "imported:x", {"torch": "2"}).to_dict())
        save_weights(model, tmp_path / "model.safetensors")
        assert torch.equal(load_model(tmp_path)(bits(9, 5)), model(bits(9, 5)))

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"d_model": 10, "n_heads": 4}, "d_model is 10, which 4 heads do not divide"),
            ({"dropout": 1.0}, "dropout is 1.0; it must be below 1"),
            ({"d_mlp": -1}, "d_mlp is -1"),
            ({"norm": 1}, "norm is 1; it must be true or false"),
            ({"bias": "no"}, "bias is 'no'; it must be true or false"),
            ({"n_heads": 0}, "n_heads is 0"),
        ],
    )
    def test_impossible_configurations(self, fields: dict[str, Any], text: str) -> None:
        with pytest.raises(BoolensError, match=text):
            ClsConfig(n_ctx=5, **fields)

    def test_d_head_is_filled_in(self) -> None:
        assert (ClsConfig(5).d_head, ClsConfig(5, d_model=6, n_heads=2).d_head) == (4, 3)
        assert ClsConfig(5, d_model=7, n_heads=2, d_head=5).d_head == 5


class TestTables:
    @pytest.mark.parametrize("cfg", VARIANTS, ids=NAMES)
    def test_tables_are_the_model(self, cfg: ClsConfig, all_inputs: Any) -> None:
        models = [random_cls(cfg, seed) for seed in range(2)]
        block, x = ParameterBlock(models[0]), all_inputs(5).expand(2, -1, -1)
        logits = stack_logits(cfg, block, block.flatten(models), Inputs(cfg, x, torch.float64))
        torch.testing.assert_close(logits, torch.stack([m(x[0]) for m in models]), rtol=1e-10, atol=1e-12)

    def test_scores_too_far_apart_go_through_float64_or_the_model(self) -> None:
        for std in (4.0, 60.0):
            model = random_cls(VARIANTS[1], std=std).float()
            block, x = ParameterBlock(model), bits(40, 5)
            got = stack_logits(model.cfg, block, block.flatten([model]), Inputs(model.cfg, x[None], torch.float32))
            assert got.isfinite().all()
            truth = model(x).detach()
            torch.testing.assert_close(got[0], truth, rtol=1e-3, atol=1e-3 * float(truth.abs().max()))

    @pytest.mark.parametrize("cfg", VARIANTS, ids=NAMES)
    def test_gradient_with_dropout_is_that_of_the_model_with_the_same_masks(self, cfg: ClsConfig) -> None:
        model, x = random_cls(cfg), bits(6, 5)
        y = torch.tensor([0, 1, 1, 0, 1, 0], dtype=torch.float64)
        keep = torch.empty(1, 2, 6, 12, dtype=torch.float64).bernoulli_(0.9, generator=torch.Generator().manual_seed(3))
        block = ParameterBlock(model)
        inputs = Inputs(cfg, x[None], torch.float64)
        got = stack_gradient(cfg, block, block.flatten([model]), inputs, y[None], keep)[0]

        def dropped(place: int) -> Any:
            return lambda out, hook: out * keep[0, place][:, None] / (1 - cfg.dropout)

        hooks: list[Any] = [("blocks.0.hook_attn_out", dropped(0)), ("blocks.0.hook_mlp_out", dropped(1))]
        logits = model.run_with_hooks(x, fwd_hooks=hooks if cfg.d_mlp else hooks[:1])
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        parts = torch.autograd.grad(loss, list(model.parameters()))
        torch.testing.assert_close(got, torch.cat([g.flatten() for g in parts]), rtol=1e-9, atol=1e-12)


class TestTraining:
    def test_dropout_is_a_share_of_the_outputs_in_training_only(self) -> None:
        model = random_cls(dataclasses.replace(CFG, dropout=0.4))
        x = bits(500, 5)
        kept: list[Tensor] = []
        model.train()
        with model.hooks([("blocks.0.hook_attn_out", lambda out, hook: kept.append(out.detach().clone()))]):
            assert not torch.equal(model(x), model(x))
        assert abs(float((kept[0] == 0).double().mean()) - 0.4) < 0.03
        model.eval()
        assert torch.equal(model(x), model(x))

    def test_weight_decay_is_torchs(self) -> None:
        cfg = TrainConfig(n_train=30, n_valid=20, steps=12, lr=0.01, weight_decay=0.3)
        for kind in (CFG, dataclasses.replace(CFG, dropout=0.0)):
            model = random_cls(dataclasses.replace(kind, dropout=0.0))
            plain = random_cls(dataclasses.replace(kind, dropout=0.0))
            data = bits(30, 5, 1), bits(30, 5, 1)[:, 0] == 1
            valid = bits(20, 5, 2), bits(20, 5, 2)[:, 0] == 1
            train_stack([Job(model, data, valid, 0)], cfg)
            adam = torch.optim.Adam(plain.parameters(), lr=0.01, weight_decay=0.3)
            for _ in range(12):
                adam.zero_grad()
                nn.functional.binary_cross_entropy_with_logits(plain(data[0]), data[1].double()).backward()
                adam.step()
            for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)

    def test_it_learns_and_the_seed_decides(self) -> None:
        x = bits(400, 8, 4)
        y = x[:, [1, 6]].all(dim=1)
        data, valid = (x[:300], y[:300]), (x[300:], y[300:])
        cfg = TrainConfig(n_train=300, n_valid=100, steps=200, lr=0.01, log_every=50)
        small = ClsConfig(n_ctx=8, d_model=16, n_heads=2, d_mlp=9)
        rows = []
        for seed in (1, 1, 2):
            job = Job(build_model(small), data, valid, seed)
            train_stack([job], cfg)
            rows.append(job.history)
        assert rows[0] == rows[1] != rows[2]
        assert rows[0][-1][-1] == 1.0
