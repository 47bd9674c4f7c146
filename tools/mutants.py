"""Mutation testing: apply each change of `mutants.toml` alone and run the nearest tests. `python tools/mutants.py [WORD ...]`

A mutant is killed when the tests fail, or do not end in time; one that survives is a gap in the tests. Tests run in forked
processes of one that has loaded the libraries, on a copy of the tree. An entry whose text is not found exactly once is an error.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = (
    "hypothesis", "numpy", "pytest", "torch", "torch_geometric.data", "torch_geometric.loader", "torch_geometric.utils", "typer",
    "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats", "sklearn.isotonic", "safetensors.torch", "pyarrow.parquet",
)  # fmt: skip
MEMORY = 12 * 2**30  # bytes of address space: a mutant may forget to refuse a file
LIMIT = 240  # seconds of a processor for the tests of one mutant; four times that by the clock


@dataclass(frozen=True)
class Mutant:
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.file}: {self.old}  ->  {self.new}"


def listed() -> list[Mutant]:
    """Every mutant, its text proved to stand once in its file."""
    rooms = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())["room"]
    mutants = [Mutant(room["file"], old, new, tuple(room["tests"])) for room in rooms for old, new in room["changes"]]
    for mutant in mutants:
        times = (ROOT / "src" / "graphcal" / mutant.file).read_text().count(mutant.old)
        if times != 1:
            raise SystemExit(f"mutants.toml: the text is {times} times in its file: {mutant.name}")
        missing = [test for test in mutant.tests if not (ROOT / "tests" / test.split("::")[0]).exists()]
        if missing:
            raise SystemExit(f"mutants.toml: no tests {', '.join(missing)} for {mutant.file}")
    return mutants


def load_libraries() -> None:
    """Before the forks; nothing of graphcal."""
    for name in LIBRARIES:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    assert not any(name.split(".")[0] == "graphcal" for name in sys.modules)


def passes(tree: Path, tests: tuple[str, ...]) -> bool:
    """Whether the tests pass on this tree."""
    child = os.fork()
    if child == 0:
        import pytest

        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.chdir(tree)
        sys.path.insert(0, str(tree / "src"))
        os.environ["PYTHONPATH"] = str(tree / "src")
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        os._exit(
            int(
                pytest.main(
                    ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)]
                )
            )
        )
    end = time.monotonic() + 4 * LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*", help="only mutants whose file or text has one of these")
    parser.add_argument("--list", action="store_true", help="check the list and print it")
    parser.add_argument("--results", type=Path, help="a file of lines `killed NAME`: what it has is not run again")
    options = parser.parse_args()
    mutants = [m for m in listed() if not options.word or any(word in m.name for word in options.word)]
    if options.list:
        print("\n".join(mutant.name for mutant in mutants))
        return
    load_libraries()
    results = {}
    if options.results is not None and options.results.exists():
        results = {
            name: outcome
            for outcome, _, name in (line.partition(" ") for line in options.results.read_text().splitlines())
        }
    survivors, sound = [], {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for part in ("src", "tests", "tools", "docs", "pyproject.toml", "README.md"):
            source = ROOT / part
            (shutil.copytree if source.is_dir() else shutil.copy)(
                source, tree / part
            ) if tree.exists() or tree.mkdir() is None else None
        for number, mutant in enumerate(mutants, 1):
            if mutant.name in results:
                survivors += [] if results[mutant.name] == "killed" else [mutant]
                continue
            if mutant.tests not in sound:
                sound[mutant.tests] = passes(tree, mutant.tests)
                if not sound[mutant.tests]:
                    raise SystemExit(f"{', '.join(mutant.tests)}: these tests fail without any mutant")
            path = tree / "src" / "graphcal" / mutant.file
            original = path.read_text()
            path.write_text(original.replace(mutant.old, mutant.new))
            killed = not passes(tree, mutant.tests)
            path.write_text(original)
            print(f"{number}/{len(mutants)} {'killed  ' if killed else 'SURVIVES'} {mutant.name}", flush=True)
            survivors += [] if killed else [mutant]
            if options.results is not None:
                with open(options.results, "a") as file:
                    file.write(f"{'killed' if killed else 'survives'} {mutant.name}\n")
    share = 1 - len(survivors) / len(mutants)
    print("".join(f"survives: {mutant.name}\n" for mutant in survivors), end="")
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} killed: {100 * share:.0f} %")
    raise SystemExit(0 if share >= 0.9 else 1)


if __name__ == "__main__":
    main()
