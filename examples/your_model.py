# %% [markdown]
# # Your own PyTorch Geometric model, end to end
#
# Train it as you do now. Then: observe, calibrate, measure, decide, ship.

# %%
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, nll_loss
from torch_geometric.nn import GATv2Conv, GCNConv

import graphcal


class Net(nn.Module):
    """A model as people write them. It ends in log_softmax, as many tutorials do."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GCNConv(features, 32)
        self.second = GATv2Conv(32, classes, heads=2, concat=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = dropout(self.first(x, edge_index).relu(), 0.5, self.training)
        return self.second(x, edge_index).log_softmax(-1)


# %% [markdown]
# A training loop of your own. graphcal does not need to see it.

# %%
data = graphcal.lab.load("citeseer")  # any PyG Data with x, edge_index, y and masks
torch.manual_seed(0)
model = Net(data.num_features, data.num_classes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(60):
    optimizer.zero_grad()
    nll_loss(model(data.x, data.edge_index)[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()

# %% [markdown]
# **Observe.** Two forward passes: the logits and the final layer.

# %%
out = graphcal.observe(model, data)
print(out)

# %% [markdown]
# **Calibrate and measure.** The fit reads the labels of the validation nodes and no others; the test nodes only report.
# The floor is the ECE that a perfectly calibrated model would show on as many nodes.

# %%
calibrations = {
    name: graphcal.CALIBRATORS[name]().fit(out, on=data.val_mask) for name in ("none", "ts", "graph-scaling")
}
for name, calibrate in calibrations.items():
    measured = graphcal.evaluate(calibrate(out), data.y, data.test_mask)
    print(f"{name:14} accuracy {100 * measured.accuracy:.1f} %  NLL {measured.nll:.3f}", end="  ")
    print(f"ECE {100 * measured.ece:.1f} % (floor {100 * measured.ece_floor:.1f} %)")

# %% [markdown]
# The same as a picture. Points in the blue band are consistent with a calibrated model.

# %%
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
for axis, name in zip(axes, ("none", "graph-scaling")):
    measured = graphcal.evaluate(calibrations[name](out), data.y, data.test_mask)
    graphcal.plots.draw_reliability(measured.reliability, axis, label=name)

# %% [markdown]
# **Decide.** Half of the test nodes, drawn at random, certify. The other half is decided, and no label of it is read.

# %%
calibrate = calibrations["graph-scaling"]
drawn = data.test_mask & (torch.rand(len(data.y), generator=torch.Generator().manual_seed(0)) < 0.5)
decision = graphcal.decide(out, calibrate, certify=drawn, pool=data.test_mask, max_error=0.2, random_draw=True)
print(decision.sentence)

# %% [markdown]
# **Ship.** The saved calibration is a file of a few kilobytes. A `CalibratedModel` has your model's signature.
# The restored file gives the same probabilities as the fit in memory.

# %%
graphcal.save(calibrate, "calibrator.safetensors")
served = graphcal.CalibratedModel(model, graphcal.restore("calibrator.safetensors"))
with torch.no_grad():
    log_probs = served(data.x, data.edge_index)
same = torch.isclose(log_probs.exp(), calibrate(out).exp(), atol=1e-5).all(1)
print(f"the shipped model agrees on {int(same.sum())} of {len(same)} nodes")
