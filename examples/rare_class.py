# %% [markdown]
# # A rare class with a budget
#
# Fraud is rare. Two questions come up. Which nodes may be flagged alone, with what precision? And if people can look at a few
# hundred nodes: at which, and how much will they find?

# %%
import torch

import graphcal

RARE = 0

# %% [markdown]
# A synthetic graph on which one class is thinned out.

# %%
data = graphcal.lab.synthetic(12_000, seed=3)
thinned = torch.rand(len(data.y), generator=torch.Generator().manual_seed(1)) < 0.25
data = data.subgraph((data.y != RARE) | thinned)
share = (data.y[data.test_mask] == RARE).double().mean()
print(f"{100 * share:.1f} % of {int(data.test_mask.sum()):,} test nodes are of the rare class")

# %%
out = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=60), seeds=[0])[0].outputs
calibrate = graphcal.GraphScaling().fit(out, on=data.val_mask)
log_probs = calibrate(out)

# %% [markdown]
# **Flag alone.** A fifth of the test nodes, drawn at random, is labelled and certifies. A precision that cannot be promised is
# refused; it is never rounded up.

# %%
certify = data.test_mask & (torch.rand(len(data.y), generator=torch.Generator().manual_seed(2)) < 0.2)
for precision in (0.9, 0.7):
    selected = graphcal.decide(
        log_probs,
        data.y,
        certify=certify,
        pool=data.test_mask,
        positive=RARE,
        max_error=1 - precision,
        random_draw=True,
    )
    print(f"precision {100 * precision:.0f} %: {selected.sentence}\n")

# %% [markdown]
# **A review queue.** People have time for 400 nodes. The sentence says how many they will find, before they look. With honest
# probabilities the right nodes come first, and the expected number is close to the number that the queue holds.

# %%
for name, predictions in {"uncalibrated": out.logits.log_softmax(-1), "graph-scaling": log_probs}.items():
    queue = graphcal.decisions.review_queue(
        predictions, data.y, certify, budget=400, pool=data.test_mask, positive=RARE, random_draw=True
    )
    print(f"{name}: {queue.sentence}")
    print(f"{name}: in fact {int((data.y[queue.nodes] == RARE).sum())}\n")
