"""Draw the pictures of docs/measurement.md and docs/sets.md from one GCN on Citeseer: python tools/build_pictures.py"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import graphcal
from graphcal.graphs import neighbour_agreement, structure
from graphcal.metrics.bins import reliability

FOLDER = Path(os.environ.get("GRAPHCAL_PICTURES", Path(__file__).parents[1] / "docs" / "images"))
BLUE, RED, GREEN, GREY = "#2b6cb0", "#c0392b", "#1a8f5a", "#6b7280"
COLOURS = {"model": RED, "temperature": GREY, "graph scaling": BLUE}
STYLE = {
    "svg.hashsalt": "graphcal", "svg.fonttype": "path", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
    "figure.facecolor": "white", "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
}  # fmt: skip


class Story:
    """One trained model, three ways to read its confidence, on the test nodes."""

    def __init__(self) -> None:
        self.data = graphcal.lab.load("citeseer")
        self.out = graphcal.lab.train(self.data, seeds=[0])[0].outputs
        recipes = {"model": "none", "temperature": "ts", "graph scaling": "graph-scaling"}
        study = graphcal.Study.of(
            [self.out], {k: graphcal.CALIBRATORS[v]() for k, v in recipes.items()}, on=self.data.val_mask
        )
        self.test = self.data.test_mask
        self.y = self.data.y[self.test]
        self.log_probs = {name: study.log_probs(name)[0][self.test] for name in recipes}

    def conf(self, name: str) -> Tensor:
        return self.log_probs[name].exp().amax(-1)

    def right(self, name: str) -> Tensor:
        return (self.log_probs[name].argmax(-1) == self.y).double()


def diagram(ax: Axes, story: Story, name: str) -> None:
    rel = reliability(story.log_probs[name], story.y, 10)
    seen = rel.count > 0
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--")
    ax.bar(rel.conf[seen], rel.accuracy[seen], width=0.07, color=COLOURS[name], alpha=0.85)
    ax.scatter(rel.conf[seen], rel.conf[seen], marker="_", s=140, color="black", zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="share that is right")


def before(ax: Axes, story: Story) -> None:
    diagram(ax, story, "model")
    ax.set_title("1  The model says less than it knows")


def tempered(ax: Axes, story: Story) -> None:
    diagram(ax, story, "temperature")
    ax.set_title("2  One temperature repairs the average")


def repaired(ax: Axes, story: Story) -> None:
    diagram(ax, story, "graph scaling")
    ax.set_title("3  Graph scaling repairs node by node")


def floor(ax: Axes, story: Story) -> None:
    sizes = [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000]
    generator = torch.Generator().manual_seed(0)
    floors = []
    for size in sizes:
        rows = torch.randint(len(story.y), (size,), generator=generator)
        floors.append(100 * graphcal.metrics.ece_floor(story.log_probs["temperature"][rows]))
    ax.plot(sizes, floors, marker="o", color=BLUE)
    ax.set(xscale="log", ylim=(0, None), xlabel="test nodes", ylabel="ECE of a perfect model, points")
    ax.set_title("4  A perfect model does not show 0")


def histogram(ax: Axes, story: Story) -> None:
    bins = torch.linspace(0, 1, 21).tolist()
    for name in ("model", "graph scaling"):
        ax.hist(story.conf(name).numpy(), bins=bins, color=COLOURS[name], alpha=0.55, label=name)
    ax.axvline(float(story.right("model").mean()), color="black", lw=1, ls=":")
    ax.text(float(story.right("model").mean()), ax.get_ylim()[1] * 0.96, " accuracy", va="top")
    ax.set(xlabel="confidence", ylabel="nodes")
    ax.legend(frameon=False, loc="upper left")
    ax.set_title("5  Confidence moves towards accuracy")


def classes(ax: Axes, story: Story) -> None:
    count = story.log_probs["model"].shape[1]
    for offset, name in zip((-0.25, 0.0, 0.25), COLOURS):
        pred, gap = story.log_probs[name].argmax(-1), story.right(name) - story.conf(name)
        gaps = [100 * float(gap[pred == k].mean()) if bool((pred == k).any()) else 0.0 for k in range(count)]
        ax.bar([k + offset for k in range(count)], gaps, width=0.23, color=COLOURS[name], label=name)
    ax.axhline(0, color="black", lw=0.8)
    ax.set(xlabel="predicted class", ylabel="accuracy − confidence, points")
    ax.legend(frameon=False, fontsize=8, ncols=3)
    ax.set_title("6  An average hides the classes")


def agreement(ax: Axes, story: Story) -> None:
    agree = neighbour_agreement(story.out.pred, structure(story.data))[story.test]
    parts = [(0.0, 0.34), (0.34, 0.67), (0.67, 0.99), (0.99, 1.01)]
    labels = ["few agree", "half", "most", "all agree"]
    groups = [(agree >= low) & (agree < high) for low, high in parts]
    says = [float(story.conf("model")[g].mean()) for g in groups]
    right = [float(story.right("model")[g].mean()) for g in groups]
    ax.plot(says, marker="o", color=RED, label="the model says")
    ax.plot(right, marker="o", color="black", ls=":", label="it is right")
    ax.set(ylim=(0, 1), ylabel="share")
    ax.set_xticks(range(4), labels)
    ax.legend(frameon=False, fontsize=8)
    ax.set_title("7  Neighbours know who is wrong")


def labels(ax: Axes, story: Story) -> None:
    nodes = story.data.val_mask.nonzero().flatten()
    sizes, draws = (30, 50, 100, 200, 350, 500), 5
    for name, recipe in (("temperature", graphcal.TemperatureScaling()), ("graph scaling", graphcal.GraphScaling())):
        means = []
        for size in sizes:
            total = 0.0
            for seed in range(draws):
                labelled = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))[:size]]
                on = torch.zeros_like(story.data.val_mask).index_fill(0, labelled, True)
                log_probs = recipe.fit(story.out, on=on)(story.out)[story.test]
                total += graphcal.metrics.nll(log_probs, story.y)
            means.append(total / draws)
        ax.plot(sizes, means, marker="o", color=COLOURS[name], label=name)
    ax.set(xscale="log", xlabel="validation labels", ylabel="NLL on test nodes")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    ax.legend(frameon=False)
    ax.set_title("8  More labels, more repair")


def risk(ax: Axes, story: Story) -> None:
    for name in ("temperature", "graph scaling"):
        order = story.conf(name).argsort(descending=True, stable=True)
        wrong = (1 - story.right(name))[order].cumsum(0)
        share = torch.arange(1, len(order) + 1)
        ax.plot(100 * share[20:] / len(order), 100 * (wrong / share)[20:], color=COLOURS[name], label=name)
    ax.set(
        xlim=(0, 100), ylim=(0, None), xlabel="nodes decided, most confident first, %", ylabel="errors among them, %"
    )
    ax.legend(frameon=False)
    ax.set_title("9  Order decides who can be trusted")


def decided(ax: Axes, story: Story) -> None:
    targets = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]
    drawn = torch.rand(len(story.y), generator=torch.Generator().manual_seed(0)) < 0.5
    for name in ("temperature", "graph scaling"):
        shares = []
        for target in targets:
            decision = graphcal.decide(
                story.log_probs[name], story.y, certify=drawn, max_error=target, random_draw=True
            )
            shares.append(100 * decision.coverage)
        ax.plot([100 * t for t in targets], shares, marker="o", color=COLOURS[name], label=name)
    ax.set(ylim=(0, 100), xlabel="errors allowed, % (with 95 % certainty)", ylabel="nodes decided alone, %")
    ax.legend(frameon=False)
    ax.set_title("10  Decisions with a promise")


PICTURES: tuple[Callable[[Axes, Story], None], ...] = (
    before, tempered, repaired, floor, histogram, classes, agreement, labels, risk, decided,
)  # fmt: skip


FAMILIES = {
    "balls": "balls", "communities": "communities", "classes": "predicted classes", "slices": "slices", "random": "random sets",
}  # fmt: skip


def set_coverage(ax: Axes, _: Story) -> None:
    """Coverage by kind of set, over all graphs and models of results/sets.csv."""
    with (Path(__file__).parents[1] / "results" / "sets.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["event"] == "error" and float(row["labels"]) > 100]
    for height, family in enumerate(reversed(FAMILIES)):
        mine = [row for row in rows if row["family"] == family]
        total = sum(float(row["sets"]) for row in mine)
        ends = [100 * sum(float(row[key]) for row in mine) / total for key in ("covered_independent", "covered")]
        ax.plot(ends, [height, height], color=GREY, lw=1)
        for end, colour, name in zip(ends, (RED, BLUE), ("independence", "graphcal.count")):
            ax.scatter([end], [height], color=colour, s=50, zorder=3, label=name if height == 0 else None)
    ax.axvline(95, color=GREY, lw=1, ls="--")
    ax.set(xlim=(None, 101), xlabel="95 % intervals that cover the true number, %")
    ax.set_yticks(range(len(FAMILIES)), list(FAMILIES.values())[::-1])
    ax.legend(frameon=False, loc="lower left")
    ax.set_title("Independent errors: too short")


def set_parts(ax: Axes, story: Story) -> None:
    """Parts of the variance of a random set, a community, a predicted class and all nodes."""
    calibration = graphcal.GraphScaling(sets=True).fit(story.out, on=story.data.val_mask)
    groups = [graphcal.count(calibration, story.out, by=by)[0] for by in ("community", "prediction")]
    nodes = torch.randperm(len(story.data.y), generator=torch.Generator().manual_seed(0))[: groups[0].nodes]
    random, everything = graphcal.count(calibration, story.out, [nodes.numpy(), range(len(story.data.y))])
    counts = {"random nodes": random, "a community": groups[0], "a predicted class": groups[1], "all nodes": everything}
    left = [0.0] * len(counts)
    for part, colour in (("chance", GREY), ("neighbourhood", RED), ("fit", BLUE)):
        shares = [100 * getattr(c, part) / (c.chance + c.neighbourhood + c.fit) for c in counts.values()]
        ax.barh(range(len(counts)), shares, left=left, color=colour, label=part, height=0.6)
        left = [a + b for a, b in zip(left, shares)]
    ax.set_yticks(range(len(counts)), [f"{name}\n({c.nodes:,}: {c})" for name, c in counts.items()])
    ax.set(xlim=(0, 100), xlabel="share of the variance, %")
    ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0))


NAMED: dict[str, Callable[[Axes, Story], None]] = {"sets-coverage": set_coverage, "sets-parts": set_parts}


def main() -> None:
    story = Story()
    with matplotlib.rc_context(STYLE):
        pictures = {f"picture-{number:02}": draw for number, draw in enumerate(PICTURES, 1)} | NAMED
        for name, draw in pictures.items():
            figure = Figure(figsize=(5.2, 3.4), layout="constrained")
            draw(figure.subplots(), story)
            figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    print(f"wrote {len(pictures)} pictures to {FOLDER}")


if __name__ == "__main__":
    main()
