"""`CalibratedScores`: a scikit-learn estimator that scikit-learn itself can use."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict, cross_val_score

from graphcal.tables.estimator import CalibratedScores

from engine_files import predictions, softmax  # isort: skip

Z, Y = predictions(800, C=3)
NAMES = np.array(["spam", "ads", "ham"])  # not sorted


def test_it_calibrates_in_cross_validation():
    before = cross_val_score(CalibratedScores("none", kind="logits"), Z, Y, scoring="neg_log_loss")
    after = cross_val_score(CalibratedScores("ts", kind="logits"), Z, Y, scoring="neg_log_loss")
    assert after.mean() > before.mean() + 0.1
    probs = cross_val_predict(CalibratedScores("isotonic"), softmax(Z.astype(float)), Y, method="predict_proba")
    np.testing.assert_allclose(probs.sum(1), 1)


def test_classes_keep_the_order_of_the_columns():
    model = CalibratedScores("ts", kind="logits", classes=list(NAMES)).fit(Z, NAMES[Y])
    assert model.predict(Z).tolist() == NAMES[Z.argmax(1)].tolist()
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(ValueError, match="X has scores for 3 classes, y has 2"):
        CalibratedScores("ts", kind="logits").fit(Z, Y > 0)
    with pytest.raises(ValueError, match="label 'eggs' is none of the classes"):
        CalibratedScores("ts", kind="logits", classes=list(NAMES)).fit(Z[:2], np.array(["spam", "eggs"]))
    with pytest.raises(ValueError, match="scores for 2 classes, the calibrator was fitted on 3"):
        model.predict_proba(Z[:, :2])


def test_one_column_is_the_second_class():
    p = softmax(Z.astype(float))[:, 0]
    model = CalibratedScores("ts").fit(p[:, None], Y == 0)
    assert model.classes_.tolist() == [False, True]
    found = model.predict_proba(p[:, None])
    assert (np.argsort(found[:, 1]) == np.argsort(p)).mean() > 0.99
