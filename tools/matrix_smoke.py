"""Smoke test of an installed graphcal, run outside the repository: `python matrix_smoke.py [MODULE ...]`

`graphcal run` on the embedded graph; a table calibrated and scored by commands; the calibrator restored in Python and applied;
then the modules named. The last line printed says the versions.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

SAID = (
    "torch",
    "torch_geometric",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "safetensors",
    "typer",
    "rich",
    "matplotlib",
    "jinja2",
)


def command(*words: str) -> None:
    subprocess.run([Path(sys.executable).with_name("graphcal"), *words], check=True, stdout=subprocess.DEVNULL)


def table_of_predictions(path: Path) -> None:
    """600 over-confident predictions of three classes, half of them to fit on."""
    import numpy as np

    draw = np.random.default_rng(0)
    z = 1.5 * draw.standard_normal((600, 3))
    y = (z + draw.gumbel(size=z.shape)).argmax(1)
    rows = (f"n{k},{y[k]},{'val' if k % 2 else 'test'}," + ",".join(f"{v:.6f}" for v in 3 * z[k]) for k in range(600))
    path.write_text("id,label,split,logit_0,logit_1,logit_2\n" + "\n".join(rows) + "\n")


def main() -> None:
    import torch

    import graphcal

    assert "site-packages" in graphcal.__file__, f"{graphcal.__file__} is not the installed package"
    command("--help")
    command("run", "--seeds", "1", "--calibrator", "ts,scar,isotonic", "--out", "report")
    assert Path("report/report.html").stat().st_size > 10_000
    assert {"ts", "scar", "isotonic"} <= set(json.loads(Path("report/results.json").read_text())["methods"])
    table_of_predictions(Path("predictions.csv"))
    command("calibrate", "predictions.csv", "--calibrator", "ts", "--out", "calibrated")
    command("score", "calibrated/calibrator.safetensors", "predictions.csv", "--out", "scored")
    calibration = graphcal.restore("calibrated/calibrator.safetensors")
    assert 2 < calibration.temperature < 4.5, (
        f"predictions that are three times too sure got T = {calibration.temperature}"
    )
    from graphcal.tables.reading import read_table

    table, scored = read_table("predictions.csv"), read_table("scored")
    expected = (table.logits / calibration.temperature).log_softmax(-1).float()
    assert torch.allclose(scored.log_probs.float(), expected, atol=1e-4), "score and restore differ"
    for module in sys.argv[1:]:
        importlib.import_module(module)
    print(f"Python {sys.version.split()[0]}", *(f"{name} {version(name)}" for name in SAID), *sys.argv[1:])


if __name__ == "__main__":
    main()
