"""Models and data that the tests of training share."""

from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig, TrainConfig
from interp.models import AnyModel, build_model
from interp.training import (
    Labelled,
    train,
)

N_CTX, N_TRAIN, N_VALID = 6, 23, 17
MODELS: dict[str, ModelConfig] = {
    "attention": AttentionConfig(N_CTX, d_model=3, init_std=0.3),
    "mlp": MLPConfig(N_CTX, d_mlp=13, dropout=0.2),
    "linear": LinearConfig(N_CTX),
}


def samples(n: int, seed: int) -> Labelled:
    """Bits labelled by the AND of bits 1 and 4."""
    x = (torch.rand(n, N_CTX, generator=torch.Generator().manual_seed(seed)) < 0.7).long()
    return x, (x[:, 1] & x[:, 4]).bool()


DATA, VALID = samples(N_TRAIN, 1), samples(N_VALID, 2)


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"n_train": N_TRAIN, "n_valid": N_VALID, "steps": 12, "log_every": 5, **fields})


def fresh(kind: str, seed: int = 0) -> AnyModel:
    return build_model(MODELS[kind], torch.Generator().manual_seed(seed))


def trained(kind: str, cfg: TrainConfig, seed: int = 0, **options: Any) -> tuple[AnyModel, Tensor]:
    model = fresh(kind)
    return model, train(model, DATA, VALID, cfg, seed, **options)


def content(model: torch.nn.Module) -> bytes:
    return safetensors.torch.save(dict(model.state_dict()))


def flushing() -> bool:
    """Whether denormal floats are flushed to zero at this moment."""
    return (torch.tensor(torch.finfo(torch.float32).tiny) / 2).item() == 0
