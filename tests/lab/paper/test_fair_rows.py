"""Which rows have the fair columns: counted from the run files, a row only with every column and every run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from markdown_tables import tables

from graphcal.lab.bench.presets import read_preset
from graphcal.lab.paper.answer import grid_of_fair_rows, is_complete, places
from graphcal.lab.paper.run_files import RunFiles

RESULTS = Path(__file__).parents[3] / "results"


def test_the_rows_are_those_of_the_paper_that_can_be_had() -> None:
    assert len(list(places(read_preset("table-gcn"), ("corafull",)))) == 9
    gat = list(places(read_preset("table-gat"), ("corafull",)))
    assert len(gat) == 9
    assert {place["backbone"] for place in gat} == {"gat"}
    hetero = list(places(read_preset("table-hetero"), ("arxiv-year",)))
    assert {place["dataset"] for place in hetero} == {"chameleon", "squirrel"}


def test_a_row_that_lacks_one_run_is_not_run(tmp_path: Path) -> None:
    for path in (*RESULTS.glob("fair-*-runs.csv"), *RESULTS.glob("fair*.md")):
        shutil.copy(path, tmp_path)
    text = (RESULTS / "fair-runs.csv").read_text(encoding="utf-8").splitlines()
    preset, place = read_preset("fair"), {"dataset": "cora", "labels_per_class": 20, "backbone": "gcn"}
    assert is_complete(RunFiles(RESULTS), preset, place)
    lost = next(k for k, line in enumerate(text) if line.startswith("cora,20,gcn,scar-fit,"))
    (tmp_path / "fair-runs.csv").write_text("\n".join(text[:lost] + text[lost + 1 :]) + "\n", encoding="utf-8")
    assert not is_complete(RunFiles(tmp_path), preset, place)
    gcn = grid_of_fair_rows(RunFiles(tmp_path)).body[0]
    assert "cora 20 gcn" in gcn[3].words
    assert "cora 20 gcn" in grid_of_fair_rows(RunFiles(RESULTS)).body[0][2].words
    page = tmp_path / "fair.md"
    page.write_text("Computing time: 2 h 05 min of one core. Machine: 2 cores.", encoding="utf-8")
    assert grid_of_fair_rows(RunFiles(tmp_path)).body[0][5].words == "2 h 05 min"
    page.write_text("Rows: a. Computing time: 9 min of one core.\n\nComputing time: 4 s of one core.", encoding="utf-8")
    assert grid_of_fair_rows(RunFiles(tmp_path)).body[0][5].words == "9 min + 4 s"
    page.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="fair.md does not say its computing time"):
        grid_of_fair_rows(RunFiles(tmp_path))


def marked(name: str, metric: str) -> dict[str, dict[str, str]]:
    """Row -> title of a method -> its cell, of the table by a metric."""
    rows = tables(RESULTS / f"{name}.md", "" if metric == "ECE" else f"## {metric}\n")[0]
    axes = list(rows[0])[: list(rows[0]).index("Uncal.")]
    return {" ".join(row[axis] for axis in axes): {m: row[m] for m in row if m not in axes} for row in rows}


def mean_of(cell: str) -> float:
    return float(cell.strip("*").split()[0])


def test_graph_scaling_is_told_apart_by_nll_only() -> None:
    ece, nll = marked("fair", "ECE"), marked("fair", "NLL")
    assert len(ece) == len(nll) == 9
    assert not any(cell.startswith("**") for row in ece.values() for cell in row.values())
    value = {row: {m: mean_of(c) for m, c in cells.items()} for row, cells in nll.items()}
    assert all(min(row, key=row.__getitem__).startswith("graph-scaling") for row in value.values())
    rivals = [m for m in next(iter(nll.values())) if m.startswith("SCAR") or m == "TS"]
    level = [row for row, cells in nll.items() if any(cells[m].startswith("*") for m in rivals)]
    assert level == ["pubmed 40", "pubmed 60"]
    hetero = marked("fair-hetero", "NLL")
    ours = {row: min(mean_of(c) for m, c in cells.items() if m.startswith("graph")) for row, cells in hetero.items()}
    lost = {row: [m for m, c in cells.items() if mean_of(c) < ours[row]] for row, cells in hetero.items()}
    assert {row: rival for row, rival in lost.items() if rival} == {"chameleon gcn": ["CaGCN, base dropout on"]}
    assert hetero["chameleon gcn"]["CaGCN, base dropout on"].startswith("**0.957")
    assert ours["chameleon gcn"] == pytest.approx(0.995, abs=5e-4)


def test_on_a_gat_it_is_told_apart_from_scar_and_ts_in_each_row() -> None:
    ece, nll = marked("fair-gat", "ECE"), marked("fair-gat", "NLL")
    assert len(nll) == 9
    assert not any(cell.startswith("**") for row in ece.values() for cell in row.values())
    for cells in nll.values():
        value = {m: mean_of(c) for m, c in cells.items()}
        assert min(value, key=value.__getitem__).startswith("graph-scaling")
        assert not any(cells[m].startswith("*") for m in cells if m.startswith("SCAR") or m == "TS")
    assert sum(not cells["MS"].startswith("*") for cells in nll.values()) == 5
    ece_of = {
        m: sum(mean_of(row[m]) for row in ece.values()) / 9
        for m in ("SCAR, fitted on validation", "graph-scaling, ours")
    }
    assert len({round(value, 1) for value in ece_of.values()}) == 1, "level"


def test_on_heterophilic_rows_scar_is_below_ts_by_ece_and_above_by_nll() -> None:
    ece, nll = marked("fair-hetero", "ECE"), marked("fair-hetero", "NLL")
    fitted, cagcn = "SCAR, fitted on validation", "CaGCN, base dropout on"
    gaps = [mean_of(row["Uncal."]) - mean_of(row[fitted]) for row in ece.values()]
    assert (round(min(gaps), 1), round(max(gaps), 1)) == (0.2, 1.2)
    assert all(mean_of(row[fitted]) < mean_of(row["TS"]) for row in ece.values())
    assert all(mean_of(row[fitted]) > mean_of(row["TS"]) for row in nll.values())
    cagcn_ece = [mean_of(ece[row][cagcn]) for row in ("chameleon gcn", "squirrel gcn", "chameleon gat", "squirrel gat")]
    assert cagcn_ece == [6.05, 6.04, 12.58, 8.54]
    assert min(ece["chameleon gcn"].values(), key=mean_of) == ece["chameleon gcn"][cagcn]
    assert all(max(row.values(), key=mean_of) == row[cagcn] for name, row in ece.items() if name.endswith("gat"))


def test_the_appendix_quotes_the_rows_of_other_backbones() -> None:
    quoted = next(t for t in tables(RESULTS.parent / "docs" / "paper-appendix.md") if "published SCAR" in t[0])
    measured = marked("fair-backbones", "ECE")
    assert [f"{row['network']} {row['graph']}".lower() for row in quoted] == list(measured)
    titles = {"grid to 5e-3": "SCAR, grid to 5e-3, four decays", "fitted": "SCAR, fitted on validation", "TS": "TS"}
    for row in quoted:
        cells = measured[f"{row['network']} {row['graph']}".lower()]
        for said, title in titles.items():
            assert row[said].strip("*") == cells[title].strip("*").split("<br>")[0].strip("*"), (row, title)
        assert f"paper {row['published SCAR']}" in cells[titles["fitted"]]
    for row in marked("fair-backbones", "NLL").values():
        assert mean_of(row["TS"]) < mean_of(row[titles["fitted"]])
    worse = [name for name, row in measured.items() if "*" not in row["TS"]]
    assert worse == ["fagcn pubmed"]
    below = [
        f"{row['network']} {row['graph']}".lower()
        for row in quoted
        if "≠" in measured[f"{row['network']} {row['graph']}".lower()][titles["fitted"]]
        and mean_of(row["fitted"]) < mean_of(row["published SCAR"])
    ]
    assert below == ["fagcn squirrel", "gcnii cora", "gcnii citeseer", "gcnii squirrel"]
