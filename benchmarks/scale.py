"""Scoring against its limit: copying the same Parquet with no work at all; and against DuckDB's SQL doing a plain softmax.

    python benchmarks/scale.py                                  # 1 and 5 million rows, a table
    python benchmarks/scale.py --rows 1 5 20 50 --write results # millions of rows; writes results/scale.md and scale.svg
    python benchmarks/scale.py --json

Every measurement is a process of its own, so that its peak memory is its own. All read and write the same shards with as
many workers as there are cores, *score* with its own choice. *copy* reads batches and writes them with the options that
scoring writes with (no dictionaries, snappy), and syncs each file to the disk, as scoring does: the fastest copy there is that
a power cut cannot take back. *copy, unsynced* leaves that to chance; *copy, defaults* is `pq.write_table(pq.read_table(...))`.
*score* is `graphcal score` with a temperature; DuckDB does a softmax in several ways of writing it (duckdb_softmax.py). At the
end, scoring with edges (graph_scoring.py). Times are the best of a few runs: seconds by the clock, and processor seconds of
all threads, which a busy machine changes less.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import duckdb_softmax
import graph_scoring
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SHARD = 1_000_000  # rows
CLASSES = 10
LAYOUTS = ("wide", "list", "long")
MOST_OF_ALL = 5_000_000  # rows: larger tables are copied and scored, no more
MOST_LONG = 1_000_000  # a shard of a long table is in memory at once


def write_shards(folder: Path, rows: int, layout: str) -> None:
    """Logits of ``rows`` nodes; wide as ten columns, list as one, long as a row for each."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    z = (2 * rng.standard_normal((CLASSES, SHARD))).astype(np.float32)
    for k, first in enumerate(range(0, rows, SHARD)):
        n = min(SHARD, rows - first)
        block = np.roll(z, 7919 * k, axis=1)[:, :n]
        ids = {"id": np.arange(first, first + n)}
        if layout == "wide":
            table = pa.table(ids | {f"logit_{c}": block[c] for c in range(CLASSES)})
        elif layout == "long":
            flat = np.ascontiguousarray(block.T).reshape(-1)
            classes = np.tile(np.arange(CLASSES), n)
            table = pa.table({"id": np.repeat(ids["id"], CLASSES), "class": classes, "logit": flat})
        else:
            flat = pa.array(np.ascontiguousarray(block.T).reshape(-1))
            offsets = pa.array(np.arange(0, len(flat) + 1, CLASSES, dtype=np.int32))
            table = pa.table(ids | {"logits": pa.ListArray.from_arrays(offsets, flat)})
        pq.write_table(table, folder / f"part-{k:05d}.parquet", row_group_size=1 << 17, use_dictionary=False)


def copy(source: Path, out: Path, calibrator: Path, workers: int, synced: bool = True) -> None:
    out.mkdir()

    def one(shard: Path) -> None:
        with pq.ParquetFile(shard) as file:
            told = [name for name in file.schema_arrow.names if name in ("id", "class")]
            options = {"use_dictionary": False, "write_statistics": told}
            with pq.ParquetWriter(out / shard.name, file.schema_arrow, **options) as writer:
                for batch in file.iter_batches(batch_size=1 << 17):
                    writer.write_batch(batch)
        if synced:
            with (out / shard.name).open("rb") as written:
                os.fsync(written.fileno())

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, sorted(source.iterdir())))


def copy_defaults(source: Path, out: Path, calibrator: Path, workers: int) -> None:
    out.mkdir()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda shard: pq.write_table(pq.read_table(shard), out / shard.name), sorted(source.iterdir())))


def score(source: Path, out: Path, calibrator: Path, workers: int) -> None:
    from graphcal.tables.scoring import score as score_table

    score_table(calibrator, source, out)  # with as many workers as it likes


TASKS: dict[str, Callable[[Path, Path, Path, int], None]] = {
    "copy": copy,
    "copy-unsynced": partial(copy, synced=False),
    "copy-defaults": copy_defaults,
    "score": score,
    **{name: partial(duckdb_softmax.run, name) for name in duckdb_softmax.SQL},
}


def run_task(name: str, source: Path, out: Path, calibrator: Path, workers: int) -> dict[str, float]:
    """In this process: seconds, processor seconds and the peak of memory."""
    if name == "score":  # imports are not part of it
        import graphcal.tables.scoring  # noqa: F401
    started, cpu = time.perf_counter(), time.process_time()
    TASKS[name](source, out, calibrator, workers)
    used = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]  # ru_maxrss would count what the parent had
    return used | {"peak_mb": int(status.split()[0]) / 1024}


def measured(name: str, source: Path, folder: Path, calibrator: Path, workers: int, repeats: int) -> dict[str, float]:
    """The best of a few runs, each a process of its own."""
    runs = []
    for _ in range(repeats):
        out = folder / "out"
        command = [sys.executable, __file__, "--task", name, "--in", source, "--out", out, "--calibrator", calibrator]
        done = subprocess.run(
            [*map(str, command), "--workers", str(workers)], check=True, capture_output=True, text=True
        )
        runs.append(json.loads(done.stdout))
        shutil.rmtree(out)
    return {key: min(run[key] for run in runs) for key in ("seconds", "cpu")} | {
        "peak_mb": max(run["peak_mb"] for run in runs)
    }


def save_calibrator(path: Path, layout: str) -> None:
    import torch

    import graphcal
    from graphcal.methods.temperature import Temperature

    facts = {"kind": "logits", "digits": None, "classes": [str(c) for c in range(CLASSES)], "form": layout}
    graphcal.save(Temperature(scale=torch.tensor([0.7]), num_classes=CLASSES, fitted_on={"table": facts}), path)


def compare(rows: list[int], layouts: list[str], folder: Path, workers: int, repeats: int) -> list[dict[str, Any]]:
    results = []
    for layout in layouts:
        calibrator = folder / f"{layout}.safetensors"
        save_calibrator(calibrator, layout)
        for count in rows:
            if layout == "long" and count > MOST_LONG:
                continue
            source = folder / f"{layout}-{count}"
            write_shards(source, count, layout)
            names = ["copy", "score", "copy-unsynced"]
            if count <= MOST_OF_ALL:
                names += ["copy-defaults", *duckdb_softmax.LAYOUTS[layout]]
            one = {name: measured(name, source, folder, calibrator, workers, repeats) for name in names}
            shutil.rmtree(source)
            results.append({"layout": layout, "rows": count, **one})
            print(f"{layout} {count:,}: " + json.dumps(one), file=sys.stderr, flush=True)
    return results


def markdown(results: list[dict[str, Any]], workers: int, rows: list[float]) -> list[str]:
    shown = " ".join(f"{r:g}" for r in rows)
    lines = [
        "# Scoring against its limit",
        "",
        f"`python benchmarks/scale.py --rows {shown} --write results`, {CLASSES} classes, float32, snappy, {workers} cores, load "
        f"average {os.getloadavg()[0]:.1f} at the end; the best of a few runs. Ratios are by the clock, and in brackets of "
        "processor seconds. *Copy* is the limit: the same shards read, written with the options that scoring writes with, and "
        "synced to the disk, with no work; *unsynced* leaves the last to chance; *defaults* is "
        "`pq.write_table(pq.read_table(...))`. Peak memory is that of the whole process, torch and other libraries (about 400 "
        "MB) included.",
        "",
        "| layout | rows | score, s | processor s | / copy | / copy, unsynced | / copy, defaults | million rows / s | peak MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in results:
        seconds, cpu = one["score"]["seconds"], one["score"]["cpu"]
        ratios = [ratio(one, name) for name in ("copy", "copy-unsynced", "copy-defaults")]
        lines.append(
            f"| {one['layout']} | {one['rows']:,} | {seconds:.2f} | {cpu:.2f} | {' | '.join(ratios)} | "
            f"{one['rows'] / seconds / 1e6:.1f} | {one['score']['peak_mb']:.0f} |"
        )
    return [
        *lines,
        "",
        READING,
        "",
        "![processor seconds and memory against rows](scale.svg)",
        "",
        *duckdb_softmax.markdown(results),
    ]


READING = """Scoring adds two columns (prediction, confidence) to what a copy writes, and checks every number. In a long table a
row is an id and a class: ten of its rows count as one here."""


def ratio(one: dict[str, Any], name: str) -> str:
    """Scoring over another task, by the clock and of processor seconds; nothing where that was not run."""
    if name not in one:
        return ""
    clock, cpu = (one["score"][key] / one[name][key] for key in ("seconds", "cpu"))
    return f"{clock:.2f} × ({cpu:.2f})"


def picture(results: list[dict[str, Any]], graph: list[dict[str, Any]]) -> str:
    """Processor seconds and peak memory against rows."""
    from graphcal.plots import panels, svg

    figure, axes = panels(1, 2, 4.2)
    for layout, line in zip(LAYOUTS[:2], ("-", "--")):
        of = [one for one in results if one["layout"] == layout]
        x = [one["rows"] / 1e6 for one in of]
        for name, mark, colour in (("copy", "s", "#0072b2"), ("score", "o", "#d55e00")):
            label = f"{name}, {layout}"
            axes[0, 0].plot(x, [one[name]["cpu"] for one in of], line, marker=mark, color=colour, label=label)
        axes[0, 1].plot(x, [one["score"]["peak_mb"] for one in of], line, marker="o", color="#d55e00", label=layout)
    edges = [one for one in graph if one["ids"] == "in-order"]
    if edges:
        x, y = [one["nodes"] / 1e6 for one in edges], [one["peak_mb"] for one in edges]
        axes[0, 1].plot(x, y, ":", marker="o", color="#009e73", label=f"with {graph_scoring.DEGREE} edges per row")
    for ax, title in zip(axes[0], ("processor seconds", "peak MB of scoring")):
        ax.set_xlabel("million rows")
        ax.set_title(title, fontsize="medium")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False, fontsize="small")
    return svg(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1, 5], help="millions")
    parser.add_argument(
        "--graph", type=float, nargs="*", default=[1, 3, 10], help="millions of nodes scored with edges"
    )
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", type=Path, help="folder for scale.md and scale.svg")
    parser.add_argument("--folder", type=Path, help="where to put the tables (default: a temporary folder)")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--calibrator", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.task:
        print(json.dumps(run_task(args.task, args.source, args.out, args.calibrator, args.workers)))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        results = compare([int(1e6 * r) for r in args.rows], args.layouts, Path(folder), args.workers, args.repeats)
        graph = []
        if args.graph:
            graph = graph_scoring.compare([int(1e6 * r) for r in args.graph], ["in-order"], Path(folder), args.workers)
            graph += graph_scoring.compare([int(1e6 * args.graph[0])], ["shuffled", "text"], Path(folder), args.workers)
    lines = markdown(results, args.workers, args.rows) + (graph_scoring.markdown(graph) if graph else [])
    print(json.dumps({"rows": results, "graph": graph}) if args.json else "\n".join(lines))
    if args.write:
        from graphcal.files import write_atomically

        write_atomically(args.write / "scale.md", "\n".join(lines) + "\n")
        write_atomically(args.write / "scale.svg", picture(results, graph))


if __name__ == "__main__":
    main()
