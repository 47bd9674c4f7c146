"""CaGCN's "GAT": no attention, an ELU on the logits, nothing for SCAR to see."""

import pytest
import torch
from torch_geometric.nn import GCNConv

from graphcal import SCAR
from graphcal.lab.models import BACKBONES, ModelConfig, TrainedGNN
from graphcal.lab.training import Training, published, train


def test_it_is_eight_convolutions_side_by_side(graph):
    backbone = BACKBONES["gat-cagcn"]()
    replicas = backbone.build(ModelConfig(10, 6, 4, 0.5, 0.0, "glorot"), [torch.Generator().manual_seed(0)])
    first, last = GCNConv(10, 48, bias=False), GCNConv(48, 4, bias=False)
    with torch.no_grad():
        first.lin.weight.copy_(replicas.branches[0].T)
        last.lin.weight.copy_(replicas.head.weight[0].T)
        elu = torch.nn.functional.elu
        expected = elu(last(elu(first(graph.x, graph.edge_index)), graph.edge_index))
        logits = TrainedGNN(backbone, replicas).eval()(graph.x, graph.edge_index)
    assert torch.allclose(logits, expected, atol=1e-5)
    assert float(logits.min()) > -1


def test_scar_cannot_be_applied(graph):
    out = train(graph, "gat-cagcn", Training(epochs=3, hidden_channels=4), seeds=1)[0].outputs
    assert out.final is None
    with pytest.raises(ValueError, match="final layer"):
        SCAR().fit(out, graph.val_mask)


def test_it_brings_the_settings_of_cagcns_code():
    made = published("cagcn", "gat-cagcn")
    t = made.training
    assert (t.hidden_channels, t.dropout, t.input_dropout, t.lr, t.init) == (8, 0.6, 0.6, 0.005, "xavier-normal")
    assert "SpGAT" in made.sources[0]
    assert published("cagcn", "gat-cagcn", "pubmed").training.weight_decay == 1e-3
