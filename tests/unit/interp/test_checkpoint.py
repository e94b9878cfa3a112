"""Weights on disk: back to the bit, and every damaged run folder refused and left as it was."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from interp.checkpoint import WEIGHTS, load_config, load_model, read_tensors, save_weights, snapshot_path
from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig, RunConfig
from interp.errors import BoolensError
from interp.files import write_json
from interp.models import AnyModel, build_model

CONFIGS = [
    AttentionConfig(1),
    AttentionConfig(5, init_std=0.7),
    AttentionConfig(7, d_model=11, n_heads=3, d_head=5, d_value=2, bias=True, init_std=0.5),
    AttentionConfig(6, d_model=5, n_heads=2, d_head=3, positions="sinusoidal", init_std=0.9),
    MLPConfig(6, d_mlp=13, dropout=0.3, init_std=0.6),
    LinearConfig(1),
    LinearConfig(8, init_std=0.4),
]


def random_model(cfg: ModelConfig, seed: int = 1, dtype: torch.dtype = torch.float32) -> AnyModel:
    """A model whose biases are random too."""
    generator = torch.Generator().manual_seed(seed)
    model = build_model(cfg, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.to(dtype)


def write_run(folder: Path, model: AnyModel) -> Path:
    run = RunConfig(model.cfg, None, 0, "trained", {})
    write_json(folder / "config.json", run.to_dict())
    save_weights(model, folder / WEIGHTS)
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def refused(tmp_path: Path) -> Callable[..., str]:
    """Checks that loading is refused and that nothing in the folder has changed; returns the message."""

    def check(load: Callable[..., Any] = load_model, **options: Any) -> str:
        before = tree(tmp_path)
        with pytest.raises(BoolensError) as caught:
            load(tmp_path, **options)
        assert tree(tmp_path) == before
        assert str(tmp_path) in str(caught.value)
        return str(caught.value)

    return check


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("cfg", CONFIGS, ids=str)
def test_a_reloaded_model_gives_bit_identical_logits(cfg: ModelConfig, dtype: torch.dtype, tmp_path: Path) -> None:
    model = random_model(cfg, dtype=dtype)
    loaded = load_model(write_run(tmp_path, model))
    x = torch.tensor(list(itertools.product((0, 1), repeat=cfg.n_ctx)))
    with torch.no_grad():
        logits = model.eval()(x)
        assert logits.dtype == dtype
        assert torch.equal(loaded(x), logits)
    assert type(loaded) is type(model)
    assert loaded.cfg == cfg
    assert not any(module.training for module in loaded.modules())
    for (name, ours), (other, theirs) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(ours, theirs)
    save_weights(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / WEIGHTS).read_bytes()


def test_loading_leaves_the_global_random_state(tmp_path: Path) -> None:
    write_run(tmp_path, random_model(CONFIGS[4]))
    before = torch.get_rng_state()
    load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_can_be_named_as_text(tmp_path: Path) -> None:
    write_run(tmp_path, random_model(LinearConfig(3)))
    assert load_model(str(tmp_path)).cfg == load_config(str(tmp_path)).model == LinearConfig(3)


def test_weights_of_a_view_are_saved_whole(tmp_path: Path) -> None:
    model = random_model(LinearConfig(3))
    model.W.data = torch.arange(6.0)[::2]  # not contiguous
    save_weights(model, tmp_path / WEIGHTS)
    assert read_tensors(tmp_path / WEIGHTS)["W"].tolist() == [0, 2, 4]


def test_snapshots_are_loaded_by_step(tmp_path: Path, refused: Callable[..., str]) -> None:
    models = {step: random_model(LinearConfig(5), seed) for seed, step in enumerate((None, 0, 120))}
    write_run(tmp_path, models[None])
    for step in (0, 120):
        save_weights(models[step], snapshot_path(tmp_path, step))
    assert sorted(p.name for p in (tmp_path / "snapshots").iterdir()) == [
        "step-000000.safetensors",
        "step-000120.safetensors",
    ]
    for step, model in models.items():
        loaded = load_model(tmp_path, step)
        assert torch.equal(loaded.state_dict()["W"], model.state_dict()["W"])
        assert not loaded.training
    for step in (7, -1, 1200):
        assert refused(step=step) == f"{tmp_path} has no snapshot of step {step}; it has [0, 120]"


def test_a_run_without_snapshots(tmp_path: Path, refused: Callable[..., str]) -> None:
    write_run(tmp_path, random_model(LinearConfig(5)))
    assert refused(step=0) == f"{tmp_path} has no snapshot of step 0; it has none"


@pytest.mark.parametrize("load", [load_model, load_config])
def test_not_a_run_folder(load: Callable[..., Any], tmp_path: Path, refused: Callable[..., str]) -> None:
    wanted = " is not a run folder (it has no config.json); make one with `boolens train` or `boolens import`"
    assert refused(load) == f"{tmp_path}{wanted}"
    save_weights(random_model(LinearConfig(5)), tmp_path / WEIGHTS)
    assert refused(load) == f"{tmp_path}{wanted}"
    with pytest.raises(BoolensError, match=re.escape(f"{tmp_path / 'nowhere'}{wanted}")):
        load(tmp_path / "nowhere")
    with pytest.raises(BoolensError, match=re.escape(f"{tmp_path / WEIGHTS}{wanted}")):
        load(tmp_path / WEIGHTS)  # a file, not a folder


def test_a_half_written_run(tmp_path: Path, refused: Callable[..., str]) -> None:
    write_run(tmp_path, random_model(LinearConfig(5)))
    (tmp_path / WEIGHTS).rename(tmp_path / f".{WEIGHTS}.17.partial")
    wanted = f"{tmp_path} is half written (no {WEIGHTS}): finish it with `boolens train ... --resume`"
    assert refused() == wanted


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": NaN}', b"\xff"])
def test_a_damaged_config(content: bytes, tmp_path: Path, refused: Callable[..., str]) -> None:
    write_run(tmp_path, random_model(LinearConfig(5)))
    (tmp_path / "config.json").write_bytes(content)
    assert re.search(r"config\.json is not valid JSON .*restore it or make the run again", refused())


def test_a_config_of_another_kind(tmp_path: Path, refused: Callable[..., str]) -> None:
    write_run(tmp_path, random_model(LinearConfig(5)))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "seed": -1}))
    assert refused() == f"{tmp_path / 'config.json'}: seed -1 must be a whole number of at least 0"


def test_truncated_weights_at_every_length(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = write_run(tmp_path, random_model(LinearConfig(5))) / WEIGHTS
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        message = refused()
        assert message.startswith(f"{path} is not a whole safetensors file ("), length
        assert message.endswith("restore it or train the run again"), length
    path.write_bytes(whole)
    load_model(tmp_path)


def test_missing_tensors_file(tmp_path: Path) -> None:
    with pytest.raises(BoolensError, match=re.escape(f"{tmp_path / WEIGHTS} does not exist")):
        read_tensors(tmp_path / WEIGHTS)


def changed(**tensors: Tensor | None) -> bytes:
    """A linear model's weights at n_ctx = 5 with some tensors replaced, added or (None) left out."""
    state = {"W": torch.ones(5), "b": torch.zeros(()), **tensors}
    return safetensors.torch.save({name: tensor for name, tensor in state.items() if tensor is not None})


FIT = "does not fit the configuration"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(W=torch.ones(4)), f"{FIT} (W: expected (5,), found (4,)); put back the two files of one run"),
        (changed(W=torch.ones(5, 1)), f"{FIT} (W: expected (5,), found (5, 1)); put back"),
        (changed(W=None), f"{FIT} (W: expected (5,), found nothing); put back"),
        (changed(c=torch.ones(3)), f"{FIT} (c: expected nothing, found (3,)); put back"),
        (
            changed(W=torch.ones(4), b=torch.ones(1)),
            f"{FIT} (W: expected (5,), found (4,); b: expected (), found (1,))",
        ),
        (
            changed(W=torch.full((5,), torch.nan)),
            "W contain NaN or infinite weights; the training diverged, train again",
        ),
        (changed(b=torch.tensor(torch.inf)), "b contain NaN or infinite weights; the training diverged, train again"),
        (changed(b=torch.zeros((), dtype=torch.float64)), "has types ['torch.float32', 'torch.float64']; all weights"),
        (
            changed(W=torch.ones(5, dtype=torch.int64), b=torch.zeros((), dtype=torch.int64)),
            "types ['torch.int64']; all",
        ),
        (
            changed(W=torch.ones(5).bool(), b=torch.tensor(True)),
            "has types ['torch.bool']; all weights must have one of",
        ),
    ],
)
def test_weights_that_are_not_this_run_s(
    content: bytes, message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = write_run(tmp_path, random_model(LinearConfig(5))) / WEIGHTS
    path.write_bytes(content)
    found = refused()
    assert str(path) in found
    assert message in found


def test_weights_of_another_architecture(tmp_path: Path, refused: Callable[..., str]) -> None:
    write_run(tmp_path, random_model(LinearConfig(5)))
    save_weights(random_model(AttentionConfig(5)), tmp_path / WEIGHTS)
    assert "W_E: expected nothing, found (2, 2)" in refused()


def test_the_sinusoidal_encoding_is_checked_too(tmp_path: Path, refused: Callable[..., str]) -> None:
    cfg = AttentionConfig(4, d_model=3, positions="sinusoidal")
    path = write_run(tmp_path, random_model(cfg)) / WEIGHTS
    tensors = read_tensors(path)
    tensors["W_pos"] = tensors["W_pos"][:3].clone()
    path.write_bytes(safetensors.torch.save(tensors))
    assert "W_pos: expected (4, 3), found (3, 3)" in refused()
