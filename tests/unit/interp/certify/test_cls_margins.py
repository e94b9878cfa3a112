"""Rounding margins of [CLS] transformers against the same logits in 60 digits."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from interp.certify.cls import ClsSide, cls_side_maker
from interp.config import NORM_EPS, ClsConfig
from interp.models import HookedCls
from tests.unit.interp.certify.certify_cases import all_inputs
from tests.unit.interp.certify.test_margins import exact, mp

BASE = ClsConfig(n_ctx=4, d_model=5, n_heads=2, d_head=3, d_mlp=6)
VARIANTS = [
    dataclasses.replace(BASE, **changes)
    for changes in (
        {},
        {"norm": False},
        {"bias": False},
        {"d_mlp": 0},
        {"d_mlp": 0, "norm": False},
        {"d_mlp": 0, "bias": False},
        {"d_mlp": 0, "norm": False, "n_heads": 1},
        {"d_mlp": 0, "bias": False, "n_heads": 1},
    )
]


def exact_logit(model: HookedCls, x: np.ndarray, *, scaled: bool) -> Any:
    """The logit of one input, or (`scaled`) the logit times the last norm's scale."""
    p = {name.removeprefix("blocks.0.").replace("attn.", ""): exact(w) for name, w in model.named_parameters()}
    zero = mp.mpf(0)

    def norm(name: str, row: np.ndarray) -> tuple[np.ndarray, Any]:
        if f"{name}.w" not in p:
            return row, mp.mpf(1)
        centred = row - row.sum() / len(row)
        scale = mp.sqrt((centred * centred).sum() / len(row) + mp.mpf(NORM_EPS))
        return centred / scale * p[f"{name}.w"] + p.get(f"{name}.b", zero), scale

    tokens = np.concatenate([p["W_E"][x] + p["W_pos"][:-1], (p["W_E"][2] + p["W_pos"][-1])[None]])
    seen = np.stack([norm("ln1", row)[0] for row in tokens])
    resid = tokens[-1] + p.get("b_O", zero)
    for h in range(model.cfg.n_heads):
        q, k, v = (
            rows @ p[f"W_{name}"][h] + (p[f"b_{name}"][h] if model.cfg.bias else zero)
            for name, rows in (("Q", seen[-1]), ("K", seen), ("V", seen))
        )
        weight = np.vectorize(mp.exp, otypes=[object])(k @ q / mp.sqrt(model.cfg.d_head))
        resid = resid + (weight @ v / weight.sum()) @ p["W_O"][h]
    if model.cfg.d_mlp:
        pre = norm("ln2", resid)[0] @ p["mlp.W_in"] + p.get("mlp.b_in", zero)
        post = np.array([z * mp.ncdf(z) for z in pre])
        resid = resid + post @ p["mlp.W_out"] + p.get("mlp.b_out", zero)
    final, scale = norm("ln_final", resid)
    constant = p["b_readout"].item() if model.cfg.bias else zero
    logit = final @ p["W_readout"] + constant
    return logit * scale if scaled else logit


@pytest.mark.parametrize("cfg", VARIANTS, ids=lambda c: f"norm {c.norm}, bias {c.bias}, mlp {c.d_mlp}, {c.n_heads}")
def test_no_logit_in_float64_is_off_by_more_than_the_margin(cfg: ClsConfig) -> None:
    generator = np.random.default_rng(0)
    off = []
    for seed in range(9):
        model = HookedCls(cfg).double().eval()
        draw = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.data.normal_(0, (0.2, 0.7, 2.0)[seed % 3], generator=draw)
        if seed % 2:
            model.float()
        side = cls_side_maker(model)(False, np.full(4, -1))
        x = generator.permutation(all_inputs(4))[:3]
        for bits, value in zip(x, side.logits(x.astype(np.int8)), strict=True):
            scaled = cfg.norm and not isinstance(side, ClsSide)
            if value == 0.0:  # an input that is said to be neither right nor wrong
                continue
            off.append(abs(float(exact_logit(model, bits, scaled=scaled) - mp.mpf(float(value)))) / side.margin)
            assert off[-1] <= 1
    assert len(off) > 20
    assert max(off) > 1e-6  # and the margin is not absurdly wide
