"""Counts of errors, or of members of a class, in any set of nodes, with intervals.

Errors of neighbours go together: residuals are shared by communities (`graphcal.residuals`). With p_i the probability of the
event, v_i = p_i (1 - p_i), S the n unlabelled nodes of a set, r the residuals of labelled nodes (each by a refit without it),
p^(-k) the probabilities of K refits, b_lg = sum over S in group g of v_i, and k_j = c v_j sum_l tau_l^2 b_{l, g_l(j)}:

    mean       sum_S p_i + k' C^-1 r
    variance   sum_S v_i                                                                        chance
               + 4/3 [c sum_l tau_l^2 (sum_g b_lg^2 - sum_S v_i^2) - k' C^-1 k] + spread        neighbourhood
               + 4/3 (K - 1) var_k(sum_S p_i^(-k))                                              fit

averaged over c with its weight; spread is the variance of the mean over c. The bracket is at least 0, the mean in 0..n and the
variance at most .9 mean (n - mean). The count has the beta distribution on 0..n with this mean and variance; the interval is
that of its quantiles, widened by 1/2 and rounded outwards. Labelled nodes and training nodes are added as a constant.

An interval holds in that share of sets that were formed without looking at labels, if the labels are a random draw. It is no
statement about one given set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import betainc, betaincinv

from graphcal.checks import check_numbers
from graphcal.communities import RESOLUTIONS
from graphcal.core import Calibration, Outputs
from graphcal.graphs import class_name, fingerprint, structure
from graphcal.residuals import SMALLEST, covariances, evenly, node_groups, shared

Array = NDArray[Any]
INFLATION = 4 / 3
MOST_SPREAD = 0.9  # variance as a share of the largest possible
SETS_AT_ONCE = 1000
FIFTHS = 5
COMMUNITY = RESOLUTIONS.index(5.0)  # of by="community"


@dataclass(frozen=True)
class Count:
    """Number of events in a set of nodes: expected, the ends of its interval, and the three parts of its variance."""

    expected: float
    low: int
    high: int
    chance: float  # variance if errors were independent
    neighbourhood: float  # variance because neighbours err together
    fit: float  # variance because few labels fit the calibration
    nodes: int = 0  # in the set
    labelled: int = 0  # of them with a label, which are counted exactly
    name: str = ""

    def __str__(self) -> str:
        return f"{self.expected:,.{1 if self.expected < 100 else 0}f} ({self.low:,} to {self.high:,})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and parts of the variance of the counts of m sets; arrays (m,)."""

    size: Array  # n unlabelled nodes
    constant: Array  # events among labelled nodes
    labelled: Array
    mean: Array  # of unlabelled nodes
    chance: Array
    neighbourhood: Array
    fit: Array

    @cached_property
    def variance(self) -> Array:
        total = self.chance + self.neighbourhood + self.fit
        return np.asarray(np.minimum(total, MOST_SPREAD * self.mean * (self.size - self.mean)))

    def interval(self, certainty: float) -> tuple[Array, Array]:
        """Ends (m,) of the intervals of the counts, labelled nodes included."""
        ends = [
            beta_quantile(self.mean, self.variance, self.size, q) for q in ((1 - certainty) / 2, (1 + certainty) / 2)
        ]
        low, high = np.floor(ends[0] - 0.5), np.ceil(ends[1] + 0.5)
        return self.constant + np.clip(low, 0, None), self.constant + np.minimum(high, self.size)

    def log_likelihood(self, events: Array) -> Array:
        """Log-probability (m,) of so many events among unlabelled nodes: the beta distribution in bins of width 1."""
        ends = [beta_share(self.mean, self.variance, self.size, events + step) for step in (-0.5, 0.5)]
        return np.asarray(np.log(np.maximum(ends[1] - ends[0], 1e-12)))


def beta_parameters(mean: Array, variance: Array, size: Array) -> tuple[Array, Array]:
    """a and b of the beta distribution on 0..n with this mean and variance; NaN where it is a point."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = mean / size
        total = mean * (size - mean) / variance - 1
        point = (variance <= 0) | (mean <= 0) | (mean >= size)
        return np.where(point, np.nan, share * total), np.where(point, np.nan, (1 - share) * total)


def beta_quantile(mean: Array, variance: Array, size: Array, q: float) -> Array:
    a, b = beta_parameters(mean, variance, size)
    return np.where(np.isnan(a), mean, size * betaincinv(a, b, q))


def beta_share(mean: Array, variance: Array, size: Array, count: Array) -> Array:
    """Probability of at most ``count``."""
    a, b = beta_parameters(mean, variance, size)
    share = np.clip(count / np.maximum(size, 1), 0, 1)
    below = np.where(count >= size, 1.0, betainc(a, b, share))
    return np.where(np.isnan(a), count >= mean, below)


@dataclass(frozen=True, eq=False)
class EventModel:
    """Probabilities of one event, the residuals that groups share, and the labelled nodes: counts of any sets."""

    prob: Array  # (N,) p
    refits: Array  # (N, K) p^(-k)
    groups: Array  # (L, N)
    tau: Array  # (L,) tau^2
    observed: Array  # (N,) bool: labelled and training nodes
    hit: Array  # (N,) bool: the event, where known
    held_out: Array  # (n,) probability of labelled nodes by the refit without them
    residual: Array  # (n,)
    at: Array  # (L, n) groups of the labelled nodes; -1 where they are not on this graph
    strengths: Sequence[tuple[float, Array, Array, float]]  # c, Cholesky factor, C^-1 r and weight

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        out: Outputs,
        event: str | int = "error",
        columns: Mapping[str, Any] | None = None,
    ) -> EventModel:
        """The model of an event: "error" (the calibrated prediction is wrong), or a class by name or number."""
        sets = refits_of(calibration, out)
        label = None if event == "error" else event_class(out, event)
        if label is None and "error" in class_names(out):
            raise ValueError("event='error' is also the name of a class. Rename the class, or count it by number.")
        calibration._check(out)
        with torch.no_grad():
            context = calibration.context_of(out)
            log_probs = calibration.log_probs(out.logits, context)
            pred = log_probs.argmax(1)
            of_node = pred if label is None else torch.full_like(pred, label)
            probs = [log_probs, *(refit.log_probs(out.logits, context) for refit in calibration.refits())]  # type: ignore[operator]
            chances = torch.stack([p.gather(1, of_node[:, None])[:, 0].double().exp() for p in probs], 1)
            held_out = sets.held_out.double().exp()
            held_pred = held_out.argmax(1)
            of_labelled = held_pred if label is None else torch.full_like(held_pred, label)
            held = held_out.gather(1, of_labelled[:, None])[:, 0]
            happened = (sets.labels == of_labelled).double()
        if label is None:
            chances, held, happened = 1 - chances, 1 - held, 1 - happened
        chances, held = chances.clamp(SMALLEST, 1 - SMALLEST), held.clamp(SMALLEST, 1 - SMALLEST)
        given = [_numbered(column, out.num_nodes, name) for name, column in (columns or {}).items()]
        groups, tau = node_groups(out.graph, out.pred, given)
        here = fitted_here(calibration, out, context)
        at = groups[:, sets.nodes] if here else sets.groups[-len(tau) :]
        some, v = evenly(len(held)), held * (1 - held)
        together = shared(at[:, some], tau[-len(at) :])
        solved = list(covariances((happened - held)[some], v[some], together))
        weights = torch.stack([weight for *_, weight in solved]).softmax(0)
        if not here:  # predicted classes are the same on every graph, communities are not
            at = torch.full((len(tau), len(held)), -1)
            at[-1] = sets.groups[-1]
        observed, truth = torch.zeros(out.num_nodes, dtype=torch.bool), torch.full((out.num_nodes,), -1)
        y, train = out.graph.get("y"), out.graph.get("train_mask")
        if y is not None and train is not None:
            observed, truth = (train & (y >= 0)).clone(), torch.where(train, y, truth)
        if here:
            observed[sets.nodes], truth[sets.nodes] = True, sets.labels
        hit = (truth == of_node) if label is not None else (truth != of_node)
        return cls(
            chances[:, 0].numpy(),
            chances[:, 1:].numpy(),
            groups.numpy(),
            tau.numpy(),
            observed.numpy(),
            (hit & observed).numpy(),
            held[some].numpy(),
            (happened - held)[some].numpy(),
            at[:, some].numpy(),
            [(c, factor.numpy(), alpha.numpy(), float(w)) for (c, factor, alpha, _), w in zip(solved, weights)],
        )

    def moments(self, sets: sp.csr_matrix) -> Moments:
        """Moments of the counts of sets, an indicator matrix (m, N)."""
        parts = [self._moments(sets[first : first + SETS_AT_ONCE]) for first in range(0, sets.shape[0], SETS_AT_ONCE)]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in Moments.__annotations__}
        return Moments(**columns)

    def _moments(self, sets: sp.csr_matrix) -> Moments:
        labelled, constant = sets @ self.observed.astype(float), sets @ self.hit.astype(float)
        sets = _without(sets, self.observed)
        size, v = np.diff(sets.indptr).astype(float), self.prob * (1 - self.prob)
        total, chance, squares = sets @ self.prob, sets @ v, sets @ v**2
        between = -self.tau.sum() * squares  # prior variance for c = 1
        reach = np.zeros((sets.shape[0], len(self.residual)))  # k / (c v_j)
        for group, at, tau in zip(self.groups, self.at, self.tau):
            by_group = sets @ sp.csr_matrix(
                (v, group, np.arange(len(v) + 1)), shape=(len(v), int(group.max(initial=0)) + 1)
            )
            between += tau * by_group.multiply(by_group).sum(1).A1
            numbers, column = np.unique(at, return_inverse=True)
            inside = (numbers >= 0) & (numbers < by_group.shape[1])
            dense = np.zeros((sets.shape[0], len(numbers)))
            dense[:, inside] = by_group[:, numbers[inside]].toarray()
            reach += tau * dense[:, column.reshape(-1)]
        reach *= self.held_out * (1 - self.held_out)
        means, brackets = [], []
        for c, factor, alpha, _ in self.strengths:
            means.append(total + c * (reach @ alpha))
            half = solve_triangular(factor, c * reach.T, lower=True, check_finite=False)
            brackets.append(np.maximum(c * between - (half * half).sum(0), 0))
        weight = np.array([w for *_, w in self.strengths])
        mean = weight @ np.stack(means)
        spread = weight @ (np.stack(means) - mean) ** 2
        refits = sets @ self.refits
        fit = (refits.shape[1] - 1) * refits.var(1)
        neighbourhood = INFLATION * (weight @ np.stack(brackets)) + spread
        return Moments(size, constant, labelled, np.clip(mean, 0, size), chance, neighbourhood, INFLATION * fit)


def count(
    calibration: Calibration,
    out: Outputs,
    nodes: Any = None,
    event: str | int = "error",
    certainty: float = 0.95,
    *,
    by: Any = None,
    groups: Mapping[str, Any] | None = None,
) -> Any:
    """Count errors, or members of a class, in sets of nodes, with an interval for each.

    The interval allows for neighbours that err together and for the uncertainty of the fit. It covers the truth in that share of
    sets that were formed without looking at labels, if the labelled nodes are a random draw. Labelled nodes count as they are.

    Parameters
    ----------
    calibration : Calibration
        Fitted with ``GraphScaling(sets=True)``.
    out : Outputs
        Outputs of the model.
    nodes : mask, node numbers, or a list of these, optional
        One set, or many.
    event : "error", or a class by name or number
        What to count: nodes whose calibrated prediction is wrong, or nodes of a class.
    certainty : float, default=0.95
        Share of sets whose interval covers the truth.
    by : "community", "prediction", name of a node attribute, or column of shape (N,), optional
        Count in every group instead of ``nodes``. Communities are those of modularity at resolution 5.
    groups : mapping of str to column of shape (N,), optional
        Columns whose rows err together (customer, shop, month), for a graph without edges. ``by`` is one of them already.

    Returns
    -------
    Count or list of Count
        A list for many sets; with ``by`` it is sorted by the expected number, and every count has the name of its group.

    Examples
    --------
    >>> import graphcal
    >>> out = graphcal.example()
    >>> calibrate = graphcal.GraphScaling(sets=True).fit(out, on=out.graph.val_mask)
    >>> errors = graphcal.count(calibrate, out, out.graph.test_mask)
    >>> errors.low < errors.expected < errors.high
    True
    >>> [one.name for one in graphcal.count(calibrate, out, by="prediction", event=0)][:1]
    ['0']
    """
    if not 0 < certainty < 1:
        raise ValueError(f"certainty must lie between 0 and 1, got {certainty:g}.")
    if (nodes is None) == (by is None):
        raise ValueError("Pass nodes= or by=, one of them.")
    refits_of(calibration, out)
    columns = dict(groups or {})
    if columns and out.graph.get("edge_index") is not None:
        raise ValueError("groups= stands in for edges, but the graph has edges. Leave one of the two out.")
    if by is None:
        many = isinstance(nodes, Sequence) and not isinstance(nodes, str) and any(np.ndim(one) > 0 for one in nodes)
        matrix, names = set_matrix(nodes if many else [nodes], out.num_nodes), None
    else:
        many = True
        matrix, names, column = grouped(calibration, out, by)
        if column is not None and out.graph.get("edge_index") is None:
            columns.setdefault(by if isinstance(by, str) else "by", column)
    moments = EventModel.of(calibration, out, event, columns).moments(matrix)
    counts = counts_of(moments, certainty, names)
    if by is not None:
        counts.sort(key=lambda one: -one.expected)
    return counts if many else counts[0]


def overview(calibration: Calibration, out: Outputs) -> list[Count]:
    """Errors of every predicted class and of fifths by confidence and degree, for a report; empty without refits."""
    if getattr(calibration, "sets", None) is None:
        return []
    with torch.no_grad():
        values = {"confidence": calibration(out).amax(1).cpu().numpy()}
    if out.graph.get("edge_index") is not None:
        values["degree"] = structure(out.graph).degree.cpu().numpy()
    matrix, names, _ = grouped(calibration, out, "prediction")
    parts, names = [matrix], [f"predicted {name}" for name in names]
    for by, value in values.items():
        parts.append(set_matrix(np.array_split(np.argsort(value, kind="stable"), FIFTHS), out.num_nodes))
        names += [f"{by}, {rank} fifth" for rank in ("lowest", "second", "third", "fourth", "highest")]
    return counts_of(EventModel.of(calibration, out).moments(sp.vstack(parts, format="csr")), 0.95, names)


def counts_of(moments: Moments, certainty: float, names: Sequence[str] | None = None) -> list[Count]:
    """One `Count` per set. Parts of a variance that was cut are cut alike."""
    low, high = moments.interval(certainty)
    parts = np.stack([moments.chance, moments.neighbourhood, moments.fit])
    parts = parts * (moments.variance / np.maximum(parts.sum(0), 1e-300))
    expected = moments.constant + moments.mean
    return [
        Count(
            float(expected[k]),
            int(low[k]),
            int(high[k]),
            chance=float(parts[0, k]),
            neighbourhood=float(parts[1, k]),
            fit=float(parts[2, k]),
            nodes=int(moments.size[k] + moments.labelled[k]),
            labelled=int(moments.labelled[k]),
            name="" if names is None else str(names[k]),
        )
        for k in range(len(low))
    ]


def refits_of(calibration: Any, out: Any) -> Any:
    """The refits and labelled nodes of a calibration that was fitted with ``sets=True``."""
    if not isinstance(calibration, Calibration) or not isinstance(out, Outputs):
        raise ValueError(
            "Pass a fitted calibration and the outputs of a model, in this order; got "
            f"{type(calibration).__name__} and {type(out).__name__}."
        )
    sets: Any = getattr(calibration, "sets", None)
    if sets is None:
        raise ValueError(f"{type(calibration).__name__} holds no refits. Fit it with GraphScaling(sets=True).")
    return sets


def class_names(out: Outputs) -> list[str]:
    return [class_name(out.graph, k) for k in range(out.num_classes)]


def event_class(out: Outputs, event: str | int) -> int:
    """Number of a class that is given by name or number."""
    names = class_names(out)
    if isinstance(event, str) and event in names:
        return names.index(event)
    if isinstance(event, int | np.integer) and not isinstance(event, bool) and 0 <= event < out.num_classes:
        return int(event)
    raise ValueError(f"event={event!r} is neither 'error' nor a class. Classes: {', '.join(names[:20])}.")


def set_matrix(sets: Sequence[Any], num_nodes: int) -> sp.csr_matrix:
    """Sets as an indicator matrix (m, N), from masks or node numbers."""
    members = [check_numbers(nodes, num_nodes, "nodes").cpu().numpy() for nodes in sets]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in members])]).astype(np.int64)
    indices = np.concatenate(members) if members else np.zeros(0, np.int64)
    return sp.csr_matrix((np.ones(len(indices)), indices, starts), shape=(len(members), num_nodes))


def grouped(calibration: Calibration, out: Outputs, by: Any) -> tuple[sp.csr_matrix, list[str], Any]:
    """Sets, their names, and the column of a grouping; the column is None for communities and predictions."""
    column: Any = None
    if isinstance(by, str) and by == "community":
        if out.graph.get("edge_index") is None:
            raise ValueError("by='community' needs edges, but the graph has none. Pass a column.")
        number = np.asarray(structure(out.graph).hierarchies[COMMUNITY])
        values = np.array([f"community {k}" for k in range(int(number.max()) + 1)])[number]
    elif isinstance(by, str) and by == "prediction":
        with torch.no_grad():
            pred = calibration(out).argmax(1).numpy()
        values = np.array(class_names(out))[pred]
    else:
        column = out.graph.get(by) if isinstance(by, str) else by
        if column is None:
            raise ValueError(f"by={by!r} is neither 'community', 'prediction' nor an attribute of the graph.")
        values = one_per_node(column, out.num_nodes, "by=")
    names, number = np.unique(values, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=len(names)))])
    matrix = sp.csr_matrix((np.ones(len(order)), order, starts), shape=(len(names), out.num_nodes))
    return matrix, [str(name) for name in names], column


def fitted_here(calibration: Any, out: Outputs, context: torch.Tensor) -> bool:
    """Return whether these are the nodes and outputs of the fit: then its labelled nodes have these labels and residuals."""
    sets = calibration.sets
    if out.num_nodes != calibration.fitted_on.get("nodes") or int(sets.nodes.max()) >= out.num_nodes:
        return False
    if fingerprint(out.graph) != calibration.fitted_on.get("fingerprint"):
        return False
    z, around = out.logits[sets.nodes], context[sets.nodes]
    refits = torch.stack([refit.log_probs(z, around).exp() for refit in calibration.refits()])
    return bool(((refits - sets.held_out.exp()).abs().amax(2).amin(0) < 1e-3).all())


def _numbered(column: Any, num_nodes: int, name: str) -> torch.Tensor:
    values = one_per_node(column, num_nodes, f"Column {name!r}")
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].reshape(-1))


def one_per_node(column: Any, num_nodes: int, name: str) -> Array:
    """A column (N,) whose values can be compared, without gaps."""
    values = np.asarray(column)
    if values.shape != (num_nodes,):
        raise ValueError(f"{name} needs one value per node ({num_nodes},), got shape {values.shape}.")
    if values.dtype == object:
        kinds = {type(value).__name__ for value in values.tolist()}
        if len(kinds) > 1 or "NoneType" in kinds:
            raise ValueError(f"{name} needs values of one type without gaps, got {', '.join(sorted(kinds))}.")
    if (values != values).any():
        raise ValueError(f"{name} has {int((values != values).sum())} missing values. Give them a group of their own.")
    return values


def _without(sets: sp.csr_matrix, nodes: Array) -> sp.csr_matrix:
    """The sets without some nodes (N,)."""
    keep = ~nodes[sets.indices]
    starts = np.concatenate([[0], np.cumsum(keep)])[sets.indptr]
    return sp.csr_matrix((sets.data[keep], sets.indices[keep], starts), shape=sets.shape)
