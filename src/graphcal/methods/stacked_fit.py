"""The fit behind `graphcal.methods.graph_scaling`: members of growing size, their ridges, their weights, and the fallback.

    none      the model itself
    ts        one positive scale                        scar     a scale and a pull
    facts     scale and pull depend on facts            bias     and a bias for each class
    neighbours  facts, and the neighbours' opinions     matrix   a scale, a bias and a matrix
    all       facts, bias, matrix, and neighbours' opinions that count more or less by facts

A member is a set of groups of columns; every group has a ridge, lambda / n on columns of unit size: a prior of standard
deviation 1 / sqrt(lambda) on a coefficient. Leave-one-out chooses lambda, but for the constants: theirs is 150 / n, which a few
dozen labels feel and a few hundred do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcal.engine.columns import StructuredColumns
from graphcal.engine.graph_columns import Layout
from graphcal.engine.linear import LinearFit, best_ridges, fit_linear, platt_targets
from graphcal.engine.scaling import mixture, pooled, stack_weights
from graphcal.methods.temperature import SMALLEST_SCALE

LAMBDAS = (300.0, 100.0, 30.0, 10.0)
LAMBDA_OF_CONSTANTS = 150.0  # divided by the number of labels: draws scale and pull to TS
PRIOR = 2.0  # observations for each member of the stack
PRIOR_OF_TS = 150.0  # divided by the number of labels: observations more for TS
SHARPNESS_LAMBDA = 100.0  # of the ridge on the mixture's exponent
SMALLEST_SHARPNESS = 0.1
MOST_NODES = 5000  # that ridges and weights are chosen on; the parameters are fitted on all

# what a group is penalised together with; scale and pull are constants
RIDGE_OF = {
    "facts": "facts", "pull facts": "facts", "bias": "bias", "matrix": "matrix", "neighbours": "neighbours",
    "neighbours facts": "neighbours facts", "labels": "neighbours",
}  # fmt: skip
ORDER = ("neighbours", "facts", "bias", "neighbours facts", "matrix")  # of the search
MEMBERS: dict[str, tuple[str, ...]] = {
    "none": (),
    "ts": ("scale",),
    "scar": ("scale", "pull"),
    "facts": ("scale", "pull", "facts", "pull facts"),
    "bias": ("scale", "pull", "facts", "pull facts", "bias"),
    "neighbours": ("scale", "pull", "facts", "pull facts", "neighbours", "labels"),
    "matrix": ("scale", "bias", "matrix"),
    "all": ("scale", "pull", "facts", "pull facts", "bias", "matrix", "neighbours", "neighbours facts", "labels"),
}
STACKED = ("ts", "facts", "bias", "neighbours", "matrix", "all")
STACKED_TO_KEEP = ("ts", "facts", "neighbours")  # predictions
CHAIN = {
    "scar": "SCAR with a temperature",
    "ts": "temperature scaling",
    "none": "left as it was",
}  # when the stack fails
BLOCKS = {  # what can be left out
    "pull": ("pull", "pull facts"),
    "facts": ("facts", "pull facts", "neighbours facts"),
    "classes": ("bias", "matrix"),
    "neighbours": ("neighbours", "neighbours facts"),
}


@dataclass(frozen=True, eq=False)
class StackedFit:
    members: tuple[str, ...]
    theta: Tensor  # (2, M, K) with and without knowing the training set
    weights: Tensor  # (2, M)
    sharpness: Tensor  # (2,) the exponent of the mixture
    note: str
    training_set_worth: float


@dataclass(frozen=True, eq=False)
class Member:
    theta: Tensor  # (K,) of all columns, 0 where it has none
    unseen: Tensor  # (n, C) leave-one-out log-probabilities
    ridge: dict[str, float]  # lambda of each group


def fit_stack(
    layout: Layout, columns: StructuredColumns, z: Tensor, y: Tensor, scale: Tensor, left_out: Sequence[str], keep: bool
) -> StackedFit:
    """Both forms on nodes with these columns, centred logits z (n, C) and labels y (n,)."""
    chosen = _some(len(y))
    problem = Problem(layout, columns.part(chosen), z[chosen], y[chosen], scale)
    gone = {group for name in left_out for group in BLOCKS[name]}
    of_training = torch.tensor(layout.of_training, device=z.device)
    names = {name: [g for g in groups if g not in gone] for name, groups in MEMBERS.items()}
    full = {name: problem.member(groups, torch.zeros_like(of_training)) for name, groups in names.items()}
    bare = full
    if layout.graph and "facts" not in left_out:
        bare = {name: problem.member(groups, of_training, full[name]) for name, groups in names.items()}
    judged = [problem.judge(members, keep) for members in (full, bare)]
    thetas = [torch.stack([m.theta for m in members.values()]) for members in (full, bare)]
    if len(y) > len(problem.y):
        everything = Problem(layout, columns, z, y, scale)
        thetas = [
            torch.stack([everything.refit(names[k], m, off) for k, m in members.items()])
            for members, off in ((full, torch.zeros_like(of_training)), (bare, of_training))
        ]
    worth = judged[1].nll - judged[0].nll
    note = judged[0].note
    if layout.graph and not torch.equal(thetas[0], thetas[1]):
        note += f"; knowing the training set is worth {worth:.4f} of NLL"
    weights, sharpness = (torch.stack([getattr(j, name) for j in judged]) for name in ("weights", "sharpness"))
    return StackedFit(tuple(MEMBERS), torch.stack(thetas), weights, sharpness, note, worth)


def _some(count: int) -> slice | Tensor:
    """At most so many nodes, evenly drawn from their canonical order."""
    return slice(0, count) if count <= MOST_NODES else torch.linspace(0, count - 1, MOST_NODES).long()


@dataclass(frozen=True)
class Stack:
    weights: Tensor  # (M,)
    sharpness: Tensor  # ()
    nll: float  # leave-one-out
    note: str


class Problem:
    """One set of fitting nodes."""

    def __init__(self, layout: Layout, columns: StructuredColumns, z: Tensor, y: Tensor, scale: Tensor) -> None:
        self.columns, self.z, self.y, self.scale = columns, z, y, scale.double()
        self.groups = layout.groups
        self.target = platt_targets(y, z)

    def member(self, groups: Sequence[str], without: Tensor, like: Member | None = None) -> Member:
        """The columns of these groups but those ``without`` (K,), with the ridges of another member or chosen anew."""
        keep = self._kept(groups, without)
        if not groups:
            return self._untouched()
        columns, names = self.columns.select(keep), [g for g, k in zip(self.groups, keep.tolist()) if k]
        start = self._start(names)
        known = {RIDGE_OF[g] for g in names if g in RIDGE_OF}
        order = [name for name in ORDER if name in known]
        group = torch.tensor([order.index(RIDGE_OF[g]) if g in RIDGE_OF else -1 for g in names], device=self.z.device)
        base, n = torch.zeros_like(self.z), len(self.y)
        if like is None:
            found = best_ridges(
                base, columns, self.target, start, group, [x / n for x in LAMBDAS], self.ridge_of_constants
            )
            theta, unseen = found.theta, found.loo_logits
            ridge = {name: float(found.ridge[group == k][0]) * n for k, name in enumerate(order)}
        else:
            theta, unseen = self._solved(columns, start, group, order, like.ridge)
            ridge = like.ridge
        if names == ["scale"]:
            theta, unseen = self._with_positive_scale(theta, unseen)
        whole = theta.new_zeros(len(self.groups))
        whole[keep] = theta
        return Member(whole, unseen.log_softmax(-1), ridge)

    def _with_positive_scale(self, theta: Tensor, unseen: Tensor) -> tuple[Tensor, Tensor]:
        """Clamp the scale of temperature scaling, and that of every leave-one-out fit, as `fit_scale` does."""
        scale = (unseen * self.z).sum(1, keepdim=True) / self.z.square().sum(1, keepdim=True)  # unseen = scale z
        unseen = torch.where(scale < SMALLEST_SCALE, SMALLEST_SCALE * self.z, unseen)
        return theta.clamp(min=SMALLEST_SCALE), unseen

    def _untouched(self) -> Member:
        theta = self.z.new_zeros(len(self.groups))
        theta[0] = 1.0
        return Member(theta, self.z.log_softmax(-1), {})

    def refit(self, groups: Sequence[str], like: Member, without: Tensor) -> Tensor:
        """theta (K,) on these nodes, with the lambdas of a fit on fewer."""
        return self.member(groups, without, like).theta

    @property
    def ridge_of_constants(self) -> float:
        """Without it scale and pull can separate a few dozen labels, and run away."""
        return LAMBDA_OF_CONSTANTS / len(self.y) ** 2

    def _kept(self, groups: Sequence[str], without: Tensor) -> Tensor:
        return torch.tensor([g in groups for g in self.groups], device=self.z.device) & ~without

    def _start(self, names: Sequence[str]) -> Tensor:
        """What ridges draw to: the best scale and pull alone, themselves drawn to TS."""
        start = self.z.new_zeros(len(names))
        start[0] = self.scale
        if "pull" in names:
            terms = torch.stack(list(self.columns.fields[:2]), -1)  # z, t
            constants = [0, names.index("pull")]
            fit = LinearFit(torch.zeros_like(self.z), terms, self.target, start[constants])
            weak = torch.full_like(start[constants], self.ridge_of_constants)
            with torch.inference_mode():
                start[constants] = fit.theta(fit.solve(weak, precision=1e-8))
        return start

    def _solved(
        self, columns: StructuredColumns, start: Tensor, group: Tensor, order: Sequence[str], ridge: dict[str, float]
    ) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            fit = LinearFit(torch.zeros_like(self.z), columns, self.target, start)
            values = start.new_tensor([*(ridge[name] / len(self.y) for name in order), self.ridge_of_constants])[group]
            state = fit.solve(values, precision=1e-14)
            theta, unseen = fit.theta(state), state.loo_logits(values + 1e-10)
        return theta.clone(), unseen.clone()

    # --------------------------------------------------------------------------------------------------------- judgement

    def nll(self, log_probs: Tensor) -> float:
        return -float((log_probs * self.target).sum()) / len(self.y)

    def judge(self, members: dict[str, Member], keep: bool) -> Stack:
        """The weights of the stack; or of the first of scar, ts and the model itself that is better without its label."""
        names, n = list(members), len(self.y)
        weights = self.z.new_zeros(len(names))
        wanted = STACKED_TO_KEEP if keep else STACKED
        stacked = torch.tensor([name in wanted for name in names], device=self.z.device)
        prior = self.z.new_full((int(stacked.sum()),), PRIOR)
        prior[0] += PRIOR_OF_TS / n
        unseen = torch.stack([members[name].unseen for name in names])  # (M, n, C)
        label = unseen[stacked].gather(2, self.y[None, :, None].expand(len(prior), -1, 1)).squeeze(2)
        weights[stacked] = stack_weights(label.T.contiguous(), prior)
        mixed = mixture(unseen, weights)
        sharpness = torch.ones_like(weights[0]) if keep else self._sharpness(mixed)
        free = (sharpness * mixed).log_softmax(-1)
        pred = self.z.argmax(-1)
        said = pooled(free, pred) if keep else free
        found = {"stack": self.nll(said), **{name: self.nll(members[name].unseen) for name in CHAIN}}
        best = next(name for k, name in enumerate(found) if all(found[name] < x for x in list(found.values())[k + 1 :]))
        if best == "stack":
            return Stack(weights, sharpness, found[best], self._in_words(free, pred, keep))
        note = f"{CHAIN[best]}: leave-one-out NLL {found[best]:.4f}, of the stack {found['stack']:.4f}"
        alone = torch.tensor([name == best for name in names]).to(weights)
        return Stack(alone, torch.ones_like(sharpness), found[best], note)

    def _sharpness(self, log_probs: Tensor) -> Tensor:
        """The exponent of least NLL, drawn to 1: a mixture of calibrated members is less sure than it should be."""  # ()
        ridge = SHARPNESS_LAMBDA / len(self.y)
        start = log_probs.new_ones(1)
        fitted = fit_linear(torch.zeros_like(log_probs), log_probs[:, :, None], self.target, ridge, start)
        return fitted[0].clamp(min=SMALLEST_SHARPNESS)

    def _in_words(self, free: Tensor, pred: Tensor, keep: bool) -> str:
        moved = free.argmax(-1)
        held = int((moved != pred).sum())
        before, after = (100 * float((p == self.y).double().mean()) for p in (pred, moved))
        gain = f"leave-one-out accuracy {before:.1f} -> {after:.1f} %"
        share = f"{held} of {len(pred)} fitted nodes"
        return f"{share} are held; freeing predictions: {gain}" if keep else f"predictions of {share} change: {gain}"
