"""The summary over graphs: means, paired differences, and the graphs that are counted apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphcal.lab.bench.comparisons import Difference
from graphcal.lab.bench.contents import sections_of, summary_blocks
from graphcal.lab.bench.document import Grid, Heading, markdown
from graphcal.lab.bench.presets import build_preset
from graphcal.lab.bench.records import Record
from graphcal.lab.bench.tabulation import Entry, Row, Table

PRESET = {
    "title": "t", "source": "s", "runs": 2, "methods": ["ours", "theirs"], "own": "ours", "axes": {},
    "define": {"ours": {"calibrator": "ts"}, "theirs": {"calibrator": "none"}},
    "summary": {"metrics": ["nll"], "tested": ["nll"], "by": "labels", "part": "new", "where": {"dataset": ["b"]}},
}  # fmt: skip


def entry(values: dict[int, float]) -> Entry:
    records = tuple(Record({"run": [k, k]}, {"test": {"nll": v, "ece": v}}, {}, {}) for k, v in values.items())
    return Entry(records, tuple(map(str, values)), len(values))


def table(rows: list[tuple[str, str, dict[int, float], dict[int, float]]]) -> Table:
    made = [
        Row({"labels": labels, "dataset": graph}, {"ours": entry(a), "theirs": entry(b)})
        for labels, graph, a, b in rows
    ]
    return Table(build_preset("small", PRESET), tuple(made))


@pytest.fixture
def two_graphs() -> Table:
    return table(
        [
            ("x", "a", {0: 0.5, 1: 0.7}, {0: 0.6, 1: 0.8}),
            ("y", "a", {0: 0.3}, {0: 0.5, 1: 9.0}),  # a run that only the rival has finished
            ("x", "b", {0: 0.4}, {0: 0.3}),
        ]
    )


def test_differences_are_paired_and_a_graph_counts_once(two_graphs):
    blocks = summary_blocks(two_graphs)
    assert [title for title, _ in sections_of(two_graphs)] == ["Over all graphs", "labels x", "labels y"]
    means, compared = [block for block in blocks if isinstance(block, Grid)]
    assert [cell.words for cell in means.body[0]] == ["ours", "2", "0.4250"]  # a: (0.6 + 0.3) / 2, b: 0.4
    line = [cell.words for cell in compared.body[0]]
    assert line[:4] == ["theirs", "2", "-0.0250", "1 / 1"]  # a: (-0.1 - 0.2) / 2, b: +0.1
    assert line[5:] == ["+0.1000", "0 / 1"]  # the graph that is counted apart
    assert "minus" in markdown(blocks)


def test_a_preset_without_summary_has_none(two_graphs):
    assert summary_blocks(replace(two_graphs, preset=replace(two_graphs.preset, summary={}))) == []
    assert summary_blocks(table([("x", "a", {}, {})])) == []


def test_dependent_graphs_are_one_sign_and_sections_take_their_rows(two_graphs):
    """Six graphs with one sign: p = 2 / 2^6; two of them together leave five signs: 2 / 2^5."""
    six = table([("x", graph, {0: 0.4}, {0: 0.5}) for graph in "abcdef"] + [("y", "a", {0: 0.9}, {0: 0.1})])
    section = [{"title": "Only x", "where": {"labels": "x"}}]
    summary = {"metrics": ["nll"], "tested": ["nll"], "section": section}
    for more, p in (({}, "0.031"), ({"together": [["a", "b"]]}, "0.062")):
        blocks = summary_blocks(replace(six, preset=replace(six.preset, summary={**summary, **more})))
        assert [block.words for block in blocks if isinstance(block, Heading)] == ["Only x"]
        line = [
            cell.words
            for cell in next(block for block in blocks if isinstance(block, Grid) and "p" in block.header).body[0]
        ]
        assert line[2:] == ["-0.1000" + (" ✓" if p == "0.031" else ""), "6 / 0", p]


def verdict(rows: list[tuple[str, str, dict[int, float], dict[int, float]]], p_of_harm: float = 1.0) -> list[str]:
    """The column "met" of the rule: ours against theirs, where "b" chose nothing."""
    summary = {
        "metrics": ["nll"], "tested": ["nll"], "rule": ["theirs"], "part": "new", "where": {"dataset": ["b"]},
        "section": [{"title": "all", "where": {}}],
    }  # fmt: skip
    made = table(rows)
    graphs = list(dict.fromkeys(graph for _, graph, _, _ in rows))
    preset = replace(made.preset, summary=summary, axes={"dataset": graphs}, against="theirs")
    harm = {"nll": Difference(0.1, p_of_harm)}
    first = replace(
        made.rows[0], entries={**made.rows[0].entries, "ours": replace(made.rows[0].entries["ours"], against=harm)}
    )
    blocks = summary_blocks(Table(preset, (first, *made.rows[1:])))
    rule = next(block for block in blocks if isinstance(block, Grid) and block.header[0] == "clause")
    return [line[1].words for line in rule.body]


def test_the_rule_of_a_plan_is_read_clause_by_clause():
    better = [("x", graph, {0: 0.4}, {0: 0.5}) for graph in "abcdef"]
    assert verdict(better) == ["yes", "yes", "yes", "yes"]
    assert verdict(better, 0.01)[3].startswith("no: ")
    worse_on_b = [(x, g, {0: 0.6} if g == "b" else ours, theirs) for x, g, ours, theirs in better]
    clauses = verdict(worse_on_b)
    assert clauses[0] == "no: theirs on b (+0.1000)"
    assert clauses[1].startswith("no: theirs (p ")
