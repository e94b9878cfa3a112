"""Expected flips of a [CLS] transformer, against all inputs through the model."""

import numpy as np
import pytest
import torch

from interp import cls_flips
from interp.cls_flips import cls_flip_effects, flip_changes, largest_change
from interp.cls_tables import cls_tables
from tests.unit.interp.test_cls import CFG, NAMES, VARIANTS, bits, random_cls

PROBABILITY = [0.5, 0.8, 0.3, 0.7, 0.6]


def truth(model, x: torch.Tensor) -> torch.Tensor:
    """[batch, pos]."""
    rows = []
    for pos in range(x.shape[1]):
        turned = x.clone()
        turned[:, pos] = 1 - turned[:, pos]
        rows.append(model(turned) - model(x))
    return torch.stack(rows, dim=1).detach()


@pytest.mark.parametrize("cfg", VARIANTS, ids=NAMES)
def test_exact_effects_are_those_over_all_inputs(cfg, all_inputs) -> None:
    model, every = random_cls(cfg), all_inputs(5)
    free = [0, 1, 3, 4]
    found = cls_flip_effects(model, lambda n: bits(n, 5), [0, 0, 1, 0, 0], free, PROBABILITY, 2)
    cube = every[every[:, 2] == 1]
    p = torch.tensor(PROBABILITY, dtype=torch.float64)[free]
    share = torch.where(cube[:, free] == 1, p, 1 - p).prod(dim=1)
    expected = (truth(model, cube).abs() * share[:, None]).sum(dim=0)
    np.testing.assert_allclose(found.mean[free], expected[free].numpy(), rtol=1e-9)
    assert np.isnan(found.mean[2])
    assert found.separated is None
    assert found.n_inputs == 16


@pytest.mark.parametrize("std", [0.6, 8.0, 60.0, 2000.0])
@pytest.mark.parametrize("cfg", VARIANTS, ids=NAMES)
def test_changes_whatever_the_scores(cfg, std: float, all_inputs) -> None:
    model, every = random_cls(cfg, std=std), all_inputs(5)
    got, expected = flip_changes(cls_tables(model), every, [0, 1, 2, 3, 4]), truth(model, every)
    scale = float(expected.abs().max())
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7 * scale)
    logits = model(every).detach()
    assert largest_change(cls_tables(model)) >= float(logits.max() - logits.min())


def test_sampled_effects_have_the_truth_in_their_interval(monkeypatch, all_inputs) -> None:
    monkeypatch.setattr(cls_flips, "EXACT_UP_TO", 3)
    model, every = random_cls(CFG, seed=5), all_inputs(5)
    generator = torch.Generator().manual_seed(3)
    found = cls_flip_effects(
        model, lambda n: torch.randint(2, (n, 5), generator=generator), [0] * 5, range(5), [0.5] * 5, 2
    )
    expected = truth(model, every).abs().mean(dim=0).numpy()
    assert (found.low <= expected).all()
    assert (expected <= found.high).all()
    assert (np.abs(found.mean - expected) < 0.05 * expected.max()).all()
    assert found.n_inputs >= 4096
    assert found.separated in (True, False)
