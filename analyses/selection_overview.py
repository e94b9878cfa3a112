"""Over a folder of seeds: how often do the targets act as keys or as queries, and does that say where methods fail?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analyses.selection_side import KINDS
from interp.files import plain, write_csv, write_json
from interp.statistics import clopper_pearson

SEEDS = 2
"""Fewest seeds with `effective-attention` for an overview."""
MIXED = "differs by rule"
"""The kind of a run whose rules are of different kinds."""
METHODS = ("attention", "effective-attention", "contribution", "ablation")
REPAIRS = ("attention weighed by readout", "attention onto bit 0", "attention onto bit 1")
"""Mean attention with its rows weighed, or over the inputs in which the key's bit is 0, or 1."""
BLIND = ("keys in target rows", "queries", "both")
"""The kinds that say why attention misses targets that flips find; so does 'keys' where weighing rows finds them."""


def write_sides(folder: Path, content: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """FOLDER/analyses/selection-side.{json, csv} of the runs that have been analysed; the lines to print.

    Args:
        folder: the folder of seeds.
        content: each run's result.json by the names of run and analysis. Runs without effective-attention are left
            out; with fewer than SEEDS others nothing is written. Where all of them have target-recovery, each kind's
            methods are counted too, a match being exactly the targets on top under every rule.
    """
    found = {
        run: analyses["effective-attention"]["result"]["selection"]
        for run, analyses in content.items()
        if "effective-attention" in analyses
    }
    if len(found) < SEEDS:
        return []
    recovered = {run: content[run]["target-recovery"]["result"] for run in found if "target-recovery" in content[run]}
    rules = recovered if len(recovered) == len(found) else {}
    matches = {run: _matches(result["rules"], found[run]) for run, result in rules.items()}
    summary = _summary(found, matches)
    out = folder / "analyses"
    write_json(out / "selection-side.json", plain(summary))
    write_csv(out / "selection-side.csv", *_table(found, matches))
    return [*_lines(summary), f"sides: {out / 'selection-side.csv'}"]


def kind_of_run(selection: Sequence[Mapping[str, Any]]) -> str:
    """The kind that all rules have, or MIXED."""
    kinds = {rule["kind"] for rule in selection}
    return kinds.pop() if len(kinds) == 1 else MIXED


def _matches(rules: Sequence[Mapping[str, Any]], sides: Sequence[Mapping[str, Any]]) -> dict[str, list[bool]]:
    """Of each method and REPAIRS, whether it matches under each rule."""
    methods = {m: [rule["methods"][m]["match"] for rule in rules] for m in METHODS if m in rules[0]["methods"]}
    repairs = [(side["read_match"], *side["by_bit_match"]) for side in sides]
    return methods | {name: list(of_rules) for name, of_rules in zip(REPAIRS, zip(*repairs, strict=True), strict=True)}


def _summary(found: Mapping[str, Any], matches: Mapping[str, Any]) -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for kind in (*KINDS, MIXED):
        runs = [run for run, selection in found.items() if kind_of_run(selection) == kind]
        methods = matches[next(iter(matches))] if matches else {}
        kinds[kind] = {
            **_share(len(runs), len(found)),
            "match": {m: _share(sum(all(matches[run][m]) for run in runs), len(runs)) for m in methods},
        }
    missed = [(run, r) for run, by_method in matches.items() for r, hit in enumerate(by_method["attention"]) if not hit]
    told = [(run, r) for run, r in missed if _explains(found[run][r])]
    return {
        "runs": list(found),
        "kinds": kinds,
        "attention": {
            "missed": len(missed),
            "explained": len(told),
            "repaired": {name: sum(matches[run][name][r] for run, r in missed) for name in REPAIRS},
            "unexplained": [
                {"run": run, "rule": r, "kind": found[run][r]["kind"]} for run, r in missed if (run, r) not in told
            ],
        }
        if matches
        else None,
    }


def _explains(rule: Mapping[str, Any]) -> bool:
    return rule["kind"] in BLIND or (rule["kind"] == "keys" and rule["read_match"])


def _share(count: int, of: int) -> dict[str, Any]:
    return {"count": count, "of": of, "interval": clopper_pearson(count, of)}


def _table(found: Mapping[str, Any], matches: Mapping[str, Any]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """A row a run and rule."""
    numbers = ("readout_ratio", "attention", "read_attention", "uniform")
    methods = list(matches[next(iter(matches))]) if matches else []
    shares = list(next(iter(found.values()))[0]["shares"])
    columns = [
        "run",
        "rule",
        "kind",
        *(f"share_{s}" for s in shares),
        *numbers,
        *(f"match_{m.replace(' ', '_')}" for m in methods),
    ]
    rows = [
        (
            *(run, rule["rule"], rule["kind"]),
            *rule["shares"].values(),
            *(rule[name] for name in numbers),
            *(matches[run][m][r] for m in methods),
        )
        for run, selection in found.items()
        for r, rule in enumerate(selection)
    ]
    return columns, rows


def _lines(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    for kind, of_kind in summary["kinds"].items():
        if of_kind["count"]:
            matched = ", ".join(f"{name} in {m['count']}" for name, m in of_kind["match"].items())
            low, high = of_kind["interval"]
            lines.append(
                f"selection side, {kind}: {of_kind['count']} of {of_kind['of']} runs (95 % interval {low:.2f} to "
                f"{high:.2f})" + (f"; exactly the targets on top: {matched}" if matched else "")
            )
    if summary["attention"] and summary["attention"]["missed"]:
        found = summary["attention"]
        repaired = ", ".join(f"{name.removeprefix('attention ')} in {n}" for name, n in found["repaired"].items())
        lines.append(
            f"attention misses the targets {found['missed']} times (by run and rule): side and rows say why in "
            f"{found['explained']}; the targets are on top of it {repaired}"
        )
    return lines
