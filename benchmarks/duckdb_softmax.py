"""A softmax with a temperature in DuckDB's SQL, in the ways one writes it; `benchmarks/scale.py` compares scoring with them.

careful       over columns: the largest once, every exponential once, by two subqueries; the fastest there is
columns       over columns: one formula per class
list          over the elements of a list, the exponentials in a subquery
list-inline   the same in one expression
window        over a row per id and class, by window functions
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

CLASSES = 10
LAYOUTS = {
    "wide": ("duckdb-careful", "duckdb-columns"),
    "list": ("duckdb-list", "duckdb-list-inline"),
    "long": ("duckdb-window",),
}


def queries(classes: int) -> dict[str, str]:
    """The SQL over a table `logits` with this many classes."""
    columns = [f"logit_{c}" for c in range(classes)]
    exps = [f"exp(0.7 * ({z} - top))" for z in columns]
    largest = f"SELECT *, greatest({', '.join(columns)}) AS top FROM logits"
    named = ", ".join(f"{e} AS e{c}" for c, e in enumerate(exps))
    total = " + ".join(f"e{c}" for c in range(classes))
    shares = ", ".join(f"(e{c} / total)::FLOAT AS prob_{c}" for c in range(classes))
    whole = ", ".join(f"({e} / ({' + '.join(exps)}))::FLOAT AS prob_{c}" for c, e in enumerate(exps))
    lifted = "list_transform(logits, lambda z: exp(0.7 * (z - list_max(logits))))"
    return {
        "duckdb-careful": f"SELECT id, {shares} FROM (SELECT *, {total} AS total FROM (SELECT id, {named} FROM ({largest})))",
        "duckdb-columns": f"WITH t AS ({largest}) SELECT id, {whole} FROM t",
        "duckdb-list": "SELECT id, list_transform(e, lambda x: (x / list_sum(e))::FLOAT) AS probs "
        f"FROM (SELECT id, {lifted} AS e FROM logits)",
        "duckdb-list-inline": "SELECT id, list_transform(logits, lambda x: (exp(0.7 * (x - list_max(logits))) / "
        f"list_sum({lifted}))::FLOAT) AS probs FROM logits",
        "duckdb-window": "SELECT id, class, (e / sum(e) OVER (PARTITION BY id))::FLOAT AS prob FROM (SELECT id, class, "
        "exp(0.7 * (logit - max(logit) OVER (PARTITION BY id))) AS e FROM logits)",
    }


SQL = queries(CLASSES)


def run(name: str, source: Path, out: Path, calibrator: Path, workers: int) -> None:
    """One of the queries over the shards in ``source``, into the folder ``out``."""
    import duckdb

    duckdb.sql(f"SET threads = {workers}")
    duckdb.sql("SET enable_progress_bar = false")
    duckdb.sql(f"CREATE VIEW logits AS SELECT * FROM read_parquet('{source}/*.parquet')")
    duckdb.sql(f"COPY ({SQL[name]}) TO '{out}' (FORMAT parquet, PER_THREAD_OUTPUT)")


def markdown(results: list[dict[str, Any]]) -> list[str]:
    """How many times faster scoring is, for every query, and the queries."""
    lines = [
        "## Against DuckDB",
        "",
        "The same shards, the same cores, a softmax with a temperature and nothing else (no prediction, no confidence, no "
        "check), written to Parquet. What SQL is a fair opponent depends on who writes it: here is all of it, for three classes, "
        "below the table.",
        "",
        "| SQL | rows | DuckDB, s | score, s | DuckDB / score | five times? | by the clock: DuckDB / score | DuckDB / copy |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for one in results:
        for name in LAYOUTS[one["layout"]]:
            if name in one:
                theirs, ours = one[name]["cpu"], one["score"]["cpu"]
                word = "yes" if theirs >= 5 * ours else "no"
                shown = name.removeprefix("duckdb-")
                clock = [f"{one[name]['seconds'] / one[other]['seconds']:.1f} ×" for other in ("score", "copy")]
                lines.append(
                    f"| {shown} | {one['rows']:,} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f} × | {word} | "
                    f"{clock[0]} | {clock[1]} |"
                )
    lines += [
        "",
        "Seconds are of processor time. A copy, synced, is the limit for all: where DuckDB takes less than five copies by the "
        "clock, nothing that writes Parquet is five times faster.",
        "",
    ]
    for name, query in queries(3).items():
        text = textwrap.wrap(query, 120, break_long_words=False, break_on_hyphens=False)
        lines += [f"*{name.removeprefix('duckdb-')}*", "", "```sql", *text, "```", ""]
    return lines
