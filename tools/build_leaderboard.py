"""Measure methods on the release bench and write the leaderboard page: python tools/build_leaderboard.py [METHOD ...]

A METHOD is a calibrator of an installed package (entry point ``graphcal.calibrators``), or of this library. Without one the page
and its figures are written again from results/. Models that are in the folder graphcal-bench are not trained again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import build_quotes
from build_quotes import ROOT

FIGURES = ("debian-survival.svg", "debian-ageing.svg", "debian-new.svg")


def main(methods: list[str]) -> None:
    if methods:
        command = ["bench", "debian", "--only", f"method={','.join(methods)}", "--publish", "results"]
        subprocess.run([sys.executable, "-m", "graphcal", *command], cwd=ROOT, check=True)
    for name in FIGURES:
        shutil.copy(ROOT / "results" / name, ROOT / "docs" / "images" / name)
    build_quotes.main()


if __name__ == "__main__":
    main(sys.argv[1:])
