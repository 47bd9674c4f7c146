"""New nodes and sampled neighbourhoods on several graphs: the table results/inductive.md.

    python benchmarks/inductive.py FOLDER [--graphs citeseer,cora_ml] [--backbone sage] [--seeds 3] > results/inductive.md

What is computed is kept in FOLDER, a file per graph and seed: started again, it goes on where it was stopped. Graphs other than
citeseer are read from the folder GRAPHCAL_DATA, or downloaded.
"""

from __future__ import annotations

import argparse
import sys
import time

import graphcal
from graphcal.lab.shift.new_nodes import METHODS, inductive

INTRO = """# New nodes, sampled neighbourhoods

What a calibration is worth for nodes that were not there when it was fitted. At most a third of the nodes, drawn from the test
set, are hidden with all their edges while the model ({backbone}, CaGCN's schedule) is trained and the calibrators are fitted on
the validation nodes. Then they arrive in five waves; after each, those that came with it are measured ("wave"). At the end all
new nodes are served at once: with all their neighbours, and by batches in which at most so many neighbours of each node are read,
in two hops ("fan-out"). What a calibrator reads off the graph comes from a *table* that was computed once on the whole graph, or
is unknown (*plain*), or is read off the sampled *batch*: the mistake that `CalibratedModel` does not make.

Means over {seeds} seeds, which also draw who is new. Accuracy and ECE (20 bins) in per cent, NLL in nats. Command:
`{command}`.
"""


def table(rows: list[dict[str, object]]) -> list[str]:
    by_place: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        label = f"wave {row['wave']}" if row["shift"] == "wave" else f"fan-out {row['fanout']}, {row['way']}"
        label = "all neighbours" if row.get("fanout") == "all" else label
        by_place.setdefault(label, {})[str(row["method"])] = row  # type: ignore[assignment]
    heads = [f"{short} {name}" for short in ("NLL", "ECE") for name in METHODS]
    lines = [f"| | accuracy | with graph-scaling | {' | '.join(heads)} |", "|---" * (len(heads) + 3) + "|"]
    for label, by_method in by_place.items():
        nll = [f"{by_method[m]['nll']:.3f}" for m in METHODS]
        nll = [f"**{value}**" if value == min(nll) else value for value in nll]
        ece = [f"{100 * by_method[m]['ece']:.1f}" for m in METHODS]
        accuracy = [f"{100 * by_method[m]['accuracy']:.1f}" for m in ("none", "graph-scaling")]
        lines.append(f"| {' | '.join([label, *accuracy, *nll, *ece])} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--graphs", default="citeseer,cora_ml,photo")
    parser.add_argument("--backbone", default="sage")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    command = f"python benchmarks/inductive.py FOLDER --graphs {given.graphs} --backbone {given.backbone} --seeds {given.seeds}"
    pages = [INTRO.format(backbone=given.backbone, seeds=given.seeds, command=command)]
    for name in given.graphs.split(","):
        started = time.perf_counter()
        data = graphcal.lab.load(name)
        rows = inductive(data, given.backbone, seeds=range(given.seeds), folder=given.folder)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        sizes = f"{data.num_nodes:,} nodes, {data.edge_index.shape[1] // 2:,} edges, protocol {data.protocol}"
        pages += [f"## {name}\n\n{sizes}.\n", *table(rows), ""]
    print("\n".join(pages).rstrip())


if __name__ == "__main__":
    main()
