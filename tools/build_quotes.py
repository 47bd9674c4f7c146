"""Write the result tables that README and docs quote, from results/: python tools/build_quotes.py

A page marks a table with <!-- quote NAME --> and <!-- /quote -->. `QUOTES` names the pages and the tables.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIGITS = {"NLL": 3, "ECE %": 2, "oracle coverage at 5 % error %": 1, "worst slice %": 1, "accuracy %": 1}
SHORT = ("uncalibrated", "ts", "ms", "sms", "dirichlet", "order-invariant", "simi-mailbox", "simcalib", "gats", "scar")
OURS = {
    "retraining (five replicas)": "retraining (five replicas)",
    "graph-scaling, keep": "graph-scaling, keep",
    "graph-scaling": "**graph-scaling**",
}
DECIDED = ("cora ts", "cora graph-scaling", "photo ts", "photo graph-scaling", "physics ts")


def tables(page: Path, heading: str) -> list[list[list[str]]]:
    """Tables of a Markdown page below a heading, as rows of cells, without the line under the header."""
    _, _, text = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    blocks = re.findall(r"(?:^\|.*\n)+", text.partition("\n## ")[0], re.MULTILINE)
    rows = [[line.strip("|").split("|") for line in block.splitlines()] for block in blocks]
    return [[[cell.strip() for cell in row] for k, row in enumerate(table) if k != 1] for table in rows]


def markdown(header: Sequence[str], align: str, body: Sequence[Sequence[str]]) -> str:
    rule = [{"l": "---", "r": "---:"}[letter] for letter in align]
    return "".join(f"| {' | '.join(row)} |\n" for row in (header, rule, *body))


def blind(columns: Sequence[str], methods: Sequence[str] = ()) -> str:
    """Means over the graphs of the blind evaluation, balanced labels, rounded; `methods` and ours, or all.

    ≈ marks a value that does not differ significantly from that of graph-scaling (the summary's p, 5 %).
    """
    with (ROOT / "results" / "blind-summary.csv").open(encoding="utf-8") as file:
        rows = {row["method"]: row for row in csv.DictReader(file) if row["section"] == "Balanced labels, GCN"}
    most = rows["graph-scaling"]["graphs"]  # means over other graphs cannot be compared
    shown = [m for m in ([*methods, *OURS] if methods else rows) if rows[m]["graphs"] == most]

    def value(row: dict[str, str], column: str) -> str:
        p = row.get(f"{column.removesuffix(' %')} p")
        return f"{float(row[column]):.{DIGITS[column]}f}" + (" ≈" if p and float(p) > 0.05 else "")

    cells = [[OURS.get(m, m), *(value(rows[m], c) for c in columns)] for m in shown]
    return markdown(["method", *columns], "l" + "r" * len(columns), cells)


def decisions() -> str:
    """Share of nodes decided and how often the promise broke, at most 5 % errors."""
    header, *body = tables(ROOT / "results" / "decisions.md", "At most 5 % errors, 95 % certain")[0]
    columns = [header.index(name) for name in ("ours", "SGR", "naive")]
    rows, graph = {}, ""
    for name, method, *_ in body:
        graph = name.split(" ")[0].strip("*") or graph
        rows[f"{graph} {method}".strip()] = body[len(rows)]
    shown = [[*key.split(" "), *(rows[key][c] for c in columns)] for key in DECIDED]
    mean = ["mean of 9 graphs, 3 calibrations", "", *(rows["mean"][c].strip("*") for c in columns)]
    return markdown(["graph", "calibration", "graphcal", "SGR (2017)", "naive threshold"], "llrrr", [*shown, mean])


def debian(part: str) -> str:
    """A table of the release bench, from results/debian-windows.csv."""
    from graphcal.lab.bench import release_pages
    from graphcal.lab.bench.document import markdown as written
    from graphcal.lab.bench.files import read_lines

    built = getattr(release_pages, part)(read_lines(ROOT / "results" / "debian-windows.csv"))
    return written(built[1:] if isinstance(built, list) else [built])  # without the heading


QUOTES: dict[tuple[str, str], Callable[[], str]] = {
    ("README.md", "blind"): lambda: blind(("NLL", "ECE %", "accuracy %"), SHORT),
    ("docs/choose.md", "blind"): lambda: blind(list(DIGITS)),
    ("docs/decide.md", "decisions"): decisions,
    ("docs/leaderboard.md", "leaderboard"): lambda: debian("leaderboard"),
    ("docs/debian.md", "survival"): lambda: debian("survival"),
    ("docs/debian.md", "promises"): lambda: debian("promises"),
    ("docs/debian.md", "watched"): lambda: debian("watched"),
    ("docs/debian.md", "counted"): lambda: debian("counted"),
    ("docs/debian.md", "estimated"): lambda: debian("estimated"),
}


def with_quotes(page: str, text: str) -> str:
    """Text of a page with its quoted tables replaced by those of results/."""
    for (name, quote), build in QUOTES.items():
        if name == page:
            pattern = rf"(<!-- quote {quote} -->\n).*?(<!-- /quote -->)"
            text, count = re.subn(pattern, lambda m, b=build: f"{m[1]}\n{b()}\n{m[2]}", text, flags=re.DOTALL)
            if count != 1:
                raise SystemExit(f"{page}: expected one <!-- quote {quote} -->, found {count}")
    return text


def main() -> None:
    for page in dict.fromkeys(page for page, _ in QUOTES):
        path = ROOT / page
        path.write_text(with_quotes(page, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
