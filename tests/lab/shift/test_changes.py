"""Changed graphs change what they say and nothing else."""

from __future__ import annotations

import pytest
import torch

from conftest import random_graph
from graphcal.lab.shift import with_mixed_features, with_rewired_edges, without_class
from graphcal.lab.shift.experiments import later


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_left_out_class_is_nowhere_but_in_its_own_mask() -> None:
    data = random_graph()
    reduced = without_class(data, 1)
    assert reduced.num_classes == 3
    for name in ("train_mask", "val_mask", "test_mask"):
        assert not (reduced[name] & (data.y == 1)).any()
        assert torch.equal(reduced[name] & (data.y != 1), data[name] & (data.y != 1))
        assert set(reduced.y[reduced[name]].tolist()) <= {0, 1, 2}
    assert torch.equal(reduced.unknown_mask, data.test_mask & (data.y == 1))
    assert torch.equal(reduced.y[data.y == 3], torch.full_like(reduced.y[data.y == 3], 2))
    assert (data.y.max(), data.train_mask.sum()) == (3, 40)  # the original is as it was
    with pytest.raises(ValueError, match="class 4 does not exist: the graph has classes 0..3"):
        without_class(data, 4)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_features_change_only_on_later_nodes_and_about_as_much_as_asked(share: float) -> None:
    data = random_graph()
    changed = with_mixed_features(data, share, seeded())
    assert torch.equal(changed.x[~later(data)], data.x[~later(data)])
    moved = (changed.x != data.x)[later(data)].double().mean()
    assert moved == pytest.approx(share, abs=0.06)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_edges_move_only_between_later_nodes_and_stay_undirected(share: float) -> None:
    data = random_graph()
    changed = with_rewired_edges(data, share, seeded())
    before, after = ({tuple(edge) for edge in d.edge_index.T.tolist()} for d in (data, changed))
    late = later(data)
    fixed = {edge for edge in before if not (late[edge[0]] and late[edge[1]])}
    assert fixed <= after
    assert all((b, a) in after and a != b for a, b in after)
    if share == 0:
        assert after == before
    else:
        assert len(after - before) > 0.5 * (len(before) - len(fixed))
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\]; got 1.5"):
        with_rewired_edges(data, 1.5, seeded())
