"""Training speed and memory: graphcal against PyG and against a loop written for speed, side by side in one run.

    python benchmarks/training.py [--graphs cora,citeseer] [--backbones gcn,gat] [--seeds 1,10] [--json]

The usual loop: two GCNConv(cached=True) or GATConv layers, dense features, Adam, one training step and one validation loss every
epoch; several seeds one after the other. Ours: `graphcal.lab.train`, same width, early stop switched off. Both use all of torch's
threads. Rounds alternate between the two. Times are milliseconds for one epoch of one run: for the usual loop its fastest epoch
of all rounds, without set-up; for ours the mean over a whole training, set-up and results included, in the fastest round.
"cpu" is the ratio of processor time. "CSR" is the usual loop with its features as a sparse CSR tensor, one changed line. "best"
is a loop written for speed by hand: sparse products with stored transposes, on the rows that count, fused Adam. Both are for GCN,
and "/ CSR" and "/ best" say how many times faster ours is. Peak memory is that of a process of its own (Linux).

"sparse" is the share of our time spent in sparse (or, where the input is dense, dense) products with the graph and the features,
measured in one thread: what is left when everything else costs nothing.

Graphs other than citeseer are read from the folder GRAPHCAL_DATA; those that are missing are left out with a note.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.utils import to_scipy_sparse_matrix

import graphcal
from graphcal.lab import datasets
from graphcal.lab.engine import receptive, sparse
from graphcal.lab.training import Training, published

EPOCHS = {"cora": 200, "citeseer": 200, "pubmed": 60, "cs": 20, "synthetic": 20}  # a round of ours; PyG's has a tenth
ROUNDS = 3


class UsualGCN(nn.Module):
    def __init__(self, inputs: int, training: Training, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(inputs, training.hidden_channels, cached=True)
        self.second = GCNConv(training.hidden_channels, classes, cached=True)
        self.p = training.dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.dropout(self.first(x, edge_index).relu(), self.p, self.training)
        return self.second(h, edge_index)


class UsualGAT(nn.Module):
    def __init__(self, inputs: int, training: Training, classes: int) -> None:
        super().__init__()
        self.first = GATConv(inputs, training.hidden_channels, heads=8, dropout=training.dropout)
        self.second = GATConv(8 * training.hidden_channels, classes, heads=1, dropout=training.dropout)
        self.p = training.dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.elu(self.first(F.dropout(x, self.p, self.training), edge_index))
        return self.second(F.dropout(h, self.p, self.training), edge_index)


def usual_loop(data: Data, backbone: str, training: Training, epochs: int) -> list[tuple[float, float]]:
    """Seconds of every epoch, by the clock and of the processor."""
    kind = UsualGCN if backbone == "gcn" else UsualGAT
    model = kind(data.x.shape[1], training, data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    best, times = float("inf"), []
    for _ in range(epochs):
        begun = time.perf_counter(), time.process_time()
        model.train()
        optimizer.zero_grad()
        logits = model(data.x, data.edge_index)
        F.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(data.x, data.edge_index)
            best = min(best, float(F.cross_entropy(logits[data.val_mask], data.y[data.val_mask])))
        times.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return times


class Times(torch.autograd.Function):
    """A sparse matrix times a dense one; the transpose of the backward pass is at hand."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transpose: Tensor, dense: Tensor) -> Tensor:
        ctx.transpose = transpose
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transpose @ gradients[0]


def csr_pair(matrix: sp.spmatrix) -> tuple[Tensor, Tensor]:
    """A matrix and its transpose as CSR tensors."""
    pair = (matrix.tocsr().astype(np.float32), matrix.T.tocsr().astype(np.float32))
    return tuple(  # type: ignore[return-value]
        torch.sparse_csr_tensor(
            torch.from_numpy(m.indptr), torch.from_numpy(m.indices), torch.from_numpy(m.data), m.shape
        )
        for m in pair
    )


def best_loop(data: Data, training: Training, epochs: int) -> list[tuple[float, float]]:
    """`usual_loop` of a GCN, written for speed: A X once, and only the rows that training and validation nodes read."""
    n = int(data.num_nodes)
    adjacency = to_scipy_sparse_matrix(data.edge_index, num_nodes=n).tocsr() + sp.identity(n)
    scale = sp.diags(1 / np.sqrt(np.asarray(adjacency.sum(1)).ravel()))
    adjacency = (scale @ adjacency @ scale).tocsr()
    products = adjacency @ sp.csr_matrix(data.x.to_dense().numpy())
    parts = []
    for mask in (data.train_mask, data.val_mask):
        rows = adjacency[mask.numpy()]
        read = np.unique(rows.indices)
        parts.append((csr_pair(products[read]), csr_pair(rows[:, read]), data.y[mask]))
    first, second = (
        nn.Linear(data.x.shape[1], training.hidden_channels),
        nn.Linear(training.hidden_channels, data.num_classes),
    )
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=training.lr, weight_decay=training.weight_decay, fused=True)

    def loss(part: Any, dropout: bool) -> Tensor:
        (features, features_t), (graph, graph_t), y = part
        h = (Times.apply(features, features_t, first.weight.T) + first.bias).relu()
        h = F.dropout(h, training.dropout, dropout) @ second.weight.T
        return F.cross_entropy(Times.apply(graph, graph_t, h) + second.bias, y)

    best, times = float("inf"), []
    for _ in range(epochs):
        begun = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        loss(parts[0], True).backward()
        optimizer.step()
        with torch.no_grad():
            best = min(best, float(loss(parts[1], False)))
        times.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return times


def with_csr(data: Data) -> Data:
    """The graph with its features as a sparse CSR tensor."""
    other = data.clone()
    other.x = data.x.to_sparse_csr() if data.x.layout == torch.strided else data.x
    return other


def ours(data: Data, backbone: str, training: Training, epochs: int, seeds: int) -> None:
    graphcal.lab.train(data, backbone, replace(training, epochs=epochs, patience=None), seeds=range(seeds))


def load(name: str) -> Data:
    return datasets.synthetic(200_000) if name == "synthetic" else datasets.load(name)


def settings(backbone: str) -> Training:
    return published("cagcn", backbone).training


# ------------------------------------------------------------------------------------------------------- measuring


def seconds(job: Callable[[], None]) -> tuple[float, float]:
    """By the clock, and of the processor."""
    begun = time.perf_counter(), time.process_time()
    job()
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def fastest(times: list[tuple[float, float]], run_epochs: int) -> tuple[float, float]:
    """Milliseconds for one epoch of one run, the least of all times taken."""
    clock, processor = (min(kind) * 1e3 / run_epochs for kind in zip(*times))
    return clock, processor


def timed(name: str, backbone: str, seed_counts: list[int]) -> list[dict[str, Any]]:
    """The rows of one graph and one backbone, without memory."""
    data, training = load(name), settings(backbone)
    epochs = EPOCHS[name]
    few = max(3, epochs // 10)
    usual: list[tuple[float, float]] = []
    others: dict[str, list[tuple[float, float]]] = {"csr": [], "best": []} if backbone == "gcn" else {}
    in_csr = with_csr(data) if others else data
    mine: dict[int, list[tuple[float, float]]] = {count: [] for count in seed_counts}
    usual_loop(data, backbone, training, 2)  # warm up
    ours(data, backbone, training, 2, 1)
    for _ in range(ROUNDS):
        usual += usual_loop(data, backbone, training, few)
        if others:
            others["csr"] += usual_loop(in_csr, backbone, training, few)
            others["best"] += best_loop(data, training, few)
        for count in seed_counts:
            mine[count].append(seconds(lambda c=count: ours(data, backbone, training, epochs, c)))
    share = sparse_share(lambda: ours(data, backbone, training, max(5, epochs // 5), 5))
    rows = []
    for count in seed_counts:
        (clock, cpu), (usual_clock, usual_cpu) = fastest(mine[count], epochs * count), fastest(usual, 1)
        row = {"graph": name, "backbone": backbone, "seeds": count, "ours_ms": clock, "pyg_ms": usual_clock}
        row |= {"ratio": usual_clock / clock, "cpu_ratio": usual_cpu / cpu, "sparse_share": share}
        for kind, times in others.items():
            row[f"{kind}_ms"], other_cpu = fastest(times, 1)
            row |= {f"{kind}_ratio": row[f"{kind}_ms"] / clock, f"{kind}_cpu_ratio": other_cpu / cpu}
        rows.append(row)
    return rows


def sparse_share(job: Callable[[], None]) -> float:
    """The share of a single-threaded job's time in products with the graph or the features."""
    spent = [0.0]

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            begun = time.perf_counter()
            result = function(*args)
            spent[0] += time.perf_counter() - begun
            return result

        return call

    def watched_dense(function: Callable[..., Any]) -> Callable[..., Any]:
        timed_one = watched(function)
        return lambda self, other: (timed_one if self.dense is not None else function)(self, other)

    threads, bag = torch.get_num_threads(), sparse._embedding_bag
    times, transpose_times = receptive.Features.times, receptive.Features.transpose_times
    try:
        torch.set_num_threads(1)
        sparse._embedding_bag = watched(bag)
        receptive.Features.times = watched_dense(times)
        receptive.Features.transpose_times = watched_dense(transpose_times)
        total, _ = seconds(job)
    finally:
        torch.set_num_threads(threads)
        sparse._embedding_bag = bag
        receptive.Features.times, receptive.Features.transpose_times = times, transpose_times
    return spent[0] / total


def peak_megabytes(name: str, backbone: str, seeds: int) -> float:
    """Of a fresh process that trains for a few epochs; seeds = 0 is the usual loop."""
    command = [sys.executable, __file__, "--peak", f"{name},{backbone},{seeds}"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def train_once(name: str, backbone: str, seeds: int) -> None:
    data, training = load(name), settings(backbone)
    if seeds == 0:
        usual_loop(data, backbone, training, 5)
    else:
        ours(data, backbone, training, 5, seeds)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) / 1024)  # not ru_maxrss, which a child inherits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=",".join(EPOCHS))
    parser.add_argument("--backbones", default="gcn,gat")
    parser.add_argument("--seeds", default="1,10")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, nothing else")
    parser.add_argument(
        "--peak", help="train once in this process and print its peak memory (used by the script itself)"
    )
    given = parser.parse_args()
    if given.peak:
        name, backbone, seeds = given.peak.split(",")
        return train_once(name, backbone, int(seeds))
    say = (lambda *_: None) if given.json else print
    say(f"{torch.get_num_threads()} threads; milliseconds for one epoch of one run; MB at the peak")
    heads = ("ours", "PyG", "ratio", "cpu", "CSR", "/ CSR", "best", "/ best", "our MB", "PyG MB", "sparse")
    say(f"{'graph':10} {'model':5} {'seeds':>5} " + " ".join(f"{head:>8}" for head in heads))
    rows = []
    for name in given.graphs.split(","):
        try:
            load(name)
        except (ValueError, OSError) as problem:
            print(f"{name}: left out, {problem}", file=sys.stderr)
            continue
        for backbone in given.backbones.split(","):
            usual_peak = peak_megabytes(name, backbone, 0)
            for row in timed(name, backbone, [int(s) for s in given.seeds.split(",")]):
                row |= {"ours_mb": round(peak_megabytes(name, backbone, row["seeds"])), "pyg_mb": round(usual_peak)}
                rows.append(row)
                cells = [
                    f"{row['ours_ms']:.3f}",
                    f"{row['pyg_ms']:.2f}",
                    f"{row['ratio']:.1f}x",
                    f"{row['cpu_ratio']:.1f}x",
                ]
                for kind in ("csr", "best"):
                    present = f"{kind}_ms" in row
                    cells += [f"{row[f'{kind}_ms']:.2f}", f"{row[f'{kind}_ratio']:.1f}x"] if present else ["", ""]
                cells += [str(row["ours_mb"]), str(row["pyg_mb"]), f"{row['sparse_share']:.0%}"]
                say(f"{name:10} {backbone:5} {row['seeds']:5} " + " ".join(f"{cell:>8}" for cell in cells))
    if given.json:
        print(json.dumps(rows, indent=1))
    return None


if __name__ == "__main__":
    main()
