"""Scrubbing against sums over every input and every draw, written out."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.errors import BoolensError
from interp.hooks import run
from interp.patching import UndefinedWarning
from interp.scrubbing import entropy, paired_path_logits, path_logits, scrub_exactly, scrub_sampled

PATTERN = "blocks.0.attn.hook_pattern"
N_CTX = 3
P = (0.5, 0.8, 0.3)
Masks = tuple[Tensor, Tensor]


@pytest.fixture
def model(random_attention: Callable) -> Any:
    return random_attention(N_CTX, n_heads=2, d_model=3, d_value=3, bias=True, seed=9)


@pytest.fixture
def x(all_inputs: Callable[[int], Tensor]) -> Tensor:
    return all_inputs(N_CTX)


@pytest.fixture
def labels(model: Any, x: Tensor) -> Tensor:
    return run(model, x)[0] > 0


@pytest.fixture
def needed(x: Tensor) -> list[Masks]:
    """All bits; none; by input, as the bit at 0 says, and other bits for the values."""
    everything, nothing = torch.ones_like(x, dtype=torch.bool), torch.zeros_like(x, dtype=torch.bool)
    by_bit = torch.tensor([[1, 0, 1], [1, 1, 0]], dtype=torch.bool)[x[:, 0]]
    return [(everything, everything), (nothing, nothing), (by_bit, torch.tensor([0, 0, 1]).bool().expand_as(x))]


def probability(bits: list[int]) -> float:
    return math.prod(p if bit else 1 - p for bit, p in zip(bits, P, strict=True))


def given(other: list[int], bits: list[int], mask: list[bool]) -> float:
    """The probability of drawing `other` where the bits of the mask are kept."""
    if any(m and o != b for o, b, m in zip(other, bits, mask, strict=True)):
        return 0.0
    return math.prod((p if o else 1 - p) for o, p, m in zip(other, P, mask, strict=True) if not m)


def by_hand(model: Any, x: Tensor, labels: Tensor, masks: Masks) -> tuple[float, float]:
    """Loss and accuracy, from one hooked run for every triple of inputs."""
    loss = accuracy = 0.0
    rows = x.tolist()
    patterns = run(model, x, record=[PATTERN])[1][PATTERN]
    for i, j, k in itertools.product(range(len(x)), repeat=3):
        weight = probability(rows[i]) * given(rows[j], rows[i], masks[0][i].tolist())
        weight *= given(rows[k], rows[i], masks[1][i].tolist())
        if weight:
            put = patterns[j : j + 1]
            logit = float(run(model, x[k : k + 1], [(PATTERN, lambda activation, hook, put=put: put)])[0])
            loss += weight * math.log1p(math.exp(-logit if labels[i] else logit))
            accuracy += weight * ((logit > 0) == bool(labels[i]))
    return loss, accuracy


def test_every_input_and_draw(model: Any, x: Tensor, labels: Tensor, needed: list[Masks]) -> None:
    labels = labels != (torch.arange(len(x)) == 3)  # not always what the model says
    p_true = math.fsum(probability(bits) for bits, label in zip(x.tolist(), labels, strict=True) if label)
    intact, _ = by_hand(model, x, labels, needed[0])
    for masks, found in zip(needed[1:], scrub_exactly(model, x, labels, P, needed[1:], p_true), strict=True):
        loss, accuracy = by_hand(model, x, labels, masks)
        assert (found.loss, found.accuracy, found.intact_loss) == pytest.approx((loss, accuracy, intact), abs=1e-12)
        base = -p_true * math.log(p_true) - (1 - p_true) * math.log(1 - p_true)
        assert found.recovered == pytest.approx((base - loss) / (base - intact))
        assert found.low == found.high == found.recovered
        assert (found.exact, found.n) == (True, 8)


def test_nothing_scrubbed_is_the_intact_model(model: Any, x: Tensor, labels: Tensor, needed: list[Masks]) -> None:
    (found,) = scrub_exactly(model, x, labels, P, needed[:1], 0.5)
    assert found.recovered == pytest.approx(1, abs=1e-12)
    assert found.loss == pytest.approx(found.intact_loss)
    generator = np.random.default_rng(0)
    (sampled,) = scrub_sampled(model, x, labels, (1 - x, 1 - x), needed[:1], 0.5, generator)
    assert (sampled.recovered, sampled.low, sampled.high) == pytest.approx((1, 1, 1), abs=1e-9)


def test_a_sample_comes_near_the_exact_value(model: Any, x: Tensor, labels: Tensor, needed: list[Masks]) -> None:
    """And its interval covers it about as often as it says."""
    p_true = 0.57
    generator = torch.Generator().manual_seed(6)
    covered, losses, exact = 0, [], scrub_exactly(model, x, labels, P, needed[2:], p_true)[0]
    for repeat in range(40):
        rows, *fresh = ((torch.rand(300, N_CTX, generator=generator) < torch.tensor(P)).long() for _ in range(3))
        number = (rows * torch.tensor([4, 2, 1])).sum(1)
        masks = (needed[2][0][number], needed[2][1][number])
        bootstrap = np.random.default_rng(repeat)
        (found,) = scrub_sampled(model, rows, labels[number], (fresh[0], fresh[1]), [masks], p_true, bootstrap)
        assert (found.exact, found.n) == (False, 300)
        losses.append(found.loss)
        covered += found.low <= exact.recovered <= found.high
    assert np.mean(losses) == pytest.approx(exact.loss, rel=0.05)
    assert 33 <= covered <= 40


def test_logits_by_path(model: Any, x: Tensor) -> None:
    logits = path_logits(model, x[:3], x[3:8])
    assert logits.shape == (3, 5)
    for i, j in np.ndindex(3, 5):
        put = run(model, x[i : i + 1], record=[PATTERN])[1][PATTERN]
        patched = run(model, x[3 + j : 4 + j], [(PATTERN, lambda activation, hook, put=put: put)])[0]
        assert float(logits[i, j]) == pytest.approx(float(patched))
    assert not logits.requires_grad
    paired = paired_path_logits(model, x[:3], x[3:6])
    torch.testing.assert_close(paired, logits[:, :3].diagonal())


def test_hypotheses_do_not_touch_each_other(model: Any, x: Tensor, labels: Tensor, needed: list[Masks]) -> None:
    """Each is what it is alone, on the same resamples."""
    together = scrub_sampled(model, x, labels, (1 - x, x.flip(0)), needed, 0.5, np.random.default_rng(1))
    for masks, found in zip(needed, together, strict=True):
        (alone,) = scrub_sampled(model, x, labels, (1 - x, x.flip(0)), [masks], 0.5, np.random.default_rng(1))
        assert list(vars(found).values()) == pytest.approx(list(vars(alone).values()))
    assert len({found.loss for found in together}) == 3


def test_entropy() -> None:
    assert entropy(0.5) == pytest.approx(math.log(2))
    assert entropy(0.2) == pytest.approx(0.5004024235)
    assert entropy(0) == entropy(1) == 0
    with pytest.raises(BoolensError, match=r"p_true = 1.2 is no probability; it must be in \[0, 1\]"):
        entropy(1.2)


def test_no_better_than_the_base_rate_is_undefined(model: Any, x: Tensor, labels: Tensor, needed: list[Masks]) -> None:
    with pytest.warns(UndefinedWarning, match=r"the intact model's loss, .* nats, is not below the base rate's, 0\.56"):
        (found,) = scrub_exactly(model, x, ~labels, P, needed[:1], 0.25)
    assert math.isnan(found.recovered)
    assert found.loss > entropy(0.25)


def test_what_does_not_fit_is_refused(model: Any, x: Tensor, labels: Tensor, needed: list[Masks]) -> None:
    with pytest.raises(BoolensError, match=r"8 inputs of 3 bits are not all 2\*\*3 of them"):
        scrub_exactly(model, x[[0, *range(7)]], labels, P, needed, 0.5)
    empty = x[:0]
    with pytest.raises(BoolensError, match="0 inputs and 0 labels; give at least one input"):
        scrub_sampled(
            model, empty, labels[:0], (empty, empty), [(empty.bool(), empty.bool())], 0.5, np.random.default_rng(0)
        )
