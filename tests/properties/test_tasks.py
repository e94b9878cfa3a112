"""Properties of any valid task, with Hypothesis."""

import json

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import Conjunction, RuleAnd, SparseAnd, draw_pairs, task_from_dict

PROBABILITIES = st.floats(0.01, 0.99) | st.sampled_from(["balanced", "tutorial"])


@st.composite
def conjunctions(draw: st.DrawFn, max_n_ctx: int = 8, p: st.SearchStrategy = PROBABILITIES) -> Conjunction:
    """Any sparse-and or rule-and task: rule bits anywhere, target sets of any size, overlapping or not."""
    n_ctx = draw(st.integers(1, max_n_ctx))
    k = draw(st.integers(0, min(3, n_ctx - 1)))
    rule_positions = draw(st.permutations(range(n_ctx)))[:k]
    free = [i for i in range(n_ctx) if i not in rule_positions]
    sets = [draw(st.lists(st.sampled_from(free), min_size=1, unique=True)) for _ in range(2**k)]
    if k == 0:
        return SparseAnd(n_ctx, sets[0], draw(p))
    return RuleAnd(n_ctx, sets, draw(p), rule_positions)


def relabelled(task: Conjunction, order: list[int]) -> Conjunction:
    """The same task with its position i renamed order[i]."""
    sets = [[order[i] for i in targets] for targets in task.targets]
    if not task.rule_positions:
        return SparseAnd(task.n_ctx, sets[0], task.p)
    return RuleAnd(task.n_ctx, sets, task.p, [order[i] for i in task.rule_positions])


@given(conjunctions(), st.data())
@settings(deadline=None, max_examples=60)
def test_relabelling_positions_permutes_labels(task: Conjunction, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(task.n_ctx)))
    x = task.enumerate()
    moved = torch.empty_like(x)
    moved[:, order] = x
    other = relabelled(task, order)
    assert torch.equal(other.label(moved), task.label(x))
    assert torch.equal(other.rule(moved), task.rule(x))
    torch.testing.assert_close(other.log_probability(moved), task.log_probability(x), rtol=0, atol=1e-12)


@given(conjunctions(max_n_ctx=40))
@settings(deadline=None, max_examples=60)
def test_json_round_trip(task: Conjunction) -> None:
    again = task_from_dict(json.loads(json.dumps(task.to_dict())))
    assert again == task
    assert type(again) is type(task)


@given(conjunctions(p=st.just("balanced")))
@settings(deadline=None, max_examples=60)
def test_balanced_balances(task: Conjunction) -> None:
    x = task.enumerate()
    p_true = float(task.log_probability(x).exp()[task.label(x)].sum())
    assert abs(p_true - 0.5) < 1e-12
    assert abs(task.p_true - 0.5) < 1e-12


@given(conjunctions())
@settings(deadline=None, max_examples=60)
def test_p_true_is_exact(task: Conjunction) -> None:
    probability = task.log_probability(task.enumerate()).exp()
    assert abs(float(probability.sum()) - 1) < 1e-12
    assert abs(float(probability[task.label(task.enumerate())].sum()) - task.p_true) < 1e-12


@given(conjunctions(), st.data(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_distinct_samples_never_repeat(task: Conjunction, data: st.DataObject, seed: int) -> None:
    rule = data.draw(st.none() | st.integers(0, task.n_rules - 1))
    available = 2 ** (task.n_ctx - (0 if rule is None else len(task.rule_positions)))
    n = data.draw(st.integers(1, available))
    x = task.sample(n, torch.Generator().manual_seed(seed), rule=rule, distinct=True)
    assert x.shape == (n, task.n_ctx)
    assert len(x.unique(dim=0)) == n
    assert set(x.unique().tolist()) <= {0, 1}
    if rule is not None:
        assert task.rule(x).tolist() == [rule] * n


@given(conjunctions(max_n_ctx=30), st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_target_pairs_change_the_label_and_one_bit(task: Conjunction, seed: int) -> None:
    for rule in range(task.n_rules):
        pairs = draw_pairs(task, "target", 5, torch.Generator().manual_seed(seed), rule=rule)
        assert (pairs.clean != pairs.corrupted).sum(dim=1).tolist() == [1] * 5
        assert pairs.clean_label.all()
        assert not pairs.corrupted_label.any()
        assert pairs.rule.tolist() == [rule] * 5
