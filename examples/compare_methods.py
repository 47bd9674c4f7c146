# %% [markdown]
# # Comparing methods honestly
#
# Validation labels choose, test labels only report, differences are paired, and each comes with an interval.

# %%
import matplotlib.pyplot as plt

import graphcal
from graphcal.metrics import compare

METHODS = ("none", "ts", "vs", "scar", "graph-scaling")

# %% [markdown]
# Five models that differ by their seed. A `Study` hides the test labels, fits every recipe on the validation nodes and
# applies it. A calibrator cannot read a test label, even by mistake.

# %%
data = graphcal.lab.load("citeseer")
runs = graphcal.lab.train(data, training=graphcal.lab.Training(epochs=100), seeds=range(5))
recipes = {name: graphcal.CALIBRATORS[name]() for name in METHODS}
study = graphcal.Study.of([run.outputs for run in runs], recipes, on=data.val_mask)

# %% [markdown]
# **What each leaves.** An ECE on a thousand nodes is mostly noise when it is near its floor. The true error is an estimate
# of what is behind the noise.

# %%
measured = study.measure(data.test_mask)
for name, scores in measured.items():
    print(f"{name:14} accuracy {100 * scores.accuracy:.1f} %  NLL {scores.nll:.3f}", end="  ")
    print(
        f"ECE {100 * scores.ece:.1f} %  floor {100 * scores.ece_floor:.1f} %  true error {100 * scores.true_error:.1f} %"
    )

# %%
figure, axis = plt.subplots(figsize=(5, 2.4), layout="constrained")
graphcal.plots.draw_floor(
    list(measured), [m.ece for m in measured.values()], [m.ece_floor for m in measured.values()], axis
)

# %% [markdown]
# **Is the difference more than noise?** The same nodes, the same model, node by node: a paired test, with an interval.

# %%
y, test = data.y[data.test_mask], data.test_mask
for name in METHODS[2:]:
    c = compare(study.log_probs(name)[0][test], study.log_probs("ts")[0][test], y, "nll")
    print(f"{name} minus ts, first seed: NLL {c.difference:+.3f} [{c.low:+.3f}, {c.high:+.3f}], p = {c.p:.3f}")

# %% [markdown]
# One graph tells little. `graphcal bench blind` compares on fifteen graphs, by a plan written before the run.
