"""Tasks with target sets drawn at random."""

import itertools
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from tasks import RuleAnd, SparseAnd, TaskError


def test_sparse_targets_are_uniform(generator: torch.Generator) -> None:
    n = 4000
    counts = Counter(SparseAnd.draw(5, 2, generator).targets[0] for _ in range(n))
    assert counts.keys() == set(itertools.combinations(range(5), 2))
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_rule_targets_are_uniform_over_disjoint_sets(generator: torch.Generator) -> None:
    n = 4000
    counts = Counter(RuleAnd.draw(5, 1, generator).targets for _ in range(n))
    assert counts.keys() == {((a,), (b,)) for a, b in itertools.permutations(range(4), 2)}
    assert chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize(("n_ctx", "size", "k"), [(11, 2, 1), (3, 1, 1), (13, 2, 2), (30, 3, 3)])
def test_rule_targets_are_disjoint_and_leave_the_rule_bits(
    n_ctx: int, size: int, k: int, generator: torch.Generator
) -> None:
    for _ in range(20):
        task = RuleAnd.draw(n_ctx, size, generator, n_rule_bits=k)
        assert task.rule_positions == tuple(range(n_ctx - k, n_ctx))
        assert [len(targets) for targets in task.targets] == [size] * 2**k
        union = set(itertools.chain(*task.targets))
        assert len(union) == size * 2**k
        assert union <= set(range(n_ctx - k))


def test_every_free_position_can_be_used(generator: torch.Generator) -> None:
    assert SparseAnd.draw(4, 4, generator).targets == ((0, 1, 2, 3),)
    assert sorted(itertools.chain(*RuleAnd.draw(10, 2, generator, n_rule_bits=2).targets)) == list(range(8))


def test_the_generator_alone_decides() -> None:
    before = torch.get_rng_state()
    drawn = [RuleAnd.draw(20, 3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_p_is_passed_on(generator: torch.Generator) -> None:
    assert SparseAnd.draw(9, 4, generator).p == 0.5 ** (1 / 4)
    assert SparseAnd.draw(9, 4, generator, p=0.3).p == 0.3
    assert RuleAnd.draw(9, 3, generator, p="tutorial").p == 0.5 ** (1 / 2)


def test_too_many_targets(generator: torch.Generator) -> None:
    with pytest.raises(TaskError, match=r"6 target indices asked for, but only 5 positions are free .*ask for fewer"):
        SparseAnd.draw(5, 6, generator)
    # 2 rules * 3 targets + 1 rule bit > 6
    with pytest.raises(TaskError, match=r"6 target indices.*only 5 positions are free \(n_ctx = 6, 1 rule bits\)"):
        RuleAnd.draw(6, 3, generator)


@pytest.mark.parametrize("size", [0, -1])
def test_empty_sets(size: int, generator: torch.Generator) -> None:
    with pytest.raises(TaskError, match=rf"target sets of sizes \[{size}\]; each needs at least 1 index"):
        SparseAnd.draw(5, size, generator)
    with pytest.raises(TaskError, match=rf"sizes \[{size}, {size}\]; each needs at least 1 index"):
        RuleAnd.draw(5, size, generator)


@pytest.mark.parametrize("k", [0, -1, 6])
def test_rule_bits_that_do_not_fit(k: int, generator: torch.Generator) -> None:
    with pytest.raises(TaskError, match=rf"{k} rule bits; give 1 to n_ctx = 5"):
        RuleAnd.draw(5, 1, generator, n_rule_bits=k)


@pytest.mark.parametrize("n_ctx", [0, -2, 2.5, "5", True])
@pytest.mark.parametrize("kind", [SparseAnd, RuleAnd])
@pytest.mark.usefixtures("unchecked")
def test_impossible_n_ctx(kind: type[SparseAnd] | type[RuleAnd], n_ctx: int, generator: torch.Generator) -> None:
    with pytest.raises(TaskError, match=rf"n_ctx is {n_ctx!r}; a task needs a whole number of input bits, at least 1"):
        kind.draw(n_ctx, 1, generator)
