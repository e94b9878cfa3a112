import pytest
import torch

from tasks import RuleAnd, SparseAnd, TaskError, draw_dataset


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_dataset_is_a_labelled_sample() -> None:
    task = RuleAnd(7, ((0, 1), (2,)))
    x, y = draw_dataset(task, 40, seeded(1))
    assert torch.equal(x, task.sample(40, seeded(1)))
    assert torch.equal(y, task.label(x))
    assert 0 < int(y.sum()) < 40


def test_distinct_is_passed_on() -> None:
    task = SparseAnd(4, (0,))
    x, y = draw_dataset(task, 16, seeded(2), distinct=True)
    assert sorted(x.tolist()) == task.enumerate().tolist()
    assert int(y.sum()) == 8
    with pytest.raises(TaskError, match=r"17 distinct samples asked for, but only 2\*\*4 = 16 inputs exist"):
        draw_dataset(task, 17, seeded(2), distinct=True)


def test_one_class_is_refused_with_its_probability() -> None:
    # 18 targets at the tutorial's p: 1/64 = 0.015625 of labels are True
    with pytest.raises(
        TaskError,
        match=r"all 5 labels are False: P\(label = True\) is 0.0156 at p = 0.7937; draw more samples, or use p = 'bal",
    ):
        draw_dataset(SparseAnd(30, range(18), p="tutorial"), 5, seeded(3))
    with pytest.raises(TaskError, match=r"all 6 labels are True: P\(label = True\) is 0.998 at p = 0.999"):
        draw_dataset(SparseAnd(9, (1, 4), p=0.999), 6, seeded(4))


def test_one_sample_cannot_hold_both_labels() -> None:
    with pytest.raises(TaskError, match="all 1 labels are"):
        draw_dataset(SparseAnd(5, (0,)), 1, seeded(5))
