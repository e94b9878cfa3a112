"""Models set by hand in which it is known where each variable is, and the real ones of the tutorial."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from analyses import abstraction
from analyses.abstraction import ALIGNED, SEARCHED, SOURCES, Abstraction
from analyses.runs import Run
from interp.config import AttentionConfig
from interp.models import HookedAttention
from interp.patching import UndefinedWarning
from tasks import RuleAnd, SparseAnd

N_CTX = 6
ANY, MINIMAL = range(len(SOURCES))


def site(result: Abstraction, source: int, variable: str) -> dict[str, float]:
    values = result.iia[source, result.variables.index(variable)]
    return {name.rsplit("hook_", 1)[-1]: float(v) for name, v in zip(result.sites, values, strict=True)}


def found_at(result: Abstraction, hook: str, variable: str, pos: int) -> float:
    (h,) = [i for i, name in enumerate(SEARCHED) if name.endswith(f"hook_{hook}")]
    return float(result.search[h, result.variables.index(variable), pos])


@pytest.fixture(scope="module")
def compute(tmp_path_factory: pytest.TempPathFactory, write_run: Callable) -> Callable[..., Abstraction]:
    return lambda model, task: abstraction.compute(write_run(tmp_path_factory.mktemp("run"), model, task))


@pytest.fixture(scope="module")
def weighing(compute: Callable, weighing_model: Callable) -> Abstraction:
    weights = [40 if pos in (1, 4) else 1e-6 for pos in range(N_CTX)]
    return compute(weighing_model(weights, 60), SparseAnd(N_CTX, (1, 4)))


@pytest.fixture(scope="module")
def asking(compute: Callable, asking_model: Callable) -> Abstraction:
    with pytest.MonkeyPatch.context() as quicker:
        quicker.setattr(abstraction, "ALIGNED", ALIGNED[1:])
        return compute(asking_model(N_CTX, (1, 4), (0, 2)), SparseAnd(N_CTX, (1, 4)))


@pytest.fixture(scope="module")
def selecting(compute: Callable, selecting_model: Callable) -> Abstraction:
    targets = ((0, 3), (1, 4))
    return compute(selecting_model(N_CTX, targets), RuleAnd(N_CTX, targets))


def test_bits_in_the_values(weighing: Abstraction) -> None:
    """A fixed pattern: values at the targets carry the bits, patterns, queries and keys carry nothing."""
    for source in (ANY, MINIMAL):
        at = site(weighing, source, "and")
        assert (at["v"], at["z"], at["logit"], at["embed, own bits"]) == (1, 1, 1, 1)
        assert (at["q"], at["k"], at["pattern"], at["embed, other bits"]) == (0.5, 0.5, 0.5, 0.5)
    for target in (1, 4):
        for pos in range(N_CTX):
            share = found_at(weighing, "v", f"target {target}", pos)
            assert share == found_at(weighing, "embed", f"target {target}", pos)
            assert share == 1 if pos == target else share <= 0.5
        best = next(b for b in weighing.best if b.variable == f"target {target}")
        assert (best.axis, best.index, best.iia, best.high) == ("pos", target, 1, 1)
        assert best.low > 0.97


def test_bits_in_the_queries(asking: Abstraction) -> None:
    """Values never differ; each target's own query says whether it is set."""
    assert site(asking, ANY, "and")["v"] == site(asking, MINIMAL, "and")["v"] == 0.5
    for target in (1, 4):
        for hook in ("q", "pattern", "z"):
            assert found_at(asking, hook, f"target {target}", target) == 1
            assert found_at(asking, hook, f"target {target}", 0) == 0.5
        assert site(asking, MINIMAL, f"target {target}")["pattern"] == 1
        assert site(asking, ANY, f"target {target}")["pattern"] == 0.625  # the source's label: both bits are taken


def test_the_rule_moves_the_attention(selecting: Abstraction) -> None:
    assert selecting.variables == ("rule", "and", "target 0", "target 1", "target 3", "target 4")
    for source in (ANY, MINIMAL):
        at = site(selecting, source, "rule")
        assert (at["q"], at["pattern"], at["embed, own bits"]) == (1, 1, 1)
        assert at["k"] == 0.5
    assert site(selecting, MINIMAL, "rule")["v"] == 0.5
    for pos in range(N_CTX):
        for hook in ("q", "pattern"):
            assert found_at(selecting, hook, "rule", pos) == (1 if pos == N_CTX - 1 else 0.5)
    for target in (0, 1, 3, 4):
        at = site(selecting, MINIMAL, f"target {target}")
        assert (at["v"], at["pattern"], at["q"]) == (1, 0.5, 0.5)
        assert found_at(selecting, "v", f"target {target}", target) == 1


def test_baselines(weighing: Abstraction, selecting: Abstraction) -> None:
    for result, source in ((weighing, [1, 0.625, 0.625]), (selecting, [0.5, 1, 0.5, 0.5, 0.5, 0.5])):
        assert result.n_pairs == (abstraction.N_PAIRS,) * len(result.variables)
        np.testing.assert_array_equal(result.unpatched, 0.5)
        np.testing.assert_array_equal(result.majority, 0.5)
        np.testing.assert_array_equal(result.source, source)
        assert result.base_loss == pytest.approx(math.log(2))
        known = np.isfinite(result.iia)
        assert (result.low[known] <= result.iia[known]).all()
        assert (result.iia[known] <= result.high[known]).all()


def test_directions(weighing: Abstraction, selecting: Abstraction) -> None:
    """At the embeddings the direction of a bit is its own; at z one direction carries the AND; no random one does."""
    for result, variable, pos in (
        (weighing, "target 1", 1),
        (selecting, "rule", N_CTX - 1),
        (selecting, "target 0", 0),
    ):
        v = result.aligned.index(variable)
        learned, _, random = result.alignment[0, v]
        assert learned > 0.97
        assert random < 0.75
        assert result.weight[0, v, pos] > 0.7
        assert result.weight[0, v].sum() == pytest.approx(1)
    for result in (weighing, selecting):
        learned, untrained, random = result.alignment[
            ALIGNED.index("blocks.0.attn.hook_z"), result.aligned.index("and")
        ]
        assert learned > 0.97
        assert max(untrained, random) < 0.9


def test_scrubbing_is_there(selecting: Abstraction, weighing: Abstraction) -> None:
    assert list(weighing.scrubbed) == ["selected bits", "fixed selection", "shuffled targets"]
    assert selecting.scrubbed["rule selects"].recovered == pytest.approx(1, abs=1e-6)


def test_every_bit_a_target(compute: Callable, weighing_model: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other bits, no wrong set; nothing warns."""
    monkeypatch.setattr(abstraction, "ALIGNED", ALIGNED[1:])
    result = compute(weighing_model([2, 2, 2], 5), SparseAnd(3, (0, 1, 2)))
    at = site(result, ANY, "and")
    assert math.isnan(at["embed, other bits"])
    assert at["embed, own bits"] == 1
    assert "shuffled targets" not in result.scrubbed
    abstraction.plot(result)


def test_a_rule_without_effect_is_left_out(
    compute: Callable, selecting_model: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.causal.MAX_ROUNDS", 2)
    monkeypatch.setattr(abstraction, "ALIGNED", ALIGNED[1:])
    targets = ((0, 1), (0, 1))
    result = compute(selecting_model(4, targets), RuleAnd(4, targets))
    assert result.variables == ("and", "target 0", "target 1")
    assert result.aligned == ("and", "target 0")


def test_a_site_that_never_differs_has_no_direction(compute: Callable) -> None:
    """With W_V zero z is the same for all inputs; the search at the embeddings is not held up by it."""
    model = HookedAttention(AttentionConfig(n_ctx=4, d_model=3)).double().eval()
    with torch.no_grad():
        model.attn.get_parameter("W_V").zero_()
    with pytest.warns(UndefinedWarning):
        result = compute(model, SparseAnd(4, (1, 2)))
    assert np.isnan(result.alignment[1][:, [0, 2]]).all()
    assert np.isfinite(result.alignment[0]).all()
    assert (result.iia[np.isfinite(result.iia)] == 0.5).all()
    abstraction.plot(result)


class TestTutorial:
    """The tutorial's own checkpoints."""

    def test_sparse(self, result_of: Callable[[str, str], Any], analysed: Callable[[str], Run]) -> None:
        result = result_of("tutorial", "abstraction")["result"]
        assert result["variables"] == ["and", "target 12", "target 24", "target 27"]
        for best, target in zip(result["best"][1:], (12, 24, 27), strict=True):
            assert (best["index"], best["iia"]) == (target, 1)
        z, learned, untrained, random = 1, 0, 1, 2
        values = result["alignment"][z][0]
        assert values[learned] > max(values[untrained], values[random]) + 0.3
        assert result["scrubbed"]["selected bits"]["low"] > result["scrubbed"]["shuffled targets"]["high"]

    def test_rule(self, result_of: Callable[[str, str], Any]) -> None:
        result = result_of("rule", "abstraction")["result"]
        best = {each["variable"]: each for each in result["best"]}
        assert (best["rule"]["hook"], best["rule"]["index"]) == ("hook_embed", 10)
        assert best["rule"]["iia"] > 0.95
        scrubbed = {name: each["recovered"] for name, each in result["scrubbed"].items()}
        assert 1 > scrubbed["every target"] > scrubbed["shuffled targets"]
        assert result["scrubbed"]["every target"]["exact"]
