"""In which order do the measures of `formation` lock on, over the seeds of a folder?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.files import plain, write_csv, write_json
from interp.formation import Order, order_of_events

SEEDS = 2
"""Fewest seeds with `formation` for an order over seeds."""


def write_order(folder: Path, content: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """FOLDER/analyses/formation-order.{json, csv, png, svg} of the runs that have been analysed; the lines to print.

    Args:
        folder: the folder of seeds.
        content: each run's result.json by the names of run and analysis. Runs without formation are left out; with
            fewer than SEEDS others nothing is written.
    """
    found = {run: analyses["formation"]["result"] for run, analyses in content.items() if "formation" in analyses}
    if len(found) < SEEDS:
        return []
    from interp.plots import plot_order, save_figure

    results = list(found.values())
    names = [name for name in results[0]["measures"] if all(name in result["measures"] for result in results)]
    at = np.array([[result["measures"][name]["locks_on"] for name in names] for result in results], dtype=float)
    middle = np.array([median(of_event) for of_event in at.T])
    earliest_first = np.argsort(middle, kind="stable")  # NaN comes last
    names, at, middle = [names[i] for i in earliest_first], at[:, earliest_first], middle[earliest_first]
    order = order_of_events(at)
    out = folder / "analyses"
    write_json(out / "formation-order.json", plain(summary(list(found), names, at, middle, order)))
    columns = ["earlier", "later", "before", "tied", "of", "low", "high"]
    rows = [
        (names[a], names[b], order.before[a, b], order.tied[a, b], order.of[a, b], order.low[a, b], order.high[a, b])
        for a, b in np.ndindex(order.of.shape)
        if a != b
    ]
    write_csv(out / "formation-order.csv", columns, rows)
    longest = max((result["steps"] for result in results), key=lambda steps: steps[-1])
    save_figure(plot_order(at, order.before, order.of, steps=longest, events=names), out, "formation-order")
    said = [
        f"{name} {step:.0f}" if np.isfinite(step) else f"{name} never" for name, step in zip(names, middle, strict=True)
    ]
    return [
        f"formation over {len(found)} seeds, median step of lock-on: {', '.join(said)}; see {out}/formation-order.*"
    ]


def median(steps: Float[np.ndarray, " seed"]) -> float:
    """Over the seeds in which the event happened; NaN where there are none."""
    happened = steps[np.isfinite(steps)]
    return float(np.median(happened)) if len(happened) else np.nan


def summary(runs: list[str], names: list[str], at: np.ndarray, middle: np.ndarray, order: Order) -> dict[str, Any]:
    """formation-order.json: each event's step in each run, its quartiles, and every pair's order."""
    events = {}
    for i, name in enumerate(names):
        steps = at[np.isfinite(at[:, i]), i]
        quartiles = np.quantile(steps, [0.25, 0.75]).tolist() if len(steps) else [None, None]
        events[name] = {"seeds": len(steps), "median": middle[i], "quartiles": quartiles, "steps": at[:, i]}
    pairs = [
        {
            "earlier": names[a],
            "later": names[b],
            "before": order.before[a, b],
            "tied": order.tied[a, b],
            "of": order.of[a, b],
            "interval": [order.low[a, b], order.high[a, b]],
        }
        for a, b in np.ndindex(order.of.shape)
        if a != b
    ]
    return {"runs": runs, "events": events, "pairs": pairs}
