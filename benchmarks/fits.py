"""Fit times of calibrators beside scikit-learn's, in one run on one thread.

    python benchmarks/fits.py                                  # 500 labels x 10 classes and 5,000 x 50
    python benchmarks/fits.py --sizes 5000x150,200000x10 --methods vs,sms

Logits come from a Gaussian linear head with noise. A time is the least processor time of up to five fits. ``/ sklearn`` divides
it by the time of scikit-learn's nearest estimator in the same run: `CalibratedClassifierCV(method="temperature")` on a fitted
model for ts, `LogisticRegressionCV` (5 folds, 7 penalties) for the methods with a matrix or a vector per class.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegressionCV
from threadpoolctl import threadpool_limits
from torch_geometric.data import Data

from graphcal.core import Outputs
from graphcal.methods import CALIBRATORS
from graphcal.threads import one_thread

METHODS = ("ts", "vs", "sms", "ms", "dirichlet", "graph-scaling")


class GivenLogits(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose features are its logits."""

    def __init__(self, classes: int = 2) -> None:
        self.classes = classes
        self.classes_ = np.arange(classes)

    def fit(self, X: np.ndarray, y: np.ndarray) -> GivenLogits:
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X.argmax(1)


def problem(labels: int, classes: int) -> Outputs:
    """Over-confident logits of noisy features, their hidden representation, and a random graph with four edges per node."""
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(labels, 32, generator=g)
    true = hidden @ (0.35 * torch.randn(32, classes, generator=g))
    y = torch.multinomial(true.softmax(1), 1, generator=g)[:, 0]
    y[:classes] = torch.arange(classes)  # scikit-learn needs every class
    edges = torch.randint(labels, (2, 4 * labels), generator=g)
    logits = 1.7 * (true + 0.5 * torch.randn(true.shape, generator=g))
    data = Data(y=y, edge_index=torch.cat([edges, edges.flip(0)], 1), num_nodes=labels)
    return Outputs(logits, data, hidden=hidden)


def least_seconds(job: Callable[[], object], repeats: int = 5, budget: float = 5.0) -> float:
    """Least processor time of up to ``repeats`` calls; no call starts after ``budget`` seconds."""
    times: list[float] = []
    while len(times) < repeats and sum(times) < budget:
        started = time.process_time()
        job()
        times.append(time.process_time() - started)
    return min(times)


def sklearn_seconds(out: Outputs) -> dict[str, float]:
    """Temperature and penalised logistic regression."""
    X, y = out.logits.double().numpy(), out.graph.y.numpy()
    model = FrozenEstimator(GivenLogits(out.num_classes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "temperature": least_seconds(lambda: CalibratedClassifierCV(model, method="temperature").fit(X, y)),
            "logistic": least_seconds(lambda: LogisticRegressionCV(Cs=7, cv=5, scoring="neg_log_loss").fit(X, y)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="500x10,5000x50", help="labels x classes, separated by commas")
    parser.add_argument("--methods", default=",".join(METHODS))
    given = parser.parse_args()
    print("| labels x classes | method | seconds | / sklearn |\n|---|---|---:|---:|")
    with one_thread(), threadpool_limits(1):
        for size in given.sizes.split(","):
            out = problem(*map(int, size.split("x")))
            on, theirs = torch.ones(out.num_nodes, dtype=torch.bool), sklearn_seconds(out)
            for name, seconds in theirs.items():
                print(f"| {size} | sklearn {name} | {seconds:.4f} | 1 |", flush=True)
            for name in given.methods.split(","):
                seconds = least_seconds(lambda name=name, out=out, on=on: CALIBRATORS[name]().fit(out, on))
                ratio = seconds / theirs["temperature" if name == "ts" else "logistic"]
                print(f"| {size} | {name} | {seconds:.4f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
