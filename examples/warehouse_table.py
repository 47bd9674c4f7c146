# %% [markdown]
# # A table from a warehouse
#
# Scores, labels and edges are tables in DuckDB. They leave it as Parquet, are calibrated, scored and decided by three
# commands, and the answer is read by SQL again. No model is needed, and any warehouse that writes Parquet will do.
# (`pip install duckdb`)

# %%
import os
import subprocess
import sys
import tempfile

import duckdb
import pyarrow as pa

import graphcal

os.chdir(tempfile.mkdtemp())


def run(*arguments: str) -> None:
    """Run a command and print its output."""
    print("$ graphcal", *arguments)
    done = subprocess.run([sys.executable, "-m", "graphcal", *arguments], capture_output=True, text=True, check=False)
    print(done.stdout or done.stderr)
    assert done.returncode != 2, done.stderr  # 2: bad input


# %% [markdown]
# What the warehouse holds. Here a small model makes the scores; yours come from wherever they come from.

# %%
data = graphcal.lab.synthetic(4000, homophily=0.7, feature_signal=0.3, seed=1)
out = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=100), seeds=[0])[0].outputs
ids = pa.array([f"customer-{k}" for k in range(len(data.y))])
source, target = (ids.take(pa.array(end.numpy())) for end in data.edge_index)
labelled = pa.array((~data.train_mask).numpy())  # labels of rows that trained the model stay out: it has seen them
scores = pa.table({"id": ids, **{f"logit_{k}": out.logits[:, k].numpy() for k in range(out.num_classes)}})
labels = pa.table({"id": ids, "label": data.y.numpy()}).filter(labelled)
edges = pa.table({"src": source, "dst": target})

warehouse = duckdb.connect("warehouse.duckdb")
for name in ("scores", "labels", "edges"):
    warehouse.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}")
print(warehouse.sql("SELECT id, round(logit_0, 2) AS logit_0, round(logit_1, 2) AS logit_1 FROM scores LIMIT 3"))

# %% [markdown]
# **Calibrate.** Half of the labelled rows are fitted on, the other half measures.

# %%
for name in ("scores", "labels", "edges"):
    warehouse.execute(f"COPY {name} TO '{name}.parquet'")
run("calibrate", "scores.parquet", "--labels", "labels.parquet", "--edges", "edges.parquet", "--out", "out")

# %% [markdown]
# **Score.** The same calibrator on tomorrow's table, of any size.

# %%
run("score", "out/calibrator.safetensors", "scores.parquet", "--edges", "edges.parquet", "--out", "tomorrow")

# %% [markdown]
# **Decide.** Which customers may be acted on alone, with at most 2 % errors? Half of the measured rows, drawn at random,
# certify.

# %%
run("decide", "out", "--max-error", "0.02", "--certify", "0.5", "--random-draw", "--out", "decisions.parquet")

# %% [markdown]
# **Back in the warehouse.**

# %%
print(warehouse.sql("SELECT decision, count(*) AS rows FROM 'decisions.parquet' GROUP BY decision ORDER BY decision"))
