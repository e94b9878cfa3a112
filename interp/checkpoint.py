"""Weights on disk: safetensors beside config.json, and the tutorial's .pt files."""

import pickle
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors.torch
import torch
from einops import rearrange
from safetensors import SafetensorError
from torch import Tensor

from interp.config import AttentionConfig, RunConfig
from interp.errors import BoolensError
from interp.files import read_json, write_atomic

if TYPE_CHECKING:
    from interp.models import AnyModel, HookedAttention

WEIGHTS = "model.safetensors"
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def save_weights(model: torch.nn.Module, path: Path) -> None:
    """The model's state, atomically, as safetensors."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomic(path, safetensors.torch.save(state))


def snapshot_path(run: Path, step: int) -> Path:
    """Where the weights after `step` optimiser steps are kept."""
    return run / "snapshots" / f"step-{step:06d}.safetensors"


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file.

    Raises:
        BoolensError: no such file, or truncated or otherwise not safetensors.
    """
    try:
        return safetensors.torch.load(path.read_bytes())
    except FileNotFoundError:
        raise BoolensError(f"{path} does not exist") from None
    except (SafetensorError, ValueError) as error:
        raise BoolensError(
            f"{path} is not a whole safetensors file ({error}); restore it or train the run again"
        ) from None


def load_config(run: str | Path) -> RunConfig:
    """config.json of a run folder.

    Raises:
        BoolensError: not a run folder, or config.json is not valid.
    """
    folder = Path(run)
    if not (folder / "config.json").is_file():
        raise BoolensError(
            f"{folder} is not a run folder (it has no config.json); make one with `boolens train` or `boolens import`"
        )
    return RunConfig.from_dict(read_json(folder / "config.json"), str(folder / "config.json"))


def load_model(run: str | Path, step: int | None = None) -> "AnyModel":
    """The model of a run, in evaluation mode, with bit-identical weights.

    Args:
        run: the run folder.
        step: load the snapshot after this many steps instead of the final weights.

    Raises:
        BoolensError: the folder is missing, half written or invalid, or the weights do not fit the configuration.
    """
    from interp.models import build_model

    folder = Path(run)
    config = load_config(folder)
    path = folder / WEIGHTS if step is None else snapshot_path(folder, step)
    if not path.exists():
        if step is not None:
            have = sorted(int(p.stem.removeprefix("step-")) for p in path.parent.glob("step-*.safetensors"))
            raise BoolensError(f"{folder} has no snapshot of step {step}; it has {have or 'none'}")
        raise BoolensError(f"{folder} is half written (no {WEIGHTS}): finish it with `boolens train ... --resume`")
    model = build_model(config.model)
    load_tensors(model, read_tensors(path), str(path))
    return model.eval()


def load_tensors(model: torch.nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Set the whole state of a model, which takes on the tensors' floating-point type.

    Raises:
        BoolensError: other names or shapes, mixed or integer types, or values that are not finite.
    """
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    if expected != found:
        wrong = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
        what = "; ".join(f"{n}: expected {expected.get(n, 'nothing')}, found {found.get(n, 'nothing')}" for n in wrong)
        raise BoolensError(f"{source} does not fit the configuration ({what}); put back the two files of one run")
    dtypes = {t.dtype for t in tensors.values()}
    if len(dtypes) > 1 or not dtypes <= FLOATS:
        raise BoolensError(
            f"{source} has types {sorted(map(str, dtypes))}; all weights must have one of {sorted(map(str, FLOATS))}"
        )
    bad = sorted(name for name, t in tensors.items() if not t.isfinite().all())
    if bad:
        raise BoolensError(
            f"{source}: {', '.join(bad)} contain NaN or infinite weights; the training diverged, train again"
        )
    model.to(dtypes.pop())
    model.load_state_dict(tensors)


TUTORIAL_NAMES = ("tokenizer.weight", "positioner", "Wq.weight", "Wk.weight", "Wv.weight", "linear.weight")


def import_tutorial(path: Path) -> "HookedAttention":
    """The tutorial's SelfAttention from its own torch.save(state_dict()), in evaluation mode.

    Only torch's weights-only unpickler is used, so a file with code in it is refused, not run.

    Raises:
        BoolensError: not such a file: missing, truncated, not weights only, other names or shapes, or not finite.
    """
    from interp.models import HookedAttention

    state = _read_pickle(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if set(shapes) != set(TUTORIAL_NAMES):
        raise BoolensError(
            f"{path} holds {sorted(map(str, shapes))}; "
            f"the tutorial's SelfAttention has exactly {sorted(TUTORIAL_NAMES)}"
        )
    position = shapes["positioner"]
    n_ctx, d_model = position[-2:] if len(position) == 3 else (0, 0)
    d_head = shapes["Wq.weight"][0] if shapes["Wq.weight"] else 0
    expected = {
        "tokenizer.weight": (2, d_model),
        "positioner": (1, n_ctx, d_model),
        "Wq.weight": (d_head, d_model),
        "Wk.weight": (d_head, d_model),
        "Wv.weight": (1, d_model),
        "linear.weight": (1, n_ctx),
    }
    if shapes != expected or n_ctx < 1 or d_head < 1:
        wrong = "; ".join(
            f"{n}: expected {expected[n]}, found {shapes[n]}" for n in TUTORIAL_NAMES if shapes[n] != expected[n]
        )
        raise BoolensError(f"{path} does not have the tutorial's shapes: {wrong or shapes}")
    model = HookedAttention(AttentionConfig(n_ctx=n_ctx, d_model=d_model, d_head=d_head))
    weights = {
        "W_E": state["tokenizer.weight"],
        "W_pos": state["positioner"][0],
        "blocks.0.attn.W_Q": rearrange(state["Wq.weight"], "d_head d_model -> 1 d_model d_head"),
        "blocks.0.attn.W_K": rearrange(state["Wk.weight"], "d_head d_model -> 1 d_model d_head"),
        "blocks.0.attn.W_V": rearrange(state["Wv.weight"], "d_value d_model -> 1 d_model d_value"),
        "W_readout": rearrange(state["linear.weight"], "1 pos -> pos 1 1"),
    }
    load_tensors(model, weights, str(path))
    return model.eval()


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged file can look like an unknown pickle protocol
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise BoolensError(f"{path} does not exist; give a .pt file of the tutorial's model") from None
    except pickle.UnpicklingError as error:
        raise BoolensError(
            f"{path} is refused: it is damaged or holds more than weights ({_first_line(error)}); "
            "save only model.state_dict()"
        ) from None
    except Exception as error:  # a damaged file can make the unpickler fail in any way
        raise BoolensError(f"{path} is not a whole torch file ({_first_line(error)}); save it again") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise BoolensError(f"{path} holds {type(state).__name__}, not a state_dict of tensors; save model.state_dict()")
    return state


def _first_line(error: Exception) -> str:
    """What went wrong, in a line: without torch's advice on how to load the file nevertheless, code and all."""
    reason = str(error).rpartition("WeightsUnpickler error:")[2].partition(". Please use")[0]
    return next(iter(reason.strip().splitlines()), type(error).__name__)
