import pytest
import torch

import graphcal
from graphcal.lab.shift.new_nodes import arrivals


def coming(seed=0, **settings):
    data = graphcal.lab.synthetic(600, seed=1, **settings)
    data.place = torch.arange(600)  # its number before
    return data, arrivals(data, torch.Generator().manual_seed(seed))


def test_before_the_first_wave_nothing_of_the_new_nodes_is_there():
    data, found = coming()
    known = found.after(0)
    assert known.num_nodes == found.sizes[0] == 400  # a third is new
    assert not known.test_mask.any()
    assert int(known.train_mask.sum()) == int(data.train_mask.sum())
    assert int(known.val_mask.sum()) == int(data.val_mask.sum())
    among = torch.isin(data.edge_index, known.place).all(0)
    assert known.num_edges == int(among.sum()) < data.num_edges


def test_every_wave_brings_its_nodes_and_their_edges():
    data, found = coming()
    met = []
    for wave in range(1, 6):
        there = found.after(wave)
        new = there.place[there.test_mask]
        assert len(new) == 40
        assert data.test_mask[new].all()
        assert torch.equal(there.y, data.y[there.place])
        met.append(new)
    assert len(torch.cat(met).unique()) == 200
    last = found.complete()
    assert torch.equal(last.place[last.test_mask], torch.cat(met))
    assert last.num_edges == data.num_edges
    pairs = last.place[last.edge_index]
    number = lambda e: e[0] * 600 + e[1]  # noqa: E731
    assert torch.equal(number(pairs).sort().values, number(data.edge_index).sort().values)


def test_the_generator_decides_who_comes_when():
    assert torch.equal(coming(0)[1].graph.place, coming(0)[1].graph.place)
    assert not torch.equal(coming(0)[1].graph.place, coming(1)[1].graph.place)


def test_too_few_nodes_are_refused():
    data = graphcal.lab.synthetic(600, seed=1)
    data.test_mask = torch.zeros(600, dtype=torch.bool)
    data.test_mask[5] = True
    with pytest.raises(ValueError, match="1 test nodes cannot arrive in 5 waves"):
        arrivals(data, torch.Generator())
