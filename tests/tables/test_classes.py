"""Labels by the numbers of their classes: every type of column, and only the values that rows really have."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcal.tables.classes import Classes, class_numbers, distinct

ABC = Classes(("a", "b", "c"))
NUMBERED = Classes.numbered(3)


@pytest.mark.parametrize(
    ("column", "classes", "numbers"),
    [
        (pa.array(["b", None, " a", "", "c"]), ABC, [1, -1, 0, -1, 2]),
        (pa.array(["b", "a"], pa.string_view()), ABC, [1, 0]),
        (pa.chunked_array([["b"], ["a", "b"]]), ABC, [1, 0, 1]),
        (pa.chunked_array([], pa.string()), ABC, []),
        (pa.array([None, None]), ABC, [-1, -1]),
        (pa.array([2, 0, -1, None]), NUMBERED, [2, 0, -1, -1]),
        (pa.array([2.0, np.nan, 1.0]), NUMBERED, [2, -1, 1]),
        (pa.array([True, None, False]), Classes(("False", "True")), [1, -1, 0]),
        (pa.array(["02", "1"]), NUMBERED, [2, 1]),
        (pa.array(["B", "a"]), ABC, [1, 0]),
        (pa.DictionaryArray.from_arrays([1, None, 0], ["a", "c", "strange"]), ABC, [2, -1, 0]),  # a value of no row
        (pa.DictionaryArray.from_arrays([1, 0], ["x", "y"]), Classes(("y", "x")), [0, 1]),
    ],
)
def test_labels_of_every_type_find_their_class(column, classes, numbers):
    places = class_numbers(column, classes, "labels.parquet", "label")
    assert places.dtype == np.int64
    assert places.tolist() == numbers


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", "x"]), "label 'x' in column 'label' is none of the classes"),
        (pa.array([[1], [2]]), "must hold class numbers or names, found list"),
        (pa.array([0.5, 1.0]), "must hold class numbers or names, got 0.5"),
    ],
)
def test_what_is_no_class_is_refused(column, message):
    with pytest.raises(ValueError, match=message):
        class_numbers(column, ABC, "labels.parquet", "label")


@pytest.mark.slow
@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_distinct_values_and_their_places_give_the_column_back(values):
    once, places = distinct(pa.array(values, pa.string()))
    originals = [*once.to_pylist(), None]
    assert [originals[k] for k in places] == values
    assert len(set(once.to_pylist())) == len(once)
