"""Where do our tables agree with the published ones? Reads results/*.csv, writes results/agreement.md.

    python tools/build_agreement.py            # write
    python tools/build_agreement.py --check    # fail when the file is not what the tables give

A cell agrees when the two means are not further apart than both standard deviations together. For every entry of an uncalibrated
model, of TS and of SCAR with its published settings that does not agree, the experiments are searched for one in which it does.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
METRICS = {"table-accuracy": "accuracy", "exceptions-accuracy": "accuracy"}  # the others are about ECE
AXES = ("dataset", "labels_per_class", "backbone")
EXPLAINED = ("uncal", "ts", "scar-paper")  # methods whose exceptions are searched for in the experiments
EXPERIMENTS = ("table", "exceptions", "optimisers", "base")  # where: a table has rows for both models called GAT


def cells(folder: Path, kinds: tuple[str, ...] = ("table",)) -> list[dict[str, str]]:
    """Every cell of every table of these kinds that has both our value and a published one."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        if path.name.endswith("-runs.csv") or path.stem.split("-")[0] not in kinds:
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


def entry(cell: dict[str, str]) -> tuple[str, ...]:
    """What the paper calls it: filtered graphs stand beside the entries of the graphs, both models called GAT beside one."""
    dataset, backbone = cell["dataset"].removesuffix("-filtered"), cell.get("backbone", "").removesuffix("-cagcn")
    return (
        dataset,
        cell.get("labels_per_class") or "",
        backbone,
        cell["metric"],
        cell["published_mean"],
        cell["published_sd"],
    )


def experiments(found: list[dict[str, str]], tried: list[dict[str, str]]) -> list[str]:
    """A line for every entry that does not agree in its table: the closest experiment in which it does."""
    ways = defaultdict(dict)
    for cell in tried:  # the same numbers are the same experiment, shown in two tables
        numbers = (cell["ours"], cell["sd"], cell["floor"])
        ways[entry(cell)].setdefault((cell["dataset"], cell.get("backbone"), numbers), cell)
    lines = [
        "| published entry | published | closest that agrees | ours there | columns | agree |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for key, cell in {entry(cell): cell for cell in found if cell["method"] in EXPLAINED and not agrees(cell)}.items():
        dataset, labels, backbone, metric, mean, sd = key
        words = (dataset, labels, backbone, cell["title"], "accuracy" if metric == "accuracy" else "")
        agreeing = sorted(filter(agrees, ways[key].values()), key=lambda way: abs(gap(way)))
        best, ours = "none", ""
        if agreeing:
            first = agreeing[0]
            best, ours = described(first), f"{float(first['ours']):.2f} ± {float(first['sd']):.2f}"
        lines.append(
            f"| {' '.join(filter(None, words))} | {mean} ± {sd} | {best} | {ours} | {len(ways[key])} | {len(agreeing)} |"
        )
    return lines


def described(cell: dict[str, str]) -> str:
    """Its table and column, and the graph or model where that is not what the entry is called."""
    dataset, _, backbone, *_ = entry(cell)
    other = [cell[axis] for axis, name in (("dataset", dataset), ("backbone", backbone)) if cell.get(axis, "") != name]
    return f"{cell['table']}: {', '.join([*other, cell['title']])}"


def text(folder: Path) -> str:
    found = cells(folder)
    tried = cells(folder, EXPERIMENTS)
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
            "## Experiments on them",
            "",
            "Entries of uncalibrated models, TS and SCAR with its published settings that do not agree in every row of the "
            "tables: in how many columns it stands (the tables' own among them), in how many it agrees, and the closest. "
            "Agreement in one of many is a likeness and no proof; docs/reproduction.md says what speaks for it.",
            "",
            *experiments(found, tried),
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
