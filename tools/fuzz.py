"""Fuzz every reader: `python tools/fuzz.py [TARGET ...] --seconds 60`, or `--only N` for one input again.

Each target runs in a process of its own with little memory to spare. Input n is a function of n, so a finding has a number.
An input is a fault when the process dies, takes over 10 s or 1 GB, or the reader raises anything but a ValueError or
FileNotFoundError of ours (raised in graphcal's own code, naming the file).

    OUT/TARGET.json    how many inputs, how many accepted and refused, each kind of fault with its first number
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

HANG_SECONDS = 10.0
MEMORY = 10**9  # bytes over what the process had before
UNWRITTEN = "unwritten"  # such an input is not counted
NAMELESS = ("planetoid",)  # several parts, handed over as bytes


@cache
def targets() -> dict[str, Any]:
    from fuzz_records import record_targets
    from fuzz_tables import table_targets
    from fuzz_targets import own_targets

    return {**own_targets(), **record_targets(), **table_targets()}


def judge(target: str, error: Exception, folder: Path) -> str:
    """'refused' for an error of ours, or the kind of fault."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.name}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or "allocate memory" in str(cause):
            return f"memory: {where}"
        cause = cause.__cause__ or cause.__context__
    ours = f"{os.sep}graphcal{os.sep}" in last.filename and isinstance(error, ValueError | FileNotFoundError)
    if not ours:
        return f"{type(error).__name__} in {where}"
    if target not in NAMELESS and str(folder) not in str(error):
        return f"nameless: {where}"
    return "refused"


def one_input(target: str, number: int, folder: Path) -> str:
    """Write input ``number`` and read it: 'accepted', 'refused', or the kind of fault."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        targets()[target].write(folder, random.Random(f"{target}-{number}"))
    except Exception:  # a library cannot write what was thought up
        return UNWRITTEN
    return read_input(target, folder)


def read_input(target: str, folder: Path) -> str:
    try:
        targets()[target].read(folder)
    except Exception as error:
        return judge(target, error, folder)
    return "accepted"


def _work(target: str, numbers: range, folder: Path, pipe: Any, seconds: float) -> None:
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    one_input(target, 0, folder)  # imports
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * MEMORY, used + 2 * MEMORY))
    peak, end = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() > end:
            break
        pipe.send(("begin", number, ""))
        outcome = one_input(target, number, folder)
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if now - peak > MEMORY // 1024:
            outcome, peak = "memory: grew by more than 1 GB", now
        pipe.send(("end", number, outcome))
    pipe.send(("done", 0, ""))


def computed(process: int | None) -> float:
    """Seconds of a processor that a process has had."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fuzz(target: str, first: int, count: int, seconds: float, out: Path) -> dict[str, Any]:
    """Run a target in child processes until the time is over; a child that dies or hangs costs one input."""
    outcomes: Counter[str] = Counter()
    faults: dict[str, int] = {}
    number, end = first, time.monotonic() + seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        while number < first + count and time.monotonic() < end:
            here, there = multiprocessing.Pipe(duplex=False)
            rest = range(number, first + count)
            child = multiprocessing.get_context("spawn").Process(
                target=_work, args=(target, rest, Path(scratch) / "input", there, end - time.monotonic())
            )
            child.start()
            there.close()
            begun, started, ended = None, 0.0, False
            while not ended:
                if not here.poll(HANG_SECONDS if begun is not None else 120.0):
                    if begun is not None and computed(child.pid) - started < HANG_SECONDS:
                        continue  # others have the processor: the input's own time counts
                    child.kill()
                    fault = "hang"
                else:
                    try:
                        kind, number, outcome = here.recv()
                    except EOFError:
                        child.join()
                        fault = f"crash: exit {child.exitcode}"
                    else:
                        ended = kind == "done"
                        begun, started = (number, computed(child.pid)) if kind == "begin" else (None, 0.0)
                        if kind == "end" and outcome != UNWRITTEN:
                            outcomes[outcome if outcome in ("accepted", "refused") else "fault"] += 1
                            if outcome not in ("accepted", "refused"):
                                _keep(target, outcome, number, faults, out)
                        continue
                if begun is None:
                    raise RuntimeError(f"{target}: the worker did not start ({fault})")
                outcomes["fault"] += 1
                _keep(target, fault, begun, faults, out)
                number = begun + 1
                break
            else:
                number = first + count
            child.join()
    result = {"target": target, "first": first, "inputs": sum(outcomes.values()), **outcomes, "faults": faults}
    out.mkdir(parents=True, exist_ok=True)
    with open(out / f"{target}.jsonl", "a") as file:
        file.write(json.dumps(result) + "\n")
    return result


def _keep(target: str, fault: str, number: int, faults: dict[str, int], out: Path) -> None:
    """The first input of each kind of fault, as files."""
    if fault in faults:
        return
    faults[fault] = number
    folder = out / "found" / target / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    targets()[target].write(folder, random.Random(f"{target}-{number}"))
    print(f"{target} {number}: {fault}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="*", help="all of them if none is named")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each target")
    parser.add_argument("--count", type=int, default=10**9, help="inputs of each target, at most")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", type=int, help="one input, with its traceback")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    if options.only is not None:
        folder = options.out / "only"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        selected = targets()[options.target[0]]
        selected.write(folder, random.Random(f"{options.target[0]}-{options.only}"))
        print(selected.read(folder))
        return
    faults = 0
    for target in options.target or targets():
        result = fuzz(target, options.first, options.count, options.seconds, options.out)
        faults += result.get("fault", 0)
        print({key: value for key, value in result.items() if key != "faults"}, flush=True)
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
