"""Interventions as data: equal where they say the same, printable, unmoved by what happens to the tensors given."""

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
import torch

from interp.errors import BoolensError
from interp.interventions import (
    SCORES,
    AtHook,
    FlipBit,
    Freeze,
    MeanAblate,
    OptimalAblate,
    Patch,
    RemoveKey,
    ResampleAblate,
    ZeroAblate,
)

Z, PATTERN = "blocks.0.attn.hook_z", "blocks.0.attn.hook_pattern"
X = torch.tensor([[0, 1, 1], [1, 1, 0]])


def make(hook: str = PATTERN, **fields: Any) -> ZeroAblate:
    """With values that the annotations do not allow."""
    return ZeroAblate(hook, **fields)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ZeroAblate(Z, pos=1), ZeroAblate(Z, pos=(1,))),
        (ZeroAblate(Z, head=[0, 2]), make(Z, head=np.array([0, 2]))),
        (MeanAblate(Z, X), MeanAblate(Z, X.clone())),
        (Patch(Z, values=torch.ones(1, 2)), Patch(Z, values=torch.ones(1, 2))),
        (RemoveKey(1), RemoveKey(src=1, hook=SCORES)),
        (FlipBit(2), FlipBit((2,))),
        (OptimalAblate(Z, reference=X, labels=X[:, 0]), OptimalAblate(Z, reference=X, labels=X[:, 0])),
    ],
)
def test_equal(a: AtHook, b: AtHook) -> None:
    assert a == b
    assert hash(a) == hash(b)
    assert len({a, b}) == 1


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ZeroAblate(Z), Freeze(Z)),
        (ZeroAblate(Z, pos=1), ZeroAblate(Z, pos=-1)),
        (ZeroAblate(PATTERN, pos=1), ZeroAblate(PATTERN, dest=1)),
        (ZeroAblate(PATTERN), ZeroAblate(PATTERN, rows="keep")),
        (MeanAblate(Z, X), MeanAblate(Z)),
        (MeanAblate(Z, X), MeanAblate(Z, 1 - X)),
        (ResampleAblate(Z, 1), ResampleAblate(Z, 2)),
        (Patch(Z, values=torch.ones(1, 2)), Patch(Z, values=torch.ones(1, 2, dtype=torch.float64))),
        (FlipBit(2), RemoveKey(2)),
    ],
)
def test_different(a: Any, b: Any) -> None:
    assert a != b


def test_prints_what_was_chosen() -> None:
    assert repr(ZeroAblate(Z, head=1)) == "ZeroAblate(hook='blocks.0.attn.hook_z', head=(1,))"
    assert repr(Patch(Z, source=X)) == "Patch(hook='blocks.0.attn.hook_z', source=<int64 [2, 3]>)"
    assert repr(RemoveKey((0, -1), dest=2)) == "RemoveKey(dest=(2,), src=(0, -1))"
    assert repr(FlipBit()) == "FlipBit()"


def test_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ZeroAblate(Z).hook = PATTERN  # pyright: ignore[reportAttributeAccessIssue]


def test_keeps_copies() -> None:
    source, values = X.clone(), torch.ones(1, 2, requires_grad=True)
    patches = Patch(Z, source=source), Patch(Z, values=values)
    source.zero_()
    with torch.no_grad():
        values.zero_()
    assert patches == (Patch(Z, source=X), Patch(Z, values=torch.ones(1, 2)))
    assert patches[1].values is not None
    assert not patches[1].values.requires_grad


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ZeroAblate(Z, pos=()), "pos = (): give an int or a sequence of distinct ints, at least one"),
        (lambda: ZeroAblate(Z, head=(1, 1)), "head = (1, 1): give an int"),
        (lambda: make(head=1.5), "head = 1.5: give an int"),
        (lambda: ZeroAblate(Z, dest=True), "dest = True: give an int"),
        (lambda: make(src="12"), "src = '12': give an int"),
        (lambda: ZeroAblate(Z, rows="renormalise"), "rows of a pattern alone can be renormalised, not those of blocks"),
        (
            lambda: make(rows="drop"),
            "rows is 'drop'; choose one of ('flag', 'renormalise', 'keep')",
        ),
        (lambda: Patch(Z), "either source (inputs to run) or values (an activation)"),
        (lambda: Patch(Z, source=X, values=torch.ones(1)), "and one of them"),
        (lambda: Patch(Z, source=torch.ones(2, 3)), "source has type torch.float32; give inputs (integers), or an"),
        (lambda: RemoveKey(pos=1), "name the key as src, and the query, if one, as dest"),
        (lambda: RemoveKey(1, hook=Z), "keys are removed at attention scores or patterns, not at blocks.0.attn.hook_z"),
        (lambda: OptimalAblate(Z, reference=X, labels=torch.ones(3)), "2 reference inputs, labels of shape (3,); give"),
        (lambda: OptimalAblate(Z, reference=X[:0], labels=torch.ones(0)), "at least one input"),
    ],
)
def test_what_says_nothing_sensible(call: Any, message: str) -> None:
    with pytest.raises(BoolensError, match=re.escape(message)):
        call()
