"""Shapes are checked at run time in every test: jaxtyping's annotations in tasks and interp, by beartype."""

import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import jaxtyping
import pytest
import torch
from beartype import beartype
from torch import Tensor


def shapes_checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype, for annotations with a shape in them; pyright checks the others.

    A plain annotation must not be checked here: configurations and tasks take any value and refuse the wrong ones with
    an error of their own, which is tested, and beartype refuses `Self` on single methods.
    """
    hints = inspect.get_annotations(function)
    function.__annotations__ = {name: hint if _has_shape(hint) else Any for name, hint in hints.items()}
    return beartype(function)


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(_has_shape(part) for part in get_args(hint))


# Before tasks and interp are imported. jaxtyping takes the checker as text, whose first name it imports.
jaxtyping.install_import_hook(["tasks", "interp"], f"sys.modules[{__name__!r}].shapes_checked")
torch.set_num_threads(1)  # small tensors: a second thread costs more than it gives


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No run-time checks of shapes, as for a user: for tests of the package's own errors on wrong tensors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the tutorial's text and checkpoints, beside the project's root."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"the shared folder is not beside the project: no {folder}")
    return folder


@pytest.fixture(scope="session")
def all_inputs() -> Callable[[int], Tensor]:
    """From n_ctx to all 2**n_ctx inputs, int64 [2**n_ctx, n_ctx], counting upwards, the first bit the highest."""
    return lambda n_ctx: torch.tensor(list(itertools.product((0, 1), repeat=n_ctx)))


@pytest.fixture(scope="session")
def random_attention() -> Callable[..., Any]:
    """From n_ctx and fields of AttentionConfig to a HookedAttention in evaluation mode, biases random too."""
    from interp import AttentionConfig, HookedAttention

    def build(n_ctx: int, *, seed: int = 0, dtype: torch.dtype = torch.float64, **fields: Any) -> HookedAttention:
        generator = torch.Generator().manual_seed(seed)
        model = HookedAttention(AttentionConfig(n_ctx=n_ctx, **{"init_std": 1.0, **fields}), generator)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".b_" in name or name.startswith("b_"):
                    parameter.normal_(0, 1, generator=generator)
        return model.to(dtype).eval()

    return build
