"""Reports for people: statistics, tables, figures and a page, made from run directories.

    from cenie import report

    made = report.write_report(["runs"], "report")          # everything, as `cenie report` does
    groups = report.group_runs(report.open_runs(["runs"]).runs)
    scores = report.suite_scores(groups, "cenie8")           # arrays to go on with
    report.aggregate(scores.groups[0].scores)                # IQM, optimality gap, ... with intervals

What is public stands in `cenie/report/public.py`, which is loaded when one of its names is first used.
"""

from typing import TYPE_CHECKING

from cenie.lazy import front_door

if TYPE_CHECKING:
    from cenie.report.public import *
else:
    __getattr__, __dir__ = front_door(__name__)
