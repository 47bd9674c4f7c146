"""Kill `run` and `bench` at random moments, go on, and compare: `python tools/kills.py --kills 100 --out build/kills`.

The work runs in forked processes of one that has loaded its libraries, so that a kill falls into the work and not into imports.
After every kill: each file under a final name is whole, and what was finished is still there. After the last: tables byte for
byte those of a run that was never disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

PRESET = """
title = "Kills"
source = "tools/kills.py"
runs = 4
methods = ["none", "ts", "scar"]
[axes]
dataset = ["citeseer"]
labels_per_class = [20]
backbone = ["gcn"]
[base]
protocol = "public"
block = 1
training = { epochs = 12, hidden_channels = 16 }
"""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def bench_work(folder: Path) -> None:
    from graphcal.lab.bench.engines import Serial
    from graphcal.lab.bench.files import write_files
    from graphcal.lab.bench.session import Session

    session = Session.of(str(folder.parent / "kills-preset.toml"), folder)
    session.run(Serial(), lambda: None)
    write_files(session.table(), folder)


def run_work(folder: Path) -> None:
    """A run and the writing of its results, as `graphcal run` does; written often, so that kills fall into it."""
    from graphcal.files import check_writable
    from graphcal.lab.pipeline import run
    from graphcal.lab.training import Training

    check_writable(folder)
    results = run("citeseer", calibrators=["ts"], seeds=range(1), training=Training(epochs=3))
    results.record["train_seconds"] = 0.0
    for method in results.record["methods"].values():
        method.update(fit_seconds=0.0, apply_seconds=0.0)
    for _ in range(40):
        results.save(folder)


def calibration_work(folder: Path) -> None:
    """Save the same calibration again and again."""
    import torch

    import graphcal
    from graphcal.methods.temperature import Temperature

    calibration = Temperature(num_classes=3, temperature=torch.tensor(1.5))
    folder.mkdir(parents=True, exist_ok=True)
    for _ in range(300):
        graphcal.save(calibration, folder / "c.safetensors")


def predictions(folder: Path) -> Path:
    """A table of predictions beside the folder, made once."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder.parent / "predictions.parquet"
    if not path.exists():
        rng, rows = np.random.default_rng(0), 20_000
        scores = rng.normal(size=(rows, 3))
        columns = {
            "id": np.arange(rows),
            "label": scores.argmax(1),
            "split": np.array(["val", "test"])[rng.integers(2, size=rows)],
        }
        pq.write_table(
            pa.table({**columns, **{f"logit_{k}": scores[:, k] for k in range(3)}}), path, row_group_size=500
        )
    return path


def calibrate_work(folder: Path) -> None:
    from typer.testing import CliRunner

    from graphcal.cli import app

    done = CliRunner().invoke(app, ["calibrate", str(predictions(folder)), "--calibrator", "ts", "--out", str(folder)])
    if done.exit_code:
        raise RuntimeError(str(done.exception))


def score_work(folder: Path) -> None:
    from graphcal.tables.scoring import score

    calibrator = folder.parent / "calibrate-reference" / "calibrator.safetensors"
    score(calibrator, predictions(folder), folder)


def whole(folder: Path) -> list[str]:
    """Files under a final name that are not whole."""
    import pyarrow.parquet as pq
    from safetensors import safe_open

    broken = []
    for path in folder.rglob("*"):
        if not path.is_file() or path.name.startswith("."):
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".html":
                assert path.read_text().rstrip().endswith("</html>")
            elif path.suffix == ".parquet":
                pq.read_metadata(path)
            elif path.suffix == ".safetensors":
                with safe_open(path, "pt") as file:
                    list(file.keys())
        except Exception as fault:
            broken.append(f"{path.name}: {fault}")
    return broken


def finished(folder: Path) -> dict[str, bytes]:
    """Finished records, with their bytes."""
    return {path.name: path.read_bytes() for path in folder.glob("records/*") if not path.name.startswith(".")}


def tables(folder: Path) -> dict[str, bytes]:
    """What must be the same in the end: all but seconds."""
    names = ("*.md", "*.csv", "*.tex", "*.html", "*.svg", "results.json", "*.safetensors", "*.parquet")
    files = (path for name in names for path in folder.glob(name))
    timed = (
        ("results.json", "report.html", "calibrator.safetensors") if "calibrate" in folder.name else ()
    )  # hold seconds
    return {path.name: path.read_bytes() for path in files if "seconds" not in path.name and path.name not in timed}


def forked(work: Callable[[Path], None], folder: Path) -> int:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            work(folder)
        except BaseException:
            os._exit(9)
        os._exit(0)
    return child


def waited(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def disturbed(
    work: Callable[[Path], None], folder: Path, kills: int, rng: random.Random, longest: float
) -> Counter[str]:
    """Kill the work ``kills`` times, then let it end."""
    counts: Counter[str] = Counter()
    before: dict[str, bytes] = {}
    while counts["kills"] < kills:
        child = forked(work, folder)
        time.sleep(rng.random() * longest)
        kind = rng.choice(SIGNALS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, kind)
        code = waited(child)
        counts["kills" if code != 0 else "ended before the kill"] += 1
        counts[f"by {kind.name}"] += code != 0
        now = finished(folder)
        counts["records lost or changed"] += sum(now.get(name) != content for name, content in before.items())
        counts["files not whole"] += len(whole(folder))
        before = now
        if code == 0:
            shutil.rmtree(folder, ignore_errors=True)
            before = {}
    time.sleep(2.5)  # partial files of dead processes are swept when they are older than that
    counts["final runs that failed"] += waited(forked(work, folder)) != 0
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "work", nargs="*", help="bench, run, save, calibrate, score (which needs calibrate's); all if none is named"
    )
    parser.add_argument("--kills", type=int, default=40, help="of each kind of work")
    parser.add_argument("--out", type=Path, default=Path("build/kills"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import torch

    import graphcal.lab.bench._runner
    import graphcal.lab.pipeline  # noqa: F401 (loaded before the forks)

    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "kills-preset.toml").write_text(PRESET)
    wrong = 0
    works = {
        "bench": bench_work,
        "run": run_work,
        "save": calibration_work,
        "calibrate": calibrate_work,
        "score": score_work,
    }
    for name, work in works.items():
        if options.work and name not in options.work:
            continue
        reference, folder = options.out / f"{name}-reference", options.out / name
        for path in (reference, folder):
            shutil.rmtree(path, ignore_errors=True)
        began = time.monotonic()
        assert waited(forked(work, reference)) == 0, f"{name}: the undisturbed run failed"
        longest = 0.9 * (time.monotonic() - began)
        counts = disturbed(work, folder, options.kills, random.Random(f"{name}-{options.seed}"), longest)
        counts["tables that differ"] = sum(tables(folder).get(k) != v for k, v in tables(reference).items())
        counts["partial files left"] = sum(path.is_file() for path in folder.rglob(".*"))
        faults = ("records lost or changed", "files not whole", "tables that differ", "final runs that failed")
        wrong += sum(counts[fault] for fault in faults)
        print(name, dict(counts), flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
