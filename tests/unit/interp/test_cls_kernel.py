"""The compiled kernel of [CLS] transformers against the hooked model, torch's Adam, and itself split otherwise."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, gelu

from interp import cls_kernel_parts, training
from interp.cls_packed import dropout_masks
from interp.config import ClsConfig, TrainConfig
from interp.models import HookedCls, build_model
from interp.stack import Inputs, ParameterBlock, cls_logits, mean_loss, stack_gradient, stack_logits
from interp.training import Job, batch_rows, train_stack
from tests.unit.interp.stack_cases import content, weights

CFG = ClsConfig(23, d_model=10, n_heads=3, d_head=4, d_mlp=13, dropout=0.3, init_std=0.4)
N_TRAIN, N_VALID = 17, 37
VARIANTS: list[dict[str, Any]] = [
    *(
        {"norm": norm, "bias": bias, "d_mlp": d_mlp, "dropout": dropout}
        for norm, bias, d_mlp, dropout in itertools.product((True, False), (True, False), (13, 0), (0.3, 0.0))
    ),
    {"n_ctx": 1},
    {"n_heads": 1, "d_head": 10},
    {"n_ctx": 70, "n_heads": 16, "d_head": 5, "d_model": 64, "d_mlp": 7},
]


def train_config(**fields: Any) -> TrainConfig:
    return TrainConfig(
        **{"n_train": N_TRAIN, "n_valid": N_VALID, "steps": 20, "log_every": 7, "lr": 0.01, "weight_decay": 0.02}
        | fields
    )


def random_model(cfg: ClsConfig, seed: int) -> HookedCls:
    """Every parameter away from its special initial value."""
    generator = torch.Generator().manual_seed(100 + seed)
    model = build_model(cfg, torch.Generator().manual_seed(seed))
    assert isinstance(model, HookedCls)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def job(seed: int, cfg: ClsConfig = CFG, n_train: int = N_TRAIN, folder: Path | None = None) -> Job:
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(n_train + N_VALID, cfg.n_ctx, generator=generator) < 0.7).long()
    y = x[:, : 1 + seed % 3].all(dim=1)
    return Job(random_model(cfg, seed), (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:]), seed, folder)


def batch(cfg: ClsConfig, models: int = 3, rows: int = N_TRAIN) -> tuple[list[HookedCls], Tensor, Tensor, Tensor]:
    """Models, their inputs, labels and masks."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(2, (models, rows, cfg.n_ctx), generator=generator)
    y = torch.randint(2, (models, rows), generator=generator).double()
    keep = (torch.rand(models, 2, rows, cfg.d_model, generator=generator) > 0.3).double()
    return [random_model(cfg, seed) for seed in range(models)], x, y, keep


def through_modules(model: HookedCls, x: Tensor, keep: Tensor | None) -> Tensor:
    """The model's logits; dropout's masks, where given, are put in through its hooks."""
    if keep is None:
        return model(x)
    share, hooks = model.cfg.dropout, []
    for i, name in enumerate(["hook_attn_out", "hook_mlp_out"][: 1 + bool(model.cfg.d_mlp)]):
        mask = keep[i][:, None] / (1 - share)
        hooks.append((f"blocks.0.{name}", lambda out, hook, mask=mask: out * mask.to(out)))
    return model.run_with_hooks(x, fwd_hooks=hooks)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_logits_and_gradients_are_the_module_s(variant: dict[str, Any]) -> None:
    cfg = dataclasses.replace(CFG, **variant)
    models, x, y, keep = batch(cfg)
    masks = keep if cfg.dropout else None
    block = ParameterBlock(models[0])
    flat = block.flatten(models)
    inputs = Inputs(cfg, x, torch.float32)
    assert inputs.packed
    found = stack_logits(cfg, block, flat, inputs)
    gradient = stack_gradient(cfg, block, flat, inputs, y.float(), None if masks is None else masks.float())
    for m, model in enumerate(models):
        twin = model.double().eval()
        torch.testing.assert_close(found[m].double(), twin(x[m]), rtol=3e-5, atol=3e-5)
        logits = through_modules(twin, x[m], None if masks is None else masks[m])
        loss = binary_cross_entropy_with_logits(logits, y[m])
        expected = torch.autograd.grad(loss, list(twin.parameters()))
        for (name, _), mine, theirs in zip(
            twin.named_parameters(), gradient[m].split(block.sizes), expected, strict=True
        ):
            bound = 1e-4 * theirs.flatten().abs() + 2e-5 * max(1.0, float(theirs.abs().max()))
            assert ((mine - theirs.flatten()).abs() <= bound).all(), name


def test_many_rows_are_those_of_small_batches() -> None:
    models, x, _, _ = batch(CFG, rows=600)
    block = ParameterBlock(models[0])
    flat = block.flatten(models)
    whole = stack_logits(CFG, block, flat, Inputs(CFG, x, torch.float32))
    for rows in (slice(0, 1), slice(250, 263), slice(511, 600)):
        part = stack_logits(CFG, block, flat, Inputs(CFG, x[:, rows], torch.float32))
        torch.testing.assert_close(part, whole[:, rows], rtol=1e-6, atol=1e-6)


def torch_adam(one: Job, cfg: TrainConfig, dtype: torch.dtype = torch.float64) -> Tensor:
    """The weights after torch.optim.Adam through the model itself, with the same masks."""
    model, (x, y) = one.model.to(dtype).eval(), one.data
    assert isinstance(model, HookedCls)
    adam = torch.optim.Adam(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, foreach=False)
    for step in range(cfg.steps):
        rows = batch_rows(cfg, one.seed, step) if cfg.batch_size else torch.arange(len(x))
        share, shape = model.cfg.dropout, (2, len(rows), model.cfg.d_model)
        keep = dropout_masks(one.seed, step, share, shape).to(dtype) if share else None
        adam.zero_grad()
        binary_cross_entropy_with_logits(through_modules(model, x[rows], keep), y[rows].to(dtype)).backward()
        adam.step()
    return weights(one)


@pytest.mark.parametrize("batch_size", [0, 5])
@pytest.mark.parametrize("variant", [{}, {"norm": False, "bias": False, "dropout": 0.0}, {"d_mlp": 0}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_torch_s_adam(dtype: torch.dtype, variant: dict[str, Any], batch_size: int) -> None:
    """With both the kernel and torch's tables; but keys' biases, of which no output is a function, may be anywhere."""
    cfg, train_cfg = dataclasses.replace(CFG, **variant), train_config(batch_size=batch_size)
    jobs = [job(seed, cfg) for seed in range(3)]
    for one in jobs:
        one.model.to(dtype)
    train_stack(jobs, train_cfg)
    for one in jobs:
        expected = job(one.seed, cfg)
        torch_adam(expected, train_cfg)
        theirs = dict(expected.model.named_parameters())
        for name, mine in one.model.named_parameters():
            if not name.endswith("b_K"):
                assert (mine - theirs[name]).abs().max() < (3e-4 if dtype == torch.float32 else 1e-10), name


@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows_and_one_position(rows: int) -> None:
    cfg, train_cfg = dataclasses.replace(CFG, n_ctx=1), train_config(n_train=rows, steps=6)
    one, expected = job(0, cfg, rows), job(0, cfg, rows)
    train_stack([one], train_cfg)
    torch_adam(expected, train_cfg)
    with torch.no_grad():
        x = torch.tensor([[0], [1]])
        torch.testing.assert_close(one.model(x).double(), expected.model(x), rtol=0, atol=1e-3)


@pytest.mark.parametrize("batch_size", [0, 5])
def test_to_the_bit_however_the_work_is_split(batch_size: int) -> None:
    cfg = train_config(steps=40, log_every=15, batch_size=batch_size)

    def trained(**options: Any) -> list[Job]:
        jobs = [job(seed) for seed in range(5)]
        train_stack(jobs, cfg, **options)
        return jobs

    whole = trained()
    for split in ({"most_steps": 1}, {"most_steps": 7}, {"at_once": 1}, {"at_once": 3}):
        for mine, theirs in zip(trained(**split), whole, strict=True):
            assert content(mine.model) == content(theirs.model)
            assert mine.history == theirs.history
    torch.set_num_threads(3)
    try:
        threaded = trained()
    finally:
        torch.set_num_threads(1)
    assert [content(one.model) for one in threaded] == [content(one.model) for one in whole]
    assert len({content(one.model) for one in whole}) == 5


def test_resumed_to_the_bit(tmp_path: Path) -> None:
    cfg = train_config(steps=40, log_every=10)
    whole = [job(seed) for seed in range(3)]
    train_stack(whole, cfg)

    class Killed(Exception):
        """In place of the end of a process."""

    def kill(step: int, _: list[Job]) -> None:
        if step >= 18:
            raise Killed

    halves = [job(seed, folder=tmp_path / str(seed)) for seed in range(3)]
    with pytest.raises(Killed):
        train_stack(halves, cfg, save_seconds=-1, most_steps=3, on_step=kill)
    resumed, steps = [job(seed, folder=tmp_path / str(seed)) for seed in range(3)], []
    train_stack(resumed, cfg, on_step=lambda step, _: steps.append(step))
    assert min(steps) > 10
    for mine, theirs in zip(resumed, whole, strict=True):
        assert content(mine.model) == content(theirs.model)
        assert mine.history == theirs.history


def spread_out(one: Job, size: float) -> None:
    """Every position's two bits far apart in score, though not in what the norm sees."""
    assert isinstance(one.model, HookedCls)
    for name in ("W_Q", "W_K"):
        one.model.get_parameter(f"blocks.0.attn.{name}").data[1] *= size


@pytest.mark.parametrize("size", [9.0, 60.0])  # tables in float64, and the model itself
@pytest.mark.parametrize("batch_size", [0, 5])
def test_a_model_that_the_kernel_hands_back_trains_all_the_same(
    batch_size: int, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_back: list[int] = []
    wide = training.wide_gradient
    monkeypatch.setattr(training, "wide_gradient", lambda *given: handed_back.append(1) or wide(*given))
    cfg = dataclasses.replace(CFG, dropout=0.3 if size < 10 else 0.0)
    train_cfg = train_config(steps=5, lr=1e-3, batch_size=batch_size, weight_decay=0.0)
    jobs, alone, expected = ([job(seed, cfg) for seed in range(3)] for _ in range(3))
    for of in (jobs, expected):
        spread_out(of[1], size)
    train_stack(jobs, train_cfg)
    assert len(handed_back) == 5
    train_stack(alone, train_cfg)
    assert [content(jobs[i].model) == content(alone[i].model) for i in range(3)] == [True, False, True]
    before = weights(expected[1]).clone()
    after = torch_adam(expected[1], train_cfg)
    names = [name for name, p in jobs[1].model.named_parameters() for _ in range(p.numel())]
    seen = torch.tensor([not name.endswith("b_K") for name in names])
    mine, theirs = (weights(jobs[1]) - before).double(), after - before
    assert ((mine - theirs)[seen].abs() < 1e-3).double().mean() > 0.99  # where a gradient is 0, Adam's sign is chance
    with torch.no_grad():
        logits = jobs[1].model(jobs[1].valid[0]).double()
    torch.testing.assert_close(logits, expected[1].model(jobs[1].valid[0]), rtol=0, atol=2e-2)


def test_where_float32_does_not_hold_the_tables() -> None:
    """Scores, values and weights too large, and e + p that nearly cancels, are found and are right all the same."""
    models, x, y, _ = batch(CFG, models=5)
    block, near = ParameterBlock(models[0]), models[3].W_pos.data
    spread_out(Job(models[0], (x[0], y[0] > 0), (x[0], y[0] > 0), 0), 9)
    models[1].get_parameter("blocks.0.attn.W_V").data[0] *= 2e6
    models[1].get_parameter("blocks.0.attn.W_O").data[0] *= 1e-6
    near[2] = -models[3].W_E.data[1] * (1 + 1e-4 * torch.arange(10))
    flat = block.flatten(models)
    from interp.cls_packed import ClsKernel

    inputs = Inputs(CFG, x, torch.float32)
    assert inputs.packed
    fits = ClsKernel(CFG, block.shapes).logits(flat, inputs.packed)[1]
    assert fits.tolist() == [False, False, True, False, True]
    found, gradient = stack_logits(CFG, block, flat, inputs), stack_gradient(CFG, block, flat, inputs, y.float())
    for m, model in enumerate(models):
        twin = model.double().eval()
        torch.testing.assert_close(found[m].double(), twin(x[m]), rtol=1e-3, atol=1e-3)
        loss = binary_cross_entropy_with_logits(twin(x[m]), y[m])
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(twin.parameters()))])
        assert (gradient[m] - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_leaves_the_others_alone(bad: float) -> None:
    jobs, alone = [job(seed) for seed in range(3)], [job(seed) for seed in range(3)]
    assert isinstance(jobs[1].model, HookedCls)
    jobs[1].model.W_pos.data[2, 1] = bad
    train_stack(jobs, train_config(steps=7))
    train_stack(alone, train_config(steps=7))
    assert [one.stopped for one in jobs] == ["steps", "diverged", "steps"]
    assert [content(jobs[i].model) == content(alone[i].model) for i in range(3)] == [True, False, True]


def test_masks_are_of_the_seed_and_the_step() -> None:
    shape, share = (2, 50, 64), 0.3
    masks = {(seed, step): dropout_masks(seed, step, share, shape) for seed in range(4) for step in range(30)}
    assert masks[1, 7].equal(dropout_masks(1, 7, share, shape))
    bits = torch.stack([mask.flatten() for mask in masks.values()]).double()
    n = bits.shape[1]
    kept = bits.mean(dim=1)
    assert ((kept - 0.7).abs() < 5 * (0.21 / n) ** 0.5).all()
    assert abs(bits.mean().item() - 0.7) < 4 * (0.21 / bits.numel()) ** 0.5
    assert (bits.mean(dim=0).sub(0.7).abs() < 5 * (0.21 / len(bits)) ** 0.5).all()
    within = torch.corrcoef(bits)  # between seeds and steps
    assert (within - torch.eye(len(bits))).abs().max() < 5.5 / n**0.5
    for lag in (1, 2, 16, 64, 3200):  # between entries: neighbours, rows, kinds
        centred = bits - bits.mean()
        assert abs((centred[:, lag:] * centred[:, :-lag]).mean().item() / 0.21) < 5 / bits.numel() ** 0.5


def test_masks_are_splitmix64_s() -> None:
    """Its outputs from state 1234567, as published with the reference implementation."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    golden = int(cls_kernel_parts.GOLDEN)
    for i, expected in enumerate(published, start=1):
        state = np.uint64((1234567 + i * golden) % 2**64)
        assert int(cls_kernel_parts.mixed(state)) % 2**64 == expected


def test_gelu() -> None:
    x = torch.linspace(-20, 20, 40_001)[None]
    value, slope = x.clone().numpy(), np.empty((1, x.shape[1]), dtype=np.float32)
    cls_kernel_parts.gelu(value, slope)
    exact = x.double().requires_grad_()
    out = gelu(exact)
    (derivative,) = torch.autograd.grad(out.sum(), exact)
    assert ((torch.from_numpy(value) - out).abs() <= 2e-7 * x.abs().clamp(min=1)).all()
    assert ((torch.from_numpy(slope) - derivative).abs() <= 4e-7).all()


@pytest.mark.parametrize(("rows", "terms", "columns"), [(1, 1, 1), (4, 8, 3), (7, 5, 2), (3, 6, 9), (13, 11, 17)])
def test_products(rows: int, terms: int, columns: int) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((rows, terms), (terms, columns)))
    out = np.ones((rows, columns), dtype=np.float32)
    cls_kernel_parts.add_product(a, b, out)
    np.testing.assert_allclose(out, 1 + a.astype(float) @ b, rtol=0, atol=1e-5)
    out[:] = 1
    cls_kernel_parts.add_product(np.ascontiguousarray(a.T).T, b, out)
    np.testing.assert_allclose(out, 1 + a.astype(float) @ b, rtol=0, atol=1e-5)


def test_float64_takes_the_same_masks() -> None:
    """The gradient through torch's tables at a step is that with the masks of `dropout_masks`."""
    one, cfg = job(2), train_config(steps=1, lr=1.0, weight_decay=0.0)
    one.model.double()
    before, (x, y) = weights(one).clone(), one.data
    train_stack([one], cfg)
    block = ParameterBlock(one.model)
    leaf = before.clone().requires_grad_()
    keep = dropout_masks(2, 0, 0.3, (2, N_TRAIN, 10)).double()[None]
    logits, fits = cls_logits(CFG, block.views(leaf[None]), x[None], keep)
    assert fits.all()
    (g,) = torch.autograd.grad(mean_loss(logits, y.double()[None]).sum(), leaf)
    clear = g.abs() > 1e-6
    torch.testing.assert_close((weights(one) - before)[clear], -g.sign()[clear], rtol=0, atol=1e-1)
