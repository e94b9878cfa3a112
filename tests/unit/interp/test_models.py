"""The hooked models (test_cls.py has the [CLS] transformer): sizes, hook points, inputs, initialisation, function."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from interp.axes import HOOK_AXES
from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.models import HookedAttention, HookedLinear, HookedMLP, build_model

SIZES = {"batch": 2, "head": 3, "pos": 5, "d_head": 7, "d_model": 11, "d_value": 4, "d_mlp": 13, "dest": 5, "src": 5}
WIDE = AttentionConfig(n_ctx=5, d_model=11, n_heads=3, d_head=7, d_value=4)
POINTS = {
    WIDE: [
        "hook_embed",
        "hook_pos_embed",
        "blocks.0.hook_resid_pre",
        "blocks.0.attn.hook_q",
        "blocks.0.attn.hook_k",
        "blocks.0.attn.hook_v",
        "blocks.0.attn.hook_attn_scores",
        "blocks.0.attn.hook_pattern",
        "blocks.0.attn.hook_z",
        "hook_logit",
    ],
    MLPConfig(n_ctx=5, d_mlp=13): ["hook_embed", "blocks.0.mlp.hook_pre", "blocks.0.mlp.hook_post", "hook_logit"],
    LinearConfig(n_ctx=5): ["hook_embed", "hook_logit"],
}
SMALL: list[ModelConfig] = [AttentionConfig(n_ctx=5, init_std=1.0), MLPConfig(n_ctx=5, d_mlp=13), LinearConfig(n_ctx=5)]


def bits(batch: int, pos: int, seed: int = 0) -> Tensor:
    return torch.randint(2, (batch, pos), generator=torch.Generator().manual_seed(seed))


class TestArchitecture:
    @pytest.mark.parametrize(
        ("cfg", "count"),
        [
            (AttentionConfig(n_ctx=30), 2 * 2 + 30 * 2 + 2 * 2 + 2 * 2 + 2 * 1 + 30),
            (AttentionConfig(n_ctx=30), 104),
            (AttentionConfig(n_ctx=11), 47),
            (MLPConfig(n_ctx=30), 30 * 512 + 512 + 512 + 1),
            (MLPConfig(n_ctx=30), 16385),
            (LinearConfig(n_ctx=30), 31),
            (LinearConfig(n_ctx=1), 2),
            (AttentionConfig(n_ctx=30, positions="sinusoidal"), 104 - 30 * 2),
            (AttentionConfig(n_ctx=30, bias=True), 104 + 2 + 2 + 1 + 1),
            (WIDE, 2 * 11 + 5 * 11 + 3 * 11 * (7 + 7 + 4) + 5 * 3 * 4),
        ],
    )
    def test_number_of_parameters(self, cfg: ModelConfig, count: int) -> None:
        assert sum(parameter.numel() for parameter in build_model(cfg).parameters()) == count

    @pytest.mark.parametrize(
        ("cfg", "kind"),
        [(AttentionConfig(n_ctx=3), HookedAttention), (MLPConfig(n_ctx=3), HookedMLP), (LinearConfig(3), HookedLinear)],
    )
    def test_build_model_follows_the_configuration(self, cfg: ModelConfig, kind: type) -> None:
        model = build_model(cfg)
        assert type(model) is kind
        assert model.cfg is cfg
        assert model.training

    def test_names_and_shapes_of_weights(self) -> None:
        shapes = {name: tuple(weight.shape) for name, weight in HookedAttention(WIDE).named_parameters()}
        assert shapes == {
            "W_E": (2, 11),
            "W_pos": (5, 11),
            "blocks.0.attn.W_Q": (3, 11, 7),
            "blocks.0.attn.W_K": (3, 11, 7),
            "blocks.0.attn.W_V": (3, 11, 4),
            "W_readout": (5, 3, 4),
        }

    @pytest.mark.parametrize("cfg", POINTS, ids=lambda cfg: cfg.architecture)
    def test_hook_points_and_their_axes(self, cfg: ModelConfig) -> None:
        model = build_model(cfg)
        assert sorted(model.hook_names) == sorted(POINTS[cfg])
        logits, cache = run(model, bits(2, 5), record=model.hook_names)
        assert set(cache) == set(POINTS[cfg])
        flat_embed = not isinstance(cfg, AttentionConfig)
        for name, activation in cache.items():
            axes = ("batch", "pos") if flat_embed and name == "hook_embed" else HOOK_AXES[name]
            assert tuple(activation.shape) == tuple(SIZES[axis] for axis in axes), name
        assert torch.equal(cache["hook_logit"], logits)

    def test_every_documented_hook_point_exists(self) -> None:
        cls = build_model(ClsConfig(n_ctx=5)).hook_names  # see test_cls.py
        assert set(HOOK_AXES) == {name for names in (*POINTS.values(), cls) for name in names}

    @pytest.mark.parametrize("bias", [False, True])
    def test_activations_of_each_point_are_what_it_is_named_for(
        self, bias: bool, random_attention: Callable[..., Any]
    ) -> None:
        model = random_attention(5, d_model=11, n_heads=3, d_head=7, d_value=4, bias=bias)
        x = bits(2, 5)
        _, cache = run(model, x, record=model.hook_names)
        b, p, h = 1, 3, 2
        resid = model.W_E[x[b, p]] + model.W_pos[p]
        close = torch.testing.assert_close
        close(cache["hook_embed"][b, p], model.W_E[x[b, p]])
        close(cache["hook_pos_embed"][b, p], model.W_pos[p])
        close(cache["blocks.0.hook_resid_pre"][b, p], resid)
        for letter in "QKV":
            weight, constant = getattr(model.attn, f"W_{letter}")[h], getattr(model.attn, f"b_{letter}")
            assert (constant is not None) == bias
            close(cache[f"blocks.0.attn.hook_{letter.lower()}"][b, p, h], resid @ weight + (constant[h] if bias else 0))
        q, k, v, scores, pattern, z = (
            cache[f"blocks.0.attn.hook_{name}"] for name in ("q", "k", "v", "attn_scores", "pattern", "z")
        )
        close(scores[b, h, p, 4], q[b, p, h] @ k[b, 4, h] / math.sqrt(7))
        close(pattern[b, h, p], scores[b, h, p].softmax(dim=0))
        close(z[b, p, h], pattern[b, h, p] @ v[b, :, h])
        close(cache["hook_logit"][b], (z[b] * model.W_readout).sum() + (model.b_readout if bias else 0))


class TestSmallestSizes:
    @pytest.mark.parametrize("batch", [0, 1, 3])
    @pytest.mark.parametrize(("n_ctx", "n_heads"), [(1, 1), (1, 3), (5, 1), (5, 3)])
    def test_axes_are_kept(
        self, batch: int, n_ctx: int, n_heads: int, all_inputs: Callable, random_attention: Callable
    ) -> None:
        model = random_attention(n_ctx, n_heads=n_heads, d_value=1)
        x = all_inputs(n_ctx).repeat(2, 1)[:batch]
        logits, cache = run(model, x, record=model.hook_names)
        assert logits.shape == (batch,)
        assert cache["blocks.0.attn.hook_pattern"].shape == (batch, n_heads, n_ctx, n_ctx)
        assert cache["blocks.0.attn.hook_z"].shape == (batch, n_ctx, n_heads, 1)
        if batch:
            torch.testing.assert_close(logits[:1], model(x[:1]))

    @pytest.mark.parametrize("cfg", [MLPConfig(n_ctx=1, d_mlp=1), LinearConfig(n_ctx=1)], ids=lambda c: c.architecture)
    @pytest.mark.parametrize("batch", [0, 1, 3])
    def test_baselines_keep_the_batch(self, cfg: ModelConfig, batch: int) -> None:
        assert build_model(cfg).eval()(bits(batch, 1)).shape == (batch,)

    def test_with_one_position_the_pattern_is_one(self, random_attention: Callable, all_inputs: Callable) -> None:
        model = random_attention(1, n_heads=3)
        _, cache = run(model, all_inputs(1), record=["blocks.0.attn.hook_pattern"])
        assert torch.equal(cache["blocks.0.attn.hook_pattern"], torch.ones(2, 3, 1, 1, dtype=torch.float64))

    def test_rows_of_patterns_sum_to_one_and_columns_do_not(
        self, random_attention: Callable, all_inputs: Callable
    ) -> None:
        model = random_attention(5, d_model=11, n_heads=3)
        _, cache = run(model, all_inputs(5), record=["blocks.0.attn.hook_pattern"])
        pattern = cache["blocks.0.attn.hook_pattern"]
        torch.testing.assert_close(pattern.sum(dim=-1), torch.ones(32, 3, 5, dtype=torch.float64))
        assert (pattern.sum(dim=-2) - 1).abs().max() > 0.5


class TutorialAttention(nn.Module):
    """The tutorial's SelfAttention in its own shape: nn.Embedding, nn.Linear, a readout over positions."""

    def __init__(self, model: HookedAttention) -> None:
        super().__init__()
        n_ctx, d_model, d_head = model.cfg.n_ctx, model.cfg.d_model, model.cfg.d_head
        self.tokenizer = nn.Embedding(2, d_model)
        self.positioner = nn.Parameter(torch.zeros(1, n_ctx, d_model))
        self.Wq, self.Wk, self.Wv = (nn.Linear(d_model, width, bias=False) for width in (d_head, d_head, 1))
        self.linear = nn.Linear(n_ctx, 1, bias=False)
        with torch.no_grad():
            self.tokenizer.weight.copy_(model.W_E)
            self.positioner.copy_(model.W_pos[None])
            for linear, letter in ((self.Wq, "Q"), (self.Wk, "K"), (self.Wv, "V")):
                linear.weight.copy_(getattr(model.attn, f"W_{letter}")[0].T)
            self.linear.weight.copy_(model.W_readout[:, 0, 0][None])

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokenizer(x) + self.positioner
        Q, K, V = self.Wq(x), self.Wk(x), self.Wv(x)
        scores = torch.bmm(Q, K.transpose(1, 2)) / K.shape[-1] ** 0.5
        z = torch.bmm(scores.softmax(dim=-1), V)
        return self.linear(z.squeeze(2)).squeeze(1)


class TestFunction:
    @pytest.mark.parametrize("d_head", [0, 5])
    def test_attention_is_the_tutorial_s(
        self, d_head: int, random_attention: Callable, all_inputs: Callable[[int], Tensor]
    ) -> None:
        model = random_attention(7, d_model=3, d_head=d_head, dtype=torch.float32)
        x = all_inputs(7)
        torch.testing.assert_close(model(x), TutorialAttention(model)(x))

    def test_readout_can_read_any_position(self, random_attention: Callable) -> None:
        model = random_attention(5, n_heads=3)
        logit = model(bits(4, 5))
        with torch.no_grad():
            model.W_readout[3] += 1
        assert (model(bits(4, 5)) - logit).abs().min() > 1e-3

    def test_mlp_is_the_plain_one(self, all_inputs: Callable[[int], Tensor]) -> None:
        model = HookedMLP(MLPConfig(n_ctx=5, d_mlp=13, init_std=1.0)).eval()
        plain = nn.Sequential(nn.Linear(5, 13), nn.GELU(), nn.Dropout(0.1), nn.Linear(13, 1)).eval()
        with torch.no_grad():
            model.mlp.b_in.normal_(generator=torch.Generator().manual_seed(1))
            model.mlp.b_out.fill_(0.3)
            mlp = model.mlp
            weights = (mlp.W_in.T, mlp.b_in, mlp.W_out[None], mlp.b_out[None])
            for parameter, weight in zip(plain.parameters(), weights, strict=True):
                parameter.copy_(weight)
        x = all_inputs(5)
        torch.testing.assert_close(model(x), plain(x.float())[:, 0])

    def test_linear_is_a_weighted_sum(self) -> None:
        model = HookedLinear(LinearConfig(n_ctx=3))
        with torch.no_grad():
            model.W.copy_(torch.tensor([1.0, 10.0, 100.0]))
            model.b.fill_(0.5)
        assert model(torch.tensor([[0, 0, 0], [1, 0, 1], [0, 1, 1]])).tolist() == [0.5, 101.5, 110.5]

    @pytest.mark.parametrize("cfg", SMALL, ids=lambda cfg: cfg.architecture)
    def test_float64(self, cfg: ModelConfig) -> None:
        model = build_model(cfg).eval()
        x = bits(8, 5)
        single = model(x)
        model.double()
        assert single.dtype == torch.float32
        assert model(x).dtype == torch.float64
        torch.testing.assert_close(model(x).float(), single)

    @pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64])
    @pytest.mark.parametrize("cfg", SMALL, ids=lambda cfg: cfg.architecture)
    def test_bits_of_any_integer_type(self, cfg: ModelConfig, dtype: torch.dtype) -> None:
        model, x = build_model(cfg).eval(), bits(8, 5)
        assert torch.equal(model(x.to(dtype)), model(x))

    def test_sinusoidal_positions_are_a_buffer(self) -> None:
        model = HookedAttention(AttentionConfig(n_ctx=3, d_model=5, positions="sinusoidal"))
        assert "W_pos" in dict(model.named_buffers())
        assert "W_pos" in model.state_dict()
        assert model.W_pos[2, 1].item() == pytest.approx(math.cos(2))


@pytest.mark.usefixtures("unchecked")
class TestRefusedInputs:
    @pytest.mark.parametrize("cfg", SMALL, ids=lambda cfg: cfg.architecture)
    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (torch.zeros(2, 4, dtype=torch.int64), r"shape \(2, 4\).*integers \[batch, pos\] with pos = 5"),
            (torch.zeros(5, 2, dtype=torch.int64), r"shape \(5, 2\).*with pos = 5"),
            (torch.zeros(5, dtype=torch.int64), r"shape \(5,\).*with pos = 5"),
            (torch.zeros(2, 5, 1, dtype=torch.int64), r"shape \(2, 5, 1\).*with pos = 5"),
            (torch.zeros(2, 5), r"type torch.float32.*takes integers"),
            (torch.zeros(2, 5, dtype=torch.complex64), r"type torch.complex64.*takes integers"),
            (torch.full((2, 5), 2), "range from 2 to 2; every bit must be 0 or 1"),
            (torch.tensor([[0, 1, -1, 0, 1]]), "range from -1 to 1; every bit must be 0 or 1"),
            (torch.tensor([[0, 1, 255, 0, 1]], dtype=torch.uint8), "range from 0 to 255; every bit must be 0 or 1"),
        ],
    )
    def test_raise(self, cfg: ModelConfig, x: Tensor, message: str) -> None:
        with pytest.raises(BoolensError, match=message):
            build_model(cfg)(x)


class TestInitialisation:
    @pytest.mark.parametrize("cfg", SMALL, ids=lambda cfg: cfg.architecture)
    def test_follows_the_generator_alone(self, cfg: ModelConfig) -> None:
        def weights(generator: torch.Generator | None) -> list[float]:
            return nn.utils.parameters_to_vector(build_model(cfg, generator).parameters()).tolist()

        before = torch.get_rng_state()
        first = weights(torch.Generator().manual_seed(3))
        assert torch.equal(torch.get_rng_state(), before)
        with torch.random.fork_rng():
            torch.manual_seed(99)
            assert weights(torch.Generator().manual_seed(3)) == first
        assert weights(torch.Generator().manual_seed(4)) != first
        assert weights(None) == weights(torch.Generator().manual_seed(0)) != first

    def test_one_generator_gives_different_models_in_turn(self) -> None:
        generator = torch.Generator().manual_seed(0)
        one, two = (HookedAttention(WIDE, generator) for _ in range(2))
        assert not torch.equal(one.W_E, two.W_E)

    @pytest.mark.parametrize("init_std", [0.001, 0.5])
    @pytest.mark.parametrize("architecture", ["attention", "mlp", "linear"])
    def test_weights_have_the_standard_deviation(self, architecture: str, init_std: float) -> None:
        model = build_model(
            {
                "attention": AttentionConfig(50, 40, 3, 30, 20, bias=True, init_std=init_std),
                "mlp": MLPConfig(40, d_mlp=600, init_std=init_std),
                "linear": LinearConfig(3000, init_std=init_std),
            }[architecture],
            torch.Generator().manual_seed(1),
        )
        for name, parameter in model.named_parameters():
            if name.rsplit(".", 1)[-1].startswith("b"):
                assert not parameter.any(), name
            else:
                error = 4 / math.sqrt(parameter.numel())  # four standard errors
                assert parameter.mean().item() == pytest.approx(0, abs=error * init_std), name
                assert (parameter**2).mean().item() == pytest.approx(init_std**2, rel=error * math.sqrt(2)), name

    def test_matrices_are_drawn_independently(self) -> None:
        W_Q, W_K = (HookedAttention(WIDE).get_parameter(f"blocks.0.attn.W_{letter}") for letter in "QK")
        correlation = torch.corrcoef(torch.stack([W_Q.flatten(), W_K.flatten()]))[0, 1]
        assert abs(correlation) < 0.3


class TestDropout:
    def model(self, dropout: float = 0.25) -> HookedMLP:
        return HookedMLP(MLPConfig(n_ctx=5, d_mlp=400, dropout=dropout, init_std=1.0))

    def test_is_off_in_evaluation(self) -> None:
        model, x = self.model().eval(), bits(4, 5)
        state = model.mlp.dropout.generator.get_state()
        assert torch.equal(model(x), model(x))
        assert torch.equal(model.mlp.dropout.generator.get_state(), state)

    def test_masks_and_rescales_in_training(self) -> None:
        model, x = self.model(), bits(4, 5)
        mask = torch.Generator()
        mask.set_state(model.mlp.dropout.generator.get_state())
        global_state = torch.get_rng_state()
        logits, cache = model.run_with_cache(x)
        assert torch.equal(torch.get_rng_state(), global_state)
        kept = torch.empty(4, 400).bernoulli_(0.75, generator=mask)
        assert kept.mean().item() == pytest.approx(0.75, abs=0.05)
        dropped = cache["blocks.0.mlp.hook_post"] * kept / 0.75
        torch.testing.assert_close(logits, dropped @ model.mlp.W_out + model.mlp.b_out)
        assert not torch.allclose(model(x), logits)

    def test_comes_from_its_own_generator(self) -> None:
        one, two, x = self.model(), self.model(), bits(4, 5)
        first, second = one(x), one(x)
        with torch.random.fork_rng():
            torch.manual_seed(5)
            assert torch.equal(two(x), first)
        assert torch.equal(two(x), second)

    def test_of_zero_is_none(self) -> None:
        model, x = self.model(0.0), bits(4, 5)
        assert torch.equal(model(x), model.eval()(x))
