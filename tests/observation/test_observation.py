import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

import graphcal
from graphcal import Outputs, observe
from graphcal.methods.scar import fit_pull

ALPHA, BETA = 0.03, 0.2


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x, edge_index):
        return self.layers(x)


class HeadsAveraged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GATConv(10, 6, heads=2)
        self.last = GATConv(12, 4, heads=3, concat=False)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


MODELS = {
    "gcn": lambda: GCN(10, 8, 2, out_channels=4),
    "gat": lambda: GAT(10, 8, 2, out_channels=4, heads=1),
    "gat-averaged-heads": HeadsAveraged,
    "sage": lambda: GraphSAGE(10, 8, 2, out_channels=4),
    "mlp": MLP,
}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def literal_eq10(out: Outputs, alpha: float, beta: float) -> torch.Tensor:
    """Eq. 10 as printed: move representations, then apply the last layer again."""
    facts = graphcal.structure(out.graph)
    weight, hidden = out.final.weight, out.final_representation
    moved = hidden.clone()
    for n in range(out.num_nodes):
        if facts.train_mask[n]:
            continue
        w = alpha if facts.next_to_training[n] else beta
        moved[n] = w * weight[out.pred[n]] + (1 - w) * hidden[n]
    return moved @ weight.T + out.final.bias


@pytest.mark.parametrize("name", MODELS)
def test_the_layer_found_produces_the_logits(name, graph):
    model = build(name)
    out = observe(model, graph)
    assert torch.allclose(out.logits, model(graph.x, graph.edge_index), atol=1e-6)
    assert torch.allclose(out.final_representation @ out.final.weight.T + out.final.bias, out.logits, atol=1e-5)
    assert torch.allclose(out.final.gram, out.final.weight @ out.final.weight.T, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_scar_in_logit_space_is_eq_10(name, graph):
    out = observe(build(name), graph)
    ours = fit_pull(out, graph.val_mask, ALPHA, BETA, guarded=False)(out)
    assert torch.allclose(ours, literal_eq10(out, ALPHA, BETA).log_softmax(-1), atol=1e-5)


def test_linear_gat_and_gcn_heads_are_the_users_own_weights(graph):
    model = build("gat")
    assert torch.equal(observe(model, graph).final.weight, model.convs[-1].lin.weight)
    model = build("gcn")
    assert torch.equal(observe(model, graph).final.weight, model.convs[-1].lin.weight)


def test_training_mode_is_restored_and_dropout_is_off(graph):
    model = GCN(10, 8, 2, out_channels=4, dropout=0.9).train()
    a, b = observe(model, graph), observe(model, graph)
    assert model.training
    assert torch.equal(a.logits, b.logits)


def test_another_signature(graph):
    class TakesData(MLP):
        def forward(self, data):
            return self.layers(data.x)

    assert observe(TakesData(), graph, call=lambda model, data: model(data)).final is not None
    assert observe(TakesData(), graph).final is not None


def ending(last):
    class Ends(MLP):
        def forward(self, x, edge_index):
            return last(self.layers(x))

    return Ends()


def test_a_named_final_layer_must_produce_the_logits(graph):
    model = build("mlp")
    assert observe(model, graph, final="layers.2").final is not None
    with pytest.raises(ValueError, match=r"final='layers.2' is not the final layer of Ends: .* Leave it out"):
        observe(ending(torch.tanh), graph, final="layers.2")


def test_nan_logits_are_refused(graph):
    model = build("mlp")
    with torch.no_grad():
        model.layers[2].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        observe(model, graph)


def test_gcnconv_with_cache_and_edge_weight(graph):
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(10, 4, cached=True)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index, torch.full((edge_index.shape[1],), 0.3))

    out = observe(Weighted(), graph)
    assert torch.allclose(out.final_representation @ out.final.weight.T + out.final.bias, out.logits, atol=1e-5)
