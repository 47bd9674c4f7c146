"""`synthetic`: a degree-corrected contextual block model with bag-of-words features, as large as you like.

    y_i ~ uniform over C classes            t_i ~ Pareto(2.5), at most 100: the propensity of node i
    each of N·degree/2 edges                u ~ t; with probability `homophily` v ~ t within class y_u,
                                            else v ~ t within another class, drawn uniformly
    each of W words of node i               with probability `feature_signal` from the words of class y_i,
                                            else from all words, uniformly

Karrer & Newman 2011 (arXiv:1008.3926) for the degree correction, Deshpande et al. 2018 (arXiv:1807.09596) for the
context. With 100,000 test nodes the sampling floor of calibration errors all but vanishes, so a test can assert
calibration itself.

Work is done in blocks of a million, so memory is that of the result and one sort of its edges. The same arguments give
the same graph, on any machine with the same numpy.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from torch_geometric.data import Data

from graphcal.lab.datasets.arrays import GraphArrays, undirected
from graphcal.lab.datasets.loading import tensors
from graphcal.lab.datasets.protocols import Split

BLOCK = 1_000_000


def synthetic(
    num_nodes: int = 10_000,
    num_classes: int = 5,
    degree: float = 8.0,
    homophily: float = 0.8,
    feature_signal: float = 0.2,
    seed: int = 0,
    *,
    words: int = 128,
    words_per_node: int = 12,
    labels_per_class: int = 20,
) -> Data:
    """A graph with `labels_per_class` training nodes per class, a tenth of the nodes for validation, the rest for test.

    ``homophily`` is the share of edges within a class, ``feature_signal`` the share of a node's words that tell its class.

    >>> import graphcal
    >>> data = graphcal.lab.synthetic(1000, num_classes=3, homophily=0.6, seed=0)
    >>> data.num_nodes, int(data.train_mask.sum()), int(data.val_mask.sum())
    (1000, 60, 100)
    """
    _refuse(num_nodes, num_classes, degree, homophily, feature_signal, words, words_per_node, labels_per_class)
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_nodes, dtype=np.int16)
    edge_index = _edges(labels, num_classes, round(num_nodes * degree / 2), homophily, rng)
    features = _features(labels, num_classes, feature_signal, words, words_per_node, rng)
    split = _split(labels, num_classes, labels_per_class, rng)
    data = tensors(GraphArrays(edge_index, features, labels), split, row_normalise=False)
    data.num_classes = num_classes
    data.name, data.protocol = "synthetic", f"{labels_per_class} per class, 1/10 validation, rest test"
    data.source = (
        f"synthetic({num_nodes}, num_classes={num_classes}, degree={degree}, homophily={homophily}, "
        f"feature_signal={feature_signal}, seed={seed})"
    )
    return data


def _refuse(
    nodes: int, classes: int, degree: float, homophily: float, signal: float, words: int, per_node: int, rate: int
) -> None:
    wrong = {
        f"num_classes must be at least 2, not {classes}": classes < 2,
        f"num_nodes must be at least {4 * rate * classes} for {rate} labels in {classes} classes, not {nodes}": nodes
        < 4 * rate * classes,
        f"degree must be between 0 and num_nodes / 4, not {degree}": not 0 <= degree <= nodes / 4,
        f"homophily must be in [0, 1], not {homophily}": not 0 <= homophily <= 1,
        f"feature_signal must be in [0, 1], not {signal}": not 0 <= signal <= 1,
        f"words must be at least one for each of {classes} classes, not {words}": words < classes,
        f"words_per_node and labels_per_class must be at least 1, not {per_node} and {rate}": min(per_node, rate) < 1,
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise ValueError(f"synthetic: {message}")


def _edges(labels: np.ndarray, classes: int, edges: int, homophily: float, rng: np.random.Generator) -> np.ndarray:
    """(2, E): nodes lined up by class, so that a class is a stretch of the cumulated propensities."""
    order = np.argsort(labels, kind="stable").astype(np.int32)
    propensity = np.minimum(1 + rng.pareto(2.5, size=len(labels)), 100.0)
    upto = np.cumsum(propensity)
    last = np.searchsorted(labels[order], np.arange(classes), side="right")
    stop = upto[last - 1]
    start = np.concatenate([[0.0], stop[:-1]])
    rows, columns = np.empty(edges, dtype=np.int32), np.empty(edges, dtype=np.int32)
    for at in range(0, edges, BLOCK):
        n = min(BLOCK, edges - at)
        u = order[np.searchsorted(upto, rng.random(n) * upto[-1], side="right")]
        node_class = labels[u].astype(np.int64)
        other = (node_class + rng.integers(1, classes, size=n)) % classes
        c = np.where(rng.random(n) < homophily, node_class, other)
        target = np.searchsorted(upto, start[c] + rng.random(n) * (stop[c] - start[c]), side="right")
        rows[at : at + n], columns[at : at + n] = u, order[np.minimum(target, last[c] - 1)]
    return undirected(rows, columns, len(labels))


def _features(
    labels: np.ndarray, classes: int, signal: float, words: int, per_node: int, rng: np.random.Generator
) -> sp.csr_matrix:
    """(N, words): the share of each word among the words of a node. Class c owns the words w with w·C // words = c."""
    first = -(-np.arange(classes + 1) * words // classes)  # ceil
    data, indices, lengths = [], [], []
    for at in range(0, len(labels), BLOCK):
        node_class = labels[at : at + BLOCK, None].astype(np.int64)
        shape = (len(node_class), per_node)
        topic = first[node_class] + (rng.random(shape) * (first[node_class + 1] - first[node_class])).astype(np.int64)
        word = np.where(rng.random(shape) < signal, topic, rng.integers(words, size=shape)).astype(np.int32)
        word.sort(axis=1)
        new = np.ones(shape, dtype=bool)
        new[:, 1:] = word[:, 1:] != word[:, :-1]
        begins = np.flatnonzero(new)
        counts = np.diff(begins, append=word.size)  # runs never cross a row: each row begins one
        data.append((counts / per_node).astype(np.float32))
        indices.append(word.ravel()[begins])
        lengths.append(new.sum(1))
    pointers = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return sp.csr_matrix((np.concatenate(data), np.concatenate(indices), pointers), shape=(len(labels), words))


def _split(labels: np.ndarray, classes: int, rate: int, rng: np.random.Generator) -> Split:
    order = rng.permutation(len(labels)).astype(np.int32)
    train = np.concatenate([order[np.flatnonzero(labels[order] == c)[:rate]] for c in range(classes)])
    is_train = np.zeros(len(labels), dtype=bool)
    is_train[train] = True
    rest = order[~is_train[order]]
    held = len(labels) // 10
    return Split(train, rest[:held], rest[held:])
