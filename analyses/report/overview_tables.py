"""Tables over the seeds of a folder, from every seed's own results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analyses.formation_order import SEEDS, median
from analyses.report.formats import number, plural, share
from analyses.report.tables import Cell, Table, make_table
from analyses.selection_overview import MIXED, kind_of_run
from analyses.selection_side import KINDS
from interp.statistics import clopper_pearson

Results = Sequence[Mapping[str, Any]]
"""Of each seed, its results by analysis; those that are missing are left out."""


def proportion(count: int, of: int) -> Cell:
    """A count with its 95 % Clopper–Pearson interval."""
    low, high = clopper_pearson(count, of)
    return Cell(f"{count} of {of} ({share(low)} to {share(high)})")


def counts(results: Results) -> Table | None:
    """How many seeds have each verdict, each certificate, and each method right under every rule."""
    recovered = [of["target-recovery"] for of in results if "target-recovery" in of]
    certified = [of["certificate"] for of in results if "certificate" in of]
    rows = [
        [Cell(f"verdict: {word}"), proportion(sum(r["verdict"] == word for r in recovered), len(recovered))]
        for word in ("created", "mixed", "not created")
        if recovered
    ]
    rows += [
        [Cell(f"certificate: {word}"), proportion(sum(r["verdict"] == word for r in certified), len(certified))]
        for word in ("verified", "refuted", "undecided")
        if certified
    ]
    for method in methods_of(results):
        rows.append(
            [
                Cell(f"{method}: exactly the targets on top"),
                proportion(sum(matches(r, method) for r in recovered), len(recovered)),
            ]
        )
    return make_table(["what", "seeds, with 95 % interval of the share"], rows) if rows else None


def methods_of(results: Results) -> list[str]:
    """The methods of target recovery."""
    return next((list(of["target-recovery"]["rules"][0]["methods"]) for of in results if "target-recovery" in of), [])


def matches(recovery: Mapping[str, Any], method: str) -> bool:
    """Whether a method has exactly the targets on top under every rule."""
    return all(rule["methods"][method]["match"] for rule in recovery["rules"])


def selection_sides(results: Results) -> Table | None:
    """How often the targets act as keys or as queries, and whether mean attention then finds them."""
    found = [of for of in results if "effective-attention" in of]
    if len(found) < SEEDS:
        return None
    rows = []
    for kind in (*KINDS, MIXED):
        those = [of for of in found if kind_of_run(of["effective-attention"]["selection"]) == kind]
        recovered = [of["target-recovery"] for of in those if "target-recovery" in of]
        if those:
            hit = sum(matches(recovery, "attention") for recovery in recovered)
            right = proportion(hit, len(recovered)) if recovered else Cell("–")
            rows.append([Cell(kind), proportion(len(those), len(found)), right])
    return make_table(["the targets act as", "seeds", "mean attention has exactly the targets on top"], rows)


def formation_order(results: Results) -> Table | None:
    """When each measure locks on, the earliest first."""
    import numpy as np

    found = [of["formation"]["measures"] for of in results if "formation" in of]
    if len(found) < SEEDS:
        return None
    rows: list[tuple[float, list[Cell]]] = []
    for name in (name for name in found[0] if all(name in measures for measures in found)):
        steps = np.array([measures[name]["locks_on"] for measures in found], dtype=float)
        happened = steps[np.isfinite(steps)]
        middle = median(steps)
        ends = f"{number(happened.min())} to {number(happened.max())}" if len(happened) else "–"
        cells = [Cell(name), Cell(number(middle), True), Cell(ends), Cell(f"{len(happened)} of {len(found)}")]
        rows.append((middle if np.isfinite(middle) else np.inf, cells))
    ordered = [cells for _, cells in sorted(rows, key=lambda row: row[0])]
    return make_table(["measure", "median step of lock-on", "range over seeds", "seeds that lock on"], ordered)


def claims(results: Results) -> Table | None:
    """Of each claim and method, in how many seeds it holds; seeds whose claims differ are not counted together."""
    tested = [of["variable-creation"]["tested"] for of in results if "variable-creation" in of]
    name: Callable[[Mapping[str, Any]], tuple[str, str]] = lambda one: (one["claim"], one["method"])  # noqa: E731
    if len(tested) < SEEDS or any(list(map(name, each)) != list(map(name, tested[0])) for each in tested):
        return None
    rows = []
    for same in zip(*tested, strict=True):
        status = [one["status"] for one in same]
        rows.append(
            [
                Cell(same[0]["claim"]),
                Cell(same[0]["method"]),
                proportion(status.count("holds"), len(same)),
                Cell(str(status.count("fails")), True),
                Cell(str(status.count("undecided")), True),
            ]
        )
    return make_table(["claim", "method", "holds in", "fails in", "undecided in"], rows)


def disagreements(results: Results) -> list[str]:
    """One sentence a method that misses the targets of some seeds which patching finds."""
    recovered = [of["target-recovery"] for of in results if "target-recovery" in of]
    found = [recovery for recovery in recovered if matches(recovery, "patching")] if recovered else []
    said = []
    for method in methods_of(results):
        missed = sum(not matches(recovery, method) for recovery in found)
        if missed:
            said.append(
                f"{method} misses targets in {missed} of the {plural(len(found), 'seed')} in which patching has "
                "exactly the targets on top."
            )
    return said
