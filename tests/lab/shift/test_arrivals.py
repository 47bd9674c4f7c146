import pytest
import torch

import graphcal
from graphcal.lab.shift.new_nodes import arrivals


def coming(seed=0, **settings):
    data = graphcal.lab.synthetic(600, seed=1, **settings)
    data.old_number = torch.arange(600)  # its number before
    return data, arrivals(data, torch.Generator().manual_seed(seed))


def test_before_the_first_wave_nothing_of_the_new_nodes_is_there():
    data, waves = coming()
    old = waves.after(0)
    assert old.num_nodes == waves.sizes[0] == 400  # a third is new
    assert not old.test_mask.any()
    assert int(old.train_mask.sum()) == int(data.train_mask.sum())
    assert int(old.val_mask.sum()) == int(data.val_mask.sum())
    among = torch.isin(data.edge_index, old.old_number).all(0)
    assert old.num_edges == int(among.sum()) < data.num_edges


def test_every_wave_brings_its_nodes_and_their_edges():
    data, waves = coming()
    met = []
    for wave in range(1, 6):
        there = waves.after(wave)
        new = there.old_number[there.test_mask]
        assert len(new) == 40
        assert data.test_mask[new].all()
        assert torch.equal(there.y, data.y[there.old_number])
        met.append(new)
    assert len(torch.cat(met).unique()) == 200
    last = waves.complete()
    assert torch.equal(last.old_number[last.test_mask], torch.cat(met))
    assert last.num_edges == data.num_edges
    pairs = last.old_number[last.edge_index]
    number = lambda e: e[0] * 600 + e[1]  # noqa: E731
    assert torch.equal(number(pairs).sort().values, number(data.edge_index).sort().values)


def test_the_generator_decides_who_comes_when():
    assert torch.equal(coming(0)[1].graph.old_number, coming(0)[1].graph.old_number)
    assert not torch.equal(coming(0)[1].graph.old_number, coming(1)[1].graph.old_number)


def test_too_few_nodes_are_refused():
    data = graphcal.lab.synthetic(600, seed=1)
    data.test_mask = torch.zeros(600, dtype=torch.bool)
    data.test_mask[5] = True
    with pytest.raises(ValueError, match="1 test nodes cannot arrive in 5 waves"):
        arrivals(data, torch.Generator())
