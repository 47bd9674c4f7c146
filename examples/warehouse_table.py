"""Scores from a warehouse, with labels and edges as files: calibrate them, then score tomorrow's table, by the command line.

python examples/warehouse_table.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import graphcal as gc


def graphcal(*arguments: str) -> None:
    print("$ graphcal", *arguments)
    subprocess.run([sys.executable, "-m", "graphcal", *arguments], check=True)


def main() -> None:
    data = gc.synthetic(4000, seed=1)
    out = gc.train(data, training=gc.Training(epochs=40), seeds=[0])[0].outputs
    names = ["nodes", "edges", "labels"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes, edges, labels = (str(folder / f"{one}.parquet") for one in names)
        ids = pa.array([f"customer-{k}" for k in range(len(data.y))])
        scores = {f"logit_{k}": out.logits[:, k].numpy() for k in range(out.num_classes)}
        pq.write_table(pa.table({"id": ids, **scores}), nodes)
        ends = (ids.take(pa.array(end.numpy())) for end in data.edge_index)
        pq.write_table(pa.table(dict(zip(("src", "dst"), ends))), edges)
        known = ~data.train_mask.numpy()  # the model has seen the others
        pq.write_table(pa.table({"id": ids.filter(known), "label": data.y.numpy()[known]}), labels)

        graphcal("calibrate", nodes, "--labels", labels, "--edges", edges, "--out", str(folder / "out"))
        calibrator = str(folder / "out" / "calibrator.safetensors")
        graphcal("score", calibrator, nodes, "--edges", edges, "--out", str(folder / "tomorrow"))
        print(*sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet")), sep="\n")


if __name__ == "__main__":
    main()
