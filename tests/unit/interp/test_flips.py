"""Expected changes by a flip: exact ones against listed inputs, sampled ones against the exact, bounds against both."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interp import attention_tables, flips
from interp.cube import column_weights
from interp.errors import BoolensError
from interp.flips import exact_flip_effects, flip_bounds, flip_changes, sampled_flip_effects
from interp.tables import Tables, expected_flip_effect, table_logits

AllInputs = Callable[[int], Tensor]
FIELDS = [{}, {"n_heads": 3, "d_value": 4, "d_model": 11, "d_head": 7, "bias": True}, {"init_std": 1.5}]


@pytest.fixture
def tables_of(random_attention: Callable[..., Any]) -> Callable[..., Tables]:
    def build(n_ctx: int, **fields: Any) -> Tables:
        made = attention_tables(random_attention(n_ctx, **fields), torch.float64)
        return Tables(*(table.detach() for table in vars(made).values()))

    return build


def listed_changes(tables: Tables, x: Tensor) -> np.ndarray:
    flipped = x[:, None].repeat(1, x.shape[1], 1) ^ torch.eye(x.shape[1], dtype=torch.int64)
    after = table_logits(tables, flipped.flatten(0, 1)).reshape(x.shape)
    return (after - table_logits(tables, x)[:, None]).numpy()


@pytest.mark.parametrize("fields", FIELDS)
class TestExact:
    @pytest.mark.parametrize("n_ctx", [1, 2, 7])
    def test_is_the_expectation_over_all_inputs(
        self, n_ctx: int, fields: dict[str, Any], tables_of: Callable[..., Tables], all_inputs: AllInputs
    ) -> None:
        tables, x = tables_of(n_ctx, **fields), all_inputs(n_ctx)
        p = torch.linspace(0.1, 0.8, n_ctx, dtype=torch.float64)
        expected = expected_flip_effect(tables, x, torch.where(x == 1, p, 1 - p).prod(dim=1)).numpy()
        found = exact_flip_effects(tables, [0] * n_ctx, range(n_ctx), p.tolist())
        np.testing.assert_allclose(found.mean, expected, rtol=1e-12)
        assert found.low is found.high is found.mean
        assert (found.n_inputs, found.separated) == (2**n_ctx, None)

    def test_with_some_positions_fixed(
        self, fields: dict[str, Any], tables_of: Callable[..., Tables], all_inputs: AllInputs
    ) -> None:
        tables, free = tables_of(5, **fields), [4, 1, 0]
        x = all_inputs(5)
        x = x[(x[:, 2] == 1) & (x[:, 3] == 0)]
        found = exact_flip_effects(tables, [0, 0, 1, 0, 0], free, [0.3] * 5)
        share = torch.where(x[:, free] == 1, 0.3, 0.7).double().prod(dim=1)
        expected = (np.abs(listed_changes(tables, x)) * share.numpy()[:, None]).sum(axis=0)
        np.testing.assert_allclose(found.mean[free], expected[free], rtol=1e-6)
        assert np.isnan(found.mean[[2, 3]]).all()


class TestChanges:
    @pytest.mark.parametrize("fields", FIELDS)
    @pytest.mark.parametrize("n_ctx", [1, 2, 7])
    def test_are_those_of_the_flipped_inputs(
        self, n_ctx: int, fields: dict[str, Any], tables_of: Callable[..., Tables], all_inputs: AllInputs
    ) -> None:
        tables, x = tables_of(n_ctx, **fields), all_inputs(n_ctx)
        weighted = column_weights(tables, np.zeros(n_ctx, dtype=int), range(n_ctx))
        assert weighted is not None
        expected = listed_changes(tables, x)
        for found in (flip_changes(tables, x, range(n_ctx), given) for given in (weighted, None)):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)

    def test_a_key_that_dominates_takes_nothing_from_the_others(
        self, tables_of: Callable[..., Tables], all_inputs: AllInputs
    ) -> None:
        """Key 0's bit 1 weighs e**80 as much as the rest, whose sum a subtraction would lose."""
        tables, x = tables_of(4), all_inputs(4)
        tables.scores[:, :, 1] += 80
        weighted = column_weights(tables, np.zeros(4, dtype=int), range(4))
        assert weighted is not None
        np.testing.assert_allclose(
            flip_changes(tables, x, range(4), weighted), listed_changes(tables, x), rtol=1e-9, atol=1e-12
        )

    def test_only_free_positions(self, tables_of: Callable[..., Tables], all_inputs: AllInputs) -> None:
        tables, x = tables_of(3), all_inputs(3)[::2]
        weighted = column_weights(tables, np.zeros(3, dtype=int), [0, 1])
        expected = listed_changes(tables, x) * [1, 1, 0]
        for given in (weighted, None):
            np.testing.assert_allclose(flip_changes(tables, x, [0, 1], given), expected, rtol=1e-9, atol=1e-12)


class TestBounds:
    @pytest.mark.parametrize("extreme", [False, True])
    @pytest.mark.parametrize("fields", FIELDS)
    @pytest.mark.parametrize("n_ctx", [1, 2, 6])
    def test_hold_for_every_input(
        self, n_ctx: int, fields: dict[str, Any], extreme: bool, tables_of: Callable[..., Tables], all_inputs: AllInputs
    ) -> None:
        for seed in range(4):
            tables, x = tables_of(n_ctx, seed=seed, **fields), all_inputs(n_ctx)
            if extreme:
                tables.scores[:, :, 1] += 1000
            largest = np.abs(listed_changes(tables, x)).max(axis=0)
            assert (flip_bounds(tables, [0] * n_ctx, range(n_ctx)) >= largest).all()

    def test_are_exact_for_one_position(self, tables_of: Callable[..., Tables], all_inputs: AllInputs) -> None:
        tables = tables_of(1, bias=True)
        change = np.abs(listed_changes(tables, all_inputs(1))[0])
        np.testing.assert_allclose(flip_bounds(tables, [0], [0]), change, rtol=1e-6)

    def test_are_within_reach_of_the_largest_change(
        self, tables_of: Callable[..., Tables], all_inputs: AllInputs
    ) -> None:
        largest = np.abs(listed_changes(tables_of(6), all_inputs(6))).max(axis=0)
        assert (flip_bounds(tables_of(6), [0] * 6, range(6)) <= 15 * largest).all()


class TestSampled:
    def draws(self, n_ctx: int, p: float, seed: int) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(seed)
        yield lambda n: (torch.rand(n, n_ctx, generator=generator) < p).long()

    @pytest.mark.parametrize("extreme", [False, True])
    def test_intervals_hold_the_exact_value_and_separate(
        self, extreme: bool, tables_of: Callable[..., Tables], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(flips, "FEWEST", 512)
        monkeypatch.setattr(flips, "MOST", 8192)
        outcomes = set()
        for seed in range(6):
            tables = tables_of(5, seed=seed, n_heads=2)
            if extreme:
                tables.scores[:, :, 3] += 1000
            exact = exact_flip_effects(tables, [0] * 5, range(5), [0.7] * 5).mean
            (draw,) = self.draws(5, 0.7, seed)
            found = sampled_flip_effects(tables, draw, [0] * 5, range(5), 2)
            assert (found.low <= exact).all()
            assert (exact <= found.high).all()
            assert found.n_inputs in (512, 1024, 2048, 4096, 8192)
            order = np.argsort(-found.mean)
            apart = found.low[order[:2]].min() > found.high[order[2:]].max()
            assert found.separated == apart
            assert found.separated or found.n_inputs == 8192
            if found.separated:
                assert set(order[:2]) == set(np.argsort(-exact)[:2])
            outcomes.add((found.separated, found.n_inputs > 512))
        assert {separated for separated, _ in outcomes} == {True, False}

    def test_is_the_mean_of_the_inputs_drawn(self, tables_of: Callable[..., Tables]) -> None:
        tables = tables_of(6)
        (draw,), drawn = self.draws(6, 0.4, 0), []

        def fixed(n: int) -> Tensor:
            x = draw(n)
            x[:, 2] = 1
            drawn.append(x)
            return x

        free = [0, 1, 3, 4, 5]
        found = sampled_flip_effects(tables, fixed, [0, 0, 1, 0, 0, 0], free, 1, looks=1)
        assert [len(x) for x in drawn] == [found.n_inputs] == [2**14]
        expected = np.abs(listed_changes(tables, drawn[0])).mean(axis=0)
        np.testing.assert_allclose(found.mean[free], expected[free], rtol=1e-10)
        assert np.isnan([found.mean[2], found.low[2], found.high[2]]).all()

    def test_are_bernstein_s(self, tables_of: Callable[..., Tables]) -> None:
        """Maurer and Pontil 2009, theorem 4, two-sided, over 6 positions and one look."""
        tables = tables_of(6)
        (draw,) = self.draws(6, 0.4, 1)
        found = sampled_flip_effects(tables, draw, [0] * 6, range(6), 1, looks=1, level=0.9)
        (again,) = self.draws(6, 0.4, 1)
        changes = np.abs(listed_changes(tables, again(found.n_inputs)))
        n, log = len(changes), np.log(2 / (0.1 / 6 / 2))
        width = np.sqrt(2 * changes.var(axis=0, ddof=1) * log / n)
        width += 7 * flip_bounds(tables, [0] * 6, range(6)) * log / (3 * (n - 1))
        np.testing.assert_allclose(found.high - found.mean, width, rtol=1e-6)
        np.testing.assert_allclose(found.low, np.maximum(changes.mean(axis=0) - width, 0), rtol=1e-6)

    @pytest.mark.parametrize(
        ("n_ctx", "n_heads", "sizes"), [(2, 1, [2**14, 2**14, 2**15, 2**16, 2**17]), (300, 2, [4096])]
    )
    def test_looks_double_within_the_budget(
        self, n_ctx: int, n_heads: int, sizes: list[int], tables_of: Callable[..., Tables], monkeypatch: Any
    ) -> None:
        drawn: list[int] = []
        monkeypatch.setattr(flips, "flip_bounds", lambda tables, x, free: np.ones(tables.n_ctx))
        monkeypatch.setattr(flips, "column_weights", lambda *_: None)
        monkeypatch.setattr(flips, "flip_changes", lambda tables, x, *_: np.ones(x.shape))

        def draw(n: int) -> Tensor:
            drawn.append(n)
            return torch.zeros(n, n_ctx, dtype=torch.int64)

        found = sampled_flip_effects(tables_of(n_ctx, n_heads=n_heads), draw, [0] * n_ctx, range(n_ctx), 1)
        assert drawn == sizes
        assert (found.n_inputs, found.separated) == (sum(sizes), False)

    def test_all_positions_stand_apart_from_none(self, tables_of: Callable[..., Tables]) -> None:
        (draw,) = self.draws(3, 0.5, 0)
        assert sampled_flip_effects(tables_of(3), draw, [0] * 3, range(3), 3).separated

    @pytest.mark.parametrize(("s", "level", "looks"), [(0, 0.95, 1), (4, 0.95, 1), (1, 1.0, 1), (1, 0.95, 0)])
    def test_what_cannot_be(self, s: int, level: float, looks: int, tables_of: Callable[..., Tables]) -> None:
        (draw,) = self.draws(3, 0.5, 0)
        with pytest.raises(BoolensError, match=f"s = {s} of 3 free positions, level {level}, {looks} looks: need"):
            sampled_flip_effects(tables_of(3), draw, [0] * 3, range(3), s, level=level, looks=looks)


def test_intervals_hold_together_as_often_as_they_say(tables_of: Callable[..., Tables]) -> None:
    """Over 200 samples, far more often than the level (the bound is not tight), and not vacuously wide."""
    tables = tables_of(4)
    exact = exact_flip_effects(tables, [0] * 4, range(4), [0.5] * 4).mean
    generator = torch.Generator().manual_seed(5)
    held, widths = 0, []
    for _ in range(200):
        found = sampled_flip_effects(
            tables, lambda n: torch.randint(0, 2, (n, 4), generator=generator), [0] * 4, range(4), 1, looks=1
        )
        held += bool(((found.low <= exact) & (exact <= found.high)).all())
        widths.append((found.high - found.low) / exact)
    assert held >= 190
    assert np.max(widths) < 0.5


@pytest.mark.usefixtures("unchecked")
def test_one_probability_a_position(tables_of: Callable[..., Tables]) -> None:
    with pytest.raises(BoolensError, match="2 probabilities for 3 positions; give one each"):
        exact_flip_effects(tables_of(3), [0] * 3, range(3), list(itertools.repeat(0.5, 2)))
