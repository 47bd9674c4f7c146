"""Where do our tables agree with the published ones? Reads results/table-*.csv, writes results/agreement.md.

    python tools/build_agreement.py            # write
    python tools/build_agreement.py --check    # fail when the file is not what the tables give

A cell agrees when the two means are not further apart than both standard deviations together.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
METRICS = {"table-accuracy": "accuracy"}  # the others are about ECE
AXES = ("dataset", "labels_per_class", "backbone")


def cells(folder: Path) -> list[dict[str, str]]:
    """Every cell of every table that has both our value and a published one."""
    found = []
    for path in sorted(folder.glob("table-*.csv")):
        if path.name.endswith("-runs.csv"):
            continue
        metric = METRICS.get(path.stem, "ece")
        for line in csv.DictReader(path.open(encoding="utf-8")):
            if line.get("published_mean") and int(line["runs"]) > 0:
                ours = {"ours": line[f"{metric}_mean"], "sd": line[f"{metric}_sd"], "floor": line["ece_floor_mean"]}
                found.append({**line, **ours, "table": path.stem, "metric": metric})
    return found


def gap(cell: dict[str, str]) -> float:
    return float(cell["ours"]) - float(cell["published_mean"])


def agrees(cell: dict[str, str]) -> bool:
    return abs(gap(cell)) <= float(cell["sd"]) + float(cell["published_sd"])


def summary(found: list[dict[str, str]]) -> list[str]:
    groups = defaultdict(list)
    for cell in found:
        groups[cell["table"], cell["title"]].append(cell)
    lines = [
        "| table | method | cells | agree | mean difference | mean absolute difference |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for (table, title), group in groups.items():
        gaps = [gap(cell) for cell in group]
        mean, size = sum(gaps) / len(gaps), sum(map(abs, gaps)) / len(gaps)
        lines.append(f"| {table} | {title} | {len(group)} | {sum(map(agrees, group))} | {mean:+.2f} | {size:.2f} |")
    return lines


def exceptions(found: list[dict[str, str]]) -> list[str]:
    lines = [
        "| table | place | method | ours | published | difference | floor |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for cell in found:
        if agrees(cell):
            continue
        place = ", ".join(cell[name] for name in AXES if cell.get(name))
        floor = f"{float(cell['floor']):.2f}" if cell["metric"] == "ece" else ""
        lines.append(
            f"| {cell['table']} | {place} | {cell['title']} | {float(cell['ours']):.2f} ± {float(cell['sd']):.2f} | "
            f"{cell['published_mean']} ± {cell['published_sd']} | {gap(cell):+.2f} | {floor} |"
        )
    return lines


def text(folder: Path) -> str:
    found = cells(folder)
    agree = sum(map(agrees, found))
    return "\n".join(
        [
            "# Agreement with the published tables",
            "",
            f"Made by `python tools/build_agreement.py` from the tables in this folder. {agree} of {len(found)} cells that "
            "have a published value agree with it: the two means are not further apart than both standard deviations together. "
            "Differences are ours minus published, in percentage points.",
            "",
            *summary(found),
            "",
            "## Cells that do not agree",
            "",
            *exceptions(found),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    wanted, path = text(RESULTS), RESULTS / "agreement.md"
    if not parser.parse_args().check:
        path.write_text(wanted, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != wanted:
        sys.exit(f"{path.name} is not what the tables give: run python tools/build_agreement.py")


if __name__ == "__main__":
    main()
