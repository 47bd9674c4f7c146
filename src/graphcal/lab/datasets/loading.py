"""`load`: a dataset and a protocol by name, as a PyG `Data` with the masks the literature used.

`assemble` builds a checked graph from columns, for all formats of user files. Edges become undirected, and a note
says what that changed. A missing split is drawn, stratified and seeded, with a note. Labels are held against the split: nothing
in a mask without a label, every class in training, no class with one label.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from graphcal.graphs import sparse_csr
from graphcal.lab.datasets.arrays import GraphArrays, symmetrise
from graphcal.lab.datasets.catalog import data_folder, entry, find
from graphcal.lab.datasets.protocols import PROTOCOLS, Request, Split, draw, stratified

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


@dataclass
class Parts:
    """A graph of the user's, read but not yet checked."""

    where: str  # the file that labels and split came from
    x: torch.Tensor  # (N, D)
    rows: np.ndarray  # (E,) node numbers
    columns: np.ndarray  # (E,)
    labels: np.ndarray  # (N,) class numbers, -1 where there is none
    class_names: Sequence[str]
    split: Split | None
    notes: list[str] = field(default_factory=list)


def assemble(parts: Parts, seed: int) -> Data:
    """Check the parts against each other and make the `Data`."""
    labels, names, where = parts.labels, parts.class_names, parts.where
    counts = np.bincount(labels[labels >= 0], minlength=len(names))
    if len(names) < 2:
        raise ValueError(f"{where}: {len(names)} classes among the labels; a classifier needs at least two")
    if counts.min() < 2:
        few = int(counts.argmin())
        raise ValueError(f"{where}: class {names[few]!r} has {counts[few]} label; every class needs at least two")
    notes, split = list(parts.notes), parts.split
    if split is None:
        split = stratified(labels, np.random.default_rng(seed))
        notes.append(f"no split given: 60/20/20 stratified by class, seed {seed}")
        protocol = f"stratified 60/20/20, seed {seed}"
    else:
        protocol = "as given in the file"
    _hold_against(split, labels, names, where)
    edge_index, edge_notes = symmetrise(parts.rows, parts.columns, len(labels))
    data = Data(x=parts.x, edge_index=torch.from_numpy(edge_index), y=torch.from_numpy(labels.astype(np.int64)))
    set_masks(data, split)
    data.num_classes, data.class_names = len(names), list(names)
    data.notes, data.protocol = notes + edge_notes, protocol
    return data


def _hold_against(split: Split, labels: np.ndarray, names: Sequence[str], where: str) -> None:
    """The split and the labels must agree."""
    for part in ("train", "val", "test"):
        listed = getattr(split, part)
        if not len(listed):
            raise ValueError(
                f"{where}: no node is in {part!r}; name nodes for train, val and test, or leave the split out "
                "and one is made"
            )
        bare = listed[labels[listed] < 0]
        if len(bare):
            raise ValueError(f"{where}: row {int(bare.min()) + 1} is in {part!r} but has no label")
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        both = np.intersect1d(getattr(split, one), getattr(split, other))
        if len(both):
            raise ValueError(f"{where}: row {int(both[0]) + 1} is in {one!r} and in {other!r}")
    absent = np.setdiff1d(np.unique(labels[labels >= 0]), labels[split.train])
    if len(absent):
        missing = ", ".join(repr(names[c]) for c in absent[:5])
        raise ValueError(f"{where}: no training node has the label {missing}; every class must occur in training")
