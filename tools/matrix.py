"""The install matrix: the wheel in empty environments, with each interpreter, the oldest versions and every extra alone.

    python tools/matrix.py                      all of it
    python tools/matrix.py 3.12 oldest          environments whose name has all of these words
    python tools/matrix.py --list               their names, and the interpreters that are not here
    python tools/matrix.py --here               the modules of every extra, imported by this interpreter: seconds

An environment is `PYTHON-newest`, `PYTHON-oldest` (constraints-oldest.txt) or `PYTHON-EXTRA`, the first one plus an extra.
In each the smoke test runs outside the repository: `graphcal run`, a table calibrated and scored, a saved calibration restored,
the modules of the extra imported. Interpreters are looked for on the PATH and among pyenv's.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
EXTRAS = {  # what each extra is for: its packages, and the modules of ours that stand on them
    "ray": ("ray.data", "graphcal.tables.scoring", "graphcal.lab.bench.engines"),
    "spark": ("pyspark",),
    "onnx": ("onnx", "onnxruntime", "onnxscript", "graphcal.serving.torch_export"),
}  # fmt: skip


@dataclass(frozen=True)
class Environment:
    python: str
    what: str  # newest, oldest, or an extra

    @property
    def name(self) -> str:
        return f"{self.python}-{self.what}"

    @property
    def modules(self) -> tuple[str, ...]:
        return EXTRAS.get(self.what, ())


def interpreter(version: str) -> Path | None:
    """Path of this version of Python, or None."""
    here = shutil.which(
        f"python{version}", path=os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]])
    )
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    candidates = [*pyenv, *([Path(here)] if here else [])]
    return next((python for python in candidates if _works(python, version)), None)


def _works(python: Path, version: str) -> bool:
    done = subprocess.run(
        [python, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
    )
    return done.stdout.strip() == version


def environments(extras_of: str) -> list[Environment]:
    """Every interpreter with the newest and the oldest versions, and one of them with each extra."""
    both = [Environment(python, what) for python in PYTHONS for what in ("newest", "oldest")]
    return [*both, *(Environment(extras_of, extra) for extra in EXTRAS)]


def build_wheel(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(pip, check=True)
    return next(folder.glob("graphcal-*.whl"))


def make(environment: Environment, wheel: Path, work: Path) -> Path:
    """The interpreter of a new environment with the wheel in it; an extra's also sees the packages of the newest."""
    python, folder = interpreter(environment.python), work / environment.name
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    inside = folder / "bin" / "python"
    extra = environment.what in EXTRAS
    if extra:
        core = work / f"{environment.python}-newest"
        packages = subprocess.check_output(
            [core / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        site = subprocess.check_output(
            [inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        (Path(site.strip()) / "core.pth").write_text(packages)
    constraints = ROOT / ("constraints-oldest.txt" if environment.what == "oldest" else "constraints.txt")
    wanted = f"{wheel}[{environment.what}]" if extra else str(wheel)
    pip = [
        inside,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--progress-bar",
        "off",
        "-c",
        constraints,
        wanted,
    ]
    subprocess.run(pip, check=True)
    subprocess.run([inside, "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
    return inside


def smoke(environment: Environment, python: Path) -> str:
    """The last line of the smoke test, which says the versions."""
    with tempfile.TemporaryDirectory() as outside:
        clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "GRAPHCAL_DATA")}
        told = [python, ROOT / "tools" / "matrix_smoke.py", *environment.modules]
        return subprocess.run(
            told, cwd=outside, env=clean, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*", help="only environments whose name has all of these")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--extras-of", default="3.11", choices=PYTHONS, help="the interpreter that gets the extras")
    parser.add_argument("--work", type=Path, help="folder for the environments, kept (default: a temporary one)")
    options = parser.parse_args()
    if options.here:
        for extra, modules in EXTRAS.items():
            if importlib.util.find_spec(modules[0].split(".")[0]) is None:
                print(f"{extra}: not installed here")
                continue
            subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], check=True)
            print(f"{extra}: {', '.join(modules)}")
        return
    selected = [env for env in environments(options.extras_of) if all(word in env.name for word in options.word)]
    lacking = [python for python in PYTHONS if interpreter(python) is None]
    if lacking:
        print(f"not tested, no interpreter here: {', '.join(lacking)}")
    selected = [env for env in selected if env.python not in lacking]
    if options.list:
        print("\n".join(env.name for env in selected))
        return
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        wheel = build_wheel(Path(scratch))
        for env in selected:
            started = time.monotonic()
            core = work / f"{env.python}-newest"
            try:
                if env.what in EXTRAS and not core.exists():
                    make(Environment(env.python, "newest"), wheel, work)
                outcome = smoke(env, make(env, wheel, work))
            except (subprocess.CalledProcessError, IndexError) as fault:
                outcome = f"FAILED ({fault})"
                failed.append(env.name)
            print(f"{env.name:20} {time.monotonic() - started:5.0f} s  {outcome}", flush=True)
            if options.work is None and env.what != "newest":
                shutil.rmtree(work / env.name, ignore_errors=True)
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
