"""`Scorer.map` as the function of a real Spark's mapInArrow: the same rows as `graphcal score` writes."""

import os
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphcal
from graphcal.tables.scorer import scorer_of
from graphcal.tables.scoring import score

from engine_files import predictions  # isort: skip

pytest.importorskip("pyspark")
pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")


@pytest.fixture
def spark(monkeypatch):
    from pyspark.sql import SparkSession

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # workers of this environment
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.master("local[1]").appName("graphcal")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def test_spark_gives_the_rows_of_the_local_engine(spark, tmp_path):
    from pyspark.sql.pandas.types import from_arrow_schema

    z, y = predictions(1000, C=3)
    table = pa.table({"nid": np.arange(1000), "note": ["x"] * 1000, **{f"logit_{k}": z[:, k] for k in range(3)}})
    (tmp_path / "preds").mkdir()
    for k in range(2):
        pq.write_table(table.slice(500 * k, 500), tmp_path / "preds" / f"part-{k}.parquet")
    result = graphcal.calibrate(table.drop(["note"]), y, calibrator="ts")
    saved = graphcal.save(result.calibration, tmp_path / "ts.safetensors")
    score(saved, tmp_path / "preds", tmp_path / "local")
    local = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "local").glob("*.parquet"))])
    scorer = scorer_of(graphcal.restore(saved), table, "predictions")
    frame = spark.read.parquet(str(tmp_path / "preds"))
    scored = frame.mapInArrow(scorer.map, from_arrow_schema(scorer.schema(table.schema)))
    scored.write.parquet(str(tmp_path / "spark"))
    ours = pq.read_table(tmp_path / "spark").sort_by("nid")
    assert ours.column_names == local.column_names
    assert ours["nid"].to_pylist() == local["nid"].to_pylist()
    assert ours["calibrated_prediction"].to_pylist() == local["calibrated_prediction"].to_pylist()
    for name in ("calibrated_prob_0", "calibrated_prob_1", "calibrated_prob_2", "calibrated_confidence"):
        np.testing.assert_array_equal(ours[name].to_numpy(), local[name].to_numpy())
