"""A graph that is too large for the usual loop, from files to a measured calibration: seconds and peak memory of every stage.

    python benchmarks/big_graph.py [--nodes 1000000] [--edges 10000000] [--epochs 8] [--calibrators ts,graph-scaling]

write      a synthetic graph (graphcal.lab.synthetic) as nodes.parquet and edges.parquet: the input, not counted
read       graphcal.lab.read
train      PyG's GraphSAGE on sampled mini-batches (fan-outs 10 and 10, 1,024 seeds)
observe    the whole graph, layer by layer
fit, apply, measure    each calibrator: fitted on the validation nodes, applied to all nodes, measured on the test nodes

Peak memory is the process's own, set back before every stage where the system allows it (Linux), else the largest so far.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn.models import GraphSAGE

import graphcal
from graphcal.lab.training import NeighborSampler
from graphcal.metrics import score
from graphcal.observation.batches import feature_matrix

VALIDATION = 20_000  # nodes at most


def reset_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_gib() -> float:
    try:
        line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) / 2**20
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Stages:
    """Prints and sums up what every stage took."""

    def __init__(self) -> None:
        self.seconds, self.cpu, self.peak = 0.0, 0.0, 0.0

    @contextmanager
    def stage(self, name: str, counts: bool = True) -> Iterator[None]:
        reset_peak()
        started, cpu_started = time.perf_counter(), time.process_time()
        yield
        seconds, cpu, peak = time.perf_counter() - started, time.process_time() - cpu_started, peak_gib()
        if counts:
            self.seconds, self.cpu, self.peak = self.seconds + seconds, self.cpu + cpu, max(self.peak, peak)
        print(f"| {name} | {seconds:.1f} | {cpu:.1f} | {peak:.2f} |", flush=True)


def write_files(folder: Path, nodes: int, edges: int, labels_per_class: int) -> None:
    data = graphcal.lab.synthetic(nodes, degree=2 * edges / nodes, seed=0, labels_per_class=labels_per_class)
    x = feature_matrix(data.x)
    split = np.full(nodes, "test", dtype=object)
    split[data.train_mask.numpy()] = "train"
    split[data.val_mask.nonzero().flatten()[:VALIDATION].numpy()] = "val"
    offsets = pa.array(x.indptr, pa.int32())
    table = {
        "id": pa.array(np.arange(nodes)),
        "label": pa.array(data.y.numpy()),
        "split": pa.array(split),
        "features": pa.ListArray.from_arrays(offsets, pa.array(x.indices.astype(np.int32))),
        "values": pa.ListArray.from_arrays(offsets, pa.array(x.data)),
    }
    pq.write_table(pa.table(table), folder / "nodes.parquet")
    source, target = data.edge_index.numpy()
    once = source < target
    pq.write_table(pa.table({"source": source[once], "target": target[once]}), folder / "edges.parquet")


def train_on_batches(data: Data, epochs: int) -> nn.Module:
    model = GraphSAGE(data.num_features, 64, 2, int(data.num_classes), dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = NeighborSampler(data, (10, 10), 1024, data.train_mask, shuffle=True)
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index)[: batch.batch_size]
            nn.functional.cross_entropy(logits, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--labels-per-class", type=int, default=2_000)
    parser.add_argument("--calibrators", default="ts,scar,graph-scaling")
    given = parser.parse_args()
    stages = Stages()
    print("| stage | seconds | of processor time | peak GiB |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        with stages.stage("write the files", counts=False):
            write_files(Path(folder), given.nodes, given.edges, given.labels_per_class)
        with stages.stage("read"):
            data = graphcal.lab.read(folder)
    torch.manual_seed(0)
    with stages.stage("train on mini-batches"):
        model = train_on_batches(data, given.epochs)
    with stages.stage("observe"):
        out = graphcal.observe(model, data, layerwise=True)
    rows = []
    for name in ["none", *given.calibrators.split(",")]:
        with stages.stage(f"{name}: fit, apply, measure"):
            calibrate = graphcal.CALIBRATORS[name]().fit(out, on=data.val_mask)
            log_probs = calibrate(out)
            rows.append((name, score(log_probs[data.test_mask], data.y[data.test_mask])))
    print(f"| **all** | **{stages.seconds:.0f}** | **{stages.cpu:.0f}** | **{stages.peak:.2f}** |")
    nodes, edges = int(data.num_nodes), data.edge_index.shape[1] // 2
    print(f"\n{nodes:,} nodes, {edges:,} edges, {given.epochs} epochs.\n")
    print("| method | accuracy | ECE | NLL |\n|---|---|---|---|")
    for name, scores in rows:
        print(f"| {name} | {100 * scores.accuracy:.2f} | {100 * scores.ece:.2f} | {scores.nll:.4f} |")


if __name__ == "__main__":
    main()
