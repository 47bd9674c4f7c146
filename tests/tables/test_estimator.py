"""`CalibratedScores`: a scikit-learn estimator that scikit-learn itself can use."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from graphcal.tables.estimator import CalibratedScores

from engine_files import predictions, softmax  # isort: skip

Z, Y = predictions(800, C=3)
NAMES = np.array(["spam", "ads", "ham"])  # not sorted

# scikit-learn's checks that fit features: their X has another number of columns than there are classes. What they check is
# checked below, with one column per class.
OTHER_COLUMNS = (
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
)


def checks():
    for estimator, check in estimator_checks_generator(CalibratedScores(kind="logits")):
        yield pytest.param(estimator, check, id=check.func.__name__)


@pytest.mark.parametrize(("estimator", "check"), checks())
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(estimator, check):
    if check.func.__name__ in OTHER_COLUMNS:
        with pytest.raises((ValueError, AssertionError)):
            check(estimator)
    else:
        check(estimator)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_and_infinite_scores_are_refused(value):
    model = CalibratedScores(kind="logits").fit(Z, Y)
    scores = Z.copy()
    scores[3, 1] = value
    for call in (model.fit, lambda X, y: model.predict(X), lambda X, y: model.predict_proba(X)):
        with pytest.raises(ValueError, match="NaN|infinity"):
            call(scores, Y)


def test_minus_infinity_is_a_log_probability():
    scores = np.log(softmax(Z.astype(float)))
    scores[3] = [-np.inf, np.log(0.5), np.log(0.5)]
    assert np.isfinite(CalibratedScores(kind="log-probs").fit(scores, Y).predict_proba(scores)).all()


def test_types_containers_and_read_only_scores_make_no_difference():
    expected = CalibratedScores(kind="logits").fit(Z.astype(float), Y).predict_proba(Z.astype(float))
    frozen = Z.astype(float)
    frozen.setflags(write=False)
    for scores in (Z.astype(object), Z.tolist(), frozen):
        model = CalibratedScores(kind="logits")
        assert model.fit(scores, Y) is model
        assert model.n_features_in_ == 3
        np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict_proba(scores), expected, atol=1e-6)


def test_it_ends_a_pipeline():
    scaled = StandardScaler().fit_transform(Z)
    alone = CalibratedScores(kind="logits").fit(scaled, Y).predict_proba(scaled)
    pipeline = make_pipeline(StandardScaler(), CalibratedScores(kind="logits")).fit(Z, Y)
    np.testing.assert_allclose(pipeline.predict_proba(Z), alone)


def test_negative_probabilities_and_unfitted_models_are_refused():
    with pytest.raises(ValueError, match="must lie in 0..1"):
        CalibratedScores().fit(Z, Y)
    with pytest.raises(NotFittedError):
        CalibratedScores().predict(Z)


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
    with pytest.raises(ValueError, match="X has 2 features, but CalibratedScores is expecting 3"):
        model.predict_proba(Z[:, :2])


def test_one_column_is_the_second_class():
    p = softmax(Z.astype(float))[:, 0]
    model = CalibratedScores("ts").fit(p[:, None], Y == 0)
    assert model.classes_.tolist() == [False, True]
    probs = model.predict_proba(p[:, None])
    assert (np.argsort(probs[:, 1]) == np.argsort(p)).mean() > 0.99
