"""A calibrator that reads neighbours, as another package would write it: ``needs``, ``context`` and ``kernel``, nothing else.

z'_n = z_n + pull * log-odds of the neighbours' mean prediction, two steps away as well; the plain form is z_n
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN

import graphcal
from conftest import random_graph
from graphcal.core import Needs
from graphcal.serving import export_program
from graphcal.tables import disk_sums
from graphcal.tables.scoring import score

CLASSES = 4


class NeighbourPull(graphcal.Calibration):
    """Logits plus a multiple of the centred log of what neighbours and their neighbours predict."""

    needs = Needs(edges=True)

    pull: Tensor  # (2,)

    def context(self, logits, graph, hidden=None, inputs=None):
        probs = graph.rows(lambda z: z.double().softmax(-1), logits)
        one = graph.neighbour_sum(probs)
        two = graph.neighbour_sum(one)
        return graph.rows(opinions, probs, one, two, graph.degree, graph.reciprocal)

    def kernel(self, logits, context):
        around = context.to(logits).reshape(2, len(logits), -1)  # (2, C, n)
        moved = logits + (self.pull.to(logits)[:, None, None] * around.nan_to_num(0.0)).sum(0)
        return moved.log_softmax(0)


def opinions(probs: Tensor, one: Tensor, two: Tensor, degree: Tensor, reciprocal: Tensor) -> Tensor:
    """Centred logs of the mean prediction one step away, and two steps away without the way back; 0 without neighbours."""
    columns = []
    for total in (one, two - reciprocal * probs):
        log = (total.clamp(min=0) + 1e-3).log()
        columns.append(torch.where(degree > 0, log - log.mean(-1, keepdim=True), torch.zeros_like(log)))
    return torch.cat(columns, -1).float()


@dataclass(frozen=True)
class NeighbourPulling:
    def fit(self, out: graphcal.Outputs, on: Tensor, stop: Tensor | None = None) -> NeighbourPull:
        return NeighbourPull(pull=torch.tensor([0.7, 0.2]), num_classes=out.num_classes)


@pytest.fixture(scope="module")
def graph() -> Data:
    """Directed edges, some in both directions, with repeats and loops; the last node is isolated."""
    data = random_graph(nodes=400, classes=CLASSES)
    more = torch.randint(0, 380, (2, 500), generator=torch.Generator().manual_seed(1))
    data.edge_index = torch.cat([data.edge_index, more, more[:, :50]], 1)
    return data


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return GCN(10, 8, 2, out_channels=CLASSES).eval()


@pytest.fixture(scope="module")
def out(model, graph) -> graphcal.Outputs:
    return graphcal.observe(model, graph)


@pytest.fixture(scope="module")
def calibrate(out) -> NeighbourPull:
    return NeighbourPulling().fit(out, on=out.graph.val_mask)


def by_hand(out: graphcal.Outputs, pull: tuple[float, float] = (0.7, 0.2)) -> np.ndarray:
    """Probabilities, node by node, with sets of neighbours."""
    z = out.logits.double().numpy()
    probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    around: list[set[int]] = [set() for _ in z]
    for a, b in out.graph.edge_index.T.tolist():
        if a != b:
            around[a].add(b)
    answer = np.empty_like(z)
    for n, row in enumerate(z):
        one = sum((probs[m] for m in around[n]), np.zeros(CLASSES))
        two = sum((probs[k] for m in around[n] for k in around[m] if k != n), np.zeros(CLASSES))
        moved = row.copy()
        for weight, total in zip(pull, (one, two)):
            log = np.log(total + 1e-3)
            moved += weight * (log - log.mean()) * bool(around[n])
        answer[n] = np.exp(moved - moved.max()) / np.exp(moved - moved.max()).sum()
    return answer


def test_in_memory(out, calibrate):
    np.testing.assert_allclose(calibrate(out).exp().numpy(), by_hand(out), atol=1e-6)
    assert not np.allclose(by_hand(out), out.logits.softmax(-1).numpy(), atol=0.05)  # neighbours matter


def test_on_disk(out, calibrate, tmp_path, monkeypatch):
    for name, value in {"BITS": 7, "FEWEST_BITS": 7, "EDGES": 1000, "COLUMNS": 3}.items():
        monkeypatch.setattr(disk_sums, name, value)  # parts of 128 nodes: 16 blocks of edges
    monkeypatch.setattr(disk_sums, "ROWS", 100)
    saved = graphcal.save(calibrate, tmp_path / "c.safetensors")
    table = {"id": np.arange(400), **{f"logit_{k}": out.logits[:, k].numpy() for k in range(CLASSES)}}
    pq.write_table(pa.table(table), tmp_path / "predictions.parquet")
    source, target = out.graph.edge_index.numpy()
    pq.write_table(pa.table({"src": source, "dst": target}), tmp_path / "edges.parquet")
    score(saved, tmp_path / "predictions.parquet", tmp_path / "out", edges=tmp_path / "edges.parquet", kind="logits")
    scored = pq.read_table(tmp_path / "out" / "predictions.parquet")
    probs = np.stack([scored[f"calibrated_prob_{k}"].to_numpy() for k in range(CLASSES)], 1)
    np.testing.assert_allclose(probs, calibrate(out).exp().numpy(), atol=1e-6)


def test_in_a_sampled_batch(model, out, calibrate):
    """The batch has the nodes in another order, and no edge of the graph's own."""
    nodes = torch.randperm(400, generator=torch.Generator().manual_seed(2))[:90]

    class Sampled(torch.nn.Module):
        def forward(self, x, edge_index):
            return out.logits[nodes]  # of the whole neighbourhood: what differs is what the calibration can read

    served = graphcal.CalibratedModel(Sampled(), calibrate, context=calibrate.context_of(out))
    edges = torch.tensor([[0, 1], [1, 0]])
    log_probs = served(out.graph.x[nodes], edges, n_id=nodes)
    torch.testing.assert_close(log_probs.exp(), calibrate(out)[nodes].exp(), atol=1e-6, rtol=0)
    later = served(out.graph.x[nodes], edges, n_id=nodes + 400)  # nodes that are newer than the table: the plain form
    torch.testing.assert_close(later.exp(), out.logits[nodes].softmax(-1), atol=1e-6, rtol=0)


def test_after_torch_export(model, graph, calibrate):
    """Traced on another graph than the one it is asked about."""
    traced = random_graph(nodes=60, classes=CLASSES, seed=3)
    exportable = graphcal.CalibratedModel(model, calibrate).exportable()
    data = Data(x=traced.x, edge_index=traced.edge_index)
    program = export_program(exportable, data)
    with torch.no_grad():
        log_probs = program.module()(x=graph.x, edge_index=graph.edge_index)
    expected = calibrate(graphcal.observe(model, Data(x=graph.x, edge_index=graph.edge_index)))
    torch.testing.assert_close(log_probs.exp(), expected.exp(), atol=1e-6, rtol=0)


def test_saved_and_restored(out, calibrate, tmp_path):
    restored = graphcal.restore(graphcal.save(calibrate, tmp_path / "c.safetensors"))
    torch.testing.assert_close(restored(out), calibrate(out))
