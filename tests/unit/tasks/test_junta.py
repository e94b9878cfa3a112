"""junta: what a table means, which tables are refused, which are drawn."""

import itertools
import re
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from tasks import Junta, TaskError, draw_dataset, draw_table


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def needs(table: str, bit: int) -> bool:
    """Whether some entry differs from the one whose index has this bit flipped, by arithmetic on indices."""
    return any(entry != table[i ^ (1 << bit)] for i, entry in enumerate(table))


def test_the_first_target_is_the_most_significant() -> None:
    task = Junta(5, (1, 3), "0010")  # True where x1 = 1 and x3 = 0
    x = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0]])
    assert task.label(x).tolist() == [False, False, True, False]


@pytest.mark.parametrize("order", list(itertools.permutations((1, 4, 6))), ids=str)
def test_the_table_is_in_the_order_in_which_targets_are_given(order: tuple[int, ...]) -> None:
    table = "01101110"
    task = Junta(7, order, table)
    for row in itertools.product((0, 1), repeat=7):
        index = int("".join(str(row[i]) for i in order), 2)
        assert task.label(torch.tensor([row])).tolist() == [table[index] == "1"]
    assert task.targets == ((1, 4, 6),)
    assert task == Junta(7, (1, 4, 6), task.table)
    assert task == Junta(7, [i - 7 for i in order], table)


def test_every_table_of_two_targets_is_taken_or_refused_rightly() -> None:
    taken, every = set(), list(map("".join, itertools.product("01", repeat=4)))
    for table in every:
        try:
            Junta(3, (0, 2), table)
            taken.add(table)
        except TaskError as error:
            assert "is constant" in str(error) or "does not depend on targets" in str(error)  # noqa: PT017
    assert taken == {
        table for table in map("".join, itertools.product("01", repeat=4)) if needs(table, 0) and needs(table, 1)
    }
    assert len(taken) == 10


def test_irrelevant_targets_are_named_with_the_smaller_table() -> None:
    full = "00110011"  # of three targets only the second counts
    with pytest.raises(
        TaskError, match=re.escape("does not depend on targets [1, 5]; leave them out: targets 2 with table 01") + "$"
    ):
        Junta(7, (1, 2, 5), full)
    smaller = Junta(7, (2,), "01")
    assert smaller.label(smaller.enumerate()).tolist() == smaller.enumerate()[:, 2].bool().tolist()
    with pytest.raises(TaskError, match=re.escape("targets [2]; leave them out: targets 1,5 with table 0100")):
        Junta(7, (5, 2, 1), "00001010")  # True where x5 = 1 and x1 = 0, in the sorted order of targets 01


@pytest.mark.parametrize(
    ("targets", "table", "message"),
    [
        ((1, 2), "011", "the table has 3 entries; 2 targets need 2**2 = 4, the first target most significant"),
        ((1, 2), "01100110", "the table has 8 entries; 2 targets need 2**2 = 4"),
        ((1, 2), "", "the table has 0 entries; 2 targets need 2**2 = 4"),
        ((1, 2), "0000", "the table is constant, every entry is 0; a task needs both labels"),
        ((1, 2), "1111", "the table is constant, every entry is 1"),
        ((1, 2), "01a0", "table '01a0' is not a text of 0 and 1; write the label of every pattern, such as 0110"),
        ((1, 2), 110, "table 110 is not a text of 0 and 1"),
        (range(17), "01", "17 targets of a junta; its table of 2**s entries allows 1 to 16"),
        ((), "01", "the target set of rule 0 is empty"),
        ((1, 1), "0110", "index 1 is given twice"),
        ((1, 20), "0110", "index 20 is outside [0, 20)"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_impossible_juntas(targets, table, message: str) -> None:
    with pytest.raises(TaskError, match=re.escape(message)):
        Junta(20, targets, table)


@pytest.mark.parametrize("s", [0, 17])
def test_impossible_draws(s: int) -> None:
    with pytest.raises(TaskError, match=f"{s} targets of a junta; its table of 2\\*\\*s entries allows 1 to 16"):
        draw_table(s, seeded())
    with pytest.raises(TaskError, match="at least 1 index" if s == 0 else "17 targets of a junta"):
        Junta.draw(20, s, seeded())
    with pytest.raises(TaskError, match="only 3 positions are free"):
        Junta.draw(3, 4, seeded())


def test_drawn_tables_are_uniform_over_the_balanced_ones_that_need_every_target() -> None:
    for s, n in ((1, 300), (2, 300), (3, 4000)):
        every = map("".join, itertools.product("01", repeat=2**s))
        wanted = {t for t in every if t.count("1") == 2 ** (s - 1) and all(needs(t, bit) for bit in range(s))}
        generator = seeded(s)
        counts = Counter(draw_table(s, generator) for _ in range(n))
        assert counts.keys() == wanted
        assert chisquare(list(counts.values())).pvalue > 1e-3
    assert counts.keys().isdisjoint({"00001111", "01010101"})


def test_a_drawn_junta_is_balanced_and_the_seed_s() -> None:
    before = torch.get_rng_state()
    first, again, other = (Junta.draw(30, 4, seeded(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert (first.p, first.p_true, len(first.table)) == (0.5, 0.5, 16)
    assert Junta.draw(30, 4, seeded(1), p=0.2).p == 0.2
    assert torch.equal(torch.get_rng_state(), before)


def test_sixteen_targets() -> None:
    task = Junta.draw(20, 16, seeded(2))
    x = task.sample(200, seeded(3))
    said = [task.table[int("".join(str(row[i]) for i in task.targets[0]), 2)] == "1" for row in x.tolist()]
    assert task.label(x).tolist() == said
    assert task.p_true == 0.5
    # an AND of 16: one pattern of 65536 is sensitive, and it is found at once
    conjunction = Junta(16, range(16), "0" * 65535 + "1")
    assert conjunction.draw_sensitive(5, 3, seeded()).tolist() == [[1] * 16] * 3
    assert conjunction.p_true == 2**-16
    with pytest.raises(TaskError, match=r"all 100 labels are False: .*draw more samples, or use p = .* another p"):
        draw_dataset(conjunction, 100, seeded())
