"""The key numbers of each analysis, and its figure in words, both from result.json alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyses.report.formats import listed, number, plural, share

Content = dict[str, Any]
Names = Sequence[str]
CLS_NAME = "[CLS]"
MOST_IN_ALT = 5
"""Numbers in an alternative text; all of them stand below the figure."""
ONE_QUERY = ("hook_q", "hook_pattern", "hook_z")
"""Hooks of which a [CLS] transformer has one position, the last."""


@dataclass(frozen=True)
class Fact:
    """Attributes: label: what is measured; value: the number, as text; note: what it is to be read beside, or ''."""

    label: str
    value: str
    note: str = ""


def key_numbers(name: str, result: Content, names: Names) -> list[Fact]:
    """A few numbers that answer the analysis' question; `names` are those of all positions."""
    return FACTS[name](result, names)


def alt_text(name: str, result: Content, names: Names) -> str:
    """What is seen in the figure, with this run's own first few numbers."""
    facts = key_numbers(name, result, names)[:MOST_IN_ALT]
    return f"{SEEN[name]} {'; '.join(f'{f.label}: {f.value}' + (f' ({f.note})' if f.note else '') for f in facts)}."


SEEN = {
    "samples": "Grid of sample inputs with their labels.",
    "attention-patterns": "Attention onto each position, and the mean pattern as a map.",
    "effective-attention": "Bars and graph of effective attention, and the logit's variance by position.",
    "circuits": "Maps of the QK and OV tables, with readout, shares of variance and singular values.",
    "ablation": "Effect of ablating each position, one panel a hook point.",
    "activation-patching": "Maps of what patching each position recovers, one panel a hook point.",
    "attribution": "Gradient estimates against exact effects of patching, one panel a hook point.",
    "target-recovery": "Bar charts of every position's score, one panel a method and rule.",
    "certificate": "Wrong inputs bit by bit, and the share of wrong inputs by number of changes.",
    "variable-creation": "Dots of the AUROC of each claim and method, beside those at initialisation.",
    "formation": "Curves of each measure over training steps, with the step at which it locks on.",
    "abstraction": "Maps of interchange accuracy by variable and site, and bars of what scrubbing recovers.",
}


def of_rule(result: Content, rule: int) -> str:
    """', rule 1' where there are several."""
    return f", rule {rule}" if len(result["targets"]) > 1 else ""


def places(indices: Sequence[int], names: Names) -> str:
    return listed(names[i] for i in sorted(indices))


def top(values: Sequence[float | None], n: int, names: Names) -> str:
    """The names of the n largest values' positions."""
    order = np.argsort(-np.array([np.nan if v is None else v for v in values], dtype=float), kind="stable")
    return places([int(i) for i in order[:n]], names)


def _samples(result: Content, names: Names) -> list[Fact]:
    labels, logits = result["label"], result["logit"]
    right = sum((z > 0) == y for y, z in zip(labels, logits, strict=True))
    return [
        Fact("probability that the label is True", number(result["p_true"])),
        Fact("True among the samples drawn", f"{sum(labels)} of {len(labels)}"),
        Fact("answered rightly by the model", f"{right} of {len(labels)}"),
    ]


def _attention_patterns(result: Content, names: Names) -> list[Fact]:
    facts = [Fact("inputs", number(result["n_inputs"]))]
    for r, (mean, targets) in enumerate(zip(result["mean"], result["targets"], strict=True)):
        pattern = np.mean(np.array(mean, dtype=float), axis=0)  # over heads
        even = len(targets) / len(pattern)
        facts.append(
            Fact(
                f"mean attention on the targets{of_rule(result, r)}",
                share(float(pattern[targets].sum())),
                f"{share(even)} if spread evenly; most on {top(pattern.tolist(), len(targets), names)}",
            )
        )
    return facts


def _effective_attention(result: Content, names: Names) -> list[Fact]:
    facts = [Fact("inputs", number(result["n_inputs"]))]
    for side in result["selection"]:
        rule, shares = of_rule(result, side["rule"]), side["shares"]
        facts += [
            Fact(f"largest effective attention{rule}", places(side["effective_attention"], names)),
            Fact(
                f"the targets act as{rule}",
                str(side["kind"]),
                f"of a flip's effect {share(shares['query'])} by query, {share(shares['key'])} by key and value",
            ),
        ]
    return [*facts, Fact("largest error of the sum of terms against the logit", number(result["logit_error"], 2))]


def _span(values: Sequence[float]) -> str:
    low, high = number(min(values), 3), number(max(values), 3)
    return low if low == high else f"{low} to {high}"


def _circuits(result: Content, names: Names) -> list[Fact]:
    heads = "" if len(result["qk"]["shares"]) == 1 else f" of {plural(len(result['qk']['shares']), 'head')}"
    facts = []
    for circuit in ("qk", "ov"):
        found = result[circuit]
        facts.append(Fact(f"effective rank of {circuit.upper()}{heads}", _span(found["effective_rank"])))
        largest = int(np.argmax([values[0] for values in found["singular_values"]]))
        part, of_part = max(found["shares"][largest].items(), key=lambda item: item[1] or 0)
        where = "" if not heads else f"of head {largest}, the strongest"
        facts.append(Fact(f"largest part of {circuit.upper()}'s variance", f"{part}, {share(of_part)}", where))
    return facts


def _ablation(result: Content, names: Names) -> list[Fact]:
    facts = [Fact("inputs", number(result["n_inputs"]))]
    if result["over"] != ["pos"]:
        return [*facts, Fact("cells swept over", listed(result["over"]))]
    effect = np.array(result["effect"], dtype=float)  # [rule, hook, kind, pos]
    for k, kind in enumerate(result["kinds"]):
        if np.isnan(effect[:, :, k]).all():
            continue
        r, h, pos = np.unravel_index(np.nanargmax(effect[:, :, k]), effect[:, :, k].shape)
        at = f"position {names[int(pos)]}{of_rule(result, int(r))}"
        at += f", {result['hooks'][h]}" if h < len(result["hooks"]) and kind != "remove key" else ""
        facts.append(Fact(f"largest effect, {kind}", f"{number(float(effect[r, h, k, pos]))} {result['metric']}", at))
    return facts


def _activation_patching(result: Content, names: Names) -> list[Fact]:
    facts = [Fact("pairs a group", number(result["n_pairs"]))]
    if result["over"] != ["pos"]:
        return [*facts, Fact("cells swept over", listed(result["over"]))]
    fraction = np.array(result["fraction"], dtype=float)  # [direction, hook, group, pos]
    first = result["directions"][0]
    for g, group in enumerate(result["groups"]):
        if result["is_control"][g] or np.isnan(fraction[0, :, g]).all():
            continue
        found = []
        for h, hook in enumerate(result["hooks"]):
            if not np.isnan(fraction[0, h, g]).all():
                pos = int(np.nanargmax(fraction[0, h, g]))
                at = f"at {names[pos]}" if fraction[0, h, g, pos] else "anywhere"
                found.append(f"{hook.split('hook_')[-1]} {number(float(fraction[0, h, g, pos]), 3)} {at}")
        facts.append(
            Fact(
                f"{group}, {first}: most by one position",
                "; ".join(found),
                f"of a difference of {number(result['difference'][g])} {result['metric']}",
            )
        )
    return facts


def _attribution(result: Content, names: Names) -> list[Fact]:
    facts = [Fact("pairs a group", number(result["n_pairs"]))]
    gap = np.array(result["gap"], dtype=float)  # [kind, mode, hook, group]
    for k, kind in enumerate(result["kinds"]):
        mean = gap[k, 0].mean(axis=-1)
        worst, best = int(np.argmax(mean)), int(np.argmin(mean))
        value = f"{number(float(mean[worst]))} {result['metric']} at {result['hooks'][worst]}"
        note = "" if worst == best else f"least: {number(float(mean[best]))} at {result['hooks'][best]}"
        facts.append(Fact(f"mean gap to the exact effect, {kind}, largest", value, note))
    return facts


def _target_recovery(result: Content, names: Names) -> list[Fact]:
    rules, joint = result["rules"], result["joint"]
    methods = list(rules[0]["methods"])
    hit = [m for m in methods if all(rule["methods"][m]["match"] for rule in rules)]
    worst = {m: min((rule["methods"][m]["auroc"] or 0.0) for rule in rules) for m in methods}
    lowest = min(methods, key=lambda m: worst[m])
    return [
        Fact("verdict", str(result["verdict"])),
        Fact("methods with exactly the targets on top", f"{len(hit)} of {len(methods)}", listed(hit)),
        Fact("joint p of patching over all rules", number(joint["patching"]["p_value"], 2), "below 0.01 is needed"),
        Fact("lowest AUROC", f"{share(worst[lowest])}, {lowest}"),
        Fact("weights", str(result["weights_method"])),
    ]


def _certificate(result: Content, names: Names) -> list[Fact]:
    error, wrong = result["error_probability"], result["n_wrong"]
    how = error["kind"]
    if error["lower"] == error["upper"]:
        probability = number(error["upper"], 3)
    else:
        probability = f"{number(error['lower'], 3)} to {number(error['upper'], 3)}"
    level = f", {100 * error['level']:.0f} % interval of {plural(error['n'], 'sample')}" if how == "sampled" else ""
    facts = [
        Fact("verdict", str(result["verdict"])),
        Fact("inputs", number(result["n_inputs"])),
        Fact("wrong inputs", "not counted" if wrong is None else number(wrong)),
        Fact("probability of error", probability, f"{how}{level}"),
    ]
    if result["radius"]["proven"] >= 0:
        facts.append(Fact("proven right with at most", f"{result['radius']['proven']} {result['change']}"))
    if result["counterexample"] is not None:
        facts.append(
            Fact("wrong input with the fewest changes", bits(result["counterexample"]), logit(result["logit"]))
        )
    if result["worst"] is not None:
        facts.append(Fact("worst input found", bits(result["worst"]["input"]), logit(result["worst"]["logit"])))
    return [*facts, Fact("method", str(result["method"]))]


def bits(values: Sequence[int]) -> str:
    """In groups of five, the first position first."""
    text = "".join(map(str, values))
    return " ".join(text[i : i + 5] for i in range(0, len(text), 5))


def logit(value: float) -> str:
    return f"logit {number(value)}"


def _variable_creation(result: Content, names: Names) -> list[Fact]:
    tested = result["tested"]
    facts = [Fact("level of the tests", number(result["alpha"]))]
    for word in ("holds", "fails", "undecided"):
        those = [one for one in tested if one["status"] == word]
        if those:
            claims = {one["claim"] for one in tested}
            said = listed(one["method"] if len(claims) == 1 else f"{one['claim']} ({one['method']})" for one in those)
            facts.append(Fact(word, f"{len(those)} of {len(tested)}", said))
    return facts


def _formation(result: Content, names: Names) -> list[Fact]:
    steps = result["steps"]
    facts = [Fact("snapshots", str(len(steps)), f"step {steps[0]} to {steps[-1]:,}")]
    for name, measure in result["measures"].items():
        at = measure["locks_on"]
        facts.append(Fact(f"{name} locks on", "never" if at is None else f"step {at:,.0f}"))
    return facts


def _abstraction(result: Content, names: Names) -> list[Fact]:
    facts = []
    for best in result["best"]:
        low, high = share(best["low"]), share(best["high"])
        index = best["index"]
        if best["axis"] == "pos":
            index = names[-1 if names[-1] == CLS_NAME and best["hook"].endswith(ONE_QUERY) else index]
        where = f"{best['hook']}, {best['axis']} {index}"
        facts.append(
            Fact(f"{best['variable']}, best single site", f"{share(best['iia'])} at {where}", f"{low} to {high}")
        )
    for hypothesis, found in result["scrubbed"].items():
        note = f"accuracy {share(found['accuracy'])}"
        facts.append(Fact(f"loss recovered, {hypothesis}", number(found["recovered"], 3), note))
    return facts


FACTS: dict[str, Callable[[Content, Names], list[Fact]]] = {
    "samples": _samples,
    "attention-patterns": _attention_patterns,
    "effective-attention": _effective_attention,
    "circuits": _circuits,
    "ablation": _ablation,
    "activation-patching": _activation_patching,
    "attribution": _attribution,
    "target-recovery": _target_recovery,
    "certificate": _certificate,
    "variable-creation": _variable_creation,
    "formation": _formation,
    "abstraction": _abstraction,
}
