"""Directions against runs edited by hand, and searches whose answer is known."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from interp.alignment import aligned_logits, learn_direction, pair_activations, random_directions
from interp.config import AttentionConfig
from interp.errors import BoolensError
from interp.hooks import run
from interp.models import HookedAttention

EMBED, Z = "hook_embed", "blocks.0.attn.hook_z"
N_CTX, N = 5, 13


@pytest.fixture
def pairs() -> Any:
    return torch.randint(0, 2, (2, N, N_CTX), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize(("hook", "affine"), [(EMBED, False), (Z, True)])
def test_logits_along_directions_by_hand(
    hook: str, affine: bool, pairs: Any, generator: torch.Generator, random_attention: Callable
) -> None:
    model = random_attention(N_CTX, n_heads=3, d_model=7, d_value=2, bias=True)
    base, source = pairs
    pairing = pair_activations(model, base, source, hook)
    assert (pairing.gradient is not None) == affine
    directions = random_directions(pairing, 4, generator)
    found = aligned_logits(pairing, directions)
    assert found.shape == (4, N)
    before, after = (run(model, x, record=[hook])[1][hook] for x in (base, source))
    for direction, logits in zip(directions, found, strict=True):
        unit = direction / direction.norm()
        put = torch.stack([b + ((s - b) * unit).sum() * unit for b, s in zip(before, after, strict=True)])
        by_hand, cache = run(model, base, [(hook, lambda activation, hook, put=put: put)], record=[hook])
        torch.testing.assert_close(logits, by_hand, rtol=0, atol=1e-9)
        for got, wanted in zip(cache[hook], after, strict=True):  # the source's component, and no other
            assert float((got * unit).sum()) == pytest.approx(float((wanted * unit).sum()))
        torch.testing.assert_close(found[0], aligned_logits(pairing, -3 * directions[:1])[0])


def test_rows_of_a_pairing(pairs: Any, generator: torch.Generator, random_attention: Callable) -> None:
    for hook in (EMBED, Z):
        pairing = pair_activations(random_attention(N_CTX), pairs[0], pairs[1], hook)
        directions, rows = random_directions(pairing, 2, generator), torch.tensor([7, 2])
        torch.testing.assert_close(
            aligned_logits(pairing.rows(rows), directions), aligned_logits(pairing, directions)[:, rows]
        )


def reading_model(scale: float = 1.0) -> HookedAttention:
    """Even attention, one query read: the logit is scale · (mean of the bits − 1/2). Head 1 reads the same always."""
    model = HookedAttention(AttentionConfig(n_ctx=N_CTX, d_model=2, n_heads=2, bias=True)).double().eval()
    values = {
        "W_E": [[0, 0], [1, 0]],
        "W_pos": [[0, 1]] * N_CTX,
        "W_V": [[[1], [0]], [[0], [1]]],
        "W_readout": [[[scale * (pos == 0)], [0]] for pos in range(N_CTX)],
        "b_readout": -0.5 * scale,
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(values.get(name.rsplit(".", 1)[-1], 0), dtype=torch.float64))
    return model


@pytest.mark.parametrize("scale", [1.0, 1e-9], ids=["logits of size 1", "tiny logits"])
@pytest.mark.parametrize("hook", [EMBED, Z])
def test_a_direction_that_carries_the_label(hook: str, scale: float, generator: torch.Generator) -> None:
    """Whether 3 bits or more are set."""
    model = reading_model(scale)
    base, source = torch.randint(0, 2, (2, 200, N_CTX), generator=torch.Generator().manual_seed(4))
    expected = source.sum(1) >= 3
    pairing = pair_activations(model, base, source, hook)
    direction = learn_direction(pairing, expected, generator)
    assert direction.shape == pairing.shape
    assert float(direction.norm()) == pytest.approx(1)
    agreed = ((aligned_logits(pairing, direction[None])[0] > 0) == expected).double().mean()
    chance = ((aligned_logits(pairing, random_directions(pairing, 50, generator)) > 0) == expected).double().mean()
    assert agreed > 0.97
    assert chance < 0.75


def test_a_direction_that_carries_one_bit(generator: torch.Generator) -> None:
    """The label is whether 3 bits or more are set, with bit 2 from the source: found at bit 2's embedding."""
    model = reading_model()
    base, source = torch.randint(0, 2, (2, 300, N_CTX), generator=torch.Generator().manual_seed(8))
    mixed = base.clone()
    mixed[:, 2] = source[:, 2]
    direction = learn_direction(pair_activations(model, base, source, EMBED), mixed.sum(1) >= 3, generator)
    assert float(direction[2, 0] ** 2) > 0.9


def test_the_same_generator_the_same_direction_and_no_trace(pairs: Any, random_attention: Callable) -> None:
    model = random_attention(N_CTX).train()
    expected = pairs[1][:, 0] == 1
    state = torch.get_rng_state()
    with torch.no_grad():  # as analyses run
        first, again = (
            learn_direction(
                pair_activations(model, pairs[0], pairs[1], EMBED), expected, torch.Generator().manual_seed(2), steps=3
            )
            for _ in range(2)
        )
    assert torch.equal(first, again)
    assert not first.requires_grad
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(point.fwd_hooks for point in model.hook_points())


def test_more_steps_lower_the_loss(generator: torch.Generator) -> None:
    model = reading_model()
    base, source = torch.randint(0, 2, (2, 200, N_CTX), generator=torch.Generator().manual_seed(4))
    expected = base[:, :2].sum(1) + source[:, 2:].sum(1) >= 3
    pairing = pair_activations(model, base, source, EMBED)

    def agreed(**settings: Any) -> float:
        direction = learn_direction(pairing, expected, torch.Generator().manual_seed(0), n_starts=1, **settings)
        return float(((aligned_logits(pairing, direction[None])[0] > 0) == expected).double().mean())

    assert agreed(steps=150) >= agreed(steps=1, lr=1e-9)
    assert agreed(steps=150, batch=200) > 0.75


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_refused(pairs: Any, generator: torch.Generator, random_attention: Callable) -> None:
    model = random_attention(N_CTX)
    base, source = pairs
    pairing = pair_activations(model, base, source, EMBED)
    labels = source[:, 0] == 1
    with pytest.raises(BoolensError, match="12 labels for 13 pairs, 2 starts, 40 steps of 32 pairs; give one label a"):
        learn_direction(pairing, labels[1:], generator)
    with pytest.raises(BoolensError, match="13 labels for 13 pairs, 2 starts, 0 steps"):
        learn_direction(pairing, labels, generator, steps=0)
    with pytest.raises(BoolensError, match="hook_embed is the same in base and source of every pair; choose another"):
        learn_direction(pair_activations(model, base, base, EMBED), labels, generator)
    with pytest.raises(
        BoolensError, match=r"directions of shape \(4, 2\) do not fit hook_embed, whose activation is \("
    ):
        aligned_logits(pairing, torch.ones(1, 4, 2))
    with pytest.raises(BoolensError, match=r"shape \(13, 5\), sources of \(12, 5\); give at least one pair"):
        pair_activations(model, base, source[1:], EMBED)
    with pytest.raises(BoolensError, match="has no hook point 'hook_emb'"):
        pair_activations(model, base, source, "hook_emb")
