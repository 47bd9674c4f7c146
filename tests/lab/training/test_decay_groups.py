"""The lever for other people's models: which parameters are the final layer's."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.models import GCN

from graphcal.lab.training import param_groups


class WithHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.body = nn.Linear(5, 4)


class Convs(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(5, 4), GCNConv(4, 3)


def shapes(group):
    return sorted(tuple(p.shape) for p in group["params"])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (WithHead(), [(3,), (3, 4)]),
        (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), [(3,), (3, 4)]),
        (Convs(), [(3,), (3, 4)]),
        (GCN(5, 4, 2, 3), [(3,), (3, 4)]),
    ],
    ids=["head", "sequential", "convolutions", "pyg model"],
)
def test_the_final_layer_is_found(model, expected):
    rest, final = param_groups(model, 5e-4, 1e-5)
    assert (rest["weight_decay"], final["weight_decay"]) == (5e-4, 1e-5)
    assert shapes(final) == expected
    assert len(rest["params"]) + len(final["params"]) == len(list(model.parameters()))
    torch.optim.Adam([rest, final], lr=0.01)


def test_it_may_be_named_or_given():
    model = nn.ModuleDict({"last": nn.Linear(4, 3), "first": nn.Linear(5, 4)})
    for final in ("last", model["last"]):
        assert shapes(param_groups(model, 1e-3, 0.0, final)[1]) == [(3,), (3, 4)]


def test_an_attention_layer_is_taken_whole():
    model = nn.ModuleList([GATConv(5, 2, heads=2), GATConv(4, 3, heads=1)])
    assert len(param_groups(model, 1e-3, 0.0)[1]["params"]) == len(list(model[1].parameters()))


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match="final='top' is not a module of WithHead; it has head, body"):
        param_groups(WithHead(), 1e-3, 0.0, "top")
    with pytest.raises(ValueError, match="is not a module of WithHead"):
        param_groups(WithHead(), 1e-3, 0.0, nn.Linear(2, 2))
    with pytest.raises(ValueError, match="has no module with a weight"):
        param_groups(nn.ReLU(), 1e-3, 0.0)


def test_of_a_gat_attention_and_bias_decay_with_the_layer_unless_left_out():
    layer = GATConv(5, 3, heads=2, concat=False)
    model = nn.Sequential(nn.Linear(5, 5), layer)
    _, final = param_groups(model, 5e-4, 1e-5, final=layer)
    assert {id(p) for p in final["params"]} == {id(p) for p in layer.parameters()}
    rest, final = param_groups(model, 5e-4, 1e-5, final=layer, weights_only=True)
    assert shapes(final) == [(6, 5)]
    assert {id(layer.att_src), id(layer.att_dst), id(layer.bias)} <= {id(p) for p in rest["params"]}
    assert len(rest["params"]) + len(final["params"]) == len(list(model.parameters()))
