"""`load`: a dataset and a protocol by name, as a PyG `Data` with the masks the literature used."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from graphcal.graphs import sparse_csr
from graphcal.lab.datasets.arrays import GraphArrays
from graphcal.lab.datasets.catalog import data_folder, entry, find
from graphcal.lab.datasets.protocols import PROTOCOLS, Request, Split, draw

DENSE_LIMIT = 2**29  # entries; above, features stay a sparse CSR tensor
SMALL = 2**26  # entries; above, features are dense only if at least one in SPARSITY is not zero
SPARSITY = 1000


def load(
    name: str,
    protocol: str | None = None,
    labels_per_class: int = 20,
    split: int = 0,
    seed: int = 0,
    root: str | os.PathLike[str] | None = None,
    row_normalise: bool | None = None,
) -> Data:
    """Load a named graph under a named protocol.

    `protocol=None` takes the dataset's usual one (`public` becomes `cagcn` at 40 or 60 labels per class);
    `split` chooses among published splits, `seed` drives the drawn ones; `root` is the folder downloads are kept in;
    `row_normalise=None` normalises features where the protocol does (cora, citeseer and pubmed; all graphs under
    `gats`). The source used is `data.source`; remarks on the split are `data.notes`.

    >>> import graphcal
    >>> data = graphcal.lab.load("citeseer")  # inside the package: no network
    >>> data.num_nodes, data.protocol, int(data.train_mask.sum())
    (3327, 'public', 120)
    >>> int(graphcal.lab.load("citeseer", "per-class", labels_per_class=5, seed=1).train_mask.sum())
    30
    """
    catalog_entry = entry(name)
    if protocol is None:
        protocol = "cagcn" if catalog_entry.protocol == "public" and labels_per_class != 20 else catalog_entry.protocol
    graph, source = find(name, root)
    folder = data_folder()
    lists = folder / "splits" if folder else None
    split_ids = draw(protocol, graph, Request(name, labels_per_class, split, seed, lists))
    as_gats = PROTOCOLS[protocol].indicators
    if as_gats and catalog_entry.counts:
        graph = replace(graph, features=graph.features.sign())
    normalise = (catalog_entry.row_normalise or as_gats) if row_normalise is None else row_normalise
    data = tensors(graph, split_ids, normalise)
    data.name, data.protocol, data.source = name, protocol, source
    return data


def tensors(graph: GraphArrays, split: Split, row_normalise: bool) -> Data:
    """The arrays as a PyG `Data`."""
    features = normalised(graph.features) if row_normalise else graph.features
    data = Data(
        x=feature_tensor(features),
        edge_index=torch.from_numpy(graph.edge_index.astype(np.int64)),
        y=torch.from_numpy(graph.labels.astype(np.int64)),
    )
    set_masks(data, split)
    data.num_classes = graph.num_classes
    data.labelled = torch.from_numpy(graph.labelled)  # (N,) Citeseer's 15 have label 0 and none in truth
    data.notes = list(split.notes)
    return data


def set_masks(data: Data, split: Split) -> None:
    """The split as the three boolean masks of PyG."""
    for part in ("train", "val", "test"):
        mask = torch.zeros(data.y.shape[0], dtype=torch.bool)
        mask[torch.from_numpy(getattr(split, part).astype(np.int64))] = True
        data[f"{part}_mask"] = mask


def normalised(features: sp.csr_matrix) -> sp.csr_matrix:
    """Rows divided by the sum of their absolute values; empty rows stay empty."""
    total = np.asarray(abs(features).sum(1)).ravel()
    scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    return (sp.diags(scale) @ features).tocsr().astype(np.float32)


def feature_tensor(features: sp.csr_matrix) -> torch.Tensor:
    """Dense float32 up to DENSE_LIMIT entries, sparse CSR above and where all but a few are zero."""
    entries = features.shape[0] * features.shape[1]
    if entries <= DENSE_LIMIT and (entries <= SMALL or features.nnz * SPARSITY >= entries):
        return torch.from_numpy(features.astype(np.float32, copy=False).toarray())
    if not features.has_canonical_format:
        features = features.copy()
        features.sum_duplicates()
    pointers, columns = torch.from_numpy(features.indptr), torch.from_numpy(features.indices)
    values = torch.from_numpy(features.data.astype(np.float32, copy=False))
    with sparse_csr():
        return torch.sparse_csr_tensor(pointers, columns, values, size=features.shape, check_invariants=False)
