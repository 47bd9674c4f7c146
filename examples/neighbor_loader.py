# %% [markdown]
# # NeighborLoader: train by samples, serve by samples
#
# A graph too large for one pass is trained and served by sampled batches. What a calibrator reads off a node's neighbourhood must
# come from the whole neighbourhood. So it is computed once and kept in a table, a row per node.
#
# PyG's `NeighborLoader` needs pyg-lib or torch-sparse, which are compiled. `graphcal.lab.NeighborSampler` needs neither and
# makes the same batches: `x`, `edge_index`, `y`, `n_id`, `batch_size`, seeds first. This code uses the loader of PyG if it
# can run, and prints which one it used. The output below was made without a compiled extension.

# %%
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models import GraphSAGE
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

import graphcal

data = graphcal.lab.synthetic(4000, degree=12, homophily=0.6, feature_signal=0.2, seed=0)


def loader(nodes, fanouts, shuffle=False):
    """Batches of 256 seeds, with at most ``fanouts`` neighbours per node and hop."""
    if WITH_PYG_LIB or WITH_TORCH_SPARSE:
        return NeighborLoader(data, list(fanouts), input_nodes=nodes, batch_size=256, shuffle=shuffle)
    return graphcal.lab.NeighborSampler(data, fanouts, batch_size=256, input_nodes=nodes, shuffle=shuffle)


print("batches by", type(loader(data.train_mask, (10, 10))).__name__)

# %% [markdown]
# **Train**, by a loop as you have it.

# %%
torch.manual_seed(0)
model = GraphSAGE(data.num_features, 32, num_layers=2, out_channels=data.num_classes, dropout=0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(40):
    for batch in loader(data.train_mask, (10, 10), shuffle=True):
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index)[: batch.batch_size]
        cross_entropy(logits, batch.y[: batch.batch_size]).backward()
        optimizer.step()
model.eval()

# %% [markdown]
# **Observe** as you serve: every node once as the seed of a sample of five neighbours per hop. The fit then knows the noise of
# sampling. (Served whole? Then `graphcal.observe(model, data, layerwise=True)`: the exact logits, a chunk of nodes at a time.)

# %%
out = graphcal.observe(model, loader=loader(None, (5, 5)))
calibrate = graphcal.GraphScaling().fit(out, on=data.val_mask)
table = calibrate.context_of(out)  # (N, K): what it reads around every node, computed once
print(out, tuple(table.shape))

# %% [markdown]
# **Serve** by samples. `n_id` says which rows of the table belong to the batch. Without the table a batch gets the plain form
# of the calibration, which reads logits alone.

# %%
served = {
    "uncalibrated": graphcal.CalibratedModel(model, graphcal.CALIBRATORS["none"]().fit(out, on=data.val_mask)),
    "temperature": graphcal.CalibratedModel(model, graphcal.TemperatureScaling().fit(out, on=data.val_mask)),
    "graph-scaling": graphcal.CalibratedModel(model, calibrate, context=table),
}
for name, calibrated in served.items():
    answers = torch.zeros(data.num_nodes, data.num_classes)
    with torch.no_grad():
        for batch in loader(data.test_mask, (5, 5)):
            log_probs = calibrated(batch.x, batch.edge_index, n_id=batch.n_id)
            answers[batch.n_id[: batch.batch_size]] = log_probs[: batch.batch_size]
    scores = graphcal.evaluate(answers, data.y, data.test_mask)
    print(f"{name:14} accuracy {100 * scores.accuracy:.1f} %  NLL {scores.nll:.3f}  ECE {100 * scores.ece:.1f} %")
