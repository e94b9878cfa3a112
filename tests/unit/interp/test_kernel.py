"""The compiled kernel: its exponential, packed inputs, Adam, threads, and models that it hands back."""

from typing import Any

import numpy as np
import pytest
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from interp import kernel_parts, training
from interp.config import AttentionConfig
from interp.kernel_parts import BITS, _exp, compiled, sigmoid
from interp.models import HookedAttention
from interp.packed import Packed
from interp.training import Job, batch_rows, train_stack
from tests.unit.interp.stack_cases import config, content, job, jobs_of, trained, weights


@njit
def exp_of_all(x: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(x)):
        out[i] = _exp(x[i])


def test_exp() -> None:
    x = np.linspace(-87, 88, 100_003, dtype=np.float32)
    out = np.empty_like(x)
    exp_of_all(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=1.5e-7)
    below = np.array([-87.1, -1e30, -np.inf], dtype=np.float32)
    exp_of_all(below, out[:3])
    assert (out[:3] <= 1.7e-38).all()


def test_sigmoid() -> None:
    x = np.array([-1e4, -30, -1, 0, 0.5, 20, 1e4], dtype=np.float32)
    expected = 1 / (1 + np.exp(-np.clip(x.astype(np.float64), -700, 700)))
    sigmoid(x)
    np.testing.assert_allclose(x, expected, rtol=3e-7, atol=2e-38)


@pytest.mark.parametrize("n_ctx", [1, 4, 5, 6, 16, 17, 32, 33, 70])
def test_packed_inputs(n_ctx: int) -> None:
    x = torch.randint(2, (3, 7, n_ctx), generator=torch.Generator().manual_seed(n_ctx))
    packed = Packed(x)
    assert packed.bits.shape[2:] == (-(-n_ctx // (16 if n_ctx <= 16 else 32)), 16 if n_ctx <= 16 else 32)
    assert packed.codes.dtype == torch.uint8
    for m, n, group in np.ndindex(*packed.codes.shape):
        own = x[m, n, group * BITS : (group + 1) * BITS].tolist()
        assert packed.codes[m, n, group] == sum(bit << b for b, bit in enumerate(own))
    for m in range(3):
        assert torch.equal(packed.x(m), x[m])
    packed.keep([2, 0])
    packed.keep([1])
    assert torch.equal(packed.x(0), x[0])


def torch_adam(one: Job, steps: int, batch_size: int) -> Tensor:
    """The weights after steps of torch.optim.Adam through the model itself."""
    cfg, (x, y) = config(batch_size=batch_size), one.data
    adam = torch.optim.Adam(one.model.parameters(), lr=cfg.lr, foreach=False)
    for step in range(steps):
        rows = batch_rows(cfg, one.seed, step) if batch_size else torch.arange(len(x))
        adam.zero_grad()
        binary_cross_entropy_with_logits(one.model(x[rows]), y[rows].to(weights(one))).backward()
        adam.step()
    return weights(one)


@pytest.mark.parametrize("batch_size", [0, 5, 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_torch_s_adam(dtype: torch.dtype, batch_size: int) -> None:
    jobs = jobs_of("attention", dtype=dtype)
    train_stack(jobs, config(steps=8, batch_size=batch_size))
    for one in jobs:
        expected = torch_adam(job("attention", one.seed, dtype=dtype), 8, batch_size)
        torch.testing.assert_close(weights(one), expected, rtol=0, atol=2e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("batch_size", [0, 5])
def test_to_the_bit_however_the_work_is_split(batch_size: int) -> None:
    cfg = config(steps=60, log_every=25, batch_size=batch_size)
    whole = trained(jobs_of("attention", dtype=torch.float32), cfg)
    splits: list[dict[str, Any]] = [{"most_steps": 1}, {"most_steps": 7}, {"at_once": 1}, {"at_once": 3}]
    for split in splits:
        for mine, theirs in zip(trained(jobs_of("attention", dtype=torch.float32), cfg, **split), whole, strict=True):
            assert content(mine.model) == content(theirs.model)
            assert mine.history == theirs.history
    torch.set_num_threads(3)
    try:
        threaded = trained(jobs_of("attention", dtype=torch.float32), cfg)
    finally:
        torch.set_num_threads(1)
    assert [content(one.model) for one in threaded] == [content(one.model) for one in whole]
    assert len({content(one.model) for one in whole}) == 5


def test_on_step_comes_at_every_row_of_the_history() -> None:
    steps: list[int] = []
    jobs = jobs_of("attention", dtype=torch.float32)
    train_stack(jobs, config(steps=23, log_every=10), on_step=lambda step, _: steps.append(step))
    assert {10, 20, 23} <= set(steps)
    assert steps == sorted(steps)
    assert [row[0] for row in jobs[0].history] == [0, 10, 20, 23]


@pytest.mark.parametrize("size", [4e3, 1e6])  # tables in float64, and the model itself
@pytest.mark.parametrize("batch_size", [0, 5])
def test_a_model_that_the_kernel_hands_back_trains_all_the_same(
    batch_size: int, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose scores on a position's two bits are too far apart, among others that are not."""
    handed_back: list[int] = []
    wide = training.wide_gradient
    monkeypatch.setattr(
        training, "wide_gradient", lambda *given: handed_back.append(1) or wide(*given)
    )  # fmt: skip

    def jobs() -> list[Job]:
        made = jobs_of("attention", dtype=torch.float32)
        made[2].model.get_submodule("blocks.0.attn").get_parameter("W_Q").data.mul_(size)
        return made

    cfg = config(steps=6, batch_size=batch_size)
    ours = trained(jobs(), cfg)
    assert handed_back == [1] * 6
    expected = torch_adam(jobs()[2], 6, batch_size)
    torch.testing.assert_close(weights(ours[2]), expected, rtol=0, atol=1e-4)
    for mine, theirs in zip(ours, trained(jobs_of("attention", dtype=torch.float32), cfg), strict=True):
        if mine.seed != 2:
            assert content(mine.model) == content(theirs.model)


def test_several_heads_biases_and_tiles() -> None:
    """Sixty steps at T = 37 against float64."""
    cfg = AttentionConfig(37, d_model=3, n_heads=2, d_value=2, bias=True, init_std=0.2)
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(23, 37, generator=generator) < 0.7).long()
    valid = (torch.rand(17, 37, generator=generator) < 0.7).long()

    def one(dtype: torch.dtype) -> Job:
        model = HookedAttention(cfg, torch.Generator().manual_seed(1)).to(dtype)
        return Job(model, (x, x[:, [3, 36]].all(dim=1)), (valid, valid[:, [3, 36]].all(dim=1)), 0)

    narrow, wide = (trained([one(dtype)], config(steps=60, lr=0.01))[0] for dtype in (torch.float32, torch.float64))
    assert wide.history[-1][1] < 0.7 * wide.history[0][1]
    torch.testing.assert_close(torch.tensor(narrow.history), torch.tensor(wide.history), rtol=0, atol=1e-3)


def test_without_a_folder_to_keep_compiled_code_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit_without_cache(function: Any, **options: Any) -> Any:
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(kernel_parts, "njit", njit_without_cache)
    assert compiled(lambda x: x + 1)(2) == 3
