"""ECE of ten million rows: graphcal against netcal, in one run on the same numbers; and the memory it takes.

    python benchmarks/metrics.py                # a table
    python benchmarks/metrics.py --json         # the same as JSON
    python benchmarks/metrics.py --rows 100000  # quick

Both get the rows as they take them: graphcal (N, C) log-probabilities, netcal (N, C) probabilities. graphcal's time
includes its check that the rows are log-probabilities. Memory is the largest amount that graphcal's arrays hold at once
beyond the inputs (traced in a run of its own): a few copies of one chunk for each thread, whatever the number of rows.
The streaming tally (sixteen metrics in one pass) is timed beside it.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import torch

from graphcal.metrics import Tally, ece


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
    tally_seconds, tally = timed(lambda: Tally.of(log_probs, y, bins), 1)
    found = {
        "rows": rows,
        "classes": classes,
        "bins": bins,
        "threads": torch.get_num_threads(),
        "graphcal_seconds": seconds,
        "graphcal_memory_mb": peak_mb(lambda: ece(log_probs, y, bins)),
        "memory_mb_at_a_tenth": peak_mb(lambda: ece(log_probs[: rows // 10], y[: rows // 10], bins)),
        "tally_seconds": tally_seconds,
        "ece": ours,
        "tally_ece": tally.ece,
    }
    from netcal.metrics import ECE

    probs, labels = log_probs.exp().numpy(), y.numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        netcal_seconds, theirs = timed(lambda: ECE(bins).measure(probs, labels), 1)
    return found | {
        "netcal_seconds": netcal_seconds,
        "netcal_ece": float(theirs),
        "times_faster": netcal_seconds / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--classes", type=int, default=7)
    parser.add_argument("--bins", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    found = measure(args.rows, args.classes, args.bins, args.repeats)
    if args.json:
        print(json.dumps(found))
        return
    print(f"{found['rows']:,} rows, {found['classes']} classes, {found['bins']} bins, {found['threads']} threads")
    print(
        f"graphcal ece    {found['graphcal_seconds']:8.2f} s   ECE {found['ece']:.8f}   "
        f"memory {found['graphcal_memory_mb']:.1f} MB"
    )
    print(f"graphcal Tally  {found['tally_seconds']:8.2f} s   ECE {found['tally_ece']:.8f}   (16 metrics)")
    print(f"netcal ECE      {found['netcal_seconds']:8.2f} s   ECE {found['netcal_ece']:.8f}")
    print(f"memory at a tenth of the rows: {found['memory_mb_at_a_tenth']:.1f} MB")
    print(f"graphcal is {found['times_faster']:.1f} times faster")


if __name__ == "__main__":
    main()
