"""Calibrated probabilities of blocks (C, n), the classes along the first axis: what a table's columns are.

The common calibrations are written out for such blocks in NumPy, where a softmax is ten times faster than along rows:

    Identity, Temperature, ScaleAndShift    z' = a z + b, per class
    CentroidPull (SCAR)                     z' = z + w (t - z), or s z + w t; w capped where the prediction would change
    GraphScaled                             see `graphcal.tables.stacked_blocks`

Everything else goes through `Calibration.from_context`. Both give the same to 1e-6 (tested).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from graphcal.core import Calibration
from graphcal.methods.graph_scaling import GraphScaled
from graphcal.methods.none import Identity
from graphcal.methods.scar import NEAR, TRAINING, CentroidPull
from graphcal.methods.temperature import Temperature
from graphcal.methods.vector_scaling import ScaleAndShift
from graphcal.tables.classes import number_type
from graphcal.tables.stacked_blocks import StackedBlocks

BLOCK = 1 << 15  # rows whose columns stay in the processor's cache
STACKED_BLOCK = 1 << 11  # the same, of several members

Array = NDArray[Any]
Columns = Sequence[Array] | Array  # C columns (n,)


def calibrated_block(calibration: Calibration, logits: Columns, context: Array | None = None) -> tuple[Array, Array]:
    """Probabilities (C, n) and the winning class (n,) of logits, C columns (n,); ``context`` (n, K) is of the calibration."""
    n = len(logits[0])
    probs, pred = reused_block(len(logits), n), np.empty(n, dtype=number_type(len(logits)))
    affine, scar = affine_of(calibration, len(logits)), calibration if isinstance(calibration, CentroidPull) else None
    if isinstance(calibration, GraphScaled) and (context is not None or not calibration.graph):
        stacked = StackedBlocks(calibration)
        for at in range(0, n, STACKED_BLOCK):
            rows = slice(at, at + STACKED_BLOCK)
            z = np.stack([column[rows] for column in logits])
            stacked(z, None if context is None else context[rows], probs[:, rows])
            pred[rows] = z.argmax(0) if stacked.keep else probs[:, rows].argmax(0)
        return probs, pred
    if affine is None and scar is None:
        return by_rows(calibration, logits, context, probs, pred)
    for at in range(0, n, BLOCK):
        rows = slice(at, at + BLOCK)
        out, block = probs[:, rows], [column[rows] for column in logits]
        if affine is not None:
            for c, (scale, shift) in enumerate(zip(*affine)):
                np.multiply(block[c], scale, out=out[c])
                if shift:
                    out[c] += shift
            pred[rows], top = winners(out)
            normalise(out, top)
        elif scar is not None:
            pred[rows] = winners(block)[0]
            pull_block(scar, block, pred[rows], None if context is None else context[rows, 0], out)
            normalise(out, out.max(0))
    return probs, pred


def reused_block(count: int, n: int) -> Array:
    """A block (C, n) to be written to, from Arrow's pool, which keeps the memory of blocks that nobody reads any more; NumPy
    gives it back, and asking the system for pages costs several per cent of scoring."""
    return np.frombuffer(pa.allocate_buffer(4 * count * n), dtype=np.float32).reshape(count, n)


def affine_of(calibration: Calibration, classes: int) -> tuple[list[Any], list[Any]] | None:
    """a and b per class of a calibration z' = a z + b; None for another one."""
    if isinstance(calibration, Identity):
        return [np.float32(1)] * classes, [0] * classes
    if isinstance(calibration, Temperature):
        return [np.float32(calibration.scale.item())] * classes, [0] * classes
    if isinstance(calibration, ScaleAndShift):
        return list(calibration.scale.float().numpy()), list(calibration.shift.float().numpy())
    return None


def normalise(z: Array, top: Array) -> None:
    """Softmax along the first axis, in place; ``top`` (n,) is the largest of each column."""
    z -= top
    np.exp(z, out=z)
    z *= np.reciprocal(z.sum(0))


def winners(columns: Columns) -> tuple[Array, Array]:
    """The class of the highest score, the first where several are, and that score, (n,) each."""
    number = number_type(len(columns))
    best, found = columns[0].copy(), np.zeros(len(columns[0]), dtype=number)
    for c in range(1, len(columns)):
        np.maximum(found, (columns[c] > best) * number(c), out=found)
        np.maximum(best, columns[c], out=best)
    return found, best


def pull_block(scar: CentroidPull, z: Columns, pred: Array, side: Array | None, out: Array) -> None:
    """Eq. 9 and 10 of the SCAR paper into ``out`` (C, n); see `graphcal.methods.scar.guarded_pull`."""
    block = np.stack([column.astype(np.float32, copy=False) for column in z])
    t = scar.gram.float().numpy()[:, pred] + scar.bias.float().numpy()[:, None]
    w = np.full(len(pred), scar.beta.item(), dtype=np.float32)
    if side is not None:
        w = np.where(side == NEAR, np.float32(scar.alpha.item()), w)
        w[side == TRAINING] = 0
    base = block * np.float32(scar.scale.item()) if scar.temperature else block
    direction = t if scar.temperature else t - block
    if scar.guarded:
        rows = np.arange(len(pred))
        lead = base[pred, rows] - base
        lost = (direction - direction[pred, rows]) * np.sign(w)
        with np.errstate(over="ignore", invalid="ignore"):  # no class is lost to: an infinite cap, which nothing meets
            room = np.where(lost > 0, lead / np.maximum(lost, np.finfo(np.float32).tiny), np.inf)
            cap = room.min(0) * np.float32(1 - 1e-3)
            w = np.where(np.abs(w) > cap, np.sign(w) * cap, w)
    np.add(base, w * direction, out=out)
    lost_rows = (winners(out)[0] != pred) if scar.guarded else np.zeros(len(pred), dtype=bool)
    if side is not None:
        lost_rows |= side == TRAINING
    out[:, lost_rows] = block[:, lost_rows]


def by_rows(
    calibration: Calibration, logits: Columns, context: Array | None, probs: Array, pred: Array
) -> tuple[Array, Array]:
    """The same by `Calibration.from_context`, block by block."""
    for at in range(0, probs.shape[1], BLOCK):
        rows = slice(at, at + BLOCK)
        z = torch.from_numpy(np.stack([column[rows] for column in logits], axis=1))
        known = z.new_empty(len(z), 0) if context is None else torch.from_numpy(np.array(context[rows]))
        with torch.no_grad():
            log_probs = calibration.from_context(z, known.to(z))
        probs[:, rows] = log_probs.exp().numpy().T
        pred[rows] = log_probs.argmax(-1).numpy()
    return probs, pred
