"""Your own PyTorch Geometric model, end to end: train, observe, calibrate, measure, decide, ship.

python examples/your_model.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.nn import GATv2Conv, GCNConv

import graphcal as gc


class Net(nn.Module):
    """A model as people write them; it ends in log_softmax, as many tutorials do."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(features, 32)
        self.second = GATv2Conv(32, classes, heads=2, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = dropout(self.first(x, edge_index).relu(), 0.5, self.training)
        return self.second(x, edge_index).log_softmax(-1)


def trained(data: gc.datasets.Data, epochs: int = 60) -> Net:
    torch.manual_seed(0)
    model = Net(data.num_features, int(data.y.max()) + 1)
    groups = gc.param_groups(model, weight_decay=5e-4, final_weight_decay=1e-4)  # SCAR's class-centroid level
    optimizer = torch.optim.Adam(groups, lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        cross_entropy(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
    return model


def main() -> None:
    data = gc.load("citeseer")
    model = trained(data)

    out = gc.observe(model, data)
    print(out)
    for name in ("none", "ts", "graph-scaling"):
        calibrate = gc.CALIBRATORS[name]().fit(out, on=data.val_mask)
        found = gc.evaluate(calibrate(out), data.y, data.test_mask)
        print(
            f"{name:14} accuracy {found.accuracy:.3f}  NLL {found.nll:.3f}  ECE {found.ece:.3f} (floor {found.ece_floor:.3f})"
        )

    drawn = data.test_mask & (torch.rand(len(data.y), generator=torch.Generator().manual_seed(0)) < 0.5)
    decision = gc.decide(out, calibrate, certify=drawn, pool=data.test_mask, max_error=0.2, random_draw=True)
    print(decision.sentence)

    with tempfile.TemporaryDirectory() as folder:
        path = gc.save(calibrate, Path(folder) / "calibrator.safetensors")
        served = gc.CalibratedModel(model, gc.restore(path), train_mask=data.train_mask)
        same = torch.allclose(served(data.x, data.edge_index), calibrate(out), atol=1e-5)
        print("the shipped model says the same:", same)


if __name__ == "__main__":
    main()
