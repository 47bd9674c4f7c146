"""One thread for fits and small work, all of them for large, and what was there before comes back."""

import pytest
import torch

from conftest import random_graph
from graphcal import core
from graphcal.methods import CALIBRATORS, Uncalibrated
from graphcal.study import Study, held_out
from graphcal.threads import SMALL, one_thread, threads_for
from small_outputs import linear_outputs


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


@pytest.mark.slow_cases("order-invariant")
@pytest.mark.parametrize(
    "name", ["ts", "vs", "ms", "sms", "dirichlet", "scar", "ets", "platt", "rbs", "order-invariant"]
)
def test_fits_have_one_thread(name, monkeypatch):
    seen, check_mask = [], core.check_mask
    monkeypatch.setattr(core, "check_mask", lambda *args: (seen.append(torch.get_num_threads()), check_mask(*args))[1])
    out = linear_outputs(random_graph())
    CALIBRATORS[name]().fit(out, on=out.graph.val_mask)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 3


def test_a_study_fits_any_recipe_on_one_thread():
    seen = []

    class ThirdParty:
        def fit(self, out, on, stop=None):
            seen.append(torch.get_num_threads())
            return Uncalibrated().fit(out, on)

    out = linear_outputs(random_graph())
    Study.of([out], {"other": ThirdParty()}, on=out.graph.val_mask)
    held_out(out, ThirdParty(), out.graph.val_mask, torch.arange(int(out.graph.val_mask.sum())).chunk(2))
    assert seen == [1, 1, 1]
    assert torch.get_num_threads() == 3
