"""Making the next batch while one is written."""

import threading

import pytest

from graphcal.tables.scoring import prefetch


def test_items_come_in_order_and_the_next_is_made_while_one_is_used():
    made = [threading.Event() for _ in range(4)]

    def items():
        for k in range(4):
            made[k].set()
            yield k

    seen = []
    for item in prefetch(items()):
        assert item == 3 or made[item + 1].wait(5)  # nobody asked for it yet
        assert item > 1 or not made[item + 2].is_set()  # and never more than one, which would take memory
        seen.append(item)
    assert seen == [0, 1, 2, 3]
    assert list(prefetch(iter([]))) == []


def test_a_fault_while_making_comes_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("row 7 is not a number")

    coming = prefetch(items())
    assert next(coming) == 1
    with pytest.raises(ValueError, match="row 7"):
        next(coming)


def test_whoever_stops_early_leaves_no_thread_behind():
    before = threading.active_count()
    coming = prefetch(iter(range(100)))
    assert next(coming) == 0
    assert threading.active_count() == before + 1
    coming.close()
    assert threading.active_count() == before
