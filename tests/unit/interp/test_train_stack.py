"""Training a stack: neighbours and the stopping rule."""

import functools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from interp.checkpoint import read_tensors, snapshot_path
from interp.config import TrainConfig
from interp.training import Job, batch_rows, median_accuracy, train_stack
from tests.unit.interp.stack_cases import (
    KINDS,
    N_CTX,
    check_same,
    config,
    content,
    in_folders,
    job,
    jobs_of,
    targets,
    trained,
    weights,
)


class TestNeighbours:
    @pytest.mark.parametrize("batch_size", [0, 5])
    @pytest.mark.parametrize("kind", KINDS)
    def test_do_not_matter(self, kind: str, batch_size: int) -> None:
        cfg = config(steps=20, batch_size=batch_size)
        alone = [trained([one], cfg)[0] for one in jobs_of(kind)]
        assert len({content(one.model) for one in alone}) == 5
        for at_once in (1, 2, 5, None):
            for mine, theirs in zip(trained(jobs_of(kind), cfg, at_once=at_once), alone, strict=True):
                check_same(mine, theirs)
                assert at_once != 1 or content(mine.model) == content(theirs.model)
        order = [3, 0, 4]
        for mine, seed in zip(trained([job(kind, seed) for seed in order], cfg, at_once=2), order, strict=True):
            check_same(mine, alone[seed])

    @pytest.mark.parametrize("kind", KINDS)
    def test_do_not_matter_in_float32(self, kind: str) -> None:
        for steps, atol in ((4, 1e-5), (60, None)):
            cfg = config(steps=steps)
            alone = [trained([one], cfg)[0] for one in jobs_of(kind, dtype=torch.float32)]
            together = trained(jobs_of(kind, dtype=torch.float32), cfg)
            for mine, theirs in zip(together, alone, strict=True):
                assert weights(mine).dtype == torch.float32
                assert mine.history[-1][2::2] == theirs.history[-1][2::2]
                if atol:
                    check_same(mine, theirs, atol)

    def test_each_job_learns_its_own_targets(self) -> None:
        for one in trained(jobs_of("linear", n=4), config(steps=300)):
            largest = weights(one)[:N_CTX].topk(2).indices
            assert set(largest.tolist()) == set(targets(one.seed))
            assert one.history[-1][2] > 0.9

    def test_mini_batches_are_each_seed_s_own(self) -> None:
        cfg = config(steps=1, batch_size=5, lr=1e-3)
        for one in trained(jobs_of("linear"), cfg):
            rows = batch_rows(cfg, one.seed, 0)
            start = job("linear", one.seed)
            loss = binary_cross_entropy_with_logits(start.model(one.data[0][rows]), one.data[1][rows].double())
            g = torch.cat([p.flatten() for p in torch.autograd.grad(loss, list(start.model.parameters()))])
            step = 1e-3 * g / (g.abs() + 1e-8)  # Adam's first
            torch.testing.assert_close(weights(one), weights(start) - step, rtol=0, atol=1e-12)


def first_row(history: list[tuple[float, ...]], cfg: TrainConfig) -> tuple[int, str]:
    """By hand from a training without a rule: the row at which the rule ends it, and why."""
    best = 0
    for i, (_, train_loss, _, valid_loss, accuracy) in enumerate(history):
        best = i if valid_loss < history[best][3] else best
        if train_loss < cfg.stop_loss:
            return i, "loss"
        if cfg.stop_accuracy and accuracy >= cfg.stop_accuracy:
            return i, "accuracy"
        if cfg.patience and i - best >= cfg.patience:
            return i, "patience"
    return len(history) - 1, "steps"


@functools.cache
def without_rule(kind: str, seed: int, steps: int) -> Job:
    return trained([job(kind, seed)], config(steps=steps, log_every=5, lr=0.1))[0]


class TestStopping:
    @pytest.mark.parametrize("at_once", [2, 5])
    @pytest.mark.parametrize(
        ("kind", "rule", "reasons"),
        [
            ("linear", {}, {"steps"}),
            ("linear", {"stop_loss": 0.11}, {"loss", "steps"}),
            ("linear", {"stop_accuracy": 0.9}, {"accuracy", "steps"}),
            ("linear", {"stop_accuracy": 1.0, "stop_loss": 0.22}, {"accuracy", "loss"}),
            ("attention", {"patience": 2}, {"patience", "steps"}),
            ("attention", {"stop_accuracy": 1.0, "patience": 3}, {"accuracy", "patience"}),
            ("mlp", {"stop_loss": 0.2}, {"loss"}),
        ],
    )
    def test_at_the_first_row_that_meets_the_rule(
        self, kind: str, rule: dict[str, Any], reasons: set[str], at_once: int
    ) -> None:
        cfg = config(steps=61, log_every=5, lr=0.1, **rule)
        done: list[tuple[int, bytes, str, int]] = []
        stopped = trained(
            jobs_of(kind),
            cfg,
            at_once=at_once,
            on_done=lambda j: done.append((j.seed, content(j.model), j.stopped, len(j.history))),
        )
        found = []
        for mine in stopped:
            whole = without_rule(kind, mine.seed, 61)
            row, reason = first_row(whole.history, cfg)
            found.append(reason)
            step = int(whole.history[row][0])
            assert (mine.stopped, mine.history[-1][0]) == (reason, step)
            check_same(mine, replace(without_rule(kind, mine.seed, step), stopped=reason))
        assert set(found) == reasons
        assert {seed: rest for seed, *rest in done} == {
            j.seed: [content(j.model), j.stopped, len(j.history)] for j in stopped
        }
        groups = [range(start, min(start + at_once, 5)) for start in range(0, 5, at_once)]
        in_order = [i for group in groups for i in sorted(group, key=lambda i: stopped[i].history[-1][0])]
        assert [seed for seed, *_ in done] == in_order

    def test_between_rows_nothing_stops(self) -> None:
        cfg = config(steps=7, log_every=4, stop_loss=100.0)
        assert [j.history[-1][0] for j in trained(jobs_of("linear", n=2), cfg)] == [0, 0]
        cfg = config(steps=7, log_every=4, stop_accuracy=1e-9)
        assert [j.stopped for j in trained(jobs_of("linear", n=2), cfg)] == ["accuracy"] * 2

    def test_on_step_is_told_who_took_it(self) -> None:
        calls: list[tuple[int, list[int], float]] = []
        cfg = config(steps=61, log_every=5, lr=0.1, stop_loss=0.2)
        jobs = trained(
            jobs_of("linear"),
            cfg,
            at_once=3,
            on_step=lambda step, some: calls.append((step, [j.seed for j in some], median_accuracy(some))),
        )
        ends = [int(j.history[-1][0]) for j in jobs]
        expected = []
        for group in ([0, 1, 2], [3, 4]):
            for step in range(1, max(ends[i] for i in group) + 1):
                some = [i for i in group if ends[i] >= step]
                logged = torch.tensor([jobs[i].history[(step - 1) // 5][-1] for i in some], dtype=torch.float64)
                expected.append((step, some, logged.quantile(0.5).item()))
        assert len(set(ends)) > 2
        assert [call[:2] for call in calls] == [call[:2] for call in expected]
        assert [call[2] for call in calls] == pytest.approx([call[2] for call in expected])

    def test_a_diverging_model_leaves_the_others_alone(self) -> None:
        """Finite at first: the first gradient is not."""
        jobs, alone = jobs_of("attention"), jobs_of("attention")
        attn = jobs[2].model.get_submodule("blocks.0.attn")
        for name, size in (("W_V", 1e124), ("W_Q", 1e-3)):
            attn.get_parameter(name).data.fill_(size)
        jobs[2].model.get_parameter("W_readout").data.fill_(1e187)
        jobs[2].model.get_parameter("W_E").data.mul_(1e-5)
        jobs[2].model.get_parameter("W_pos").data.mul_(1e-5)
        order: list[int] = []
        train_stack(jobs, config(), on_done=lambda j: order.append(j.seed))
        assert jobs[2].stopped == "diverged"
        assert jobs[2].history[-1][0] == 3
        assert math.isfinite(jobs[2].history[0][1])
        assert not math.isfinite(jobs[2].history[-1][1])
        assert order == [2, 0, 1, 3, 4]
        train_stack(alone, config())
        for mine, theirs in zip(jobs, alone, strict=True):
            if mine.seed != 2:
                check_same(mine, theirs)

    @pytest.mark.parametrize("kind", KINDS)
    def test_weights_that_diverged_before_the_first_step(self, kind: str) -> None:
        jobs, alone = (jobs_of(kind, dtype=torch.float32) for _ in range(2))
        for parameter in jobs[1].model.parameters():
            parameter.data.fill_(1e30 if kind != "linear" else float("inf"))
        train_stack(jobs, config(steps=5))
        train_stack(alone, config(steps=5))
        assert (jobs[1].stopped, len(jobs[1].history)) == ("diverged", 1)
        for mine, theirs in zip(jobs, alone, strict=True):
            if mine.seed != 1:
                check_same(mine, theirs, 1e-4)

    def test_snapshots_end_where_the_model_does(self, tmp_path: Path) -> None:
        cfg = config(steps=61, log_every=5, lr=0.1, stop_loss=0.2, snapshot_every=10)
        jobs = trained(in_folders("linear", tmp_path), cfg)
        for one in jobs:
            assert one.folder
            end = int(one.history[-1][0])
            steps = sorted({*range(0, end + 1, 10), end})
            names = [snapshot_path(one.folder, step).name for step in steps]
            assert sorted(p.name for p in (one.folder / "snapshots").iterdir()) == names
            last = read_tensors(snapshot_path(one.folder, end))
            assert torch.equal(last["W"], one.model.get_parameter("W"))
        assert len({j.history[-1][0] for j in jobs}) > 2
