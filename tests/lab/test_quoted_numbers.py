"""Tables that README and docs quote are the committed results, rounded."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from markdown_tables import tables

ROOT = Path(__file__).parents[2]
QUOTED = {"NLL": 3, "ECE %": 2, "oracle coverage at 5 % error %": 1, "worst slice %": 1, "accuracy %": 1}


@pytest.mark.parametrize("page", ["README.md", "docs/choose.md"])
def test_the_blind_table_is_quoted_as_it_stands(page):
    results = {row["method"]: row for row in tables(ROOT / "results" / "blind.md", "## labels balanced\n")[0]}
    (quoted,) = [table for table in tables(ROOT / page) if "NLL" in table[0] and "method" in table[0]]
    assert len(quoted) >= 6
    for row in quoted:
        for name, digits in QUOTED.items():
            if name in row:
                assert row[name].strip("*") == f"{float(results[row['method'].strip('*`')][name]):.{digits}f}", row


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_sentence_is_that_of_the_run_shown(page):
    """What the pages open with is what `graphcal run` prints, as the README shows it."""
    said = re.compile(r"says (\d+) % sure on average and is right (\d+) % of the time")
    readme, text = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", page))
    shown = re.search(r"^\$ graphcal run\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)[1]
    printed, opening = (said.search(" ".join(t.split())) for t in (shown, text))
    assert opening.groups() == printed.groups()
    worst = re.search(r"Calibrated on average; class \d is still [\d.]+ points under-confident", shown)[0]
    assert f'"{worst}"' in prose("docs/measurement.md")


def csv_rows(name: str) -> list[dict[str, str]]:
    with (ROOT / "results" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def prose(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def short(value: str, digits: int = 3) -> str:
    """.736, and −.024 where it is less than nothing."""
    number = round(float(value.split()[0]), digits)
    return ("−" if number < 0 else "") + f"{abs(number):.{digits}f}".removeprefix("0")


def means(name: str, section: str = "Over all graphs") -> dict[str, dict[str, str]]:
    """Method -> its means over the graphs."""
    return {row["method"]: row for row in tables(ROOT / "results" / name, f"## {section}\n")[0]}


def against(name: str, section: str = "Over all graphs") -> dict[str, dict[str, str]]:
    """Method -> graph-scaling minus it."""
    return {row["graph-scaling minus"]: row for row in tables(ROOT / "results" / name, f"## {section}\n")[1]}


def test_the_page_of_graph_scaling_says_what_the_blind_table_has():
    text, found, gats = prose("docs/graph-scaling.md"), means("blind.md"), means("blind.md", "labels gats")
    own, keep, old, ts = (found[m] for m in ("graph-scaling", "graph-scaling, keep", "graph-scar (0.1)", "ts"))
    ece = {m: f"{float(row['ECE %']):.1f}" for m, row in found.items()}
    slices = [f"{float(row['worst slice %']):.1f}" for row in (own, ts, old)]
    for sentence in (
        f"the lowest mean, {float(own['ECE %']):.1f} (floor {float(own['ECE %']) - float(own['excess %']):.1f})",
        f"order-invariant ({ece['order-invariant']}) and Simi-Mailbox ({ece['simi-mailbox']})",
        f"{float(own['excess %']):.1f} points, is below the label limit, {float(own['label limit %']):.1f}; "
        f"its debiased error, {float(own['debiased ECE %']):.1f}, is not",
        f"lower mean NLL ({short(keep['NLL'])} against {short(old['NLL'])}) and ECE ({float(keep['ECE %']):.1f} against "
        f"{float(old['ECE %']):.1f})",
        f"{slices[0]} points, TS {slices[1]}, graph-scar {slices[2]}",
        f"NLL {short(gats['graph-scaling']['NLL'])} against {short(gats['ts']['NLL'])} for TS, below it on all seven; "
        f"ECE {gats['graph-scaling']['ECE %']} against {gats['ts']['ECE %']}",
    ):
        assert sentence in text, sentence
    lowest = min(found.values(), key=lambda row: float(row["ECE %"]) + 9 * ("labelled" in row["method"]))
    assert lowest is own
    rivals = {m: row for m, row in against("blind.md").items() if not m.startswith("graph-scaling")}
    assert len(rivals) == 19  # and keep mode
    assert all(row["NLL"].endswith("✓") and row["better / worse"] for row in rivals.values())
    untold = {m for m, row in rivals.items() if not row["ECE"].endswith("✓")}
    assert untold == {"order-invariant", "simi-mailbox"}


def test_other_backbones_and_blocks_are_quoted_as_they_stand():
    text, found, blocks = prose("docs/graph-scaling.md"), means("blind-backbones.md"), against("graph-scaling.md")
    own, ts = found["graph-scaling"], found["ts"]
    worth = {m: short(row["NLL"].replace("-", "")) for m, row in blocks.items()}
    for sentence in (
        f"NLL {short(own['NLL'])} against {short(ts['NLL'])} for TS and {short(found['ms']['NLL'])} for MS",
        f"mean ECE {float(own['ECE %']):.1f} against {float(ts['ECE %']):.1f} for TS, the lowest and told apart from each",
        f"class terms {worth['without class terms']} of NLL, facts {worth['without facts']}, neighbours' opinions "
        f"{worth[next(m for m in worth if m.startswith('without neighbours'))]}",
        f"the pull {worth['without the pull']}",
    ):
        assert sentence in text, sentence
    assert all(row["NLL"].endswith("✓") and row["ECE"].endswith("✓") for row in against("blind-backbones.md").values())


def test_the_table_of_label_counts_is_that_of_the_results():
    (quoted,) = [table for table in tables(ROOT / "docs" / "graph-scaling.md") if "labels" in table[0]]
    rows = {row["labels"]: row for row in quoted}
    for count in (30, 50, 100, 250, 500, 1000, 2000):
        minus, mean = against("blind-labels.md", f"fit_labels {count}"), means("blind-labels.md", f"fit_labels {count}")
        assert rows["graph scaling"][f"{count:,}"] == short(minus["ts"]["NLL"])
        assert rows["better / worse than TS, graphs"][f"{count:,}"] == minus["ts"]["better / worse"]
        keep = float(mean["graph-scaling, keep"]["NLL"]) - float(mean["ts"]["NLL"])
        assert rows["keep"][f"{count:,}"] == short(str(keep))
        assert float(minus["ts"]["NLL"].split()[0]) < 0  # not worse than TS on average, at any count


def test_rivals_with_few_labels_are_told_as_they_are():
    text = prose("docs/graph-scaling.md")
    for count in (30, 50):
        nll = {method: float(row["NLL"]) for method, row in means("blind-labels.md", f"fit_labels {count}").items()}
        assert all(nll[rival] > nll["ts"] for rival in ("ms", "vs", "dirichlet", "isotonic", "cagcn", "simcalib"))
    sms = {n: against("blind-labels.md", f"fit_labels {n}")["sms"] for n in (30, 50, 250, 500, 1000, 2000)}
    assert f"{short(sms[30]['NLL'])} below graph scaling on average" in text
    assert all("✓" not in sms[n]["NLL"] for n in (30, 50))  # not told apart
    assert sms[250]["better / worse"] == "13 / 2"
    assert "with 250 behind on 13 of 15, from 500 on behind on every graph" in text
    assert all(sms[n]["better / worse"].endswith("/ 0") for n in (500, 1000, 2000))


def test_the_page_on_choosing_quotes_gats_protocol():
    text, gats = prose("docs/choose.md"), means("blind.md", "labels gats")
    own, ts, rival = gats["graph-scaling"], gats["ts"], gats["gats"]
    assert (
        f"NLL is {float(own['NLL']):.3f} against {float(ts['NLL']):.3f} for `ts` and {float(rival['NLL']):.3f} for `gats`, "
        f"ECE {own['ECE %']} against {ts['ECE %']} and {rival['ECE %']}"
    ) in text
    rows = [row for row in csv_rows("blind.csv") if row["labels"] == "gats"]
    nll = {(row["dataset"], row["method"]): float(row["nll_mean"]) for row in rows}
    behind = {key: nll[key[0], "graph-scaling"] - value for key, value in nll.items()}
    rivals = [key[1] for key, by in behind.items() if by > 0 and not key[1].startswith("graph-scaling")]
    assert sorted(rivals) == ["ets", "graph-scar", "simcalib", "simcalib", "sms", "sms", "wats"]
    assert max(behind[key] for key in behind if not key[1].startswith("graph-scaling")) < 0.0105
    assert (
        "`sms` and `simcalib` are ahead on two graphs each, `ets`, `wats` and `graph-scar` on one, by at most 0.010"
        in text
    )


def test_the_page_on_deciding_quotes_its_results():
    quoted = next(t for t in tables(ROOT / "docs" / "decide.md") if "SGR (2017)" in t[0])
    measured, graph = {}, ""
    for row in tables(ROOT / "results" / "decisions.md")[0]:  # of the first promise, at most 5 % errors
        name, method, *cells = row.values()
        graph = name.split(" ")[0].strip("*") or graph
        measured[graph, method] = [re.findall(r"[\d.]+", cell) for cell in (cells[0], cells[1], cells[3])]
    for row in quoted:
        name, method, *cells = row.values()
        (ours, broken) = zip(*(re.findall(r"[\d.]+", cell) for cell in cells))
        shares, said = zip(*measured[name.split(" ")[0].lower(), method.lower()])
        assert broken == said, row
        assert all(abs(float(a) - float(b)) <= 0.5 for a, b in zip(ours, shares)), row
    assert len(quoted) == 6


def test_the_page_on_large_graphs_quotes_its_results():
    results = ROOT / "results"
    whole = next(r for r in tables(results / "big-graph.md")[0] if r["stage"] == "**all**")
    seconds, peak = whole["seconds"].strip("*"), float(whole["peak GiB"].strip("*"))
    assert f"a measured calibration in {seconds} s and {peak:.1f} GiB" in prose("docs/minibatches.md")
    cost, fit = (table[-1] for table in tables(results / "scale-metrics.md"))
    text = prose("docs/measurement.md")
    assert f"take {cost['core seconds']} core seconds and {cost['GB']} GB beyond the inputs" in text
    assert f"validation nodes {fit['core seconds']} core seconds" in text


def test_the_page_on_tables_quotes_what_scoring_costs():
    text, (scored, duckdb, edges) = prose("docs/tables.md"), tables(ROOT / "results" / "scale.md")
    rows = {(row["layout"], row["rows"]): row for row in scored}
    wide, lists, long = rows["wide", "50,000,000"], rows["list", "50,000,000"], rows["long", "1,000,000"]
    ratios = [f"{float(row['/ copy'].split()[0]):.1f}" for row in (wide, lists)]
    seconds = [f"{float(row['score, s']):.1f} s" for row in (wide, lists)]
    peaks = [f"{float(row['peak MB']) / 1000:.1f}" for row in (wide, lists)]
    sentence = (
        f"take {seconds[0]} on two cores as columns and {seconds[1]} as lists, {ratios[0]} and {ratios[1]} times as "
        f"long as a copy of the same Parquet that does no work, and {peaks[0]} and {peaks[1]} GB"
    )
    assert sentence in text
    assert f"The long layout is slow: {long['million rows / s']} million nodes per second" in text
    times = sorted(float(row["DuckDB / score"].split()[0]) for row in duckdb if row["SQL"] != "window")
    assert f"takes {times[0]:.1f} to {times[-1]:.0f} times the processor time" in text
    grown = [float(row["peak MB"]) for row in edges if row["ids"] == "in-order"]
    assert f"by {(grown[-1] - grown[0]) / 1000:.1f} GB from one to ten million nodes" in text
