"""Fit graph scaling with ``sets=True`` on a graph of a million nodes and ten million edges, and count in 10,000 sets.

    python benchmarks/sets.py [--nodes 1000000] [--edges 10000000] [--sets 10000]

Prints wall-clock seconds, seconds of processor time, and peak memory of every stage. Nodes lie on a ring in blocks; most edges
are short. Logits of five classes are random, and labels follow them and a residual that blocks share.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch_geometric.data import Data

import graphcal
from graphcal.graphs import structure

CLASSES, LABELS, BLOCK = 5, 500, 100


def ring(nodes: int, edges: int) -> graphcal.Outputs:
    rng = np.random.default_rng(0)
    source = rng.integers(0, nodes, edges)
    near = (source + rng.integers(-BLOCK // 2, BLOCK // 2, edges)) % nodes
    target = np.where(rng.random(edges) < 0.7, near, rng.integers(0, nodes, edges))
    edge_index = torch.from_numpy(np.stack([np.concatenate([source, target]), np.concatenate([target, source])]))
    del source, near, target
    logits = torch.from_numpy(2 * rng.normal(size=(nodes, CLASSES))).float()
    shared = rng.normal(size=(nodes // BLOCK + 1, CLASSES))[np.arange(nodes) // BLOCK]
    noise = rng.gumbel(size=(nodes, CLASSES))
    y = torch.from_numpy((logits.numpy() + 0.7 * shared + noise).argmax(1))
    on = torch.zeros(nodes, dtype=torch.bool)
    on[torch.from_numpy(rng.permutation(nodes)[:LABELS])] = True
    return graphcal.Outputs(logits, Data(edge_index=edge_index, y=y, val_mask=on, num_nodes=nodes))


@contextmanager
def stage(name: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {name} | {time.perf_counter() - wall:.0f} | {time.process_time() - cpu:.0f} | {peak:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--sets", type=int, default=10_000)
    options = parser.parse_args()
    print("| stage | seconds | of processor time | peak GiB |\n|---|---|---|---|")
    with stage("make the graph (not counted)"):
        out = ring(options.nodes, options.edges)
    with stage("communities, four hierarchies"):
        structure(out.graph).hierarchies  # noqa: B018 (computed once, then shared)
    with stage("fit, sets=True"):
        calibration = graphcal.GraphScaling(sets=True).fit(out, on=out.graph.val_mask)
    starts = np.random.default_rng(1).integers(0, options.nodes - 200, options.sets)
    sets = [np.arange(first, first + 20 + first % 180) for first in starts]
    with stage(f"count in {options.sets:,} sets"):
        counts = graphcal.count(calibration, out, sets)
    wrong = (calibration(out).argmax(1) != out.graph.y).numpy()
    covered = np.mean([one.low <= wrong[nodes].sum() <= one.high for one, nodes in zip(counts, sets)])
    print(f"\n95 % intervals cover {100 * covered:.1f} % of the sets.")


if __name__ == "__main__":
    main()
