"""Planetoid's files of a graph of eight nodes."""

from __future__ import annotations

import collections
import pickle

import numpy as np
import scipy.sparse as sp


def planetoid_files() -> dict[str, bytes]:
    """Six nodes: 2 train rows, 4 rows outside the test block, test ids 5, 4 and 7, so node 6 has no row."""
    allx = sp.csr_matrix(np.eye(4, 3, dtype=np.float32))
    tx = sp.csr_matrix(np.array([[0, 2, 0], [0, 0, 3], [1, 1, 1]], dtype=np.float32))
    graph = collections.defaultdict(list, {0: [1, 5], 1: [0, 1], 2: [4, 4], 3: [], 4: [2], 5: [0], 6: [7], 7: [6]})
    parts = {
        "allx": allx,
        "ally": np.array([[1, 0], [0, 1], [1, 0], [0, 1]]),
        "graph": graph,
        "tx": tx,
        "ty": np.array([[0, 1], [1, 0], [0, 1]]),
        "x": allx[:2],
        "y": np.array([[1, 0], [0, 1]]),
    }
    return {"test.index": b"5\n4\n7\n", **{key: pickle.dumps(value, protocol=4) for key, value in parts.items()}}
