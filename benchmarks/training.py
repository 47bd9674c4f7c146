"""Training speed and memory: graphcal against the loop everyone writes with PyG, side by side in one run.

    python benchmarks/training.py [--graphs cora,citeseer] [--backbones gcn,gat] [--seeds 1,10] [--json]

The usual loop: two GCNConv(cached=True) or GATConv layers, dense features, Adam, one training step and one validation loss every
epoch; several seeds one after the other. Ours: `graphcal.lab.train`, same width, early stop switched off. Both use all of torch's
threads. Rounds alternate between the two. Times are milliseconds for one epoch of one run: for the usual loop its fastest epoch
of all rounds, without set-up; for ours the mean over a whole training, set-up and results included, in the fastest round.
"cpu" is the ratio of processor time. Peak memory is that of a process of its own (Linux).

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

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv

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
    mine: dict[int, list[tuple[float, float]]] = {count: [] for count in seed_counts}
    usual_loop(data, backbone, training, 2)  # warm up
    ours(data, backbone, training, 2, 1)
    for _ in range(ROUNDS):
        usual += usual_loop(data, backbone, training, few)
        for count in seed_counts:
            mine[count].append(seconds(lambda c=count: ours(data, backbone, training, epochs, c)))
    share = sparse_share(lambda: ours(data, backbone, training, max(5, epochs // 5), 5))
    rows = []
    for count in seed_counts:
        (clock, cpu), (usual_clock, usual_cpu) = fastest(mine[count], epochs * count), fastest(usual, 1)
        row = {"graph": name, "backbone": backbone, "seeds": count, "ours_ms": clock, "pyg_ms": usual_clock}
        row |= {"ratio": usual_clock / clock, "cpu_ratio": usual_cpu / cpu, "sparse_share": share}
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
    heads = ("ours", "PyG", "ratio", "cpu", "our MB", "PyG MB", "sparse")
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
                cells += [str(row["ours_mb"]), str(row["pyg_mb"]), f"{row['sparse_share']:.0%}"]
                say(f"{name:10} {backbone:5} {row['seeds']:5} " + " ".join(f"{cell:>8}" for cell in cells))
    if given.json:
        print(json.dumps(rows, indent=1))
    return None


if __name__ == "__main__":
    main()
