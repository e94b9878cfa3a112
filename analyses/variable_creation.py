"""Does a hypothesis about variable creation hold: do the methods that it names find exactly the indices it claims?

A claim and method hold on a run if, under every rule, exactly the claimed indices are on top, without a tie, and the
permutation test over index sets (jointly over rules; Holm over claims and methods) has p < alpha. They fail if other
indices are on top under some rule; otherwise they are undecided (a tie, or too few index sets to exclude chance). As
controls, the same statistics for the model at its initialisation, and what an index set drawn at random would give.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from analyses.hypothesis import DEFAULT, Hypothesis
from analyses.results import Rows
from analyses.runs import Run
from analyses.scores import scores_of_rule
from interp.errors import BoolensError
from interp.plots import plot_claims
from interp.recovery import METHODS, rank
from interp.seeds import numpy_generator
from interp.selection import auroc, precision_at
from interp.statistics import clopper_pearson, holm, joint_p_value, permutation_test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "variable-creation"
Status = Literal["holds", "fails", "undecided"]
MOST = 0.5
"""A claim about several runs is supported if more than this share of runs hold, by the limits of the interval."""


@dataclass(frozen=True)
class Tested:
    """One claim and method on one run.

    Attributes:
        sets, top: the indices claimed, and those on top, by rule.
        tie: whether a position outside `top` has the score of one within, by rule.
        auroc, precision: of the scores for the claimed indices, by rule.
        initial_auroc: the same at initialisation; NaN for imported models.
        p_value, p_holm: joint over rules, and adjusted.
        chance: probability that an index set drawn for each rule is the one on top.
    """

    claim: str
    method: str
    status: Status
    sets: tuple[tuple[int, ...], ...]
    top: tuple[tuple[int, ...], ...]
    tie: tuple[bool, ...]
    auroc: tuple[float, ...]
    precision: tuple[float, ...]
    initial_auroc: tuple[float, ...]
    p_value: float
    p_holm: float
    chance: float


@dataclass(frozen=True)
class VariableCreation:
    """All claims and methods on one run."""

    alpha: float
    tested: tuple[Tested, ...]

    def to_json(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "tested": [vars(one) for one in self.tested]}

    def to_rows(self) -> Rows:
        columns = ["claim", "method", "status", "rule", "claimed", "top", "tie", "auroc", "precision", "initial_auroc"]
        rows = []
        for one in self.tested:
            for r in range(len(one.sets)):
                sets = (" ".join(map(str, s[r])) for s in (one.sets, one.top))
                numbers = (one.tie[r], one.auroc[r], one.precision[r], one.initial_auroc[r], one.p_value, one.p_holm)
                rows.append((one.claim, one.method, one.status, r, *sets, *numbers))
        return Rows([*columns, "p_value", "p_holm"], rows)


def applies(run: Run) -> bool:
    return True


def compute(run: Run, hypothesis: Hypothesis | None = None) -> VariableCreation:
    """Test a hypothesis on one run; by default, that every method has exactly the targets on top.

    Raises:
        BoolensError: a claim that does not fit the task, or a method that does not apply to the model.
    """
    hypothesis = hypothesis or DEFAULT
    task = run.task
    scores = _scores(run)
    start = _scores(initial_run(run), looks=1) if run.config.training else None
    generator = numpy_generator(run.seed, "statistics", 1)
    found: list[dict[str, Any]] = []
    for claim in hypothesis.claims:
        sets = claim.sets(task)
        for method in claim.methods or [m for m in METHODS if m in scores]:
            if method not in scores:
                raise BoolensError(f"{run.path}: {method} does not apply to a {run.architecture} model; leave it out")
            tops = [rank(s, task.candidates, len(chosen)) for s, chosen in zip(scores[method], sets, strict=True)]
            pairs = list(zip(scores[method], sets, strict=True))
            tests = [permutation_test(s, chosen, task.candidates, generator) for s, chosen in pairs]
            initial = list(start[method]) if start else [np.full(task.n_ctx, np.nan)] * len(sets)
            found.append(
                {
                    "claim": claim.name,
                    "method": method,
                    "sets": sets,
                    "top": tuple(top.top for top in tops),
                    "tie": tuple(top.tie for top in tops),
                    "auroc": tuple(auroc(s, chosen, task.candidates) for s, chosen in pairs),
                    "precision": tuple(precision_at(s, chosen, task.candidates) for s, chosen in pairs),
                    "initial_auroc": tuple(
                        auroc(s, chosen, task.candidates) for s, chosen in zip(initial, sets, strict=True)
                    ),
                    "p_value": joint_p_value(tests, generator)[0],
                    "chance": math.prod(1 / math.comb(len(task.candidates), len(chosen)) for chosen in sets),
                }
            )
    adjusted = holm(np.array([one["p_value"] for one in found]))
    tested = []
    for one, p_holm in zip(found, adjusted.tolist(), strict=True):
        status = status_of(one, p_holm, hypothesis.alpha)
        tested.append(Tested(status=status, p_holm=p_holm, **one))
    return VariableCreation(hypothesis.alpha, tuple(tested))


def status_of(one: dict[str, Any], p_holm: float, alpha: float) -> Status:
    """As the module's docstring says."""
    by_rule = list(zip(one["top"], one["sets"], one["tie"], strict=True))
    if any(set(top) != set(chosen) and not tie for top, chosen, tie in by_rule):
        return "fails"
    return "holds" if not any(tie for *_, tie in by_rule) and p_holm < alpha else "undecided"


def _scores(run: Run, looks: int | None = None) -> dict[str, Float[np.ndarray, "rule pos"]]:
    per_rule = [scores_of_rule(run, rule, looks=looks).by_method for rule in range(run.task.n_rules)]
    return {method: np.stack([scores[method] for scores in per_rule]) for method in per_rule[0]}


def initial_run(run: Run) -> Run:
    """The same run with its model as it was before training."""
    from analyses.train import make_job

    assert run.config.training
    fresh = Run(run.path)
    job = make_job(run.task, run.config.model, run.config.training, run.seed)
    fresh.__dict__["model"] = job.model.eval()
    return fresh


def summarise(results: Sequence[VariableCreation]) -> list[dict[str, Any]]:
    """For each claim and method over runs (seeds are the replicates): how many hold, fail, are undecided, and what
    follows.

    Supported if the 95 % Clopper–Pearson interval of the share that holds lies above MOST, rejected if that of the
    share that fails does, else undecided; of a single run, its own status. `too_few` says that so few runs (2 to 5)
    leave every claim undecided, whatever they show; `runs_for_support` how many in all would support this one, if all
    further ones hold.
    """
    rows = []
    for cells in zip(*(result.tested for result in results), strict=True):
        n = len(cells)
        counts = {word: sum(one.status == word for one in cells) for word in ("holds", "fails", "undecided")}
        limits = {word: clopper_pearson(counts[word], n) for word in counts}
        if n == 1:
            verdict = {"holds": "supported", "fails": "rejected", "undecided": "undecided"}[cells[0].status]
        else:
            verdict = next((v for v, w in (("supported", "holds"), ("rejected", "fails")) if limits[w][0] > MOST), None)
        rows.append(
            {
                "claim": cells[0].claim,
                "method": cells[0].method,
                "verdict": verdict or "undecided",
                "runs": n,
                **counts,
                "interval": limits["holds"],
                "runs_for_support": runs_for_support(n, n - counts["holds"]),
                "too_few": 1 < n < runs_for_support(1, 0),
                "mean_auroc": float(np.mean([np.mean(one.auroc) for one in cells])),
                "mean_initial_auroc": float(np.mean([np.mean(one.initial_auroc) for one in cells])),
            }
        )
    return rows


@cache
def runs_for_support(n: int, without: int) -> int:
    """The smallest number of runs, at least n, that supports a claim which does not hold in `without` of them."""
    total = n
    while clopper_pearson(total - without, total)[0] <= MOST:
        total += 1
    return total


def plot(result: VariableCreation) -> "Figure":
    return plot_claims(
        np.array([one.auroc for one in result.tested]),
        np.array([one.initial_auroc for one in result.tested]),
        claims=[one.claim for one in result.tested],
        methods=[one.method for one in result.tested],
        status=[one.status for one in result.tested],
    )


if __name__ == "__main__":
    from analyses.cli import analyze_as_module

    analyze_as_module(NAME)
