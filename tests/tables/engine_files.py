"""Small prediction files as other engines write them, made here: the shape of columns, types and names is theirs."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq


def predictions(N=600, C=4, scale=2.5, seed=0):
    """Logits of an over-confident model, and labels."""
    g = np.random.default_rng(seed)
    z = 1.5 * g.standard_normal((N, C))
    y = (z + g.gumbel(size=(N, C))).argmax(1)
    return (scale * z).astype(np.float32), y


def softmax(z):
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def ids_of(N):
    return [f"n{k:05d}" for k in range(N)]


def write_labels(path, ids, y, split=True, names=None):
    g = np.random.default_rng(1)
    part = np.array(["val", "test", "train"])[g.choice(3, len(y), p=[0.45, 0.45, 0.1])]
    columns = {"nid": ids, "label": y if names is None else np.array(names)[y]}
    pq.write_table(pa.table({**columns, "split": part} if split else columns), path)
    return path


def write_graphstorm(folder, z, ids, docs_names=False, csv=False):
    """Remapped predictions: a list column `pred` and a text column `nid`, several files per worker."""
    (folder / "paper").mkdir(parents=True)
    prefix = "" if docs_names else "pred."
    for chunk, rows in enumerate(np.array_split(np.arange(len(z)), 3)):
        pred = [list(map(float, row)) for row in softmax(z)[rows]]
        nid = pa.array([ids[r] for r in rows])
        stem = folder / "paper" / f"{prefix}predict-00000_{chunk:05d}"
        if csv:
            joined = pa.array([";".join(map(str, row)) for row in pred])
            pa.csv.write_csv(pa.table({"pred": joined, "nid": nid}), f"{stem}.csv")
        else:
            pq.write_table(pa.table({"pred": pa.array(pred, pa.list_(pa.float32())), "nid": nid}), f"{stem}.parquet")
    return folder


def write_graphstorm_edges(folder, z, ids):
    """Remapped predictions of edges: `pred`, and both ends as text."""
    name = folder / "user_rates_movie"
    name.mkdir(parents=True)
    g = np.random.default_rng(5)
    pairs = g.permutation(len(ids) ** 2)[: len(z)]  # each pair once
    ends = {"src_nid": [ids[k] for k in pairs // len(ids)], "dst_nid": [ids[k] for k in pairs % len(ids)]}
    pred = pa.array([list(map(float, row)) for row in softmax(z)], pa.list_(pa.float32()))
    table = pa.table({"pred": pred, **ends})
    for chunk, rows in enumerate(np.array_split(np.arange(len(z)), 3)):
        pq.write_table(table.take(rows), name / f"pred.predict-00000_{chunk:05d}.parquet")
    return ends


def write_neo4j(path, z, ids, classes, probabilities=True):
    """The frame of predict.stream: the model's classes are whole numbers, and the list has their order."""
    pred = np.array(classes)[z.argmax(1)]
    lists = pa.array(softmax(z.astype(float)).tolist() if probabilities else [None] * len(z), pa.list_(pa.float64()))
    table = {"nodeId": np.arange(len(z)), "predictedClass": pred, "predictedProbabilities": lists}
    pq.write_table(pa.table(table), path)
    return path


def write_kumo(path, z, ids, classes):
    """Multi-class: a row per entity and class, the best class first."""
    rows = {"ENTITY": [], "CLASS": [], "SCORE": [], "PREDICTED": []}
    for entity, p in zip(ids, softmax(z.astype(float))):
        for rank, k in enumerate(np.argsort(-p)):
            rows["ENTITY"].append(entity)
            rows["CLASS"].append(classes[k])
            rows["SCORE"].append(p[k])
            rows["PREDICTED"].append(rank == 0)
    pq.write_table(pa.table(rows), path)
    return path


def write_gigl(folder, z, ids, emb=True):
    """Shards of embeddings, or of the arg-max alone; GiGL's Avro as Parquet."""
    folder.mkdir(parents=True)
    for part, rows in enumerate(np.array_split(np.arange(len(z)), 2)):
        values = {"emb": pa.array(z[rows].astype("f4").tolist())} if emb else {"pred": z[rows].argmax(1).astype("f4")}
        columns = {"node_id": rows, "node_type": ["0"] * len(rows), **values}
        pq.write_table(pa.table(columns), folder / f"shard_{part:08d}.parquet")
    return folder
