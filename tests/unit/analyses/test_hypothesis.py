"""Hypothesis files: what is read, and what is refused."""

from pathlib import Path

import pytest

from analyses.hypothesis import Claim, Hypothesis, load_hypothesis
from interp.errors import BoolensError
from tasks import RuleAnd, SparseAnd


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_read(tmp_path: Path) -> None:
    text = """
alpha: 0.05
methods: [patching]
claims:
  - {name: targets, targets: task}
  - {name: these, targets: [7, 3], methods: [attention, weights]}
  - {name: by rule, targets: [[3, 7], [2]], methods: []}
"""
    assert load_hypothesis(written(tmp_path, text)) == Hypothesis(
        (
            Claim("targets", None, ("patching",)),
            Claim("these", ((3, 7),), ("attention", "weights")),
            Claim("by rule", ((3, 7), (2,)), ()),
        ),
        0.05,
    )
    assert load_hypothesis(written(tmp_path, "claims: [{name: a, targets: task}]")).alpha == 0.01


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected fields \['alpha', 'claims', 'methods'\], found None"),
        ("claims: [", "is not YAML: while parsing a flow node"),
        ("claims: []", "claims must be a list of at least one claim"),
        ("alpha: 0.1", r"missing fields \['claims'\], unknown fields \[\]"),
        ("claims: [{name: a, targets: task}]\nlevel: 1", r"missing fields \[\], unknown fields \['level'\]"),
        ("claims: [{name: a, targets: task}]\nalpha: 1", "alpha is 1; it must be a number between 0 and 1"),
        ("claims: [{name: a}]", r"missing fields \['targets'\]"),
        ("claims: [{name: 3, targets: task}]", "a claim's name is 3; it must be text"),
        ("claims: [{name: a, targets: all}]", "targets of 'a' are 'all'; give 'task', a list of distinct indices"),
        ("claims: [{name: a, targets: [1, 1]}]", r"targets of 'a' are \[1, 1\]"),
        ("claims: [{name: a, targets: []}]", r"targets of 'a' are \[\]"),
        (
            "claims: [{name: a, targets: task, methods: [probing]}]",
            r"methods are \['probing'\]; give a list of some of",
        ),
        ("claims: [{name: a, targets: task}, {name: a, targets: [1]}]", "two claims have the same name"),
    ],
)
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BoolensError, match=message):
        load_hypothesis(written(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BoolensError, match=r"none.yaml cannot be read: No such file"):
        load_hypothesis(tmp_path / "none.yaml")


def test_sets_of_a_task() -> None:
    sparse, rule = SparseAnd(9, (1, 4)), RuleAnd(6, ((0, 3), (1, 4)))
    assert Claim("a").sets(sparse) == ((1, 4),)
    assert Claim("a").sets(rule) == ((0, 3), (1, 4))
    assert Claim("a", ((2, 3),)).sets(rule) == ((2, 3), (2, 3))
    with pytest.raises(BoolensError, match="claim 'a' has 2 index sets for 1 rules; give one each"):
        Claim("a", ((1,), (2,))).sets(sparse)
    for task, index in ((sparse, 9), (rule, 5)):
        with pytest.raises(BoolensError, match=f"claim 'a' names index {index}, which is no candidate of this task"):
            Claim("a", ((index,),)).sets(task)
