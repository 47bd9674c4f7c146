"""Scoring with edges: seconds, processor seconds and peak memory of `graphcal score --edges` against the number of nodes.

    python benchmarks/graph_scoring.py --rows 1 3 10                    # millions of nodes, ten edges each: a table
    python benchmarks/graph_scoring.py --rows 1 3 10 --ids shuffled     # ids that are not row numbers: joined by DuckDB
    python benchmarks/graph_scoring.py --json

The calibrator is graph scaling with ten classes, which reads all there is: agreement and opinions one and two steps away, degree,
distance from the training set. Every measurement is a process of its own; its peak is of the whole process, torch and other
libraries (about 400 MB) included, as the kernel counts it (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SHARD = 1_000_000  # rows
CLASSES = 10
DEGREE = 10
IDS = ("in-order", "shuffled", "text")


def id_of(rows: np.ndarray, total: int, ids: str) -> Any:
    """A number or a name for every row; shuffled ones by a map that meets each number once."""
    if ids == "in-order":
        return rows
    shuffled = (rows * 2_654_435_761) % (1 << 40)
    return shuffled if ids == "shuffled" else pa.array(shuffled).cast(pa.string())


def write_graph(folder: Path, nodes: int, ids: str) -> None:
    """Wide logits in shards, random edges, and a hundredth of the nodes as training set."""
    rng = np.random.default_rng(0)
    z = (2 * rng.standard_normal((CLASSES, SHARD))).astype(np.float32)
    (folder / "preds").mkdir(parents=True)
    (folder / "edges").mkdir()
    for k, first in enumerate(range(0, nodes, SHARD)):
        n = min(SHARD, nodes - first)
        block = np.roll(z, 7919 * k, axis=1)[:, :n]
        columns = {"id": id_of(np.arange(first, first + n), nodes, ids)}
        table = pa.table(columns | {f"logit_{c}": block[c] for c in range(CLASSES)})
        pq.write_table(table, folder / "preds" / f"part-{k:05d}.parquet", row_group_size=1 << 17, use_dictionary=False)
        for half in range(2):  # in two files: a writer of edges needs memory too
            ends = [id_of(rng.integers(nodes, size=n * DEGREE // 2), nodes, ids) for _ in range(2)]
            edges = pa.table(dict(zip(("src", "dst"), ends)))
            pq.write_table(edges, folder / "edges" / f"part-{2 * k + half:05d}.parquet", row_group_size=1 << 20)
    pq.write_table(pa.table({"id": id_of(np.arange(0, nodes, 100), nodes, ids)}), folder / "train.parquet")


def save_calibrator(path: Path) -> None:
    """Graph scaling, fitted on a small graph where its whole stack counts."""
    import torch

    import graphcal

    data = graphcal.lab.synthetic(6000, num_classes=CLASSES, homophily=0.6, seed=0)
    out = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=40), seeds=[0])[0].outputs
    calibration = graphcal.GraphScaling().fit(graphcal.Outputs(out.logits, data), on=data.val_mask)
    assert float((calibration.weights > 0).sum()) > 2, calibration.note
    calibration.fitted_on["table"] = {"kind": "logits", "digits": None, "classes": [str(c) for c in range(CLASSES)]}
    torch.set_num_threads(1)
    graphcal.save(calibration, path)


def run_once(folder: Path, out: Path, calibrator: Path, workers: int) -> dict[str, Any]:
    """In this process: seconds by stage, processor seconds and the peak of memory."""
    import torch

    from graphcal.tables.scoring import score

    torch.set_num_threads(1)  # workers share the cores
    started, cpu, stages = time.perf_counter(), time.process_time(), {}
    last = ["", started]

    def progress(stage: str, done: int, total: int) -> None:
        now, name = time.perf_counter(), stage.split(",")[0]
        if last[0]:
            stages[last[0]] = stages.get(last[0], 0.0) + now - last[1]
        last[:] = [name, now]

    train = folder / "train.parquet"
    score(calibrator, folder / "preds", out, folder / "edges", train, workers=workers, progress=progress)
    progress("", 0, 0)
    used = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu, "stages": stages}
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return used | {"peak_mb": int(status.split()[0]) / 1024}


def measured(nodes: int, ids: str, folder: Path, calibrator: Path, workers: int) -> dict[str, Any]:
    source, out = folder / f"{ids}-{nodes}", folder / "scored"
    write_graph(source, nodes, ids)
    command = [
        sys.executable,
        __file__,
        "--one",
        source,
        "--out",
        out,
        "--calibrator",
        calibrator,
        "--workers",
        workers,
    ]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    shutil.rmtree(source)
    shutil.rmtree(out)
    result = {"nodes": nodes, "edges": nodes * DEGREE, "ids": ids, **json.loads(done.stdout.splitlines()[-1])}
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def compare(rows: list[int], ids: list[str], folder: Path, workers: int) -> list[dict[str, Any]]:
    save_calibrator(folder / "graph-scaling.safetensors")
    return [measured(n, i, folder, folder / "graph-scaling.safetensors", workers) for i in ids for n in rows]


def markdown(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        "## With edges",
        "",
        f"`graphcal score --edges --train-ids` with graph scaling, {CLASSES} classes, {DEGREE} random edges per node "
        "(benchmarks/graph_scoring.py). Logits, edges and sums over neighbours lie in files: peak memory hardly grows with "
        "nodes and edges. Ids that are not row numbers are joined by DuckDB, which may use 400 MB. Random edges are the worst "
        "case: every block of the adjacency matrix has some.",
        "",
        "| ids | nodes | edges | seconds | processor s | nodes per processor s | peak MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results:
        lines.append(
            f"| {one['ids']} | {one['nodes']:,} | {one['edges']:,} | {one['seconds']:.0f} | {one['cpu']:.0f} | "
            f"{one['nodes'] / one['cpu']:,.0f} | {one['peak_mb']:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1, 3], help="millions of nodes")
    parser.add_argument("--ids", nargs="+", choices=IDS, default=["in-order"])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--folder", type=Path, help="where to put the tables (default: a temporary folder)")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--calibrator", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_once(args.one, args.out, args.calibrator, args.workers)))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        results = compare([int(1e6 * r) for r in args.rows], args.ids, Path(folder), args.workers)
    print(json.dumps(results) if args.json else "\n".join(markdown(results)))


if __name__ == "__main__":
    main()
