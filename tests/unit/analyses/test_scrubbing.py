"""The hypotheses' index sets, and models for which they are known to hold or fail."""

from collections.abc import Callable

import pytest
import torch

from analyses.scrubbing import EXACT_UP_TO, hypotheses, needed_bits, scrub
from interp.models import HookedAttention
from tasks import RuleAnd, SparseAnd

RULE = RuleAnd(8, ((0, 3), (1, 3, 5)), rule_positions=(6,))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_sets_with_rule_bits(generator: torch.Generator) -> None:
    found = hypotheses(RULE, generator)
    selected = [(6, 0, 3), (6, 1, 3, 5)]
    shuffled, again = found.pop("shuffled targets")
    assert found == {
        "selected bits": (selected, selected),
        "every target": ([(0, 1, 3, 5, 6)] * 2, [(0, 1, 3, 5, 6)] * 2),
        "rule selects": (selected, ((0, 3), (1, 3, 5))),
        "fixed selection": ([(6,), (6,)], ((0, 3), (1, 3, 5))),
    }
    assert shuffled == again
    for wrong, targets in zip(shuffled, RULE.targets, strict=True):
        assert wrong[0] == 6
        assert len(set(wrong)) == 1 + len(targets)
        assert not set(wrong[1:]) & {*targets, 6}


def test_sets_without_rule_bits(generator: torch.Generator) -> None:
    found = hypotheses(SparseAnd(4, (0, 1, 3)), generator)
    assert list(found) == ["selected bits", "fixed selection", "shuffled targets"]
    assert found["fixed selection"] == ([()], ((0, 1, 3),))
    (wrong,), _ = found["shuffled targets"]
    assert 2 in wrong  # the one other position, and two targets
    assert len(wrong) == 3
    assert "shuffled targets" not in hypotheses(SparseAnd(3, (0, 1, 2)), generator)


def test_bits_by_the_rule_in_force() -> None:
    x = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 1, 0]])
    needed = needed_bits(RULE, x, [(6, 0), (2,)])
    assert needed.nonzero().tolist() == [[0, 0], [0, 6], [1, 2]]


@pytest.mark.parametrize("n_ctx", [7, EXACT_UP_TO + 2], ids=["exact", "sampled"])
class TestKnownModels:
    def test_a_fixed_pattern(self, n_ctx: int, weighing_model: Callable[..., HookedAttention]) -> None:
        """Weight 40 on targets and as good as none elsewhere: values of the targets are all that it takes."""
        task = SparseAnd(n_ctx, (1, 4))
        model = weighing_model([40 if pos in (1, 4) else 1e-6 for pos in range(n_ctx)], 60)
        found = scrub(model, task, 0)
        for name in ("selected bits", "fixed selection"):
            assert found[name].recovered == pytest.approx(1, abs=1e-4)
            assert found[name].accuracy == pytest.approx(1)
            assert found[name].exact == (n_ctx == 7)
        wrong = found["shuffled targets"]
        assert wrong.accuracy == pytest.approx(0.5, abs=0.05)
        assert wrong.recovered < -5

    def test_a_pattern_that_follows_the_bits(self, n_ctx: int, asking_model: Callable[..., HookedAttention]) -> None:
        """Targets' queries tell by where they look; values are the positions', whatever they are given."""
        found = scrub(asking_model(n_ctx, (1, 4), (0, 2)), SparseAnd(n_ctx, (1, 4)), 0)
        assert found["selected bits"].recovered == pytest.approx(1, abs=1e-9)
        assert found["selected bits"].accuracy == pytest.approx(1)
        assert found["fixed selection"].accuracy == pytest.approx(0.5, abs=0.05)
        assert found["fixed selection"].recovered < 0


def test_noise_that_is_only_added_is_replaced_by_equal_noise(weighing_model: Callable[..., HookedAttention]) -> None:
    """The limit that interp.scrubbing names: bits that only add to the logit cost as much as before."""
    task = SparseAnd(7, (1, 4))
    found = scrub(weighing_model([9 if pos in (1, 4) else 4 for pos in range(7)], 26), task, 0)["selected bits"]
    assert found.recovered == pytest.approx(1)
    assert found.accuracy < 0.95


def test_rule_selects(selecting_model: Callable[..., HookedAttention]) -> None:
    """A model whose rule bit moves the attention and nothing else."""
    task = RuleAnd(6, ((0, 3), (1, 4)))
    found = scrub(selecting_model(6, task.targets), task, 0)
    for name in ("selected bits", "every target", "rule selects", "fixed selection"):
        assert found[name].recovered == pytest.approx(1, abs=1e-6)
    assert found["shuffled targets"].recovered < 0
