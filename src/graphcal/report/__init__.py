"""The report: one self-contained page from plain results."""

from graphcal.report.build import build, write
from graphcal.report.data import method_data, report_data

__all__ = ["build", "method_data", "report_data", "write"]
