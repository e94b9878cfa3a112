"""One thread for small tensors, and the number from before afterwards."""

from collections.abc import Iterator

import pytest
import torch

from interp.threads import ONE_THREAD_BELOW, suited_threads


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("n_elements", "threads"), [(0, 1), (ONE_THREAD_BELOW - 1, 1), (ONE_THREAD_BELOW, 2), (10 * ONE_THREAD_BELOW, 2)]
)
def test_small_tensors_get_one_thread(n_elements: int, threads: int) -> None:
    with suited_threads(n_elements):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_the_number_from_before_is_restored_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), suited_threads(1):  # noqa: PT012
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


def test_nested() -> None:
    with suited_threads(1):
        with suited_threads(10 * ONE_THREAD_BELOW):
            assert torch.get_num_threads() == 1  # never more than there were
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
