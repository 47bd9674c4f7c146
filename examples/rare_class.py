"""A rare class, as in fraud: select members with a promised precision, or spend a budget of looks.

python examples/rare_class.py
"""

from __future__ import annotations

import torch

import graphcal as gc

RARE = 0


def main() -> None:
    data = gc.synthetic(12_000, seed=3)
    keep = (data.y != RARE) | (torch.rand(len(data.y), generator=torch.Generator().manual_seed(1)) < 0.25)
    data = data.subgraph(keep)  # one class in twenty
    out = gc.train(data, training=gc.Training(epochs=60), seeds=[0])[0].outputs
    calibrate = gc.GraphScaling().fit(out, on=data.val_mask)
    log_probs = calibrate(out)

    share = (data.y[data.test_mask] == RARE).double().mean()
    print(f"{100 * share:.1f} % of {int(data.test_mask.sum()):,} test nodes are of the rare class")
    certify = data.test_mask & (torch.rand(len(data.y), generator=torch.Generator().manual_seed(2)) < 0.2)
    for precision in (0.9, 0.7):
        selected = gc.decide(
            log_probs,
            data.y,
            certify=certify,
            pool=data.test_mask,
            positive=RARE,
            max_error=1 - precision,
            random_draw=True,
        )
        print(f"precision {precision:.0%}: {selected.sentence}")


if __name__ == "__main__":
    main()
