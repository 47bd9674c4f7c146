"""`read`: your own graph, from files.

    GRAPH.npz    the layout of `arrays`
    FOLDER       nodes.parquet or nodes.csv and edges.parquet or edges.csv, read by `graph_tables`
    GRAPH.pt     a PyG `Data` saved with torch.save, opened with weights_only=True: nothing in it can run code

What was changed or decided on the way is in `data.notes`.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphcal.datasets.arrays import load_npz
from graphcal.datasets.assemble import Parts, assemble
from graphcal.datasets.graph_tables import Columns, read_tables
from graphcal.datasets.loading import feature_tensor
from graphcal.datasets.splits import Split


def read(
    path: str | os.PathLike[str],
    *,
    id_column: str = "id",
    label_column: str = "label",
    split_column: str = "split",
    source_column: str = "source",
    target_column: str = "target",
    feature_columns: Sequence[str] | None = None,
    sparse_column: str = "features",
    values_column: str = "values",
    delimiter: str = ",",
    seed: int = 0,
) -> Data:
    """Read a graph from a file or folder; the column options and the delimiter concern folders of tables.

    Features are every other numeric column of the node table, or those in `feature_columns`, or, where the column
    `sparse_column` is there, a list for each node: of word numbers (with an optional list of as many values in
    `values_column`), of decimal numbers (a dense vector), or in CSV text such as "3:0.5 17:1" or "3 17".
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if path.is_dir():
        columns = Columns(
            id_column, label_column, split_column, source_column, target_column,
            tuple(feature_columns) if feature_columns is not None else None, sparse_column, values_column,
        )  # fmt: skip
        parts, node_ids = read_tables(path, columns, delimiter)
        data = assemble(parts, seed)
        data.node_ids = node_ids
    elif path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    elif path.suffix == ".npz":
        data = assemble(read_layout(path), seed)
    elif path.suffix in (".pt", ".pth"):
        data = assemble(read_saved(path), seed)
    else:
        raise ValueError(f"{path}: choose a .npz file, a .pt file with a PyG Data, or a folder with nodes and edges")
    data.name, data.source = path.stem, str(path)
    return data


def read_layout(path: Path) -> Parts:
    """A file of the documented .npz layout."""
    graph = load_npz(path)
    if len(graph.labels) != graph.features.shape[0]:
        raise ValueError(f"{path}: {len(graph.labels)} labels for {graph.features.shape[0]} rows of features")
    bad = np.flatnonzero(~np.isfinite(graph.features.data))
    if len(bad):
        row = int(np.searchsorted(graph.features.indptr, bad[0], side="right"))
        raise ValueError(f"{path}: features, row {row}: {graph.features.data[bad[0]]} is not finite")
    edges = _edges(path, graph.edge_index, graph.num_nodes)
    labels = np.where(graph.labelled, graph.labels, -1)
    found, split = graph.splits, None
    notes = []
    if {"train", "val", "test"} <= set(found):
        split = Split(found["train"], found["val"], found["test"])
    elif {"train_masks", "val_masks", "test_masks"} <= set(found):
        train, val, test = (np.flatnonzero(found[f"{part}_masks"][0]) for part in ("train", "val", "test"))
        split = Split(train, val, test)
        notes = [f"split 0 of {len(found['train_masks'])} is used"] if len(found["train_masks"]) > 1 else []
    return Parts(str(path), feature_tensor(graph.features), *edges, labels, _numbered(labels), split, notes)


def read_saved(path: Path) -> Parts:
    """A PyG `Data` saved with torch.save."""
    try:
        with torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]):
            data: Any = torch.load(path, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as fault:
        asked = re.search(r"Unsupported global: GLOBAL (\S+)", str(fault))
        reason = f"it asks for {asked[1]}" if asked else "it is not a file of torch.save"
        raise ValueError(f"{path}: cannot be opened safely: {reason}; save a Data that holds only tensors") from fault
    if not isinstance(data, Data):
        raise ValueError(f"{path}: holds a {type(data).__name__}, expected a torch_geometric.data.Data")
    missing = [key for key in ("x", "edge_index", "y") if not isinstance(data.get(key), torch.Tensor)]
    if missing:
        raise ValueError(f"{path}: the Data has no tensor {', '.join(missing)}; it has {', '.join(data.keys())}")
    nodes, labels = data.x.shape[0], data.y.reshape(-1).numpy()
    if len(labels) != nodes:
        raise ValueError(f"{path}: y has {len(labels)} entries for {nodes} rows of x")
    values = data.x.values() if data.x.layout == torch.sparse_csr else data.x
    if not torch.isfinite(values).all():
        where = "" if values is not data.x else f", row {int((~torch.isfinite(values)).nonzero()[0, 0]) + 1}"
        raise ValueError(f"{path}: x{where}: a feature is not finite")
    edges = _edges(path, data.edge_index.numpy(), nodes)
    masks = [data.get(f"{part}_mask") for part in ("train", "val", "test")]
    split, notes = None, []
    if all(mask is not None for mask in masks):
        if masks[0].dim() == 2:
            notes = [f"split 0 of {masks[0].shape[1]} is used"]
            masks = [mask[:, 0] for mask in masks]
        train, val, test = (mask.nonzero().reshape(-1).numpy() for mask in masks)
        split = Split(train, val, test)
    x = data.x if data.x.layout != torch.strided else data.x.float()
    labels = np.where(labels >= 0, labels, -1).astype(np.int64)
    return Parts(str(path), x, *edges, labels, _numbered(labels), split, notes)


def _edges(path: Path, edge_index: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"{path}: edge_index has shape {edge_index.shape}, expected (2, E)")
    wrong = np.flatnonzero(((edge_index < 0) | (edge_index >= nodes)).any(0))
    if len(wrong):
        edge = tuple(int(end) for end in edge_index[:, wrong[0]])
        raise ValueError(f"{path}: edge_index, edge {wrong[0] + 1}: {edge} has an end outside 0..{nodes - 1}")
    return edge_index[0], edge_index[1]


def _numbered(labels: np.ndarray) -> list[str]:
    return [str(c) for c in range(int(labels.max(initial=-1)) + 1)]
