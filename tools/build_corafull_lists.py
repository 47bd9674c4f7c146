"""Build src/graphcal/lab/datasets/data/corafull_cagcn.npz from CaGCN's nine text files.

    python tools/build_corafull_lists.py FOLDER

FOLDER is data/corafull of a checkout of BUPT-GAMMA/CaGCN: {train,val,test}{20,40,60}.txt, one node number a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

TARGET = Path(__file__).resolve().parent.parent / "src/graphcal/lab/datasets/data/corafull_cagcn.npz"
RATES = (20, 40, 60)


def build(folder: Path, target: Path) -> None:
    lists = {
        f"{part}{rate}": np.array((folder / f"{part}{rate}.txt").read_text().split(), dtype=np.int32)
        for part in ("train", "val", "test")
        for rate in RATES
    }
    tests = [lists.pop(f"test{rate}") for rate in RATES]
    assert all(np.array_equal(tests[0], other) for other in tests), "the test list is the same at every rate"
    assert [len(lists[f"train{rate}"]) for rate in RATES] == [1400, 2800, 4200]
    assert [len(np.unique(lists[f"val{rate}"])) for rate in RATES] == [496, 492, 482]
    assert [np.isin(tests[0], lists[f"train{rate}"]).sum() for rate in RATES] == [0, 3, 12]
    np.savez_compressed(target, **lists, test=tests[0])
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build(Path(sys.argv[1]), TARGET)
