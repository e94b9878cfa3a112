"""The causal model against its definition on all pairs of inputs, and what pairs are drawn for interchanges."""

import pytest
import torch
from torch import Tensor

from tasks import CausalModel, Conjunction, RuleAnd, SparseAnd, TaskError, draw_interchanges
from tasks.causal import shared_out

RULE = RuleAnd(6, ((0, 3), (1, 3, 4)), rule_positions=(2,))
FOUR = RuleAnd(6, ((0,), (1, 2), (2, 3), (0, 3)), p=0.6)
SPARSE = SparseAnd(5, (1, 4))


def by_definition(task: Conjunction, name: str, base: list[int], source: list[int]) -> bool:
    """Follows the arrows inputs → rule → selected bits → AND with one of them overridden."""

    def rule_of(bits: list[int]) -> int:
        return int("".join(str(bits[i]) for i in task.rule_positions) or "0", 2)

    def conjunction(bits: list[int], rule: int) -> bool:
        return all(bits[i] == 1 for i in task.targets[rule])

    if name == "and":
        return conjunction(source, rule_of(source))
    if name == "rule":
        return conjunction(base, rule_of(source))
    i = int(name.removeprefix("target "))
    return conjunction([*base[:i], source[i], *base[i + 1 :]], rule_of(base))


@pytest.mark.parametrize("task", [RULE, FOUR, SPARSE], ids=["one rule bit", "two rule bits", "sparse-and"])
def test_labels_of_all_pairs(task: Conjunction) -> None:
    model, x = CausalModel(task), task.enumerate()
    n = len(x)
    base, source = x.repeat_interleave(n, 0), x.repeat(n, 1)
    for variable in model.variables:
        expected = [
            by_definition(task, variable.name, b, s) for b, s in zip(base.tolist(), source.tolist(), strict=True)
        ]
        found = model.intervened_label(variable.name, base, source)
        assert found.tolist() == expected
        assert set(expected) == {False, True}
        minimal = model.minimal_source(variable.name, base, source)
        assert torch.equal(model.value(variable.name, minimal), model.value(variable.name, source))
        elsewhere = [i for i in range(task.n_ctx) if i not in variable.positions]
        assert torch.equal(minimal[:, elsewhere], base[:, elsewhere])
        assert torch.equal(model.intervened_label(variable.name, base, minimal), found)


def test_names_and_bits_of_the_variables() -> None:
    assert [(v.name, v.positions) for v in CausalModel(RULE).variables] == [
        ("rule", (2,)), ("and", (0, 1, 2, 3, 4)), ("target 0", (0,)), ("target 1", (1,)), ("target 3", (3,)),
        ("target 4", (4,)),
    ]  # fmt: skip
    assert [v.name for v in CausalModel(SPARSE).variables] == ["and", "target 1", "target 4"]


def test_values() -> None:
    x = torch.tensor([[1, 0, 1, 1, 0, 0], [1, 1, 0, 1, 0, 0]])
    model = CausalModel(RULE)
    assert model.value("rule", x).tolist() == [1, 0]
    assert model.value("and", x).tolist() == [0, 1]
    assert model.value("target 1", x).tolist() == [0, 1]


@pytest.mark.parametrize("task", [RULE, SPARSE, SparseAnd(30, (3, 7, 12)), SparseAnd(40, tuple(range(15)))])
def test_the_label_changes_in_half_of_the_pairs(task: Conjunction, generator: torch.Generator) -> None:
    model = CausalModel(task)
    for variable in model.variables[:3]:
        pairs = draw_interchanges(model, variable.name, 400, generator)
        assert len(pairs.base) == len(pairs.source) == 400
        assert torch.equal(pairs.expected, model.intervened_label(variable.name, pairs.base, pairs.source))
        assert torch.equal(pairs.base_label, task.label(pairs.base))
        assert torch.equal(pairs.source_label, task.label(pairs.source))
        assert pairs.base_baseline == pairs.majority_baseline == 0.5
        assert pairs.source_baseline == (1 if variable.name == "and" else 0.625 if task is not RULE else 0.5)


def test_first_and_last_pairs_are_alike(generator: torch.Generator) -> None:
    """Halves are used apart, so their order must not tell them apart."""
    pairs = draw_interchanges(CausalModel(RULE), "rule", 1000, generator)
    changes = pairs.expected != pairs.base_label
    assert 220 < int(changes[:500].sum()) < 280


def test_within_a_kind_pairs_follow_the_task_s_distribution(generator: torch.Generator) -> None:
    task = SparseAnd(3, (0, 2), p=0.7)
    pairs = draw_interchanges(CausalModel(task), "target 0", 4000, generator)
    rows = (pairs.expected != pairs.base_label) & pairs.base_label
    assert pairs.base[rows].double().mean(0).tolist() == pytest.approx([1, 0.7, 1], abs=0.04)
    rows &= ~pairs.source_label
    source = pairs.source[rows].double().mean(0).tolist()
    assert source == pytest.approx([0, 0.7, 0.7], abs=0.06)


def test_the_same_seed_the_same_pairs() -> None:
    def draw(seed: int) -> Tensor:
        return draw_interchanges(CausalModel(SPARSE), "and", 50, torch.Generator().manual_seed(seed)).base

    state = torch.get_rng_state()
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))
    assert torch.equal(torch.get_rng_state(), state)


def test_rare_kinds_give_fewer_pairs_but_still_halves(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.causal.MAX_ROUNDS", 2)
    task = SparseAnd(12, range(10), p=0.5)  # True once in 1024 inputs
    pairs = draw_interchanges(CausalModel(task), "target 3", 400, generator)
    assert 2 <= len(pairs.base) < 400
    assert pairs.base_baseline == 0.5


class TestErrors:
    def test_no_such_variable(self, generator: torch.Generator) -> None:
        with pytest.raises(
            TaskError, match="sparse-and has no variable 'rule' to intervene on; choose one of and, targ"
        ):
            draw_interchanges(CausalModel(SPARSE), "rule", 10, generator)

    def test_too_few(self, generator: torch.Generator) -> None:
        with pytest.raises(TaskError, match="n = 1 pairs; give at least 2"):
            draw_interchanges(CausalModel(SPARSE), "and", 1, generator)

    def test_a_variable_without_effect(self, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tasks.causal.MAX_ROUNDS", 3)
        task = RuleAnd(4, ((0, 1), (0, 1)))
        with pytest.raises(TaskError, match=r"no intervention on 'rule' changes the label in 24576 pairs"):
            draw_interchanges(CausalModel(task), "rule", 10, generator)

    @pytest.mark.usefixtures("unchecked")
    def test_pairs_that_do_not_match(self) -> None:
        x = SPARSE.enumerate()
        with pytest.raises(TaskError, match=r"shape \(32, 5\), sources of \(31, 5\); pairs match row by row"):
            CausalModel(SPARSE).intervened_label("and", x, x[1:])


@pytest.mark.parametrize(
    ("total", "available", "parts"),
    [(10, [2, 100, 100], [2, 4, 4]), (7, [3, 3], [3, 3]), (5, [0, 9], [0, 5]), (3, [5, 5], [1, 2])],
)
def test_shared_out(total: int, available: list[int], parts: list[int]) -> None:
    assert shared_out(total, available) == parts
