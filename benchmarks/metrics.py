"""ECE of ten million rows: graphcal against netcal, in one run on the same numbers; and the memory it takes.

    python benchmarks/metrics.py                # a table
    python benchmarks/metrics.py --json         # the same as JSON
    python benchmarks/metrics.py --rows 100000  # quick
    python benchmarks/metrics.py --scale results    # evaluate and SCAR().fit against N: results/scale-metrics.md and .svg

Both get the rows as they take them: graphcal (N, C) log-probabilities, netcal (N, C) probabilities. graphcal's time
includes its check that the rows are log-probabilities. Memory is the largest amount that graphcal's arrays hold at once
beyond the inputs (traced in a run of its own): a few copies of one chunk for each thread, whatever the number of rows.

`--scale` measures each number of nodes in a process of its own: wall seconds, seconds of all cores together (what a busy machine
does not change), and the most memory the process had beyond what it had before, inputs and graph included in that. `evaluate` has
everything on: intervals by nodes and by neighbourhoods, tests, slices, five binnings, smooth and kernel ECE, refinement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.files import write_atomically
from graphcal.graphs import structure
from graphcal.methods import SCAR
from graphcal.metrics import ece, evaluate
from graphcal.plots import panels, svg

NODES = (125_000, 250_000, 500_000, 1_000_000, 2_000_000)
LABELS = (50_000, 100_000, 200_000)
CLASSES = 10


def peak_mb(f: Callable[[], Any]) -> float:
    """Megabytes that f's arrays hold at once, at most."""
    tracemalloc.start()
    f()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def timed(f: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Best of a few runs, in seconds, and the result."""
    best, value = float("inf"), None
    for _ in range(repeats):
        started = time.perf_counter()
        value = f()
        best = min(best, time.perf_counter() - started)
    return best, value


def made(rows: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of an under-confident model and labels, filled in pieces."""
    g = torch.Generator().manual_seed(0)
    log_probs, y = torch.empty(rows, classes), torch.empty(rows, dtype=torch.long)
    for part, labels in zip(log_probs.split(1 << 18), y.split(1 << 18)):
        z = 2 * torch.randn(part.shape, generator=g)
        labels.copy_(torch.multinomial(z.softmax(1), 1, generator=g)[:, 0])
        part.copy_((0.7 * z).log_softmax(1))
    return log_probs, y


def measure(rows: int, classes: int, bins: int, repeats: int) -> dict[str, Any]:
    small, small_y = made(1000, classes)
    ece(small, small_y, bins)  # first calls load code
    log_probs, y = made(rows, classes)
    seconds, ours = timed(lambda: ece(log_probs, y, bins), repeats)
    result = {
        "rows": rows,
        "classes": classes,
        "bins": bins,
        "threads": torch.get_num_threads(),
        "graphcal_seconds": seconds,
        "graphcal_memory_mb": peak_mb(lambda: ece(log_probs, y, bins)),
        "memory_mb_at_a_tenth": peak_mb(lambda: ece(log_probs[: rows // 10], y[: rows // 10], bins)),
        "ece": ours,
    }
    from netcal.metrics import ECE

    probs, labels = log_probs.exp().numpy(), y.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        netcal_seconds, theirs = timed(lambda: ECE(bins).measure(probs, labels), 1)
    return result | {
        "netcal_seconds": netcal_seconds,
        "netcal_ece": float(theirs),
        "times_faster": netcal_seconds / seconds,
    }


# --------------------------------------------------------------------------------------------------- against the size


def graph_of(nodes: int, y: torch.Tensor, labelled: int) -> Data:
    """Three random edges per node in both directions; the first nodes train, the next are for validation, the rest is test."""
    g = torch.Generator().manual_seed(1)
    edges, number = torch.randint(nodes, (2, 3 * nodes), generator=g), torch.arange(nodes)
    masks = {"train_mask": number < nodes // 100, "test_mask": number >= nodes // 100 + labelled}
    masks["val_mask"] = ~(masks["train_mask"] | masks["test_mask"])
    return Data(edge_index=torch.cat([edges, edges.flip(0)], 1), y=y, num_nodes=nodes, **masks)


def job_of(what: str, size: int) -> Callable[[], Any]:
    """What is timed, with its inputs made and the facts of its graph known."""
    nodes = size if what != "fit" else size + size // 2
    log_probs, y = made(nodes, CLASSES)
    if what == "fit":
        graph = graph_of(nodes, y, size)
        weight = 0.3 * torch.randn(CLASSES, 64, generator=torch.Generator().manual_seed(2))
        out = Outputs.from_logits(log_probs, graph, weight, torch.zeros(CLASSES))
        _ = structure(graph).next_to_training
        return lambda: SCAR().fit(out, on=graph.val_mask)
    graph = graph_of(nodes, y, nodes // 100)
    _ = structure(graph).hops, structure(graph).degree
    return lambda: evaluate(log_probs, y, graph.test_mask, graph)


def memory_gb(what: str) -> float:
    """Of this process, from the kernel: VmRSS now, VmHWM the most since the last reset (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 2**20


def one_size(what: str, size: int) -> dict[str, float]:
    """Wall seconds, seconds of all cores and gigabytes beyond the inputs, in this process."""
    job_of(what, 2_000)()  # first calls load code
    job = job_of(what, size)
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is counted from here
    before = memory_gb("VmRSS")
    wall, cores = time.perf_counter(), time.process_time()
    job()
    return {
        "wall": time.perf_counter() - wall,
        "cores": time.process_time() - cores,
        "gb": memory_gb("VmHWM") - before,
    }


def in_own_process(what: str, size: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", what, "--rows", str(size)]
    calm = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # threads that wait do not count as work
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, env=calm).stdout)
    print(what, size, result, flush=True)
    return result


def rows_of(title: str, results: dict[int, Any]) -> list[str]:
    """One table, a row per size."""
    lines = [f"| {title} | seconds | core seconds | growth | GB |", "|---|---|---|---|---|"]
    for n, m in results.items():
        grown = f"{m['cores'] / results[n // 2]['cores']:.2f}" if n // 2 in results else "–"
        lines.append(f"| {n:,} | {m['wall']:.1f} | {m['cores']:.1f} | {grown} | {m['gb']:.2f} |")
    return lines


def scale_page(evaluated: dict[int, Any], fitted: dict[int, Any]) -> str:
    """Both tables."""
    lines = [
        "# Measuring and fitting against the number of nodes", "", "![cost against size](scale-metrics.svg)", "",
        f"`graphcal.evaluate(log_probs, y, mask, graph)` with everything on, {CLASSES} classes, six directed edges per node.",
        "*Seconds* are wall seconds, which other work on the machine lengthens; *core seconds* are those of all cores together.",
        "*GB* is the most memory beyond inputs and graph. *Growth*: core seconds divided by those of half as many nodes.", "",
        *rows_of("nodes", evaluated), "", "## SCAR().fit", "", *rows_of("validation nodes", fitted),
    ]  # fmt: skip
    load = os.getloadavg()[0]
    lines += ["", "## How it was made", "", "    python benchmarks/metrics.py --scale results", "",
              f"Machine: {os.cpu_count()} cores, no GPU; load average at the end {load:.1f}. torch {torch.__version__}, "
              f"{torch.get_num_threads()} threads."]  # fmt: skip
    return "\n".join(lines) + "\n"


def draw_scale(evaluated: dict[int, Any], fitted: dict[int, Any]) -> str:
    figure, axes = panels(1, 3)
    for ax, results, key, title in (
        (axes[0, 0], evaluated, "cores", "evaluate: core seconds"),
        (axes[0, 1], evaluated, "gb", "evaluate: GB beyond the inputs"),
        (axes[0, 2], fitted, "cores", "SCAR().fit: core seconds"),
    ):
        ax.plot(list(results), [m[key] for m in results.values()], "o-")
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("nodes")
        ax.set_xlim(0)
        ax.set_ylim(0)
    return svg(figure)


def measure_scale(folder: Path) -> None:
    """Every size, then the page and its picture."""
    evaluated = {n: in_own_process("evaluate", n) for n in NODES}
    fitted = {n: in_own_process("fit", n) for n in LABELS}
    print(write_atomically(folder / "scale-metrics.svg", draw_scale(evaluated, fitted)))
    print(write_atomically(folder / "scale-metrics.md", scale_page(evaluated, fitted)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--classes", type=int, default=7)
    parser.add_argument("--bins", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--scale", type=Path, metavar="FOLDER", help="evaluate and SCAR().fit against N, written there")
    parser.add_argument("--one", choices=["evaluate", "fit"], help="one size of --scale, as JSON")
    args = parser.parse_args()
    if args.scale:
        measure_scale(args.scale)
        return
    if args.one:
        print(json.dumps(one_size(args.one, args.rows)))
        return
    result = measure(args.rows, args.classes, args.bins, args.repeats)
    if args.json:
        print(json.dumps(result))
        return
    print(f"{result['rows']:,} rows, {result['classes']} classes, {result['bins']} bins, {result['threads']} threads")
    print(
        f"graphcal ece    {result['graphcal_seconds']:8.2f} s   ECE {result['ece']:.8f}   "
        f"memory {result['graphcal_memory_mb']:.1f} MB"
    )
    print(f"netcal ECE      {result['netcal_seconds']:8.2f} s   ECE {result['netcal_ece']:.8f}")
    print(f"memory at a tenth of the rows: {result['memory_mb_at_a_tenth']:.1f} MB")
    print(f"graphcal is {result['times_faster']:.1f} times faster")


if __name__ == "__main__":
    main()
