"""Training a stack: neighbours, stopping, resuming, traces, refusals and memory."""

import functools
import math
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from interp import training
from interp.checkpoint import read_tensors, snapshot_path
from interp.config import AttentionConfig, LinearConfig, MLPConfig, ModelConfig, TrainConfig
from interp.errors import BoolensError
from interp.models import build_model
from interp.stack import ParameterBlock
from interp.training import Job, Labelled, batch_rows, median_accuracy, memory_a_model, models_at_once, train_stack
from interp.training_state import STATE

N_CTX, N_TRAIN, N_VALID = 6, 23, 17
KINDS: dict[str, ModelConfig] = {
    "attention": AttentionConfig(N_CTX, init_std=0.3),
    "mlp": MLPConfig(N_CTX, d_mlp=13, dropout=0.2),
    "linear": LinearConfig(N_CTX),
}


def config(**fields: Any) -> TrainConfig:
    return TrainConfig(**{"n_train": N_TRAIN, "n_valid": N_VALID, "steps": 12, "log_every": 3, "lr": 0.05, **fields})


def targets(seed: int) -> tuple[int, int]:
    return seed % N_CTX, (seed + 2) % N_CTX


def samples(n: int, seed: int, stream: int) -> Labelled:
    """Bits labelled by the AND of the seed's own two."""
    x = (torch.rand(n, N_CTX, generator=torch.Generator().manual_seed(10 * seed + stream)) < 0.7).long()
    return x, x[:, targets(seed)].all(dim=1)


def job(kind: str, seed: int, *, folder: Path | None = None, dtype: torch.dtype = torch.float64) -> Job:
    model = build_model(KINDS[kind], torch.Generator().manual_seed(seed)).to(dtype)
    return Job(model, samples(N_TRAIN, seed, 1), samples(N_VALID, seed, 2), seed, folder)


def jobs_of(kind: str, n: int = 5, **options: Any) -> list[Job]:
    return [job(kind, seed, **options) for seed in range(n)]


def in_folders(kind: str, root: Path, n: int = 5) -> list[Job]:
    return [job(kind, seed, folder=root / f"seed-{seed}") for seed in range(n)]


def content(model: torch.nn.Module) -> bytes:
    return safetensors.torch.save(dict(model.state_dict()))


def weights(of: Job) -> Tensor:
    return ParameterBlock(of.model).flatten([of.model])[0]


def trained(jobs: list[Job], cfg: TrainConfig, **options: Any) -> list[Job]:
    train_stack(jobs, cfg, **options)
    return jobs


def check_same(mine: Job, theirs: Job, atol: float = 1e-9) -> None:
    assert mine.seed == theirs.seed
    assert mine.stopped == theirs.stopped
    torch.testing.assert_close(weights(mine), weights(theirs), rtol=0, atol=atol)
    torch.testing.assert_close(torch.tensor(mine.history), torch.tensor(theirs.history), rtol=0, atol=atol)


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


class TestResuming:
    @pytest.mark.parametrize("rule", [{}, {"stop_loss": 0.5}])
    @pytest.mark.parametrize(("kind", "batch_size"), [("attention", 0), ("mlp", 5)])
    def test_some_finished_some_begun_some_not(
        self, kind: str, batch_size: int, rule: dict[str, Any], tmp_path: Path
    ) -> None:
        cfg = config(steps=20, batch_size=batch_size, snapshot_every=7, **rule)
        whole = trained(in_folders(kind, tmp_path / "whole"), cfg, at_once=2)
        begun = [max(j.history[-1][0] for j in whole[:2]), max(j.history[-1][0] for j in whole[2:4])]
        assert min(begun) > 8

        def interrupt(step: int, some: list[Job]) -> None:
            if step == 8 and some[-1].seed in (2, 3):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_stack(in_folders(kind, tmp_path), cfg, at_once=2, save_seconds=-1, on_step=interrupt)
        states = [tmp_path / f"seed-{seed}" / STATE for seed in range(5)]
        steps = [int(read_tensors(path)["step"]) if path.exists() else 0 for path in states]
        assert steps[:2] == [j.history[-1][0] for j in whole[:2]]
        assert steps[2:] == [min(7, int(whole[2].history[-1][0])), min(7, int(whole[3].history[-1][0])), 0]
        again = in_folders(kind, tmp_path)
        for one in again:
            for parameter in one.model.parameters():  # weights come from the state where there is one
                if steps[one.seed]:
                    parameter.data.fill_(7)
        train_stack(again, cfg, at_once=2)
        for mine, theirs in zip(again, whole, strict=True):
            assert content(mine.model) == content(theirs.model)
            assert mine.history == theirs.history
            assert mine.stopped == theirs.stopped
            assert mine.folder
            assert theirs.folder
            for path in (theirs.folder / "snapshots").iterdir():
                assert (mine.folder / "snapshots" / path.name).read_bytes() == path.read_bytes()

    def test_in_other_company(self, tmp_path: Path) -> None:
        cfg = config(steps=20)
        whole = trained(jobs_of("attention"), cfg)
        for part, stop in (((0, 3), 5), ((1,), 9), ((4,), 15)):
            some = [one for one in in_folders("attention", tmp_path) if one.seed in part]
            begin = TrainConfig.from_dict({**cfg.to_dict(), "steps": stop})
            train_stack(some, begin, save_seconds=-1)
        again = in_folders("attention", tmp_path)
        firsts: list[tuple[int, list[int]]] = []
        train_stack(again, cfg, on_step=lambda step, some: firsts.append((step, [j.seed for j in some])))
        started = {tuple(seeds): step for step, seeds in reversed(firsts)}
        assert started == {(2,): 1, (0, 3): 6, (1,): 10, (4,): 16}
        for mine, theirs in zip(again, whole, strict=True):
            mine.history = [row for row in mine.history if row[0] in (0, 3, 6, 9, 12, 15, 18, 20)]
            check_same(mine, theirs)


class TestTraces:
    @pytest.mark.parametrize("kind", KINDS)
    def test_everything_is_as_before(self, kind: str) -> None:
        def fail(step: int, _: list[Job]) -> None:
            assert (torch.tensor(torch.finfo(torch.float32).tiny) / 2).item() == 0
            if step == 2:
                raise ZeroDivisionError

        if not torch.set_flush_denormal(False):
            pytest.skip("this processor cannot flush denormals")
        torch.manual_seed(5)
        before, threads = torch.get_rng_state(), torch.get_num_threads()
        finished, failed = jobs_of(kind), jobs_of(kind)
        train_stack(finished, config(batch_size=5))
        with pytest.raises(ZeroDivisionError):
            train_stack(failed, config(batch_size=5), on_step=fail)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == threads
        assert torch.is_grad_enabled()
        assert (torch.tensor(torch.finfo(torch.float32).tiny) / 2).item() != 0
        for one in finished + failed:
            assert not any(module.training for module in one.model.modules())
            assert all(p.grad is None and p.requires_grad for p in one.model.parameters())

    def test_the_data_is_not_written_to(self) -> None:
        jobs, before = jobs_of("attention"), jobs_of("attention")
        train_stack(jobs, config(batch_size=5))
        for mine, theirs in zip(jobs, before, strict=True):
            for ours, own in zip((*mine.data, *mine.valid), (*theirs.data, *theirs.valid), strict=True):
                assert torch.equal(ours, own)


class TestRefused:
    def test_no_jobs(self) -> None:
        with pytest.raises(BoolensError, match="no models to train; give at least one job"):
            train_stack([], config())

    @pytest.mark.parametrize("other", ["linear", "wider"])
    def test_models_of_different_configurations(self, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(KINDS, "wider", AttentionConfig(N_CTX, d_model=5, init_std=0.3))
        jobs = [job("attention", 0), job("attention", 1), job(other, 2)]
        before = [content(j.model) for j in jobs]
        with pytest.raises(BoolensError, match=r"a stack has one configuration, but .* is not .*; split it"):
            train_stack(jobs, config())
        assert [content(j.model) for j in jobs] == before

    def test_one_job_with_too_little_data(self) -> None:
        jobs = jobs_of("linear")
        jobs[3].data = samples(N_TRAIN - 1, 3, 1)
        with pytest.raises(BoolensError, match="22 inputs and 22 labels given, but n_train = 23; make them equal"):
            train_stack(jobs, config())


class TestMemory:
    @pytest.mark.parametrize("cfg", [*KINDS.values(), AttentionConfig(30, n_heads=2, d_value=2)])
    def test_the_estimate_grows_with_every_size(self, cfg: ModelConfig) -> None:
        small = memory_a_model(cfg, config())
        assert small > 0
        assert memory_a_model(cfg, config(n_train=24)) > small
        assert memory_a_model(cfg, config(n_valid=18)) > small
        for name in ("n_ctx", "n_heads", "d_value", "d_mlp"):
            if name in cfg.to_dict():
                larger = type(cfg).from_dict({**cfg.to_dict(), name: getattr(cfg, name) + 1})
                assert memory_a_model(larger, config()) > small, name

    def test_models_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cfg, train_cfg = AttentionConfig(30), TrainConfig()
        need = memory_a_model(cfg, train_cfg)

        def with_free(size: int) -> int:
            monkeypatch.setattr(training.os, "sysconf", {"SC_AVPHYS_PAGES": size, "SC_PAGE_SIZE": 1}.__getitem__)
            return models_at_once(cfg, train_cfg)

        assert [with_free(4 * n * need + 3) for n in (0, 1, 2, 7, 64, 1000)] == [1, 1, 2, 7, 64, 64]
        monkeypatch.undo()
        assert 1 <= models_at_once(cfg, train_cfg) <= 64
        assert models_at_once(AttentionConfig(10_000), TrainConfig(n_train=10**9)) == 1

    @pytest.mark.parametrize(
        "cfg", [AttentionConfig(30), AttentionConfig(17, n_heads=4, d_value=2), MLPConfig(30), LinearConfig(30)]
    )
    def test_the_estimate_is_what_a_stack_takes(self, cfg: ModelConfig) -> None:
        train_cfg = TrainConfig(n_train=190, n_valid=310, steps=1)
        x = (torch.rand(500, cfg.n_ctx, generator=torch.Generator().manual_seed(0)) < 0.7).long()
        data, valid = (x[:190], x[:190, 0].bool()), (x[190:], x[190:, 0].bool())
        jobs = [Job(build_model(cfg), data, valid, seed) for seed in range(16)]
        most = Largest()
        with most:
            train_stack(jobs, train_cfg)
        assert most.bytes / 4 < 16 * memory_a_model(cfg, train_cfg) < most.bytes * 4


class Largest(TorchDispatchMode):
    """The most bytes that the tensors made within it hold at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.now = 0
        self.users: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                self.now += size * (not self.users[key])
                self.users[key] += 1
                self.bytes = max(self.bytes, self.now)
                weakref.finalize(tensor, self.release, key, size)
        return out

    def release(self, key: int, size: int) -> None:
        self.users[key] -= 1
        self.now -= size * (not self.users[key])
