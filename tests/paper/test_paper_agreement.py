"""The summary of agreement counts what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphcal.paper.agreement import agreement, main

RESULTS = Path(__file__).parents[2] / "results"
HEADER = "dataset,method,title,runs,ece_mean,ece_sd,ece_floor_mean,published_mean,published_sd\n"


def test_agreement_is_counted_and_exceptions_are_named(tmp_path: Path) -> None:
    lines = [
        "cora,ts,TS,10,4.2,0.3,3.1,4.88,0.55",
        "pubmed,ts,TS,10,9.0,0.3,3.1,4.88,0.55",
        "photo,ts,TS,10,2.0,0.1,1.0,,",
    ]
    (tmp_path / "table-gcn.csv").write_text(HEADER + "\n".join(lines) + "\n")
    (tmp_path / "table-gcn-runs.csv").write_text("dataset,ece\ncora,0.1\n")
    text = agreement(tmp_path)
    assert "1 of 2 cells that have a published value agree" in text
    assert "| table-gcn | TS | 2 | 1 | +1.72 | 2.40 |" in text
    assert "| table-gcn | pubmed | TS | 9.00 ± 0.30 | 4.88 ± 0.55 | +4.12 | 3.10 |" in text
    assert "cora | TS |" not in text


def test_an_entry_that_does_not_agree_is_looked_for_in_the_experiments(tmp_path: Path) -> None:
    header = HEADER.replace("method", "backbone,method")
    table = ["squirrel,gat,uncal,Uncal.,10,6.0,1.0,3.1,11.0,0.5", "cora,gat,uncal,Uncal.,10,6.0,1.0,3.1,11.0,0.5"]
    tried = [
        "squirrel,gat,uncal,Uncal.,10,6.0,1.0,3.1,11.0,0.5",  # the table's own, once more
        "squirrel,gat-cagcn,slow,slowly,10,12.4,1.0,3.1,11.0,0.5",
        "squirrel,gat-cagcn,even,evenly,10,12.4,0.8,3.1,11.0,0.5",  # the same mean, another experiment
        "squirrel-filtered,gat,fast,fast,10,10.0,1.0,3.1,11.0,0.5",
        "squirrel,gcn,fast,fast,10,11.0,1.0,3.1,11.0,0.5",  # another backbone
        "squirrel,gat,fast,fast,10,11.0,1.0,3.1,11.2,0.5",  # another entry
    ]
    (tmp_path / "table-hetero.csv").write_text(header + "\n".join(table) + "\n")
    (tmp_path / "base-models.csv").write_text(header + "\n".join(tried) + "\n")
    text = agreement(tmp_path)
    assert "0 of 2 cells" in text  # experiments are not counted
    line = "| squirrel gat Uncal. | 11.0 ± 0.5 | base-models: squirrel-filtered, fast | 10.00 ± 1.00 | 4 | 2 |"
    assert line in text
    assert "| cora gat Uncal. | 11.0 ± 0.5 | none |  | 1 | 0 |" in text


def test_the_committed_summary_is_up_to_date() -> None:
    assert (RESULTS / "agreement.md").read_text(encoding="utf-8") == agreement(RESULTS)


def test_the_command_writes_and_checks(tmp_path: Path) -> None:
    (tmp_path / "table-gcn.csv").write_text(HEADER + "cora,ts,TS,10,4.2,0.3,3.1,4.88,0.55\n")
    with pytest.raises(SystemExit, match="agreement.md is not what the tables give"):
        main(tmp_path, check=True)
    main(tmp_path, check=False)
    main(tmp_path, check=True)
