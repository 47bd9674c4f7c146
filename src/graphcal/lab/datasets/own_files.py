"""`read`: your own graph, from files.

    GRAPH.npz    the layout of `arrays`
    FOLDER       nodes.parquet or nodes.csv and edges.parquet or edges.csv, read by `graph_tables`
    GRAPH.pt     a PyG `Data` saved with torch.save, opened with weights_only=True: nothing in it can run code

What was changed or decided on the way is in `data.notes`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphcal.files import WORKING, check_memory, check_regular, file_errors
from graphcal.lab.datasets.arrays import check_classes, check_csr, check_edge_index, load_npz
from graphcal.lab.datasets.graph_tables import Columns, read_tables
from graphcal.lab.datasets.loading import Parts, assemble, feature_tensor
from graphcal.lab.datasets.protocols import Split
from graphcal.tables.array_files import check_tensor, load_safely


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
    r"""Read a graph from a file or folder; the column options and the delimiter concern folders of tables.

    Features are every other numeric column of the node table, or those in `feature_columns`, or, where the column
    `sparse_column` is there, a list for each node: of word numbers (with an optional list of as many values in
    `values_column`), of decimal numbers (a dense vector), or in CSV text such as "3:0.5 17:1" or "3 17".

    >>> import tempfile, graphcal
    >>> folder = Path(tempfile.mkdtemp())
    >>> rows = [f"u{k},{('fraud', 'fine')[k % 2]},{('train', 'val', 'test')[k % 3]},{k}" for k in range(12)]
    >>> _ = (folder / "nodes.csv").write_text("id,label,split,amount\\n" + "\\n".join(rows))
    >>> _ = (folder / "edges.csv").write_text("source,target\\nu0,u1\\nu1,u2\\n")
    >>> data = graphcal.lab.read(folder)
    >>> data.num_nodes, data.class_names, list(data.node_ids[:2])
    (12, ['fine', 'fraud'], ['u0', 'u1'])
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    columns = Columns(
        id_column, label_column, split_column, source_column, target_column,
        tuple(feature_columns) if feature_columns is not None else None, sparse_column, values_column,
    )  # fmt: skip
    with file_errors(path, "a graph that can be read"):
        data = _read(path, columns, delimiter, seed)
    data.name, data.source = path.stem, str(path)
    return data


def _read(path: Path, columns: Columns, delimiter: str, seed: int) -> Data:
    """Read a graph by the kind of its path."""
    if path.is_dir():
        parts, node_ids = read_tables(path, columns, delimiter)
        data = assemble(parts, seed)
        data.node_ids = node_ids
    elif check_regular(path).stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")
    elif path.suffix == ".npz":
        data = assemble(read_layout(path), seed)
    elif path.suffix in (".pt", ".pth"):
        data = assemble(read_saved(path), seed)
    else:
        raise ValueError(f"{path}: choose a .npz file, a .pt file with a PyG Data, or a folder with nodes and edges")
    return data


def read_layout(path: Path) -> Parts:
    """A file of the documented .npz layout."""
    graph = load_npz(path)
    graph.features.data = _single(graph.features.data)
    bad = np.flatnonzero(~np.isfinite(graph.features.data))
    if len(bad):
        row = int(np.searchsorted(graph.features.indptr, bad[0], side="right"))
        raise ValueError(f"{path}: features, row {row}: {graph.features.data[bad[0]]} is not finite")
    labels = np.where(graph.labelled, graph.labels, -1)
    splits, split = graph.splits, None
    notes = []
    if {"train", "val", "test"} <= set(splits):
        split = Split(splits["train"], splits["val"], splits["test"])
    elif {"train_masks", "val_masks", "test_masks"} <= set(splits):
        train, val, test = (np.flatnonzero(splits[f"{part}_masks"][0]) for part in ("train", "val", "test"))
        split = Split(train, val, test)
        notes = [f"split 0 of {len(splits['train_masks'])} is used"] if len(splits["train_masks"]) > 1 else []
    rows, columns = graph.edge_index
    return Parts(str(path), feature_tensor(graph.features), rows, columns, labels, _numbered(labels), split, notes)


def _single(values: np.ndarray) -> np.ndarray:
    """Convert to float32; values that do not fit become infinite and are refused."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def read_saved(path: Path) -> Parts:
    """A PyG `Data` saved with torch.save."""
    data = _loaded(path)
    x, edge_index, y = (check_tensor(data.get(key), key, path, sparse=key == "x") for key in ("x", "edge_index", "y"))
    x = _features(x, path)
    labels = check_classes(y.reshape(-1).numpy(), path)
    if len(labels) != len(x):
        raise ValueError(f"{path}: y has {len(labels)} entries for {len(x)} rows of x")
    edges = check_edge_index(edge_index.numpy(), len(labels), path)
    split, notes = _masks(data, len(labels), path)
    labels = np.where(labels >= 0, labels, -1)
    return Parts(str(path), x, edges[0], edges[1], labels, _numbered(labels), split, notes)


def _loaded(path: Path) -> Data:
    """The `Data` in a file, without running anything of it."""
    classes = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage)
    data: Any = load_safely(path, classes, "save a Data that holds only tensors")
    if not isinstance(data, Data):
        raise ValueError(f"{path}: holds a {type(data).__name__}, expected a torch_geometric.data.Data")
    with file_errors(path, "a sound Data"):
        keys = [str(key) for key in data.keys()]  # noqa: SIM118 (not a dict)
        missing = [key for key in ("x", "edge_index", "y") if not isinstance(data.get(key), torch.Tensor)]
    if missing:
        raise ValueError(f"{path}: the Data has no tensor {', '.join(missing)}; it has {', '.join(keys)}")
    return data


def _features(x: torch.Tensor, path: Path) -> torch.Tensor:
    """(N, D) finite float32, dense or CSR with its structure checked."""
    if x.dim() != 2:
        raise ValueError(f"{path}: x has shape {tuple(x.shape)}, expected (N, D)")
    if x.layout == torch.sparse_csr:
        parts = {"x_data": x.values(), "x_indices": x.col_indices(), "x_indptr": x.crow_indices()}
        for name, part in parts.items():
            check_memory(path, WORKING * part.numel(), name)
        arrays = {
            name: part.to(torch.float32 if part.is_floating_point() else part.dtype).numpy()
            for name, part in parts.items()
        }
        matrix = check_csr({**arrays, "x_shape": np.array(x.shape)}, "x", path)
        if not np.isfinite(matrix.data).all():
            raise ValueError(f"{path}: x: a feature is not finite")
        return feature_tensor(matrix)
    x = x.float()
    broken = ~torch.isfinite(x).all(-1)
    if broken.any():
        raise ValueError(f"{path}: x, row {int(broken.nonzero()[0, 0]) + 1}: a feature is not finite")
    return x


def _masks(data: Data, nodes: int, path: Path) -> tuple[Split | None, list[str]]:
    """The split in the three masks, if they are there."""
    keys = ("train_mask", "val_mask", "test_mask")
    if any(data.get(key) is None for key in keys):
        return None, []
    masks = [check_tensor(data.get(key), key, path) for key in keys]
    for key, mask in zip(keys, masks):
        if mask.dtype != torch.bool or mask.dim() not in (1, 2) or len(mask) != nodes or not mask.numel():
            raise ValueError(
                f"{path}: {key} must be boolean with {nodes} rows; got {tuple(mask.shape)} of {mask.dtype}"
            )
    several = masks[0].shape[1] if masks[0].dim() == 2 else 1
    train, val, test = (mask.reshape(nodes, -1)[:, 0].nonzero().reshape(-1).numpy() for mask in masks)
    return Split(train, val, test), [f"split 0 of {several} is used"] if several > 1 else []


def _numbered(labels: np.ndarray) -> list[str]:
    return [str(c) for c in range(int(labels.max(initial=-1)) + 1)]
