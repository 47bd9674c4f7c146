"""Time and memory of reading and making large graphs.

    python benchmarks/data.py [--nodes 1000000] [--edges 10000000]

Each job runs in its own process, so that the peak memory is its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq


def write_tables(folder: Path, nodes: int, edges: int, features: int = 32) -> None:
    """A random graph with text ids, the slowest kind of id, as nodes.parquet and edges.parquet."""
    rng = np.random.default_rng(0)
    numbers = pa.array(rng.permutation(nodes))
    ids = pa.compute.binary_join_element_wise("node-", numbers.cast(pa.string()), "")
    columns = {"id": ids, "label": pa.array(rng.integers(10, size=nodes))}
    for k in range(features):
        columns[f"f{k}"] = pa.array(rng.standard_normal(nodes, dtype=np.float32))
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    ends = {name: ids.take(pa.array(rng.integers(nodes, size=edges))) for name in ("source", "target")}
    pq.write_table(pa.table(ends), folder / "edges.parquet")


def measured(job: str, given: argparse.Namespace) -> None:
    """Run one job in this process and print what it took."""
    from graphcal.lab import datasets

    started = time.perf_counter()
    degree = 2 * given.edges / given.nodes
    data = datasets.read(given.folder) if job == "read" else datasets.synthetic(given.nodes, degree=degree)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = f"{data.y.shape[0]:,} nodes, {data.edge_index.shape[1]:,} directed edges"
    print(f"{job:10} {size:45} {seconds:6.1f} s   peak {peak:.2f} GiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--job", choices=("read", "synthetic"), help="run this one here (used by the script itself)")
    parser.add_argument("--folder", help="where the tables of --job read are")
    given = parser.parse_args()
    if given.job:
        measured(given.job, given)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), given.nodes, given.edges)
        sizes = ["--nodes", str(given.nodes), "--edges", str(given.edges), "--folder", folder]
        for job in ("read", "synthetic"):
            subprocess.run([sys.executable, __file__, "--job", job, *sizes], check=True)


if __name__ == "__main__":
    main()
