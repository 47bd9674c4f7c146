"""Write a reproducibility report of SCAR from the committed results: scope, method, results, what was easy, what was hard."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from graphcal.lab.bench.document import Block, Drawing, Heading, markdown, paragraph
from graphcal.lab.paper.agreement import count_published, distinct, read_cells, tally
from graphcal.lab.paper.answer import answer, grid_by_graph
from graphcal.lab.paper.claims import HOLDS, NOT, count_verdicts, judge, read_claims
from graphcal.lab.paper.details import detail_lines
from graphcal.lab.paper.run_files import RunFiles

METHOD = (
    "Every table and figure of the paper is a preset of `graphcal bench`: graphs, splits, base models, calibrators and published "
    "settings in one TOML file each. Ten runs for each entry on the paper's 1,000 test nodes; ECE with 20 bins beside its floor, "
    "the ECE of a perfectly calibrated model on these nodes; NLL and Brier score beside it. Labels outside training and "
    "validation are hidden from every fit. A number agrees if two one-sided tests show it within one point of the published one. "
    "A claim is judged by a rule that was fixed before it was run, from the claim's wording."
)
EASY = (
    "The node-level step is two lines in logit space and its fit is convex. Settings of SCAR for the citation graphs are "
    "published, and so is its code. Splits and features of Cora, Citeseer and Pubmed are standard."
)
HARD = (
    "CoraFull and Arxiv-year could not be had. The base models of the heterophilic graphs, FAGCN and GCNII are not specified. "
    "Uncal. and SCAR belong to different training recipes, the GAT rows to two networks, and TS was fitted under dropout: none "
    "of it is in the text. Predictions have to be kept to test methods on the same nodes, and the first runs kept none. No "
    "contact with the authors is recorded."
)


def report(folder: Path) -> str:
    """The report in Markdown; every number comes from the run files."""
    runs = RunFiles(folder)
    entries = distinct(read_cells(folder))
    count = tally(entries)
    judged = [(claim, judge(claim, runs)[1]) for claim in read_claims()["claim"]]

    def those(word: str) -> str:
        return "\n".join(f"* {claim['says']} ({verdict.share})" for claim, verdict in judged if verdict.word == word)

    scope = (
        f"SCAR (arXiv 2505.11335) prints {count_published()} numbers in its tables; {len(entries)} could be tested. "
        f"{count['equivalent']} are equivalent within one point, {count['differs']} differ, {count['open']} are open. "
        f"Of its {len(judged)} claims {count_verdicts(runs)}."
    )
    blocks: list[Block] = [
        Heading(1, "SCAR, reproduced"),
        paragraph(answer(folder)),
        Heading(2, "Scope"),
        paragraph(scope),
        Heading(2, "Method"),
        paragraph(METHOD),
        Heading(2, "Results"),
        paragraph("\n".join(f"{number}. {line}" for number, line in enumerate(detail_lines(runs), 1))),
        paragraph("SCAR with its published settings minus TS on the same network, 95 % interval over runs:"),
        grid_by_graph(runs),
        Drawing("Reliability of a GCN: uncalibrated, SCAR, TS", "fig-reliability.svg", ""),
        Heading(3, "Claims that hold"),
        paragraph(those(HOLDS)),
        Heading(3, "Claims that do not hold"),
        paragraph(those(NOT)),
        Heading(2, "What was easy"),
        paragraph(EASY),
        Heading(2, "What was hard"),
        paragraph(HARD),
        Heading(2, "Remaking it"),
        paragraph(
            "`graphcal bench table-gcn --publish results` and so on for every preset (`graphcal bench list`), then "
            "`graphcal bench archive graphcal-bench --publish results` for the archive of all predictions and "
            "`graphcal bench audit graphcal-bench/archive.zip`, which measures every number again. "
            "`python -m graphcal.lab.paper` writes this page."
        ),
    ]
    return markdown(blocks)


def write_pdf(text: str, folder: Path, pdf: Path) -> None:
    """Print the report with chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise ValueError("No chromium was found. Install it, or print results/report.md by other means.")
    try:
        from markdown import markdown as to_html  # type: ignore[import-untyped]
    except ImportError as error:
        raise ValueError("The package markdown is not installed: pip install markdown.") from error
    style = "body{font:9.5pt serif;line-height:1.3}td,th{padding:1px 5px;font-size:8pt}img{width:60%}@page{margin:18mm}"
    page = f"<meta charset=utf-8><base href='{folder.resolve().as_uri()}/'><style>{style}</style>"
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "report.html"
        source.write_text(page + to_html(text, extensions=["tables"]), encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        subprocess.run([browser, *options, f"--print-to-pdf={pdf.resolve()}", source.as_uri()], check=True, timeout=120)
