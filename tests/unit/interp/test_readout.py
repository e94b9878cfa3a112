"""The direct readout, against gradients with the final norm's scale held."""

import dataclasses
from typing import Any

import pytest
import torch

from interp.config import AttentionConfig
from interp.hooks import run
from interp.models import HookedAttention
from interp.readout import direct_readout
from tests.unit.interp.test_cls import CFG, VARIANTS, bits, random_cls

Z, SCALE, MLP_OUT = "blocks.0.attn.hook_z", "ln_final.hook_scale", "blocks.0.hook_mlp_out"


@pytest.mark.parametrize("cfg", VARIANTS)
def test_it_is_the_gradient_with_scale_and_mlp_held(cfg) -> None:
    model, x = random_cls(cfg), bits(4, 5)
    held = [name for name in (SCALE, MLP_OUT) if name in model.hook_names]
    _, cache = run(model, x, record=[Z, *held])
    z = cache[Z].clone().requires_grad_()
    hooks: list[Any] = [(Z, lambda activation, hook: z)]
    hooks += [(name, lambda activation, hook: cache[hook.name]) for name in held]
    with torch.enable_grad():
        logits = model.run_with_hooks(x, fwd_hooks=hooks)
        gradient = torch.autograd.grad(logits.sum(), z)[0]
    torch.testing.assert_close(direct_readout(model, x), gradient, rtol=1e-9, atol=1e-12)


def test_of_an_attention_model_it_is_the_readout() -> None:
    model = HookedAttention(AttentionConfig(5, n_heads=3, d_value=2))
    assert torch.equal(direct_readout(model, bits(4, 5)), model.W_readout)


def test_without_norm_it_is_one_for_all_inputs() -> None:
    readout = direct_readout(random_cls(dataclasses.replace(CFG, norm=False)), bits(4, 5))
    assert readout.shape == (4, 1, 3, 4)
    assert torch.equal(readout[0], readout[3])
