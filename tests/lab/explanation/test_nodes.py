"""An explanation's parts add up and name the right nodes; many cost one pass."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.nn.models import GCN

from conftest import random_graph
from graphcal.core import Outputs, hide_test_labels
from graphcal.lab.explanation import explain, explain_many
from graphcal.lab.models import BACKBONES
from graphcal.lab.training import Training, train
from graphcal.methods import SCAR
from graphcal.observation import observe


class TwoLayers(nn.Module):
    def __init__(self, conv: type[nn.Module], data: Data) -> None:
        super().__init__()
        last = {"heads": 3, "concat": False} if conv is GATConv else {}
        self.first, self.head = conv(data.x.shape[1], 12), conv(12, 4, **last)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(x, edge_index).relu(), edge_index)


def outputs(conv: type[nn.Module] = GCNConv) -> Outputs:
    data = random_graph()
    torch.manual_seed(0)
    model = TwoLayers(conv, data)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(50):
        optimizer.zero_grad()
        logits = model(data.x, data.edge_index)
        nn.functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return observe(model, data)


@pytest.mark.slow_cases("149-GATConv", "77-GATConv", "0-GATConv")
@pytest.mark.parametrize("conv", [GCNConv, SAGEConv, GATConv])
@pytest.mark.parametrize("node", [0, 77, 149])
def test_every_class_adds_up_to_its_logit_and_the_parts_to_the_lead(conv: type[nn.Module], node: int) -> None:
    out = outputs(conv)
    explanation = explain(out, node)
    for row in explanation.classes:
        total = row.intra + row.inter + row.bias + row.residual
        assert total == pytest.approx(float(out.logits[node, row.label]), abs=1e-4)
    assert sum(value for _, value in explanation.lead_terms) == pytest.approx(explanation.lead, abs=1e-4)
    ordered = out.logits[node].sort(descending=True).values
    assert explanation.lead == pytest.approx(float(ordered[0] - ordered[1]), abs=1e-6)
    assert explanation.unexplained < 0.5


def test_what_is_explained_is_more_than_what_is_not() -> None:
    out = outputs()
    shares = [explain(out, node).unexplained for node in range(0, 140, 10)]
    assert sorted(shares)[len(shares) // 2] < 0.15


def test_pushes_are_training_nodes_in_order_and_agree_with_a_hand_computation() -> None:
    out = outputs()
    node = int(out.graph.test_mask.nonzero()[0])
    explanation = explain(out, node, pushes=100)
    everyone = explanation.pushes_for + explanation.pushes_against
    assert len({push.node for push in everyone}) == len(everyone) <= 40
    assert all(out.graph.train_mask[push.node] and push.label == out.graph.y[push.node] for push in everyone)
    assert [p.push for p in explanation.pushes_for] == sorted((p.push for p in explanation.pushes_for), reverse=True)
    assert all(p.push > 0 for p in explanation.pushes_for)
    assert all(p.push < 0 for p in explanation.pushes_against)
    assert sum(p.push for p in everyone) == pytest.approx(sum(explanation.by_class.values()), abs=1e-9)
    one = explanation.pushes_for[0]
    similarity = float(out.final_representation[one.node].double() @ out.final_representation[node].double())
    assert one.push == pytest.approx(one.weight * similarity, rel=1e-6)
    row, col = out.graph.edge_index
    assert (one.hops == 1) == bool(((row == one.node) & (col == node)).any())


def test_calibration_is_shown_and_test_labels_are_not_read() -> None:
    out = outputs()
    fitted = SCAR().fit(out, on=out.graph.val_mask)
    blind = replace(out, graph=hide_test_labels(out.graph))
    seen, unseen = explain(out, 77, fitted), explain(blind, 77, fitted)
    assert seen == unseen
    assert seen.calibrated == pytest.approx(float(fitted(out)[77].exp().max()), abs=1e-6)
    assert sum(row.calibrated for row in seen.classes) == pytest.approx(1, abs=1e-5)
    assert "Calibration" in seen.sentence
    assert explain(out, 77).calibrated is None


def test_an_isolated_node_and_a_training_node_say_so() -> None:
    out = outputs()
    isolated, train = 149, int(out.graph.train_mask.nonzero()[0])
    assert explain(out, isolated).hops == -1
    assert "No training node can be reached" in explain(out, isolated).sentence
    assert "is a training node" in explain(out, train).sentence


def test_refusals_name_the_node_and_the_missing_layer() -> None:
    out = outputs()
    with pytest.raises(ValueError, match="node 150 does not exist: the graph has nodes 0..149"):
        explain(out, 150)
    with pytest.raises(ValueError, match="no final layer"):
        explain(Outputs(out.logits, out.graph), 3)


def test_a_pyg_model_of_ones_own_is_explained() -> None:
    data = random_graph()
    torch.manual_seed(1)
    explanation = explain(observe(GCN(data.x.shape[1], 8, 2, 4), data), 5)
    assert sum(row.prob for row in explanation.classes) == pytest.approx(1)


@pytest.mark.slow_cases("gpn", "gcnii")
@pytest.mark.parametrize("backbone", sorted(BACKBONES))
def test_every_backbone_with_a_visible_final_layer_is_explained(backbone: str) -> None:
    data = random_graph()
    out = train(data, backbone, Training(hidden_channels=8, epochs=20, patience=None), seeds=[0])[0].outputs
    if out.final is None:
        with pytest.raises(ValueError, match="no final layer"):
            explain(out, 77)
        return
    for row in explain(out, 77).classes:
        assert row.intra + row.inter + row.bias + row.residual == pytest.approx(row.logit, abs=1e-4)


def test_explanations_are_json() -> None:
    record = json.loads(json.dumps(explain(outputs(), 77).to_dict()))
    assert record["node"] == 77
    assert sum(record["lead_terms"].values()) == pytest.approx(record["lead"], abs=1e-4)


def test_many_nodes_are_explained_as_one_by_one_at_the_cost_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    out = outputs()
    fitted = SCAR().fit(out, on=out.graph.val_mask)
    nodes = [77, 3, 149, int(out.graph.train_mask.nonzero()[0])]
    alone = [explain(out, node, fitted) for node in nodes]
    passes, inverses = [], []
    forward, pinv = type(fitted).forward, torch.linalg.pinv
    monkeypatch.setattr(type(fitted), "forward", lambda self, out: passes.append(1) or forward(self, out))
    monkeypatch.setattr(torch.linalg, "pinv", lambda *args, **kwargs: inverses.append(1) or pinv(*args, **kwargs))
    together = explain_many(out, nodes, fitted)
    assert (len(passes), len(inverses)) == (1, 1)
    for one, other in zip(alone, together):
        assert (one.node, one.pred, one.hops, one.sentence) == (other.node, other.pred, other.hops, other.sentence)
        assert [p.node for p in one.pushes_for] == [p.node for p in other.pushes_for]
        assert one.calibrated == pytest.approx(other.calibrated, abs=1e-12)
        assert dict(one.lead_terms) == pytest.approx(dict(other.lead_terms), abs=1e-9)
    assert explain_many(out, []) == []
