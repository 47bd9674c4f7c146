"""Without a terminal, progress is a line per stage and one now and then."""

import io

from rich.console import Console

from graphcal.cli import progress


def lines_of(monkeypatch, calls, seconds):
    clock = iter(seconds)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    text = io.StringIO()
    with progress.ProgressBar(Console(file=text, width=100)) as report:
        for call in calls:
            report(*call)
    return text.getvalue().splitlines()


def test_a_log_gets_a_line_per_stage_and_one_every_half_minute(monkeypatch):
    calls = [("training, 3 left", 1, 9), ("training, 2 left", 2, 9), ("training, 1 left", 3, 9), ("fitting", 0, 2)]
    lines = lines_of(monkeypatch, calls, [0.0, 3.0, 5.0, 40.0, 41.0])
    assert [line.split("s  ")[1] for line in lines] == [
        "training, 3 left (1/9)",
        "training, 1 left (3/9)",
        "fitting (0/2)",
    ]


def test_what_is_done_in_a_moment_leaves_no_line(monkeypatch):
    assert lines_of(monkeypatch, [("reading", 0, 1), ("scoring", 0, 1)], [0.0, 0.5, 1.5]) == []
