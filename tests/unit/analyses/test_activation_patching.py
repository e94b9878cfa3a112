"""Which groups of pairs are drawn, and what fractions their patches bring back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from analyses import activation_patching as analysis
from analyses.runs import Run
from interp import AttentionConfig, HookedAttention
from interp.hooks import run as run_model
from interp.interventions import UnchangedWarning
from interp.patching import patch_positions_from
from tasks import Junta, Majority, RuleAnd, SparseAnd

K, V, Z, PATTERN = (f"blocks.0.attn.hook_{name}" for name in ("k", "v", "z", "pattern"))
DENOISE, NOISE = 0, 1


@pytest.fixture
def run_of(write_run: Callable, random_attention: Callable[..., HookedAttention], tmp_path: Path) -> Callable[..., Run]:
    """From a task to a run of a random model."""
    return lambda task: write_run(tmp_path / "run", random_attention(task.n_ctx, dtype=torch.float32), task)


class TestGroups:
    def test_sparse(self, run_of: Callable[..., Run]) -> None:
        groups = analysis.draw_groups(run_of(SparseAnd(6, (1, 4))))
        assert {name: control for name, (_, control) in groups.items()} == {
            "target 1": False,
            "target 4": False,
            "non-targets": True,
        }
        for name, position in (("target 1", 1), ("target 4", 4)):
            pairs = groups[name][0]
            assert len(pairs.clean) == 64
            assert (pairs.position == position).all()
            assert pairs.clean_label.all()
            assert not pairs.corrupted_label.any()
        control = groups["non-targets"][0]
        assert set(control.position.tolist()) == {0, 2, 3, 5}
        assert control.corrupted_label.all()

    def test_rules(self, run_of: Callable[..., Run]) -> None:
        groups = analysis.draw_groups(run_of(RuleAnd(6, ((0, 3), (1, 4)))))
        assert list(groups) == [
            *("target 0 (rule 0)", "target 3 (rule 0)", "rule bit 5 (rule 0)", "non-targets (rule 0)"),
            *("target 1 (rule 1)", "target 4 (rule 1)", "rule bit 5 (rule 1)", "non-targets (rule 1)"),
        ]
        for name, (pairs, control) in groups.items():
            assert control == name.startswith("non-targets")
            assert (pairs.rule == int(name[-2])).all()
            assert pairs.clean_label.all()
            assert (pairs.corrupted_label == control).all()
            if name.startswith("rule bit"):
                assert (pairs.position == 5).all()

    def test_two_rule_bits(self, run_of: Callable[..., Run]) -> None:
        groups = analysis.draw_groups(run_of(RuleAnd(6, ((0,), (1,), (2,), (3,)), rule_positions=(4, 5))))
        assert [name for name in groups if "rule bit" in name] == [
            f"rule bit {position} (rule {rule})" for rule in range(4) for position in (4, 5)
        ]

    def test_a_rule_bit_that_changes_no_label_has_no_group(self, run_of: Callable[..., Run]) -> None:
        """Rule 0's targets are all among rule 1's: where rule 1 holds, clearing the bit leaves the label True."""
        groups = analysis.draw_groups(run_of(RuleAnd(5, ((0,), (0, 1)))))
        assert [name for name in groups if "rule bit" in name] == ["rule bit 4 (rule 0)"]

    def test_without_non_targets_there_is_no_control(self, run_of: Callable[..., Run]) -> None:
        groups = analysis.draw_groups(run_of(SparseAnd(2, (0, 1))))
        assert (
            [name for name, (_, control) in groups.items() if not control] == list(groups) == ["target 0", "target 1"]
        )

    def test_functions_of_targets(self, run_of: Callable[..., Run]) -> None:
        """Two of three targets are 1 where one decides a majority; one pattern where one decides this table."""
        for task in (Majority(7, (1, 4, 5)), Junta(7, (1, 4, 5), "00010000")):
            groups = analysis.draw_groups(run_of(task))
            assert [(name, control) for name, (_, control) in groups.items()] == [
                *((f"target {i}", False) for i in (1, 4, 5)),
                ("non-targets", True),
            ]
            for name, (pairs, control) in groups.items():
                assert len(pairs.clean) == 64
                assert pairs.clean_label.all()
                assert bool(pairs.corrupted_label.any()) == control
                assert control or (pairs.position == int(name.split()[1])).all()
        assert set(map(tuple, groups["target 4"][0].clean[:, [1, 4, 5]].tolist())) == {(0, 1, 1)}

    def test_groups_are_drawn_apart(self, run_of: Callable[..., Run]) -> None:
        groups = analysis.draw_groups(run_of(SparseAnd(9, (1, 4))))
        one, two = (groups[f"target {t}"][0].clean for t in (1, 4))
        assert not torch.equal(one, two)


@pytest.mark.parametrize("name", ["sparse", "rule", "tutorial", "mlp", "linear"])
def test_embeddings_bring_back_exactly_everything_at_the_bit(name: str, result_of: Callable[[str, str], Any]) -> None:
    result = result_of(name, "activation-patching")["result"]
    assert result["directions"] == ["denoise", "noise"]
    fraction = np.array(result["fraction"], dtype=float)
    embed = fraction[:, result["hooks"].index("hook_embed")]
    n_checked = 0
    for g, group in enumerate(result["groups"]):
        if result["is_control"][g]:
            assert np.isnan(fraction[:, :, g]).all()
            continue
        position = int(group.split("(")[0].split()[-1])
        expected = [float(pos == position) for pos in range(fraction.shape[-1])]
        np.testing.assert_allclose(embed[:, g], [expected, expected], atol=1e-6)
        n_checked += 1
    assert n_checked == {"sparse": 4, "rule": 6, "tutorial": 3, "mlp": 3, "linear": 3}[name]


@pytest.mark.parametrize("name", ["sparse", "rule", "tutorial"])
def test_z_s_fractions_add_up(name: str, result_of: Callable[[str, str], Any]) -> None:
    """The logit is a sum over queries, so patching z brings back fractions that sum to 1, and the same both ways."""
    result = result_of(name, "activation-patching")["result"]
    fraction = np.array(result["fraction"], dtype=float)[:, result["hooks"].index(Z)]
    shown = ~np.array(result["is_control"])
    np.testing.assert_allclose(fraction[:, shown].sum(axis=-1), 1, atol=1e-4)
    np.testing.assert_allclose(fraction[DENOISE, shown], fraction[NOISE, shown], atol=1e-4)


def test_is_what_the_interventions_give(analysed: Callable[[str], Run], result_of: Callable) -> None:
    run, result = analysed("rule"), result_of("rule", "activation-patching")["result"]
    assert not {"hook_pos_embed", "blocks.0.hook_resid_pre", "blocks.0.attn.hook_attn_scores"} & set(result["hooks"])
    h = result["hooks"].index(V)
    for g, (pairs, control) in enumerate(analysis.draw_groups(run).values()):
        clean, corrupted = (run_model(run.model, x)[0].double() for x in (pairs.clean, pairs.corrupted))
        difference = (clean - corrupted).mean().item()
        assert result["difference"][g] == pytest.approx(difference, rel=1e-4, abs=1e-4)
        denoised = patch_positions_from(run.model, pairs.corrupted, pairs.clean, V).double()
        noised = patch_positions_from(run.model, pairs.clean, pairs.corrupted, V).double()
        for d, change in ((DENOISE, denoised - corrupted), (NOISE, noised - clean)):
            np.testing.assert_allclose(result["change"][d][h][g], change.abs().mean(dim=1), rtol=1e-4, atol=1e-4)
        if not control:
            assert difference > 1
            back = (denoised - corrupted).mean(dim=1) / difference
            lost = (clean - noised).mean(dim=1) / difference
            np.testing.assert_allclose(result["fraction"][DENOISE][h][g], back, atol=1e-4)
            np.testing.assert_allclose(result["fraction"][NOISE][h][g], lost, atol=1e-4)


def test_values_carry_the_targets_of_a_model_that_selects_by_key(
    weighing_model: Callable, write_run: Callable, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", weighing_model([8, 1, 8, 1], 12.5), SparseAnd(4, (0, 2)))
    with pytest.warns(UnchangedWarning):  # queries, keys and patterns do not depend on bits
        result = analysis.compute(run)
    v, k = (result.fraction[:, result.hooks.index(hook)] for hook in (V, K))
    np.testing.assert_allclose(v[:, 0], [[1, 0, 0, 0]] * 2, atol=1e-9)
    np.testing.assert_allclose(v[:, 1], [[0, 0, 1, 0]] * 2, atol=1e-9)
    np.testing.assert_allclose(k[:, :2], 0, atol=1e-9)
    assert result.difference[:2] == pytest.approx([8, 8])
    assert np.abs(result.difference[2]) < 1  # the control: one bit of weight 1


def test_a_model_that_does_not_tell_them_apart_has_no_fractions(write_run: Callable, tmp_path: Path) -> None:
    model = HookedAttention(AttentionConfig(n_ctx=4))
    with torch.no_grad():
        model.W_readout.zero_()
    run = write_run(tmp_path / "run", model, SparseAnd(4, (0, 2)))
    with pytest.warns(UnchangedWarning, match="hook_pattern"):  # weights of 0.001: every pattern is even to float32
        result = analysis.compute(run)
    assert np.isnan(result.fraction).all()
    assert (result.difference == 0).all()
    assert (result.change == 0).all()
