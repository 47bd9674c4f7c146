"""Write predictions as Parquet files: the outputs of a model (`graphcal.export`) and calibrated tables.

PyG and DGL have no file format for predictions. `export` writes files that `graphcal calibrate` reads:

FOLDER/predictions.parquet        id, label, split, logit_<class> ...
FOLDER/edges.parquet              src, dst, by id
FOLDER/final_layer.safetensors    weight (C, D), bias (C,), where the final layer is known

graphcal calibrate FOLDER/predictions.parquet --edges FOLDER/edges.parquet --final-layer FOLDER/final_layer.safetensors

Parquet files are written whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from torch import Tensor

from graphcal.files import atomic_file, write_atomically
from graphcal.tables.layouts import Wide
from graphcal.tables.metadata import FittedTable
from graphcal.tables.scorer import with_columns

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from graphcal.core import Calibration, Outputs


def parquet_writer(path: str, schema: pa.Schema) -> pq.ParquetWriter:
    """Open a Parquet file to write to.

    Probabilities have no dictionaries and no statistics, which tell nothing of them. Whole numbers, ids mostly, have no
    dictionaries, which would cost as much as all else that is written. Text and predicted classes repeat: they have them.
    """
    scores = [field.name for field in schema if pa.types.is_floating(field.type) or pa.types.is_list(field.type)]
    others = [field for field in schema if field.name not in scores]
    repeated = [f.name for f in others if not pa.types.is_integer(f.type) or f.name == "calibrated_prediction"]
    measured = [field.name for field in others if field.name != "calibrated_prediction"]
    return pq.ParquetWriter(path, schema, use_dictionary=repeated or False, write_statistics=measured or False)


def write_table(path: Path, tables: Iterable[pa.Table | pa.RecordBatch]) -> Path:
    """Write tables of one schema, one after the other, as one Parquet file; all of it or nothing."""
    writer = None
    with atomic_file(path) as file:
        for table in tables:
            writer = writer or parquet_writer(file.name, table.schema)
            writer.write(table)
        if writer is not None:
            writer.close()
    return path


def export(out: Outputs, folder: str | Path) -> Path:
    """Write the outputs of a model as Parquet files that `graphcal calibrate` reads.

    Parameters
    ----------
    out : Outputs
        Outputs of a model.
    folder : path
        Folder for predictions.parquet, edges.parquet and final_layer.safetensors.

    Returns
    -------
    Path
        Path of the predictions.

    >>> import tempfile, graphcal
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = graphcal.export(graphcal.example(), folder)
    ...     sorted(file.name for file in path.parent.iterdir())
    ['edges.parquet', 'final_layer.safetensors', 'predictions.parquet']
    """
    from safetensors.torch import save

    folder = Path(folder)
    write_table(folder / "predictions.parquet", [predictions_of(out)])
    if out.graph.get("edge_index") is not None:
        ids = ids_of(out.graph)
        src, dst = (ids.take(pa.array(end)) for end in out.graph.edge_index.cpu().numpy())
        write_table(folder / "edges.parquet", [pa.table({"src": src, "dst": dst})])
    if out.final is not None:
        tensors = {"weight": out.final.weight.contiguous().cpu(), "bias": out.final.bias.contiguous().cpu()}
        write_atomically(folder / "final_layer.safetensors", save(tensors))
    return folder / "predictions.parquet"


def ids_of(graph: Data) -> pa.Array:
    """Return the ids of the nodes in the files of the graph, else their numbers."""
    ids = graph.get("node_ids")
    return pa.array(np.arange(int(graph.num_nodes)) if ids is None else np.asarray(ids).tolist())


def class_names_of(graph: Data, count: int) -> tuple[str, ...]:
    names = graph.get("class_names")
    return tuple(str(k) for k in range(count)) if names is None else tuple(str(name) for name in names)


def predictions_of(out: Outputs) -> pa.Table:
    """Return id, label, split and logits of every node."""
    graph, names = out.graph, class_names_of(out.graph, out.num_classes)
    columns: dict[str, Any] = {"id": ids_of(graph)}
    if graph.get("y") is not None:
        labels = pa.array(names).take(pa.array(np.maximum(graph.y.cpu().numpy(), 0)))
        columns["label"] = pc.if_else(pa.array((graph.y.cpu() >= 0).numpy()), labels, pa.scalar(None, labels.type))
    if any(graph.get(f"{part}_mask") is not None for part in ("train", "val", "test")):
        words = np.full(out.num_nodes, "", dtype=object)
        for part in ("train", "val", "test"):
            if graph.get(f"{part}_mask") is not None:
                words[graph[f"{part}_mask"].cpu().numpy()] = part
        columns["split"] = pa.array(words.tolist())
    logits = out.logits.detach().float().cpu().numpy()
    return pa.table(columns | {f"logit_{name}": np.ascontiguousarray(logits[:, k]) for k, name in enumerate(names)})


def calibrated_table(out: Outputs, log_probs: Tensor) -> pa.Table:
    """Return the predictions of a model with their calibrated probabilities."""
    names = class_names_of(out.graph, out.num_classes)
    probs = np.ascontiguousarray(log_probs.exp().float().cpu().numpy().T)
    table = predictions_of(out)
    layout = Wide("logits", tuple(f"logit_{name}" for name in names))
    return with_columns(table, layout.calibrated_columns(table, names, probs, probs.argmax(0)))


def attach_classes(calibration: Calibration, classes: tuple[str, ...]) -> None:
    """Store the classes in a calibration that was fitted on the logits of a model, not on a table."""
    calibration.fitted_on["table"] = FittedTable("logits", classes=classes).to_dict()
