"""`cenie evaluate`: play a suite with the newest students of a run directory."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cenie.envs.base import Domain, Suite
from cenie.envs.suite_files import file_suite_name
from cenie.experiment.build import Parts, build, place
from cenie.experiment.config import Config, EvaluationRequest, read_suite_file
from cenie.experiment.evaluate import evaluate, level_scores, suite_mean
from cenie.rundir import checkpoint
from cenie.rundir.asked import asked_for, write_record
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.rundir.metrics import Evaluation, write_evaluations
from cenie.rundir.names import file_name
from cenie.rundir.resume import check_belongs
from cenie.rundir.worst import WORST, worst_levels
from cenie.system.streams import printable
from cenie.teach.cycle import TrainState, state_shapes
from cenie.xla.cache import kept_programs


def evaluate_run(
    config: Config,
    directory: RunDirectory,
    request: EvaluationRequest,
    parts: Parts | None = None,
    *,
    quiet: bool = False,
) -> list[Evaluation]:
    """Evaluate, print the scores, and write one row per episode beside the run's own table.

    Every checkpoint plays the same levels, and the printed scores are means over the checkpoints.
    """
    console = Console(quiet=quiet)
    asked = asked_for(config, request)
    domain, setup = build(config, parts)
    suite = _suite(domain, request.suite)
    found = checkpoint.newest_first(
        directory.checkpoints, state_shapes(setup), functools.partial(check_belongs, config)
    )
    played: list[Evaluation] = []
    with kept_programs(), console.status(_plain(f"playing {suite.name}")) as status:
        for loaded in itertools.islice(found, request.checkpoints):
            for message in loaded.skipped:
                console.print(printable(message), style="yellow", markup=False, soft_wrap=True)
            state = place(setup, loaded.tree)
            updates = int(state.counters.updates)
            rows = evaluate(
                domain,
                state.student.network,
                suite,
                episodes=request.episodes,
                seed=request.seed,
                mesh=setup.mesh,
                progress=lambda done, total, updates=updates: status.update(
                    _plain(f"{suite.name} after {updates} updates: {done} of {total} episodes")
                ),
            )
            played.insert(0, Evaluation(loaded.step, updates, _env_steps(config, state), rows))
    if not played:
        raise RunDirectoryError(f"{directory.path} has no checkpoint to evaluate")
    if len(played) < request.checkpoints:
        console.print(f"only {len(played)} of {request.checkpoints} checkpoints are there", style="yellow")
    # Printed first: what was played must not be lost to a full disk.
    console.print(score_table(suite, played))
    table = f"evaluation-{file_name(suite.name)}-seed{request.seed}-cycle{played[-1].cycle}.csv"
    path = directory.path / table
    write_evaluations(path, played)
    write_record(path, asked, played[-1].cycle)
    console.print(f"rows: {printable(str(path))}", markup=False, highlight=False, soft_wrap=True)
    return played


def _suite(domain: Domain, name: str) -> Suite:
    """The suite of a name, or in a file, which was found good before.

    Whatever a domain calls a suite in a file, its rows are not to be taken for those of another suite.
    """
    if name in domain.suites:
        return domain.suites[name]()
    assert domain.suite_of_file is not None
    content = read_suite_file(name)
    suite = domain.suite_of_file(name, content)
    return dataclasses.replace(suite, name=file_suite_name(name, content))


def _env_steps(config: Config, state: TrainState) -> int:
    return int(state.counters.rollouts) * config.student.num_levels * config.student.num_steps


def score_table(suite: Suite, played: Sequence[Evaluation]) -> Table:
    """The scores of each level, averaged over the checkpoints; of a large suite also its worst part."""
    updates = ", ".join(str(each.updates) for each in played)
    table = Table("held-out level", suite.measure, title=_plain(f"{suite.name} after {updates} updates"))
    scores = [level_scores(each.rows) for each in played]
    means = {level: sum(each[level] for each in scores) / len(scores) for level in scores[0]}
    for level, score in means.items():
        table.add_row(_plain(level), f"{score:.2f}")
    table.add_section()
    table.add_row("mean", f"{suite_mean(means):.3f}")
    rows = [row for each in played for row in each.rows]
    worst = worst_levels([(row.level, row.variant) for row in rows], [row.score for row in rows])
    if worst is not None:
        table.add_row(f"worst {WORST:.0%} of {len(suite.entries)} levels (CVaR)", f"{worst:.3f}")
    return table


def _plain(text: str) -> Text:
    """As it is: the name of a suite or level may look like the markup of terminals."""
    return Text(printable(text))
