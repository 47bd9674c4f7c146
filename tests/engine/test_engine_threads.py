"""One thread for small work, all of them for large, and what was there before comes back."""

import pytest
import torch

from graphcal.engine.threads import SMALL, one_thread, threads_for


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("entries", "threads"), [(SMALL, 1), (SMALL + 1, 3)])
def test_small_work_has_one_thread(entries, threads):
    with threads_for(entries):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3


def test_threads_come_back_after_an_error():
    with pytest.raises(ValueError, match="stop"), one_thread():
        raise ValueError("stop")
    assert torch.get_num_threads() == 3
