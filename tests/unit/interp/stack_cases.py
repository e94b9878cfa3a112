"""Models and jobs that the tests of stacks share."""

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig, TrainConfig
from interp.models import build_model
from interp.stack import ParameterBlock
from interp.training import Job, Labelled, train_stack

N_CTX, N_TRAIN, N_VALID = 6, 23, 17

KINDS: dict[str, ModelConfig] = {
    "attention": AttentionConfig(N_CTX, init_std=0.3),
    "mlp": MLPConfig(N_CTX, d_mlp=13, dropout=0.2),
    "linear": LinearConfig(N_CTX),
}


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"n_train": N_TRAIN, "n_valid": N_VALID, "steps": 12, "log_every": 3, "lr": 0.05, **fields})


def targets(seed: int) -> tuple[int, int]:
    return seed % N_CTX, (seed + 2) % N_CTX


def samples(n: int, seed: int, stream: int) -> Labelled:
    """Bits labelled by the AND of the seed's own two."""
    x = (torch.rand(n, N_CTX, generator=torch.Generator().manual_seed(10 * seed + stream)) < 0.7).long()
    return x, x[:, targets(seed)].all(dim=1)


def job(kind: str, seed: int, *, folder: Path | None = None, dtype: torch.dtype = torch.float64) -> Job:
    model = build_model(KINDS[kind], torch.Generator().manual_seed(seed)).to(dtype)
    return Job(model, samples(N_TRAIN, seed, 1), samples(N_VALID, seed, 2), seed, folder)


def jobs_of(kind: str, n: int = 5, **options: Any) -> list[Job]:
    return [job(kind, seed, **options) for seed in range(n)]


def in_folders(kind: str, root: Path, n: int = 5) -> list[Job]:
    return [job(kind, seed, folder=root / f"seed-{seed}") for seed in range(n)]


def content(model: torch.nn.Module) -> bytes:
    return safetensors.torch.save(dict(model.state_dict()))


def weights(of: Job) -> Tensor:
    return ParameterBlock(of.model).flatten([of.model])[0]


def trained(jobs: list[Job], cfg: TrainConfig, **options: Any) -> list[Job]:
    train_stack(jobs, cfg, **options)
    return jobs


def check_same(mine: Job, theirs: Job, atol: float = 1e-9) -> None:
    assert mine.seed == theirs.seed
    assert mine.stopped == theirs.stopped
    torch.testing.assert_close(weights(mine), weights(theirs), rtol=0, atol=atol)
    torch.testing.assert_close(torch.tensor(mine.history), torch.tensor(theirs.history), rtol=0, atol=atol)
