"""Show progress: a bar on a terminal, a line every 30 seconds in a log."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

EVERY = 30.0  # seconds between two lines of a log
QUIET = 2.0  # seconds before the first line


class ProgressBar:
    """Follows ``progress(stage, done, total)``."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.console, self.began, self.said_at, self.stage = console, time.monotonic(), 0.0, ""
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("starting", total=None, count="")

    def __enter__(self) -> ProgressBar:
        self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.__exit__(kind, error, trace)

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.bar.update(self.task, description=stage, completed=done, total=total, count=f"{done}/{total}")
        if not self.console.is_terminal:
            self._say(stage, done, total)

    def _say(self, stage: str, done: int, total: int) -> None:
        kind, now = stage.split(",")[0], time.monotonic()
        if now - self.began >= QUIET and (kind != self.stage or now - self.said_at >= EVERY):
            self.stage, self.said_at = kind, now
            self.console.print(f"{now - self.began:5.0f} s  {stage} ({done}/{total})", markup=False, highlight=False)
