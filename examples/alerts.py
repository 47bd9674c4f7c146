"""Alerts on tolokers: one score column, labels of a random fifth, edges; written as files for `graphcal alerts`.

Tolokers are crowd workers; 22 % of them were banned. A logistic regression with balanced class weights scores every worker.

    GRAPHCAL_DATA=data python examples/alerts.py tolokers/
    graphcal alerts tolokers/scores.parquet --class banned --edges tolokers/edges.parquet --capacity 300 --random-draw
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import graphcal


def write(folder: Path, seed: int = 0) -> np.ndarray:
    """Write scores.parquet and edges.parquet; return the truth of the rows."""
    data = graphcal.lab.load("tolokers")
    x, y = StandardScaler().fit_transform(data.x.numpy()), data.y.numpy()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, rest = order[:3000], order[3000:]
    model = LogisticRegression(class_weight="balanced").fit(x[train], y[train])
    label = np.where(y == 1, "banned", "active").astype(object)
    label[order[3000 + len(rest) // 5 :]] = None
    names = np.array([f"worker {k}" for k in range(len(y))])
    split = np.where(np.isin(np.arange(len(y)), train), "train", "test")
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"id": names, "score": model.predict_proba(x)[:, 1], "label": label, "split": split}
    pq.write_table(pa.table(columns), folder / "scores.parquet")
    src, dst = names[data.edge_index.numpy()]
    pq.write_table(pa.table({"src": src, "dst": dst}), folder / "edges.parquet")
    return np.asarray(y == 1)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "tolokers"))
