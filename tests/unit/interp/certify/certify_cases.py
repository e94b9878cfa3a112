"""Models of every architecture, and the truth about them by enumeration through the hooked model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from interp.certify.certificate import Box
from interp.certify.mlp import MLPSide
from interp.certify.side import RatioSide, Side
from interp.certify.terms import attention_terms, linear_terms
from interp.config import AttentionConfig, LinearConfig, MLPConfig
from interp.models import AnyModel, HookedAttention, HookedLinear, HookedMLP, build_model
from tasks.base import Task
from tasks.cover import label_cover

KINDS: dict[str, dict[str, Any]] = {
    "attention": {},
    "sinusoidal": {"d_model": 5, "d_head": 2, "positions": "sinusoidal"},
    "heads": {"d_model": 4, "n_heads": 3, "d_head": 2, "d_value": 2, "bias": True},
    "mlp": {"d_mlp": 13},
    "linear": {},
}
MakeSide = Callable[[bool, np.ndarray], Side]


def random_model(kind: str, n_ctx: int, seed: int, std: float = 1.0) -> AnyModel:
    """In float64, all weights and biases normal."""
    config = {"mlp": MLPConfig, "linear": LinearConfig}.get(kind, AttentionConfig)
    model = build_model(config(n_ctx, **KINDS[kind])).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, std, generator=generator)
    return model


def output_bias(model: AnyModel) -> torch.Tensor:
    """The constant that is added to the logit."""
    if isinstance(model, HookedLinear):
        return model.b
    if isinstance(model, HookedMLP):
        return model.mlp.b_out
    assert model.b_readout is not None
    return model.b_readout


def output_weight(model: AnyModel) -> torch.Tensor:
    """What the logit is a multiple of, but for its bias."""
    if isinstance(model, HookedLinear):
        return model.W
    return model.mlp.W_out if isinstance(model, HookedMLP) else model.W_readout


def scale_scores(model: HookedAttention, factor: float) -> None:
    with torch.no_grad():
        model.attn.get_parameter("W_Q").mul_(factor)


def side_maker(model: AnyModel) -> MakeSide:
    if isinstance(model, HookedAttention | HookedLinear):
        terms = attention_terms(model) if isinstance(model, HookedAttention) else linear_terms(model)
        return lambda label, counted: RatioSide(terms, label, counted)
    assert isinstance(model, HookedMLP)
    return lambda label, counted: MLPSide(model, label, counted)


def all_inputs(n_ctx: int) -> np.ndarray:
    return (np.arange(2**n_ctx)[:, None] >> np.arange(n_ctx - 1, -1, -1)) & 1


def all_logits(model: AnyModel) -> np.ndarray:
    """Of every input, by the hooked model's own forward pass."""
    with torch.no_grad():
        return model(torch.as_tensor(all_inputs(model.cfg.n_ctx))).double().numpy()


def random_box(n_ctx: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """A box of any size, a counted bit or none for each position, a limit on counted bits at free ones."""
    free = generator.random(n_ctx) < generator.random()
    fixed = np.where(free, -1, generator.integers(2, size=n_ctx)).astype(np.int8)
    counted = generator.integers(-1, 2, size=n_ctx) if generator.random() < 0.5 else generator.integers(2, size=n_ctx)
    limit = int(generator.integers(n_ctx + 1)) if generator.random() < 0.7 else 10**6
    return fixed, counted.astype(np.int8), limit


def inside(x: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Which inputs lie in a box."""
    return ((fixed < 0) | (x == fixed)).all(axis=1)


def n_counted(x: np.ndarray, counted: np.ndarray, where: np.ndarray | bool = True) -> np.ndarray:
    """Counted bits of every input, at some of the positions."""
    return ((x == counted) & (counted >= 0) & where).sum(axis=1)


def trained_model(kind: str, task: Task, seed: int, steps: int = 150) -> AnyModel:
    """In float64, by Adam on all inputs of a task; often right on all of them, sometimes barely not."""
    model = random_model(kind, task.n_ctx, seed, 0.5)
    x = task.enumerate()
    y = task.label(x).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
        optimiser.step()
    return model.requires_grad_(False)


def task_boxes(task: Task, change: int = 0) -> list[Box]:
    """A task's boxes of one label; a change is the bit `change` at a position that is neither target nor rule bit."""
    boxes = []
    for box in label_cover(task):
        counted = np.full(task.n_ctx, change, dtype=np.int8)
        counted[[*task.targets[box.rule], *task.rule_positions]] = -1
        boxes.append(Box(box.fixed, box.label, counted))
    return boxes
