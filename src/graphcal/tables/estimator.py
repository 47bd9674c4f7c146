"""Calibration as a scikit-learn estimator: scores in, probabilities out.

    CalibratedScores("ts", kind="logits").fit(scores, y).predict_proba(more_scores)

X are the scores (n, C) of a classifier, not its features. Rows have no edges: use `graphcal.calibrate` for those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from graphcal.core import Outputs
from graphcal.tables.calibration import fit
from graphcal.tables.layouts import both_classes
from graphcal.tables.score_types import infer_score_type, score_type_name
from graphcal.tables.scorer import calibrated_block


class CalibratedScores(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A calibrator of scores with ``fit``, ``predict_proba`` and ``predict``; works in cross-validation and pipelines.

    Column k of X belongs to the k-th of ``classes``; without ``classes``, to the k-th of the sorted labels of y.

    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> z = rng.standard_normal((500, 3))
    >>> y = (z + rng.gumbel(size=z.shape)).argmax(1)
    >>> scores = cross_val_score(CalibratedScores("ts", kind="logits"), 4 * z, y, scoring="neg_log_loss")
    >>> bool(scores.mean() > -1)
    True
    """

    def __init__(self, calibrator: str = "ts", kind: str = "probs", classes: Sequence[Any] | None = None) -> None:
        self.calibrator = calibrator
        self.kind = kind
        self.classes = classes

    def fit(self, X: Any, y: Any) -> CalibratedScores:
        """Fit the calibrator on all rows.

        Parameters
        ----------
        X : array-like of shape (n, C) or (n, 1)
            Scores, one column per class. One column is the score of the second class.
        y : array-like of shape (n,)
            Labels.
        """
        from torch_geometric.data import Data

        scores, labels = validate_data(self, X, y, **self._checks())
        check_classification_targets(labels)
        self.classes_ = np.unique(labels) if self.classes is None else np.asarray(self.classes)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}. Calibration needs labels of two.")
        block = self._block(scores)
        if len(self.classes_) != len(block):
            raise ValueError(
                f"X has scores for {len(block)} classes, y has {len(self.classes_)}: name all of them, in the order of the "
                "columns, with classes="
            )
        number = {value: k for k, value in enumerate(self.classes_.tolist())}
        strange = sorted(set(labels.tolist()) - set(number))
        if strange:
            raise ValueError(f"label {strange[0]!r} is none of the classes {self.classes_.tolist()}")
        targets = torch.tensor([number[value] for value in labels.tolist()])
        self.kind_ = infer_score_type(score_type_name(self.kind), block, "X")
        logits = torch.from_numpy(np.ascontiguousarray(self.kind_.logits(block, "X").T))
        everyone = torch.ones(len(targets), dtype=torch.bool)
        out = Outputs(logits, Data(y=targets, val_mask=everyone, num_nodes=len(targets)))
        (*_, fitted) = fit(out, [self.calibrator]).fitted.values()  # after "none"
        self.calibration_ = fitted[0].calibration
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return calibrated probabilities (n, C)."""
        check_is_fitted(self, "calibration_")
        block = self._block(validate_data(self, X, reset=False, **self._checks()))
        probs, _ = calibrated_block(self.calibration_, self.kind_.logits(block, "X"))
        rows = probs.T.astype(np.float64)
        normalised: np.ndarray = rows / rows.sum(1, keepdims=True)
        return normalised

    def predict(self, X: Any) -> np.ndarray:
        """Return the class (n,) of the highest probability."""
        probs = self.predict_proba(X)
        winners: np.ndarray = self.classes_[probs.argmax(1)]
        return winners

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that probabilities cannot be negative."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = score_type_name(self.kind) == "probs"
        return tags

    def _checks(self) -> dict[str, Any]:
        finite = score_type_name(self.kind) != "log-probs"  # where -inf is a probability of zero
        return {"dtype": (np.float64, np.float32), "ensure_all_finite": finite}

    def _block(self, scores: np.ndarray) -> np.ndarray:
        if scores.shape[1] == 1:
            return both_classes(scores[:, 0], score_type_name(self.kind))
        return np.ascontiguousarray(scores.T)
