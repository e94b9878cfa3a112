"""The tables of a [CLS] model give the hooked model's activations and logits, on every input."""

import itertools

import pytest
import torch

from interp.cls_tables import cls_tables
from interp.config import ClsConfig
from interp.models import HookedCls

VARIANTS = list(itertools.product([False, True], [0, 13], [False, True]))


def random_cls(cfg: ClsConfig, seed: int = 0) -> HookedCls:
    """Every weight drawn, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    model = HookedCls(cfg).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = 0.6 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + drawn if ".w" in name else drawn)
    return model


@pytest.mark.parametrize(("norm", "d_mlp", "bias"), VARIANTS)
def test_tables_give_the_hooked_models_activations(norm: bool, d_mlp: int, bias: bool) -> None:
    cfg = ClsConfig(n_ctx=5, d_model=11, n_heads=3, d_head=7, d_mlp=d_mlp, norm=norm, bias=bias)
    model = random_cls(cfg).double()
    x = torch.tensor(list(itertools.product([0, 1], repeat=5)))
    with torch.no_grad():
        logits, cache = model.run_with_cache(x)
    tables = cls_tables(model)
    assert tables.scores.shape == (3, 11)
    assert tables.value.shape == (3, 11, 7)
    torch.testing.assert_close(tables.z(x), cache["blocks.0.attn.hook_z"][:, 0])
    torch.testing.assert_close(tables.logits(x), logits)
    present = 2 * torch.arange(5) + x
    scores = cache["blocks.0.attn.hook_attn_scores"][:, :, 0]
    torch.testing.assert_close(tables.scores[:, present].transpose(0, 1), scores[..., :-1])
    torch.testing.assert_close(tables.scores[:, -1].expand(32, -1), scores[..., -1])


def test_tables_are_a_copy_without_the_models_hooks() -> None:
    model = random_cls(ClsConfig(n_ctx=5, d_model=11, n_heads=3, d_head=7)).train()
    x = torch.tensor([[0, 1, 1, 0, 1]])
    before = cls_tables(model).logits(x)
    model.add_hook("ln_final.hook_normalized", lambda resid, hook: 0 * resid)
    tables = cls_tables(model)
    torch.testing.assert_close(tables.logits(x), before)
    with torch.no_grad():
        model.W_readout.zero_()
    torch.testing.assert_close(tables.logits(x), before)
    assert tables.scores.dtype == torch.float64
    assert model.training
