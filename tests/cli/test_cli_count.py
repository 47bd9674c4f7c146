"""`graphcal count`: files, schema, groups of columns and communities, the union of groups."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from graphcal.cli import app
from graphcal.count_table import certified_union
from graphcal.decisions.counts import Count
from graphcal.records import validate

ROWS, RINGS = 1500, 75


@pytest.fixture(scope="module")
def rings(tmp_path_factory):
    """A table of accounts in rings, of which some are bad, and its edges."""
    folder, rng = tmp_path_factory.mktemp("rings"), np.random.default_rng(0)
    ring = np.arange(ROWS) // (ROWS // RINGS)
    odds = rng.normal(-1.5, 1, ROWS)
    bad = rng.random(ROWS) < 1 / (1 + np.exp(-(odds + rng.normal(0, 1.6, RINGS)[ring])))
    label = np.where(rng.random(ROWS) < 0.3, np.where(bad, "fraud", "ok"), None)
    p = 1 / (1 + np.exp(-odds))
    columns = {"id": np.arange(ROWS), "prob_ok": 1 - p, "prob_fraud": p, "label": label.tolist()}
    pq.write_table(pa.table({**columns, "shop": [f"<shop {k}>" for k in ring]}), folder / "scores.parquet")
    source = np.repeat(np.arange(ROWS), 4)
    target = ring[source] * (ROWS // RINGS) + rng.integers(0, ROWS // RINGS, len(source))
    pq.write_table(pa.table({"src": source, "dst": target}), folder / "edges.parquet")
    return folder, bad, np.array([v is not None for v in label])


def run(folder, *options):
    return CliRunner().invoke(app, ["count", str(folder / "scores.parquet"), *map(str, options)])


def test_communities_are_counted_written_and_cover(rings, tmp_path):
    folder, bad, _ = rings
    result = run(
        folder, "--edges", folder / "edges.parquet", "--by", "community", "--class", "fraud", "--out", tmp_path / "a"
    )
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "a" / "results.json").read_text())
    validate(record, "count", "results.json")
    assert set(record["files"]) == {"counts.parquet", "members.parquet", "calibrator.safetensors"}
    counts, members = (pq.read_table(tmp_path / "a" / f"{name}.parquet") for name in ("counts", "members"))
    assert members.num_rows == ROWS
    group = np.array(members["group"].to_pylist())
    expected = np.array(counts["expected"].to_pylist())
    assert (np.diff(expected) <= 0).all()
    assert expected.sum() == pytest.approx(record["total"]["expected"], rel=0.02)
    covered = [
        row["low"] <= bad[group == row["group"]].sum() <= row["high"] and row["nodes"] == (group == row["group"]).sum()
        for row in counts.to_pylist()
    ]
    assert np.mean(covered) >= 0.93
    assert "uarantee" not in result.output
    assert record["union"] is None


def test_without_edges_a_column_gives_the_groups(rings, tmp_path):
    folder, _, labelled = rings
    result = run(folder, "--by", "shop", "--out", tmp_path / "b", "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    validate(record, "count", "standard output")
    assert (record["event"], len(record["counts"])) == ("errors", RINGS)
    assert record["labels"] == labelled.sum() == sum(one["labelled"] for one in record["counts"])
    page = (tmp_path / "b" / "report.html").read_text()
    assert "&lt;shop 3&gt;" in page
    assert "<shop" not in page


def test_union_speaks_of_rows_and_guarantees_only_a_stated_draw(rings, tmp_path):
    folder, bad, labelled = rings
    options = ("--by", "shop", "--class", "fraud", "--precision", 0.4, "--out", tmp_path / "c")
    plain, stated = run(folder, *options), run(folder, *options, "--random-draw")
    assert "uarantee" not in plain.output
    assert "Guaranteed" in stated.output
    union = json.loads((tmp_path / "c" / "results.json").read_text())["union"]
    members = np.array(pq.read_table(tmp_path / "c" / "members.parquet")["group"].to_pylist())
    rows = np.isin(members, union["groups"]) & ~labelled
    assert union["rows"] == rows.sum() > 50
    assert bad[rows].mean() >= 0.4
    assert union["labels"] == pytest.approx(labelled.sum() / 2, abs=1)


def test_certified_unions_hold_in_most_draws():
    """Shares that order the groups roughly: the labels that certify decide, at their certainty."""
    rng = np.random.default_rng(0)
    n, sizes = 4000, 100
    members = np.array([f"g{k}" for k in range(sizes)])[np.arange(n) // (n // sizes)]
    broken = certified = 0
    for _ in range(200):
        true = rng.beta(3, 1.5, sizes)
        hit = rng.random(n) < np.repeat(true, n // sizes)
        guess = np.clip(true + rng.normal(0, 0.15, sizes), 0, 1)
        counts = [Count(40 * guess[k], 0, 40, 1, 1, 1, nodes=40, name=f"g{k}") for k in range(sizes)]
        certify = np.zeros(n, bool)
        certify[rng.choice(n, 400, replace=False)] = True
        union = certified_union(counts, members, hit, certify, np.zeros(n, bool), 0.7, 0.9, True)
        rows = np.isin(members, union.groups) & ~certify
        assert rows.sum() == union.rows
        certified += bool(union.rows)
        broken += bool(union.rows) and hit[rows].mean() < 0.7
    assert certified > 100
    assert broken <= 0.1 * 200 + 2 * np.sqrt(200 * 0.1 * 0.9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--by", "nothing"), "no column 'nothing'"),
        (("--by", "community"), "needs edges"),
        (("--by", "label"), "column of the labels"),
        (("--by", "shop", "--class", "cat"), "Classes: "),
        (("--by", "shop", "--precision", "0.5"), "--class"),
        (("--by", "shop", "--certainty", "95"), "--certainty"),
    ],
)
def test_bad_options_are_refused(rings, tmp_path, options, words):
    result = run(rings[0], *options, "--out", tmp_path / "d")
    assert isinstance(result.exception, ValueError)
    assert words in str(result.exception)
    assert not (tmp_path / "d" / "results.json").exists()
