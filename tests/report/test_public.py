"""`cenie.report` from Python, as its page says."""

import re
import subprocess
import sys

from cenie import report
from tests.pages import DOCS
from tests.report.synthetic import write_run


def test_the_page_about_reports_runs_without_a_backend_and_without_matplotlib(tmp_path):
    write_run(tmp_path / "runs/a", "dr", points=0)
    (snippet,) = re.findall(r"```python\n(.*?)```", (DOCS / "guides/report.md").read_text(), re.DOTALL)
    code = (
        f"import sys\n{snippet}\n"
        "from jax._src import xla_bridge\nprint('matplotlib' in sys.modules, len(xla_bridge._backends))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "dr [0]" in done.stdout
    assert "'IQM': Estimate(value=" in done.stdout
    assert done.stdout.splitlines()[-1] == "False 0"


def test_public_names_are_there():
    assert {"write_report", "open_runs", "group_runs", "suite_scores", "Options"} <= set(dir(report))
    assert report.iqm.__module__ == "cenie.report.measure.stats"
