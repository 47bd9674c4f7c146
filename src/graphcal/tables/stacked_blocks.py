"""Graph scaling of blocks (C, n), the classes along the first axis; the formulas are those of `graphcal.methods.graph_scaling`.

    z'_m = a_m z + c_m t + u_m v1 + ... + M_m z + b_m,    p = normalised (sum_m weight_m softmax(z'_m)) ^ sharpness

Amounts a_m, c_m, u_m (M, n) and matrices are products of small matrices with the block, in double precision; exponentials are of
numbers of 0 or less, in single precision. Members of weight 0 are left out. Equal to the calibration itself to 1e-6 (tested).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphcal.engine.graph_columns import ALONE, GRAPH_FACTS, MOST_CLASSES
from graphcal.engine.scaling import pooled, with_predictions
from graphcal.methods.graph_scaling import GraphScaled

Array = NDArray[Any]
NEEDS_NEIGHBOURS = np.isin(np.arange(GRAPH_FACTS), (1, 2, 4, 5, 6))[:, None]  # facts that a node without them lacks


class StackedBlocks:
    """The numbers of a fitted graph scaling, laid out for blocks."""

    def __init__(self, calibration: GraphScaled) -> None:
        self.layout, self.keep = calibration.layout, calibration.predictions == "keep"
        self.scale = float(calibration.scale)
        names = ("centre", "spread", "low", "high", "gram", "bias")
        numbers = {name: getattr(calibration, name).double().numpy() for name in names}
        self.units = [numbers[name][:, None] for name in names[:4]]
        self.gram, self.bias = numbers["gram"], numbers["bias"]
        self.forms = [StackForm(calibration, form) for form in range(2)]

    def __call__(self, logits: Array, context: Array | None, out: Array) -> None:
        """Probabilities of logits (C, n) into ``out`` (C, n); ``context`` (n, K) as `GraphScaled.context` gives it."""
        z = logits.astype(np.float64)
        z -= z.mean(0)
        own = z.argmax(0) if self.keep or self.layout.pull else None
        if not self.layout.graph:
            self._form(1, z, np.empty((0, z.shape[1])), own, out)
        else:
            assert context is not None
            around = np.ascontiguousarray(context.T, dtype=np.float64)  # (K, n)
            known = ~np.isnan(around)
            whole, placed = known[-1], known[0]
            around[~known] = 0
            for form, rows in ((0, whole & placed), (1, whole & ~placed)):
                self._some(form, rows, z, around, own, out)
            if not whole.all():
                out[:, ~whole] = softmax(self.scale * z[:, ~whole])
        if own is not None and self.keep:
            keep_predictions(out, own)

    def _some(self, form: int, rows: Array, z: Array, context: Array, own: Array | None, out: Array) -> None:
        if rows.all():
            self._form(form, z, context, own, out)
        elif rows.any():
            part = np.empty((len(z), int(rows.sum())), dtype=out.dtype)
            self._form(form, z[:, rows], context[:, rows], None if own is None else own[rows], part)
            out[:, rows] = part

    def _form(self, form: int, z: Array, context: Array, own: Array | None, out: Array) -> None:
        layout, rows = self.layout, np.concatenate([np.ones((1, z.shape[1])), self._facts(z, context)])
        fields = [(z, rows)]
        if layout.pull:
            t = self.gram[:, own] + self.bias[:, None]
            fields.append((t - t.mean(0), rows))
        if layout.graph:
            opinions = np.split(context[GRAPH_FACTS:], (4 if layout.labels else 2))
            fields += [(v, rows if k == 0 else rows[:1]) for k, v in enumerate(opinions)]
        out[:] = self.forms[form](z, fields)

    def _facts(self, z: Array, context: Array) -> Array:
        """(F, n) in units of their spread, 0 where unknown."""
        length = np.sqrt(np.einsum("cn,cn->n", z, z))[None]
        facts = length
        if len(context):
            raw = context[:GRAPH_FACTS]
            lacking = (raw[ALONE] == 1) & NEEDS_NEIGHBOURS
            facts = np.concatenate([np.where(lacking, np.nan, raw), length])
        centre, spread, low, high = self.units
        units: Array = np.clip((facts - centre) / spread, low, high)
        return np.nan_to_num(units, copy=False, nan=0.0)


class StackForm:
    """One of the two forms: knowing the training set, or not."""

    def __init__(self, calibration: GraphScaled, form: int) -> None:
        classes = calibration.layout.classes
        weights = calibration.weights[form].double().numpy()
        used = weights > 0
        theta = calibration.theta[form].double().numpy()[used]  # (M, K)
        self.weights = weights[used].astype(np.float32)
        self.sharpness = float(calibration.sharpness[form])
        wide = 1 + (classes if classes <= MOST_CLASSES else 1)
        self.theta, own = theta[:, : -classes * wide], theta[:, -classes * wide :].reshape(-1, classes, wide)
        self.biases = own[:, :, :1]  # (M, C, 1)
        self.matrices = own[:, :, 1:]  # (M, C, C), or the classes' own factors (M, C, 1)

    def __call__(self, z: Array, fields: list[tuple[Array, Array]]) -> Array:
        """Probabilities (C, n) for fields (C, n) with the rows (m, n) that their amounts are linear in."""
        members, at = np.empty((len(self.theta), *z.shape)), 0
        if self.matrices.shape[2] == len(z):
            np.matmul(self.matrices, z, out=members)
        else:
            np.multiply(self.matrices, z, out=members)
        members += self.biases
        for field, rows in fields:
            amount = self.theta[:, at : at + len(rows)] @ rows  # (M, n)
            members += amount[:, None] * field
            at += len(rows)
        probs = [softmax(member) * weight for member, weight in zip(members, self.weights)]
        mixed: Array = np.sum(probs, axis=0) if len(probs) > 1 else probs[0]
        if self.sharpness == 1:
            return mixed
        with np.errstate(divide="ignore"):
            return softmax(self.sharpness * np.log(mixed))


def softmax(z: Array) -> Array:
    """Along the first axis, in single precision after the largest is subtracted."""
    e = (z - z.max(0)).astype(np.float32)
    np.exp(e, out=e)
    e *= np.reciprocal(e.sum(0))
    probs: Array = e
    return probs


def keep_predictions(probs: Array, own: Array) -> None:
    """Replace the columns (C, n) whose largest entry is not that of ``own`` (n,) by the nearest ones where it is, in place."""
    top = np.take_along_axis(probs, own[None], 0)[0]
    others = probs.copy()
    np.put_along_axis(others, own[None], -1, 0)
    lost = others.max(0) >= top
    if lost.any():
        pred = torch.from_numpy(own[lost])
        log_probs = torch.from_numpy(np.ascontiguousarray(probs[:, lost].T)).double().log()
        probs[:, lost] = with_predictions(pooled(log_probs, pred).float(), pred).exp().T.numpy()
