"""The page of one run: what its folder holds, in the order in which one reads it."""

import os
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analyses.report import provenance
from analyses.report.captions import caption
from analyses.report.evidence import CLS_NAME, alt_text, key_numbers
from analyses.report.explorer import explorer_payload
from analyses.report.findings import Finding
from analyses.report.formats import capital, number, plural, share
from analyses.report.images import embed
from analyses.report.render import render
from analyses.report.tables import data_table
from analyses.report.words import model_sentences, shown, task_sentences, title
from analyses.results import load_analysis
from analyses.runs import Run

MOODS = {
    **{"created": "good", "mixed": "warn", "not created": "bad"},
    **{"verified": "good", "undecided": "warn", "refuted": "bad"},
}
WHY = {
    "missing": "This analysis has not been run on this model.",
    "stale": "The result in the folder is of other weights or another configuration, so it is not shown.",
    "damaged": "The result in the folder cannot be read, so it is not shown.",
}
RUN_FILES = ("config.json", "task.json", "model.safetensors", "history.csv", "certified.json")
SCALE = (10.0, 390.0)
"""Where 0 and 1 of the accuracy's scale lie in its drawing."""


def run_page(run: Run, found: dict[str, Finding], out: Path, back: tuple[str, Path] | None = None) -> bytes:
    """The page's bytes.

    Args:
        run: whose page it is.
        found: its analyses (`analyses.report.findings.find_all`).
        out: the file that the page will be; links to the run's files are relative to it.
        back: the text and file of a page that this one belongs to.

    Raises:
        BoolensError: a result without its table, or a figure that is no image.
    """
    names = position_names(run)
    shown_sections = [_section(run, one, names, out) for one in found.values()]
    results = {name: one.result for name, one in found.items() if one.result is not None}
    recovery, certificate = results.get("target-recovery"), results.get("certificate")
    missing = [section for section in shown_sections if section["state"] != "there"]
    train, report = provenance.train_command(run), f"boolens report {shlex.quote(shown(run.path))}"
    return render(
        "run.html.j2",
        **frame(),
        title=title(run),
        folder=run.path.name,
        back=back and {"text": back[0], "href": link(back[1], out)},
        contents=contents(shown_sections),
        task_sentences=task_sentences(run.task),
        model_sentences=model_sentences(run),
        moods=MOODS,
        missing=missing,
        report_command=report,
        accuracy=recovery and _accuracy(recovery["accuracy"]),
        recovery=recovery and _recovery(recovery, names),
        certificate=certificate and {"verdict": certificate["verdict"], "sentence": _sentence(certificate)},
        counterexample=certificate is not None and certificate["counterexample"] is not None,
        no_certificate="" if "certificate" in found else getattr(load_analysis("certificate"), "MISSING", ""),
        explorer=explorer_payload(run),
        sections=shown_sections,
        provenance={
            "facts": provenance.provenance_facts(run),
            "train_command": train,
            "report_command": f"boolens report {shlex.quote(provenance.fresh(run.path))}" if train else report,
            "why_no_command": provenance.why_no_command(run),
            "config": provenance.pretty(run.config.to_dict()),
            "task": provenance.pretty(run.task.to_dict()),
            "files": _files(run.path, RUN_FILES, out),
        },
        citation=provenance.citation(version("boolens")),
    )


def headline(run: Run, found: Mapping[str, Finding]) -> dict[str, Any]:
    """The verdicts on a run, for a page that leads to its own."""
    results = {name: found[name].result if name in found else None for name in ("target-recovery", "certificate")}
    recovery, certificate = results["target-recovery"], results["certificate"]
    return {
        "title": title(run),
        "recovery": recovery,
        "accuracy": recovery and _accuracy(recovery["accuracy"])["sentence"],
        "certificate": certificate and {"verdict": certificate["verdict"], "sentence": _sentence(certificate)},
    }


def frame() -> dict[str, str]:
    """What every page says of itself."""
    return {"version": version("boolens"), "date": datetime.now(UTC).strftime("%Y-%m-%d")}


def position_names(run: Run) -> list[str]:
    """The features' names or the positions' numbers; the [CLS] token's is last."""
    names = list(run.task.position_names or map(str, range(run.task.n_ctx)))
    return [*names, CLS_NAME] if run.is_cls else names


def link(target: Path, page: Path) -> str:
    """From a page to a file, as a relative address."""
    return quote(Path(os.path.relpath(target.resolve(), page.resolve().parent)).as_posix())


def contents(sections: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """The table of contents."""
    entries = [("verdict", "Verdict"), ("explorer", "Live explorer")]
    entries += [(section["name"], section["title"]) for section in sections]
    return [{"anchor": anchor, "text": text} for anchor, text in [*entries, ("provenance", "Provenance")]]


def _section(run: Run, found: Finding, names: Sequence[str], out: Path) -> dict[str, Any]:
    words = caption(found.name, found.result or {}, run.architecture)
    section = {
        "name": found.name,
        "title": words.title,
        "question": words.question,
        "state": found.state,
        "command": f"boolens analyze {shlex.quote(shown(run.path))} {found.name}",
    }
    if found.result is None:
        return section | {"why": WHY[found.state]}
    figure = None
    if found.figure:
        figure = {"image": embed(found.figure), "alt": alt_text(found.name, found.result, names)}
        figure |= {"read": words.read, "trouble": words.trouble}
    return section | {
        "figure": figure,
        "facts": key_numbers(found.name, found.result, names),
        "table": data_table(found, names if run.task.position_names or run.is_cls else ()),
        "files": _files(found.folder, ("result.json", "data.csv", "figure.svg", "figure.png"), out),
    }


def _files(folder: Path, names: Sequence[str], out: Path) -> list[dict[str, str]]:
    return [{"name": name, "href": link(folder / name, out)} for name in names if (folder / name).is_file()]


def _accuracy(accuracy: dict[str, Any]) -> dict[str, Any]:
    n = accuracy["n_valid"]
    sentence = (
        f"Right on {round(accuracy['valid'] * n):,} of {plural(n, 'validation input')}: {share(accuracy['valid'])} "
        f"(99 % interval {share(accuracy['low'])} to {share(accuracy['high'])}). Always giving the more frequent "
        f"answer gets {share(accuracy['majority'])}; the balanced accuracy is {share(accuracy['balanced'])}."
    )
    if accuracy["constant"] is not None:
        sentence += f" The model answers {accuracy['constant']} to every input drawn."
    at = {f"{name}_x": _on_scale(accuracy[name]) for name in ("valid", "majority", "balanced", "low")}
    width = max(round((accuracy["high"] - accuracy["low"]) * (SCALE[1] - SCALE[0]), 1), 1.0)
    return {"sentence": sentence, "alt": f"Scale from 0 to 1. {sentence}", "width": width, **at}


def _sentence(certificate: dict[str, Any]) -> str:
    """The certificate's, without the word that stands beside it."""
    said = certificate["sentence"].removeprefix(f"{certificate['verdict']}: ")
    return f"{capital(said).rstrip('.')}."


def _on_scale(value: float) -> float:
    return round(SCALE[0] + value * (SCALE[1] - SCALE[0]), 1)


def _recovery(result: dict[str, Any], names: list[str]) -> dict[str, Any]:
    rules = result["rules"]
    heads = [f"rule {rule['rule']}: " if len(rules) > 1 else "" for rule in rules]
    columns = [head + ", ".join(names[i] for i in rule["targets"]) for head, rule in zip(heads, rules, strict=True)]
    methods = []
    for method in rules[0]["methods"]:
        cells = [rule["methods"][method] for rule in rules]
        methods.append(
            {
                "name": method,
                "joint": number(result["joint"][method]["p_holm"], 2),
                "cells": [
                    {
                        "match": bool(one["match"]),
                        "tie": bool(one["tie"]),
                        "p": number(one["p_holm"], 2),
                        "top": ", ".join(names[i] for i in sorted(one["top"])),
                    }
                    for one in cells
                ],
            }
        )
    return {
        "verdict": result["verdict"],
        "sentence": result["sentence"],
        "rules": columns,
        "methods": methods,
        "disagreements": result["disagreements"],
        "heads": result["heads"],
    }
