"""The report: one self-contained page from the record of a study, its words, and a model card. Measures nothing.

    import graphcal
    graphcal.report(results)                      # a notebook cell shows the page
    graphcal.report("graphcal-report/results.json").write("report.html")

`results` is the record of `graphcal run` (a dictionary, or a path to its results.json), or several of them.
"""

from graphcal.records import read_results
from graphcal.reports.cards import model_card
from graphcal.reports.html import ReportPage, build, combine, report
from graphcal.reports.wording import advice, verdict

__all__ = ["ReportPage", "advice", "build", "combine", "model_card", "read_results", "report", "verdict"]
