"""The inputs shown, and the model's answers to them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from analyses import samples
from analyses.runs import Run


@pytest.mark.parametrize("name", ["sparse", "rule", "mlp", "linear"])
def test_labels_rules_and_logits_are_the_task_s_and_the_model_s(name: str, analysed: Callable[[str], Run]) -> None:
    run = analysed(name)
    result = samples.compute(run)
    x = torch.tensor(result.x)
    assert x.shape == (24, run.task.n_ctx)
    assert result.label.tolist() == run.task.label(x).tolist()
    assert result.rule.tolist() == run.task.rule(x).tolist()
    np.testing.assert_array_equal(result.logit, run.model(x).detach().double().numpy())
    assert result.p_true == run.task.p_true
    assert (result.targets, result.rule_positions) == (run.task.targets, run.task.rule_positions)


def test_as_many_as_asked_for(analysed: Callable[[str], Run]) -> None:
    result = samples.compute(analysed("rule"), n=500)
    assert len(result.x) == 500
    assert abs(result.rule.mean() - 0.5) < 0.1
    assert abs(result.x[:, :10].mean() - 0.5**0.5) < 0.03


def test_are_a_stream_of_their_own(analysed: Callable[[str], Run]) -> None:
    run = analysed("sparse")
    shown = samples.compute(run).x.tolist()
    assert shown != run.inputs(0)[:24].tolist()
    assert shown != run.valid.x[:24].tolist()
