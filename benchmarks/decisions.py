"""How many nodes each rule decides on real graphs, and how often it breaks its promise.

    python benchmarks/decisions.py run --out DIR              # resumable: a record per graph, method, target, draw in DIR
    python benchmarks/decisions.py table --out DIR > results/decisions.md

Per graph a GCN is trained with three seeds on the graph's usual split and calibrated on its validation nodes. Of the
labelled nodes outside training and validation, 500 (at most two fifths) are drawn at random as certification nodes, forty
times per seed; the rest is to be decided. Each rule sees the labels of the certification nodes only; those of the rest say
whether its promise was kept. Rules: ours (realised errors of the pool), SGR, LTT with Bonferroni over 40 thresholds (both of
tests/decisions/reference_rules.py), and the naive rule: the lowest threshold above which the certification nodes show at most
r errors. All of them get the same confidences.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "decisions"))

GRAPHS = ("cora", "citeseer", "pubmed", "photo", "computers", "cs", "physics", "chameleon", "squirrel")
METHODS = ("none", "ts", "graph-scaling")
TARGETS = (0.05, 0.10)
CERTAINTY, LABELS, SEEDS, DRAWS = 0.95, 500, 3, 40
RULES = ("ours", "sgr", "ltt", "naive")


def decided(rule: str, conf: np.ndarray, wrong: np.ndarray, certify: np.ndarray, max_error: float) -> np.ndarray:
    """(N,) bool: the unlabelled nodes a rule decides alone."""
    from reference_rules import ltt_threshold, naive_threshold, sgr_threshold

    from graphcal.decisions.thresholds import certified_set, nested_sets

    risk = 1 - CERTAINTY
    if rule == "ours":
        sets = nested_sets(conf, wrong, certify, np.ones(len(conf), bool))
        last = certified_set(sets, max_error, risk)
        threshold = math.inf if last is None else float(sets.threshold[last])
    elif rule == "naive":
        threshold = naive_threshold(conf[certify], wrong[certify], max_error)
    else:
        threshold = {"sgr": sgr_threshold, "ltt": ltt_threshold}[rule](conf[certify], wrong[certify], max_error, risk)
    return (conf >= threshold) & ~certify


def records_of(graph: str, methods: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every draw on one graph."""
    import graphcal
    from graphcal.lab.training import published
    from graphcal.metrics.bins import confidence
    from graphcal.study import Study

    data = graphcal.lab.load(graph)
    settings = published("cagcn", "gcn", graph, 20)
    runs = graphcal.lab.train(data, settings.backbone, settings.training, SEEDS)
    recipes = {name: graphcal.CALIBRATORS[name]() for name in methods}
    study = Study.of([run.outputs for run in runs], recipes, on=data.val_mask)
    pool = ~data.train_mask & ~data.val_mask & (data.y >= 0)
    records = []
    for seed in range(SEEDS):
        for draw in range(DRAWS):
            certify = np.zeros(int(pool.sum()), bool)
            drawn = np.random.default_rng([seed, draw]).permutation(len(certify))
            certify[drawn[: min(LABELS, 2 * len(certify) // 5)]] = True
            for name in methods:
                log_probs = study.log_probs(name)[seed][pool]
                conf = confidence(log_probs)[0].numpy()
                wrong = (log_probs.argmax(1) != data.y[pool]).numpy()
                for target in TARGETS:
                    row = {"graph": graph, "method": name, "target": target, "seed": seed, "draw": draw}
                    row |= {"labels": int(certify.sum()), "nodes": int((~certify).sum()), "error": float(wrong.mean())}
                    for rule in RULES:
                        approved = decided(rule, conf, wrong, certify, target)
                        row[rule] = [int(approved.sum()), int(wrong[approved].sum())]
                    records.append(row)
    return records


def run(out: Path, graphs: tuple[str, ...], methods: tuple[str, ...]) -> None:
    from graphcal.files import write_atomically

    for graph in graphs:
        missing = tuple(name for name in methods if not (out / f"{graph}-{name}.jsonl").exists())
        if not missing:
            continue
        started = time.perf_counter()
        rows = records_of(graph, missing)
        for name in missing:
            lines = "".join(json.dumps(row) + "\n" for row in rows if row["method"] == name)
            write_atomically(out / f"{graph}-{name}.jsonl", lines)
        print(f"{graph}: {len(rows)} records in {time.perf_counter() - started:.0f} s", flush=True)


def table(out: Path) -> str:
    """The records as Markdown: share decided (broken promises, per cent of the draws)."""
    groups: dict[tuple[float, str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(out.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            groups[row["target"], row["graph"], row["method"]].append(row)
    lines = []
    for target in TARGETS:
        lines += [f"\n## At most {100 * target:g} % errors, {100 * CERTAINTY:g} % certain\n"]
        lines += ["| graph (error of the model) | calibration | ours | SGR | LTT, Bonferroni | naive | ours / SGR |"]
        lines += ["|---|---|---|---|---|---|---|"]
        total: dict[str, list[float]] = defaultdict(list)
        broken: dict[str, list[float]] = defaultdict(list)
        for graph in GRAPHS:
            for method in METHODS:
                rows = groups.get((target, graph, method))
                if not rows:
                    continue
                cells, share = [], {}
                for rule in RULES:
                    share[rule] = fmean(row[rule][0] / row["nodes"] for row in rows)
                    off = fmean(row[rule][1] > target * row[rule][0] for row in rows)
                    total[rule].append(share[rule])
                    broken[rule].append(off)
                    cells.append(f"{100 * share[rule]:.1f} % ({100 * off:.0f} %)")
                ratio = f"{share['ours'] / share['sgr']:.2f}" if share["sgr"] > 0 else "–"
                name = f"{graph} ({100 * fmean(r['error'] for r in rows):.1f} %)" if method == METHODS[0] else ""
                lines.append(f"| {name} | {method} | {' | '.join(cells)} | {ratio} |")
        cells = [f"**{100 * fmean(total[rule]):.1f} % ({100 * fmean(broken[rule]):.1f} %)**" for rule in RULES]
        lines.append(
            f"| **mean** | | {' | '.join(cells)} | **{fmean(total['ours']) / max(fmean(total['sgr']), 1e-9):.2f}** |"
        )
    return "\n".join(lines)


HEAD = """# Decisions: share of nodes decided, and how often the promise breaks

Remake: `python benchmarks/decisions.py run --out DIR` (resumable), then `python benchmarks/decisions.py table --out DIR`.

Entries: mean share of the unlabelled nodes of the pool (all outside training and validation) that a rule decides alone and,
in brackets, the share of the draws in which more than the promised share of them was wrong. Each line: {draws} random draws of
{labels} certification nodes (two fifths of the pool where there are fewer) from the pool of a GCN, {seeds} seeds; calibrators
were fitted on the validation nodes. A promise made with 95 % certainty may break in 5 % of the draws. Labels outside the
certification nodes only count the errors. Of 120 draws, 5 % are 6 ± 2.4.

Machine: one core of two, nine graphs in about four minutes, most of it training.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["run", "table"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    if options.job == "run":
        run(options.out, tuple(options.graphs.split(",")), tuple(options.methods.split(",")))
    else:
        print(HEAD.format(draws=SEEDS * DRAWS, labels=LABELS, seeds=SEEDS) + table(options.out))


if __name__ == "__main__":
    main()
