"""Training a stack: resuming, traces, refusals and memory."""

import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from interp import memory
from interp.checkpoint import read_tensors
from interp.config import AttentionConfig, ClsConfig, LinearConfig, MLPConfig, ModelConfig, TrainConfig
from interp.errors import BoolensError
from interp.memory import memory_a_model, models_at_once
from interp.models import build_model
from interp.training import Job, train_stack
from interp.training_state import STATE
from tests.unit.interp.stack_cases import (
    KINDS,
    N_CTX,
    N_TRAIN,
    check_same,
    config,
    content,
    in_folders,
    job,
    jobs_of,
    samples,
    trained,
)


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
    @pytest.mark.parametrize(
        "cfg", [*KINDS.values(), AttentionConfig(30, n_heads=2, d_value=2), ClsConfig(30, 12, 3, d_head=2)]
    )
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
            monkeypatch.setattr(memory.os, "sysconf", {"SC_AVPHYS_PAGES": size, "SC_PAGE_SIZE": 1}.__getitem__)
            return models_at_once(cfg, train_cfg)

        assert [with_free(4 * n * need + 3) for n in (0, 1, 2, 7, 512, 9000)] == [1, 1, 2, 7, 512, 512]
        monkeypatch.undo()
        assert 1 <= models_at_once(cfg, train_cfg) <= 512
        assert 1 <= models_at_once(MLPConfig(30), train_cfg) <= 64
        assert models_at_once(AttentionConfig(10_000), TrainConfig(n_train=10**9)) == 1

    @pytest.mark.parametrize(
        "cfg",
        [
            *(AttentionConfig(30), AttentionConfig(17, n_heads=4, d_value=2), MLPConfig(30), LinearConfig(30)),
            *(ClsConfig(30), ClsConfig(170, d_model=12, n_heads=3, d_mlp=0)),
        ],
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
