"""Build src/graphcal/lab/datasets/data/citeseer.npz from Planetoid's files ind.citeseer.*.

python tools/build_citeseer.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from graphcal.lab.datasets._raw import read_planetoid
from graphcal.lab.datasets.arrays import digest, load_npz, save_npz

TARGET = Path(__file__).resolve().parent.parent / "src/graphcal/lab/datasets/data/citeseer.npz"


def build(folder: Path, target: Path) -> None:
    graph = read_planetoid(lambda part: (folder / f"ind.citeseer.{part}").read_bytes())
    nodes, features = graph.features.shape
    sizes = tuple(len(graph.splits[key]) for key in ("train", "val", "test"))
    unlabelled = graph.splits["no_label"]
    assert (nodes, graph.edge_index.shape[1], features, graph.num_classes) == (3327, 9104, 3703, 6)
    assert sizes == (120, 500, 1000)
    assert len(unlabelled) == 15
    assert graph.features[unlabelled].nnz == 0
    assert not np.isin(unlabelled, np.concatenate([graph.splits[key] for key in ("train", "val", "test")])).any()
    save_npz(target, graph)
    assert digest(load_npz(target)) == digest(graph)
    print(f"{target}: {target.stat().st_size:,} bytes, content sha256 {digest(graph)}")


if __name__ == "__main__":
    build(Path(sys.argv[1]), TARGET)
