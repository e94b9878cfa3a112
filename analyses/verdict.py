"""The verdict on variable creation, and the sentences that say why."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from analyses.heads import Heads
from analyses.runs import Run
from interp.hooks import run as run_model
from interp.recovery import Ranking
from interp.statistics import clopper_pearson

ALPHA = 0.01
"""Level of patching's joint permutation test, and one minus the level of the accuracy's interval."""
SKILL = 0.5
"""'Clearly better than the majority class': the accuracy's lower limit removes at least this share of its errors."""


@dataclass(frozen=True)
class Accuracy:
    """On the validation set, all shares in [0, 1].

    Attributes:
        valid: accuracy; low, high: its 99 % Clopper–Pearson interval.
        majority: what always answering the more frequent label gets; balanced: mean of the two labels' accuracies.
        constant: the label that the model gives to every input, validation and analysis inputs alike, or None.
    """

    valid: float
    low: float
    high: float
    majority: float
    balanced: float
    n_valid: int
    constant: bool | None

    @property
    def clear(self) -> bool:
        """Whether accuracy beats the majority class clearly (see SKILL)."""
        return self.low - self.majority >= SKILL * (1 - self.majority)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "clearly_above_majority": self.clear}


@dataclass(frozen=True)
class Verdict:
    """Attributes:
    verdict: the word.
    sentence: why.
    disagreements: one sentence for each method that disagrees.
    heads: one sentence a rule, which heads find the targets; () of a model with one.
    """

    verdict: Literal["created", "mixed", "not created"]
    sentence: str
    disagreements: tuple[str, ...]
    heads: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Words:
    """How sentences speak of positions: the kind of the targets, and every position's name, where it has one."""

    kind: str
    names: Sequence[str] = ()

    @property
    def indices(self) -> str:
        return f"{self.kind}s" if self.names else f"{self.kind} indices"

    def listed(self, indices: Sequence[int]) -> str:
        return "{" + ", ".join(self.names[i] if self.names else str(i) for i in sorted(indices)) + "}"

    def found(self, targets: Sequence[int], ranking: Ranking, matched: bool, rule: str) -> str:
        if matched:
            return f"exactly the {self.kind}s {self.listed(targets)}{rule}"
        hits = len(set(targets) & set(ranking.top))
        tied = ", tied with others" if ranking.tie else ""
        whole = f"the {len(targets)} {self.kind}s {self.listed(targets)}"
        return f"{self.listed(ranking.top)}{tied}, {hits} of {whole}{rule}"


def measure_accuracy(run: Run) -> Accuracy:
    """Accuracy on the run's validation set beside the majority class's and the balanced one."""
    x, y = run.valid
    said = run_model(run.model, x)[0] > 0
    n_right = int((said == y).sum())
    low, high = clopper_pearson(n_right, len(y), 1 - ALPHA)
    recalls = [(said == y)[y == label].double().mean().item() for label in (True, False)]
    answers = {bool(a) for a in said}
    for rule in range(run.task.n_rules):
        answers |= {bool(a) for a in run_model(run.model, run.inputs(rule))[0] > 0}
    share = y.double().mean().item()
    return Accuracy(
        valid=n_right / len(y),
        low=low,
        high=high,
        majority=max(share, 1 - share),
        balanced=sum(recalls) / 2,
        n_valid=len(y),
        constant=answers.pop() if len(answers) == 1 else None,
    )


def judge(
    run: Run,
    accuracy: Accuracy,
    methods: Sequence[str],
    rankings: Sequence[Sequence[Ranking]],
    match: Bool[np.ndarray, "rule method"],
    joint: Float[np.ndarray, " method"],
    weights_exact: bool,
    heads: Heads | None = None,
    why: Callable[[str, Sequence[int]], str] = lambda method, rules: "",
) -> Verdict:
    """The verdict rests on patching, and on `weights` where it is exact; never on attention alone.

    * created: patching ranks exactly the targets on top under every rule with joint p < ALPHA, exact weights agree,
      and the accuracy beats the majority class clearly.
    * mixed: patching finds the targets of some rules, or more of them than chance allows (joint p < ALPHA).
    * not created: neither, or the model is a constant function.

    `why` says, after a space, why a method misses the targets of some rules (`selection_side.why_missed`).
    """
    task = run.task
    what = Words("target", task.position_names)
    if not task.ON_ALL_INPUTS:
        what = Words("hypothesised feature", task.position_names)
    patching = list(methods).index("patching")
    p = float(joint[patching])
    of_accuracy = (
        f"validation accuracy is {accuracy.valid:.3f} (99 % interval {accuracy.low:.3f} to {accuracy.high:.3f}; "
        f"majority class {accuracy.majority:.3f}, balanced {accuracy.balanced:.3f})"
    )
    if accuracy.constant is not None:
        return Verdict(
            "not created",
            f"The model is the constant function: it answers {accuracy.constant} to every input drawn; {of_accuracy}.",
            (),
        )
    found = [bool(m) for m in match[:, patching]]
    agree = not weights_exact or bool(match[:, list(methods).index("weights")].all())
    where = [
        what.found(task.targets[r], rankings[r][patching], found[r], _rule_name(run, r)) for r in range(task.n_rules)
    ]
    evidence = (
        f"Patching finds that the logit depends most on {'; '.join(where)} (permutation p = {p:.2g}); {of_accuracy}."
    )
    if all(found) and p < ALPHA and agree and accuracy.clear:
        verdict, opening = "created", f"The model picks out exactly the {what.indices}."
    elif any(found) or p < ALPHA:
        verdict, opening = "mixed", "The model picks out some of what it should."
        if all(found) and p >= ALPHA:
            opening = f"The {what.kind}s are on top, but so few index sets exist that chance is not excluded."
        elif all(found) and not agree:
            opening = f"The {what.kind}s are on top by patching, but not by the exact weights."
        elif all(found):
            opening = f"The {what.kind}s are on top, but the accuracy does not clearly beat the majority class."
    else:
        verdict, opening = "not created", f"The model does not pick out the {what.indices}."
    by_head = heads.sentences([_rule_name(run, r) for r in range(task.n_rules)]) if heads else ()
    differing = tuple(_disagreements(run, what, methods, rankings, match, patching, why))
    return Verdict(verdict, f"{opening} {evidence}", differing, by_head)


def _disagreements(
    run: Run,
    what: Words,
    methods: Sequence[str],
    rankings: Sequence[Sequence[Ranking]],
    match: np.ndarray,
    patching: int,
    why: Callable[[str, Sequence[int]], str],
) -> list[str]:
    """Sentences for methods whose top positions differ from patching's."""
    sentences = []
    for m, method in enumerate(methods):
        differing = [
            r
            for r in range(len(match))
            if set(rankings[r][m].top) != set(rankings[r][patching].top) or rankings[r][m].tie
        ]
        if m != patching and differing:
            tops = "; ".join(
                f"{what.listed(rankings[r][m].top)}{' (tied)' if rankings[r][m].tie else ''}{_rule_name(run, r)} "
                f"instead of {what.listed(rankings[r][patching].top)}"
                for r in differing
            )
            sentences.append(f"{method} disagrees with patching: it has {tops} on top.{why(method, differing)}")
    return sentences


def _rule_name(run: Run, rule: int) -> str:
    if not run.task.rule_positions:
        return ""
    bits = ", ".join(f"x{p} = {b}" for p, b in zip(run.task.rule_positions, run.task.rule_bits(rule), strict=True))
    return f" under rule {rule} ({bits})"
