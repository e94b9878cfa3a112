"""The verdict on models built to be right, half right, constant, or right without attending to their targets."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import target_recovery
from analyses.runs import Run
from analyses.target_recovery import TargetRecovery
from analyses.verdict import Accuracy, Verdict, judge, measure_accuracy
from interp import AttentionConfig, HookedAttention, HookedLinear, LinearConfig
from interp.recovery import Ranking
from interp.statistics import clopper_pearson
from tasks import Junta, Majority, Or, Parity, RuleAnd, SparseAnd, Task

TARGETS = (2, 5, 7)


def weights(n_ctx: int, targets: Sequence[int], strong: float = 64.0) -> list[float]:
    return [strong if pos in targets else 1.0 for pos in range(n_ctx)]


@pytest.fixture
def recover(write_run: Callable, tmp_path: Path) -> Callable[[Any, Task], TargetRecovery]:
    return lambda model, task: target_recovery.compute(write_run(tmp_path / "run", model, task))


class TestConstructedModels:
    def test_the_and_itself_is_created(self, weighing_model: Callable, recover: Callable) -> None:
        """All targets weigh 192 and the other bits at most 8 together: 165 index sets, so p = 1/165."""
        result = recover(weighing_model(weights(11, TARGETS), 64 * 2.5), SparseAnd(11, TARGETS))
        assert result.verdict.verdict == "created"
        assert result.joint[result.methods.index("patching")] == 1 / 165
        sentence = result.verdict.sentence
        assert sentence.startswith("The model picks out exactly the target indices. Patching finds that the logit ")
        assert "exactly the targets {2, 5, 7} (permutation p = 0.0061)" in sentence
        assert "validation accuracy is 1.000 (99 % interval 0.995 to 1.000; majority class 0.5" in sentence
        assert result.verdict.disagreements == ()
        assert (result.accuracy.valid, result.accuracy.balanced) == (1, 1)
        assert result.weights_method.startswith("exact")

    @pytest.mark.parametrize(
        ("task", "threshold"),
        [(Or(11, TARGETS), 0.5), (Majority(11, TARGETS), 1.5), (Junta(11, TARGETS, "00010111"), 1.5)],
        ids=["or", "majority", "junta"],
    )
    def test_other_functions_of_the_targets_are_created(
        self, task: Task, threshold: float, weighing_model: Callable, recover: Callable
    ) -> None:
        """The weights of the AND's model; as all of a logit that is linear, flipping a bit moves it by its weight."""
        result = recover(weighing_model(weights(11, TARGETS), 64 * threshold), task)
        assert result.verdict.verdict == "created"
        assert result.joint[result.methods.index("patching")] == 1 / 165
        assert result.weights_method.startswith("exact")
        np.testing.assert_allclose(result.scores[0, result.methods.index("weights")], weights(11, TARGETS), rtol=1e-9)
        assert (result.accuracy.valid, result.accuracy.balanced) == (1, 1)

    def test_a_model_of_another_function_of_the_same_targets_is_mixed(
        self, weighing_model: Callable, recover: Callable
    ) -> None:
        """The majority's model is asked for the parity: it looks at the right bits and is right half of the time.

        Of 0, 1, 2 or 3 ones the two agree on 0 (1/8) and 3 (1/8).
        """
        result = recover(weighing_model(weights(11, TARGETS), 64 * 1.5), Parity(11, TARGETS))
        assert result.verdict.verdict == "mixed"
        assert result.match[0, result.methods.index("patching")]
        assert result.accuracy.low < 0.25 < result.accuracy.high
        assert "the accuracy does not clearly beat the majority class" in result.verdict.sentence

    def test_a_model_blind_to_one_target_is_mixed(self, recover: Callable) -> None:
        """Of 1287 sets of 5 of 13, only nine hold the four that the model looks at.

        The fifth is on top of the others by its position alone, which does not count.
        """
        targets = (0, 3, 6, 9, 12)
        model = HookedLinear(LinearConfig(n_ctx=13))
        with torch.no_grad():
            model.W.zero_()
            model.W[list(targets[1:])] = 10
            model.b.fill_(-35)
        result = recover(model, SparseAnd(13, targets))
        patching = result.methods.index("patching")
        assert result.verdict.verdict == "mixed"
        assert not result.match[0, patching]
        assert set(result.rankings[0][patching].top) == set(targets)
        assert result.rankings[0][patching].tie
        assert result.joint[patching] == 9 / 1287
        assert result.verdict.sentence.startswith("The model picks out some of what it should. ")
        assert "tied with others, 5 of the 5 targets {0, 3, 6, 9, 12}" in result.verdict.sentence

    def test_a_rule_without_its_targets_is_mixed(self, write_run: Callable, recover: Callable) -> None:
        """A linear model that takes rule 0's AND whatever the rule bit is."""
        model = HookedLinear(LinearConfig(n_ctx=8))
        with torch.no_grad():
            model.W.zero_()
            model.W[[1, 4]] = 10
            model.b.fill_(-15)
        result = recover(model, RuleAnd(8, ((1, 4), (2, 6))))
        assert result.verdict.verdict == "mixed"
        assert result.match.tolist() == [[True], [False]]
        assert "exactly the targets {1, 4} under rule 0 (x7 = 0); " in result.verdict.sentence
        assert "0 of the 2 targets {2, 6} under rule 1 (x7 = 1)" in result.verdict.sentence

    def test_weights_on_the_wrong_bits_are_not_created(self, weighing_model: Callable, recover: Callable) -> None:
        result = recover(weighing_model(weights(11, (0, 1, 3)), 64 * 2.5), SparseAnd(11, TARGETS))
        assert result.verdict.verdict == "not created"
        assert result.verdict.sentence.startswith("The model does not pick out the target indices. ")
        assert "on {0, 1, 3}, 0 of the 3 targets {2, 5, 7} (permutation p = 1)" in result.verdict.sentence

    @pytest.mark.parametrize("answer", [True, False])
    def test_a_constant_model(self, answer: bool, weighing_model: Callable, recover: Callable) -> None:
        """Its logit depends on the targets most of all, but never changes its sign."""
        result = recover(weighing_model(weights(11, TARGETS), -1.0 if answer else 201.0), SparseAnd(11, TARGETS))
        assert result.match[0, result.methods.index("patching")]
        assert result.accuracy.constant is answer
        assert result.verdict.verdict == "not created"
        assert result.verdict.disagreements == ()
        opening = (
            f"The model is the constant function: it answers {answer} to every input drawn; validation accuracy is "
        )
        assert result.verdict.sentence.startswith(opening)

    def test_too_few_index_sets_cannot_show_it(self, weighing_model: Callable, recover: Callable) -> None:
        """Ten sets of 2 of 5: the smallest possible p is 1/10."""
        result = recover(weighing_model(weights(5, (1, 3)), 64 * 1.5), SparseAnd(5, (1, 3)))
        assert (result.accuracy.valid, result.p_value.min()) == (1, 1 / 10)
        assert result.match.all()
        assert result.verdict.verdict == "mixed"
        opening = "The targets are on top, but so few index sets exist that chance is not excluded. "
        assert result.verdict.sentence.startswith(opening)

    def test_a_right_order_with_a_wrong_threshold_is_mixed(self, weighing_model: Callable, recover: Callable) -> None:
        """It answers True where two of three targets are 1."""
        result = recover(weighing_model(weights(11, TARGETS), 64 * 1.5), SparseAnd(11, TARGETS))
        assert result.match.all()
        assert result.verdict.verdict == "mixed"
        opening = "The targets are on top, but the accuracy does not clearly beat the majority class. "
        assert result.verdict.sentence.startswith(opening)

    def test_the_verdict_rests_on_patching_not_on_attention(self, asking_model: Callable, recover: Callable) -> None:
        result = recover(asking_model(11, TARGETS, (0, 1, 10)), SparseAnd(11, TARGETS))
        tops = {m: set(result.rankings[0][i].top) for i, m in enumerate(result.methods)}
        assert tops["patching"] == tops["weights"] == set(TARGETS)
        elsewhere = ["attention", "effective-attention", "contribution", "ablation"]
        assert all(tops[method] == {0, 1, 10} for method in elsewhere)
        assert result.accuracy.valid == 1
        assert result.verdict.verdict == "created"
        expected = [f"{m} disagrees with patching: it has {{0, 1, 10}} on top." for m in elsewhere]
        got = [d.replace(" instead of {2, 5, 7}", "") for d in result.verdict.disagreements]
        assert [d[: len(e)] for d, e in zip(got, expected, strict=True)] == expected
        reason = " The targets act as queries: their own queries carry 100 % of what their flips change"
        assert [d[len(e) :].startswith(reason) for d, e in zip(got, expected, strict=True)] == [
            True,
            True,
            False,
            False,
        ]


class TestAccuracy:
    def test_is_that_of_the_validation_set(self, weighing_model: Callable, write_run: Callable, tmp_path: Path) -> None:
        task = SparseAnd(6, (1, 4), p=0.8)
        run = write_run(tmp_path / "run", weighing_model(weights(6, (1,)), 32.0), task)  # answers bit 1
        x, y = run.valid
        accuracy = measure_accuracy(run)
        assert (len(y), accuracy.n_valid) == (1000, 1000)
        right = (x[:, 1] == y).double()
        n_right = int(right.sum())
        assert accuracy.valid == n_right / 1000
        assert (accuracy.low, accuracy.high) == clopper_pearson(n_right, 1000, 0.99)
        assert accuracy.majority == max(y.double().mean().item(), 1 - y.double().mean().item())
        assert accuracy.balanced == (1 + right[~y].mean().item()) / 2
        assert accuracy.constant is None
        assert 0.6 < accuracy.majority < 0.68

    def test_constant_is_judged_on_analysis_inputs_too(self, write_run: Callable, tmp_path: Path) -> None:
        """True only where rule 1 holds: constant on the validation inputs of a task that never draws it."""
        model = HookedLinear(LinearConfig(n_ctx=4))
        with torch.no_grad():
            model.W.copy_(torch.tensor([0.0, 0, 0, 10]))
            model.b.fill_(-5)
        run = write_run(tmp_path / "run", model, RuleAnd(4, ((0,), (1,))))
        x, y = run.valid
        run.__dict__["valid"] = (x[x[:, 3] == 0], y[x[:, 3] == 0])
        assert measure_accuracy(run).constant is None

    @pytest.mark.parametrize(
        ("low", "majority", "clear"), [(0.75, 0.5, True), (0.74, 0.5, False), (0.951, 0.9, True), (0.949, 0.9, False)]
    )
    def test_clear_is_half_of_the_majority_s_errors(self, low: float, majority: float, clear: bool) -> None:
        accuracy = Accuracy(low + 0.01, low, low + 0.02, majority, low, 1000, None)
        assert accuracy.clear == clear
        assert accuracy.to_json()["clearly_above_majority"] == clear


class TestJudge:
    """Every branch, on rankings made up for a rule-and task with targets {0, 1} and {2, 3}."""

    GOOD = Accuracy(1.0, 0.99, 1.0, 0.5, 1.0, 1000, None)
    POOR = Accuracy(0.6, 0.55, 0.65, 0.5, 0.6, 1000, None)
    RIGHT = (Ranking((1, 0), False), Ranking((2, 3), False))
    HALF = (Ranking((1, 0), False), Ranking((4, 3), False))
    WRONG = (Ranking((4, 0), False), Ranking((4, 3), False))

    def verdict(
        self,
        patching: Sequence[Ranking],
        p: float,
        accuracy: Accuracy = GOOD,
        *,
        exact_weights: Sequence[Ranking] | None = None,
        attention: Sequence[Ranking] = RIGHT,
    ) -> Verdict:
        run = Run("nowhere")
        run.__dict__["task"] = RuleAnd(6, ((0, 1), (2, 3)))
        by_method = {"attention": attention, "patching": patching, "weights": exact_weights or patching}
        rankings = list(zip(*by_method.values(), strict=True))
        match = np.array(
            [[set(k.top) == {2 * r, 2 * r + 1} and not k.tie for k in row] for r, row in enumerate(rankings)]
        )
        joint = np.array([0.5, p, 0.5])
        return judge(run, accuracy, list(by_method), rankings, match, joint, exact_weights is not None)

    def test_created(self) -> None:
        assert self.verdict(self.RIGHT, 0.009).verdict == "created"
        assert self.verdict(self.RIGHT, 0.009, exact_weights=self.RIGHT).verdict == "created"

    @pytest.mark.parametrize("p", [0.01, 0.5])
    def test_mixed_by_chance(self, p: float) -> None:
        found = self.verdict(self.RIGHT, p)
        assert (found.verdict, "so few index sets" in found.sentence) == ("mixed", True)

    def test_mixed_by_the_exact_weights(self) -> None:
        found = self.verdict(self.RIGHT, 0.001, exact_weights=self.HALF)
        assert (found.verdict, "but not by the exact weights." in found.sentence) == ("mixed", True)

    def test_mixed_by_accuracy(self) -> None:
        found = self.verdict(self.RIGHT, 0.001, self.POOR)
        assert (found.verdict, "does not clearly beat the majority class" in found.sentence) == ("mixed", True)

    def test_sampled_weights_have_no_veto(self) -> None:
        run = Run("nowhere")
        run.__dict__["task"] = RuleAnd(6, ((0, 1), (2, 3)))
        rankings = [[self.RIGHT[r], self.WRONG[r]] for r in range(2)]
        match = np.array([[True, False], [True, False]])
        found = judge(run, self.GOOD, ["patching", "weights"], rankings, match, np.array([0.001, 1.0]), False)
        assert found.verdict == "created"
        assert found.disagreements[0].startswith(
            "weights disagrees with patching: it has {0, 4} under rule 0 (x5 = 0) "
        )

    def test_mixed_by_one_rule(self) -> None:
        found = self.verdict(self.HALF, 0.5)
        assert found.verdict == "mixed"
        assert "exactly the targets {0, 1} under rule 0 (x5 = 0)" in found.sentence
        assert "{3, 4}, 1 of the 2 targets {2, 3} under rule 1 (x5 = 1)" in found.sentence

    def test_mixed_by_more_than_chance(self) -> None:
        assert self.verdict(self.WRONG, 0.009).verdict == "mixed"

    @pytest.mark.parametrize("p", [0.01, 1.0, float("nan")])
    def test_not_created(self, p: float) -> None:
        assert self.verdict(self.WRONG, p).verdict == "not created"

    def test_a_constant_function_is_never_created(self) -> None:
        constant = Accuracy(1.0, 0.99, 1.0, 0.5, 1.0, 1000, True)
        assert self.verdict(self.RIGHT, 0.001, constant).verdict == "not created"

    def test_attention_decides_nothing(self) -> None:
        found = self.verdict(self.RIGHT, 0.001, attention=self.WRONG)
        assert found.verdict == "created"
        assert self.verdict(self.WRONG, 1.0, attention=self.RIGHT).verdict == "not created"
        (sentence,) = found.disagreements
        assert sentence == (
            "attention disagrees with patching: it has {0, 4} under rule 0 (x5 = 0) instead of {0, 1}; "
            "{3, 4} under rule 1 (x5 = 1) instead of {2, 3} on top."
        )

    def test_a_tie_is_a_disagreement(self) -> None:
        tied = (Ranking((0, 1), True), self.RIGHT[1])
        (sentence,) = self.verdict(self.RIGHT, 0.001, attention=tied).disagreements
        assert "{0, 1} (tied) under rule 0 (x5 = 0)" in sentence


def test_a_model_of_equal_embeddings_is_constant(recover: Callable) -> None:
    model = HookedAttention(AttentionConfig(n_ctx=5, init_std=1.0))
    with torch.no_grad():
        model.W_E[1] = model.W_E[0]
    with pytest.warns(UserWarning, match="hook_embed changes no activation"):
        result = recover(model, SparseAnd(5, (1, 3)))
    assert result.accuracy.constant is not None
    assert result.verdict.verdict == "not created"
    assert (result.scores[0, result.methods.index("patching")] == 0).all()
    assert result.p_value[0, result.methods.index("patching")] == 1
