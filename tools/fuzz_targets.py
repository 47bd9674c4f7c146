"""What is fuzzed: for each target how a broken input is written into a folder, and what reads it.

write(folder, rng)    a broken input, made from a sound one
read(folder)          the reader under test: ends in a value, or in one of our errors
"""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fuzz_inputs as inputs
import numpy as np

NODES = 60


@dataclass(frozen=True)
class Target:
    write: Callable[[Path, random.Random], None]
    read: Callable[[Path], Any]


@cache
def arrays() -> dict[str, np.ndarray]:
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    x = sp.random(NODES, 10, density=0.3, format="csr", random_state=0, dtype=np.float32)
    return {
        "edge_index": rng.integers(0, NODES, (2, 150)).astype("i4"), "feat_data": x.data, "feat_indices": x.indices,
        "feat_indptr": x.indptr, "feat_shape": np.array(x.shape), "labels": (np.arange(NODES) % 3).astype("i2"),
        "train": np.arange(0, 20), "val": np.arange(20, 40), "test": np.arange(40, 59), "no_label": np.array([59]),
    }  # fmt: skip


def write_npz(path: Path, parts: dict[str, np.ndarray], rng: random.Random) -> None:
    """Arrays or bytes of an .npz file changed."""
    parts = dict(parts)
    if rng.random() < 0.7:
        for _ in range(min(rng.choice((1, 1, 2)), len(parts))):
            name = rng.choice(list(parts))
            if rng.random() < 0.1:
                del parts[name]
            else:
                parts[name] = inputs.broken_array(parts[name], rng)
    file = io.BytesIO()
    (np.savez_compressed if rng.random() < 0.5 else np.savez)(file, **parts)
    content = file.getvalue()
    path.write_bytes(inputs.broken_bytes(content, rng) if rng.random() < 0.4 else content)


def npz(folder: Path, rng: random.Random) -> None:
    parts = arrays()
    if rng.random() < 0.3:
        masks = {f"{part}_masks": np.arange(NODES)[None] // 20 == k for k, part in enumerate(("train", "val", "test"))}
        parts = {**{key: parts[key] for key in parts if key not in ("train", "val", "test")}, **masks}
    write_npz(folder / "graph.npz", parts, rng)


def read_graph(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        import graphcal

        data = graphcal.lab.read(folder / name)
        assert not (data.train_mask & data.test_mask).any(), "training and test overlap"
        return data

    return read


def benchmark(folder: Path, rng: random.Random) -> None:
    import scipy.sparse as sp

    adj, attr = sp.random(20, 20, 0.2, "csr", random_state=0), sp.random(20, 5, 0.3, "csr", random_state=1)
    parts = {f"adj_{key}": np.asarray(getattr(adj, key)) for key in ("data", "indices", "indptr", "shape")}
    parts |= {f"attr_{key}": np.asarray(getattr(attr, key)) for key in ("data", "indices", "indptr", "shape")}
    write_npz(folder / "graph.npz", {**parts, "labels": np.arange(20) % 4}, rng)


def heterophilous(folder: Path, rng: random.Random) -> None:
    masks = np.eye(10, 20, dtype=bool)
    parts = {
        "node_features": np.eye(20, 5), "node_labels": np.arange(20) % 4, "edges": np.arange(40).reshape(20, 2) % 20,
        "train_masks": masks, "val_masks": ~masks, "test_masks": masks[::-1],
    }  # fmt: skip
    write_npz(folder / "graph.npz", parts, rng)


def arxiv(folder: Path, rng: random.Random) -> None:
    import gzip

    members = {
        "edge": "0,1\n1,2\n3,1\n",
        "node-feat": "0.5,-1\n0.25,2\n0,0\n1e-3,4\n-1,0.125\n",
        "node_year": "2013\n2020\n2015\n2017\n2018\n",
    }
    if rng.random() < 0.6:
        name = rng.choice(list(members))
        members[name] = inputs.broken_text(members[name], rng)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in members.items():
            archive.writestr(f"arxiv/raw/{name}.csv.gz", gzip.compress(text.encode("utf-8", "surrogatepass"), 1))
    content = file.getvalue()
    (folder / "arxiv.zip").write_bytes(inputs.broken_bytes(content, rng) if rng.random() < 0.6 else content)


def raw_reader(function: str, file: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        from graphcal.lab.datasets import _raw as raw

        return getattr(raw, function)(folder / file)

    return read


NODE_TABLE = "id,label,split,age,size\n" + "".join(
    f"n{k},{'red' if k // 3 % 2 else 'blue'},{('train', 'val', 'test')[k % 3]},{k},{k / 7:.3f}\n" for k in range(18)
)
WORD_TABLE = "id,label,features\n" + "".join(f"{k},{k % 3},{k % 5}:0.5 {k % 7}\n" for k in range(18))
EDGE_TABLE = "source,target\n" + "".join(f"n{k},n{k * 5 % 18}\n" for k in range(18))


def csv(folder: Path, rng: random.Random) -> None:
    words = rng.random() < 0.4
    texts = {
        "nodes.csv": WORD_TABLE if words else NODE_TABLE,
        "edges.csv": EDGE_TABLE.replace("n", "") if words else EDGE_TABLE,
    }
    broken = rng.choice(("nodes.csv", "nodes.csv", "edges.csv"))
    for name, text in texts.items():
        changed = inputs.broken_text(text, rng) if name == broken and rng.random() < 0.8 else text
        content = changed.encode(rng.choice(("utf-8",) * 8 + ("utf-16", "utf-32", "utf-8-sig")), "replace")
        content = inputs.broken_bytes(content, rng) if name == broken and rng.random() < 0.3 else content
        (folder / name).write_bytes(content)


def parquet(folder: Path, rng: random.Random) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    k = np.arange(18)
    nodes: dict[str, Any] = {
        "id": k,
        "label": k // 3 % 2,
        "age": k / 3,
        "split": np.array(["train", "val", "test"])[k % 3],
    }
    if rng.random() < 0.5:
        nodes = {
            "id": k.astype(str),
            "label": k % 2,
            "features": [[int(i), int(i) % 5] for i in k],
            "values": [[0.5, 1.0]] * 18,
        }
    edges: dict[str, Any] = {"source": nodes["id"], "target": nodes["id"][k * 5 % 18]}
    tables = {"nodes": nodes, "edges": edges}
    broken = rng.choice(("nodes", "nodes", "edges"))
    for stem, columns in tables.items():
        columns = dict(columns)
        if stem == broken and rng.random() < 0.7:
            name = rng.choice(list(columns))
            columns[name] = broken_column(columns[name], rng)
        file = io.BytesIO()
        try:
            pq.write_table(pa.table(columns), file, compression=rng.choice(("none", "snappy", "zstd")))
        except Exception:  # pyarrow cannot write it: then as it was
            file = io.BytesIO()
            pq.write_table(pa.table(tables[stem]), file)
        content = file.getvalue()
        change = stem == broken and rng.random() < 0.5
        (folder / f"{stem}.parquet").write_bytes(inputs.broken_bytes(content, rng) if change else content)


def broken_column(column: Any, rng: random.Random) -> Any:
    if isinstance(column, np.ndarray):
        changed = inputs.broken_array(column, rng).reshape(-1)
        return np.resize(changed, len(column)) if changed.size else column
    return [rng.choice((row, None, [], [2**31 + 1], [-1], [2**40], [1.5], ["x"])) for row in column]


def pt(folder: Path, rng: random.Random) -> None:
    import torch
    from torch_geometric.data import Data

    k = torch.arange(NODES)
    parts: dict[str, Any] = {
        "x": torch.rand(NODES, 4), "edge_index": torch.stack([k, k * 7 % NODES]), "y": k % 3,
        "train_mask": k < 20, "val_mask": (k >= 20) & (k < 40), "test_mask": k >= 40,
    }  # fmt: skip
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(list(parts))
        parts[name] = broken_tensor(parts[name], rng)
    file = io.BytesIO()
    torch.save(Data(**parts) if rng.random() < 0.95 else parts, file, _use_new_zipfile_serialization=rng.random() < 0.9)
    content = file.getvalue()
    (folder / "graph.pt").write_bytes(inputs.broken_bytes(content, rng) if rng.random() < 0.4 else content)


def broken_tensor(value: Any, rng: random.Random) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    kind = (
        rng.randrange(9)
        if value.layout == torch.strided and value.numel() < 10**6 and value.device.type == "cpu"
        else 0
    )
    if kind == 0:
        return rng.choice((None, 5, "text", [1, 2], torch.empty(0), torch.tensor(3.0)))
    if kind == 1:
        return torch.zeros(1).expand(rng.choice(((2**40,), (2**31, 3), (NODES, 2**33))))
    if kind == 2 and value.dim() == 2:
        return value.float().to_sparse()
    if kind == 3 and value.dim() == 2 and value.numel():
        sparse = value.float().to_sparse_csr()
        columns = sparse.col_indices().clone()
        columns[rng.randrange(len(columns))] = rng.choice((2**20, -1, 4, 2**31))
        return torch.sparse_csr_tensor(
            sparse.crow_indices(), columns, sparse.values(), sparse.shape, check_invariants=False
        )
    if kind == 4:
        return value.to(rng.choice((torch.half, torch.bfloat16, torch.complex64, torch.int8, torch.bool, torch.double)))
    if kind == 5:
        return value.to("meta")
    try:
        return torch.from_numpy(inputs.broken_array(value.numpy(), rng)) if value.numel() < 10**6 else value
    except (TypeError, ValueError, RuntimeError):
        return value[:3] if value.dim() else value


@cache
def planetoid_parts() -> dict[str, Any]:
    import collections

    import scipy.sparse as sp

    graph = collections.defaultdict(list, {k: [(k * 3) % 12, (k + 1) % 12] for k in range(12)})
    one_hot = np.eye(3, dtype="i4")[np.arange(8) % 3]
    allx = sp.random(8, 5, 0.4, "csr", dtype=np.float32, random_state=0)
    return {
        "allx": allx,
        "ally": one_hot,
        "graph": graph,
        "tx": allx[:4],
        "ty": one_hot[:4],
        "x": allx[:3],
        "y": one_hot[:3],
    }


def planetoid(folder: Path, rng: random.Random) -> None:
    parts, index = (
        {key: pickle.dumps(value, protocol=rng.choice((3, 4))) for key, value in planetoid_parts().items()},
        "8\n10\n9\n11\n",
    )
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice((*parts, "test.index"))
        if name == "test.index":
            index = inputs.broken_text(index, rng)
        else:
            parts[name] = inputs.broken_bytes(parts[name], rng)
    (folder / "parts.json").write_text(
        json.dumps({"test.index": index, **{k: v.decode("latin1") for k, v in parts.items()}})
    )


def read_planetoid(folder: Path) -> Any:
    from graphcal.lab.datasets._raw import read_planetoid

    parts = json.loads((folder / "parts.json").read_text())
    return read_planetoid(lambda name: parts[name].encode("utf-8" if name == "test.index" else "latin1", "replace"))


def own_targets() -> dict[str, Target]:
    """Readers of graphs; `fuzz_records` has those of results."""
    return {
        "npz": Target(npz, read_graph("graph.npz")),
        "csv": Target(csv, read_graph("")),
        "parquet": Target(parquet, read_graph("")),
        "pt": Target(pt, read_graph("graph.pt")),
        "planetoid": Target(planetoid, read_planetoid),
        "benchmark": Target(benchmark, raw_reader("read_benchmark", "graph.npz")),
        "heterophilous": Target(heterophilous, raw_reader("read_heterophilous", "graph.npz")),
        "arxiv": Target(arxiv, raw_reader("read_arxiv_year", "arxiv.zip")),
    }
