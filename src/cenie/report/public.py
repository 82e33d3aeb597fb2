# mypy: implicit-reexport
"""The public names of `cenie.report`, each once, with its home."""

from cenie.report.build import DomainReport, Report, write_report
from cenie.report.measure.comparable import comparability
from cenie.report.measure.coverage import measure_coverage
from cenie.report.measure.curves import evaluation_curves, metric_curve
from cenie.report.measure.scores import GroupScores, SuiteScores, suite_scores
from cenie.report.measure.stats import aggregate, iqm
from cenie.report.page.write import write_page
from cenie.report.runs import Group, group_runs, open_runs
from cenie.report.writer import Item, Options
from cenie.rundir.evaluations import Episodes
from cenie.rundir.run import Run, open_run
