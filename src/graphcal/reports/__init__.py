"""The report: one self-contained page from plain results.

    import graphcal
    graphcal.report(results)                      # a notebook cell shows the page
    graphcal.report("graphcal-report/results.json").write("report.html")

`results` is the record of `graphcal run` (a dictionary, or a path to its results.json), or several of them.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from graphcal.reports.build import build, write
from graphcal.reports.data import report_data
from graphcal.reports.page import Report, combine, read_results, report

__all__ = ["Report", "build", "combine", "read_results", "report", "report_data", "write"]


class _CallableModule(ModuleType):
    """`graphcal.report(...)` is `graphcal.report.report(...)`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        return report(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
