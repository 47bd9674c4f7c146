"""Serve a calibrated model: save it, restore it in a process that only serves, answer by graph, by node and by sampled batch.

python examples/serve.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv
from torch_geometric.utils import k_hop_subgraph

import graphcal


class Net(nn.Module):
    """Any model of yours; this one ends in log_softmax, as PyG's tutorials do."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.first = GATv2Conv(inputs, 8, heads=2)
        self.last = GATv2Conv(16, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index).log_softmax(-1)


def trained(data: Data, epochs: int = 40) -> Net:
    torch.manual_seed(0)
    model = Net(data.num_features, data.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        optimiser.zero_grad()
        out = model(data.x, data.edge_index)
        nn.functional.nll_loss(out[data.train_mask], data.y[data.train_mask]).backward()
        optimiser.step()
    return model.eval()


def ship(data: Data, path: Path) -> None:
    """Where labels are: fit, and write model and calibration into one file."""
    model = trained(data)
    calibrate = graphcal.GraphScaling().fit(graphcal.observe(model, data), on=data.val_mask)
    graphcal.save(graphcal.CalibratedModel(model, calibrate), path)


def answer(calibrated: graphcal.CalibratedModel, data: Data, node: int) -> Tensor:
    """One node: its neighbourhood, as far as the model and the calibration look (two layers, two hops more)."""
    nodes, edges, position, _ = k_hop_subgraph(node, 4, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    return calibrated(data.x[nodes], edges)[position].exp().squeeze(0)


def main() -> None:
    data = graphcal.lab.synthetic(600, homophily=0.6, feature_signal=0.3, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        ship(data, path)
        calibrated = graphcal.restore(path, model=Net(data.num_features, data.num_classes))
    with torch.no_grad():
        everything = calibrated(data.x, data.edge_index).exp()
        one = answer(calibrated, data, node=7)
    print("node 7, whole graph:   ", [round(float(p), 3) for p in everything[7]])
    print("node 7, alone:         ", [round(float(p), 3) for p in one])
    tomorrow = torch.cat([data.x, data.x[:1]])  # a new node without edges
    with torch.no_grad():
        later = calibrated(tomorrow, data.edge_index).exp()
    print("largest change of others:", f"{float((later[:600] - everything).abs().max()):.1e}")


if __name__ == "__main__":
    main()
