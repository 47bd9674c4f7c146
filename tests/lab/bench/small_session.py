"""The small preset, computed."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache
from tempfile import TemporaryDirectory

from small_preset import small

from graphcal.lab.bench.contents import table_blocks
from graphcal.lab.bench.document import markdown
from graphcal.lab.bench.engines import Serial
from graphcal.lab.bench.session import Session
from graphcal.lab.bench.tabulation import Table

FOLDERS = ExitStack()
atexit.register(FOLDERS.close)


@cache
def small_session() -> Session:
    """Computed once per test process; the folder goes when the process does."""
    session = Session.of(small(), FOLDERS.enter_context(TemporaryDirectory()))
    session.run(Serial(), lambda: None)
    return session


def text_of(table: Table) -> str:
    return markdown(table_blocks(table))
