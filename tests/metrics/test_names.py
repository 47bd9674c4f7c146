"""The one table of metrics: keys, units, directions, and how values are shown."""

import pytest

from graphcal.metrics.measurement import EXTRAS
from graphcal.metrics.names import METRICS, metric_of
from graphcal.metrics.scores import SCORES


def test_everything_that_is_measured_has_a_name():
    parts = ("interval", "blocks", "calibration", "refinement", "error")
    plain = [key for key in EXTRAS if not key.endswith(parts)]
    assert {*SCORES, *plain} <= set(METRICS)
    assert all(key == metric.key and metric.meaning for key, metric in METRICS.items())


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("ece", 0.12345, "12.35"),
        ("nll", 0.9, "0.9000"),
        ("fit_seconds", 2.0, "2 s"),
        ("fit_seconds", 0.0021, "2.1 ms"),
        ("ece", None, "–"),
    ],
)
def test_values_are_shown_in_their_unit(key, value, text):
    assert METRICS[key].text(value) == text


def test_signs_digits_and_headings():
    assert METRICS["signed_gap"].text(0.0123, digits=1, sign=True) == "+1.2"
    assert METRICS["ece"].heading == "ECE %"
    assert METRICS["nll"].heading == "NLL"


def test_costs_are_smaller_for_better_values():
    assert METRICS["accuracy"].cost(0.8) < METRICS["accuracy"].cost(0.7)
    assert METRICS["ece"].cost(0.1) < METRICS["ece"].cost(0.2)
    assert METRICS["signed_gap"].cost(-0.01) < METRICS["signed_gap"].cost(0.02)


def test_an_unknown_metric_lists_the_choices():
    with pytest.raises(ValueError, match="unknown metric 'conf'; choose among accuracy, confidence"):
        metric_of("conf")
