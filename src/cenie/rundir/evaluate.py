"""`cenie evaluate`: play a suite with the newest students of a run directory, or with an exported one."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jax.sharding import Mesh
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cenie.envs.base import Domain, Suite
from cenie.envs.suite_files import file_suite_name
from cenie.experiment.build import Parts, build, place
from cenie.experiment.config import Config, EvaluationRequest, read_suite_file
from cenie.experiment.evaluate import evaluate
from cenie.experiment.rows import suite_mean
from cenie.rundir import checkpoint
from cenie.rundir.asked import asked_for, write_record
from cenie.rundir.evaluations import Episodes, Evaluation, episodes_of, write_evaluations
from cenie.rundir.files import RunDirectory, RunDirectoryError, file_name
from cenie.rundir.resume import check_belongs
from cenie.rundir.worst import WORST, worst_levels
from cenie.student.networks.base import Network
from cenie.system.streams import printable
from cenie.teach.cycle import Setup, state_shapes
from cenie.xla.cache import kept_programs


@dataclass(frozen=True)
class Player:
    """A student that plays held-out levels: how far its run was, and what its user should know."""

    cycle: int
    updates: int
    env_steps: int
    network: Network
    notes: Sequence[str] = ()


def evaluate_run(
    config: Config,
    directory: RunDirectory,
    request: EvaluationRequest,
    parts: Parts | None = None,
    *,
    quiet: bool = False,
) -> Episodes:
    """Evaluate, print the scores, and write one row per episode beside the run's own table.

    Every checkpoint plays the same levels, and the printed scores are means over the checkpoints.

    Args:
        config: of the run.
        directory: of the run; its checkpoints are played, and the table is written there.
        request: what to play, which was found good (`check_evaluation`).
        parts: what the run was begun with in Python, if anything.
        quiet: print nothing.

    Returns:
        What was written, the oldest checkpoint first.

    Raises:
        RunDirectoryError: there is no checkpoint to evaluate.
        WriteError: the disk refuses the table.
    """
    domain, setup = build(config, parts)
    players = _newest_students(config, directory, setup)
    return evaluate_players(
        players, config, request, directory=directory.path, domain=domain, mesh=setup.mesh, quiet=quiet
    )


def _newest_students(config: Config, directory: RunDirectory, setup: Setup) -> Iterator[Player]:
    """The students of the checkpoints, the newest one first."""
    belongs = functools.partial(check_belongs, config)
    for loaded in checkpoint.newest_first(directory.checkpoints, state_shapes(setup), belongs):
        state = place(setup, loaded.tree)
        steps = int(state.counters.rollouts) * config.student.num_levels * config.student.num_steps
        yield Player(loaded.step, int(state.counters.updates), steps, state.student.network, loaded.skipped)


def evaluate_players(
    players: Iterable[Player],
    config: Config,
    request: EvaluationRequest,
    *,
    directory: Path,
    domain: Domain,
    mesh: Mesh | None,
    quiet: bool,
) -> Episodes:
    """Let students play a suite, print their scores, and write one row per episode to a directory.

    Args:
        players: the newest one first; as many are taken as the request says.
        config: of the run that they are from.
        request: what to play, which was found good.
        directory: where the table is written.
        domain: of the run, built.
        mesh: the devices that share the levels.
        quiet: print nothing.

    Returns:
        What was written, the oldest student first.

    Raises:
        RunDirectoryError: there is none.
        WriteError: the disk refuses the table.
    """
    console = Console(quiet=quiet)
    asked = asked_for(config, request)
    suite = _suite(domain, request.suite)
    played: list[Evaluation] = []
    with kept_programs(), console.status(_plain(f"playing {suite.name}")) as status:
        for player in itertools.islice(players, request.checkpoints):
            for message in player.notes:
                console.print(printable(message), style="yellow", markup=False, soft_wrap=True)
            rows = evaluate(
                domain,
                player.network,
                suite,
                episodes=request.episodes,
                seed=request.seed,
                mesh=mesh,
                progress=lambda done, total, updates=player.updates: status.update(
                    _plain(f"{suite.name} after {updates} updates: {done} of {total} episodes")
                ),
            )
            played.insert(0, Evaluation(player.cycle, player.updates, player.env_steps, rows))
    if not played:
        raise RunDirectoryError(f"{directory} has no checkpoint to evaluate")
    if len(played) < request.checkpoints:
        console.print(f"only {len(played)} of {request.checkpoints} checkpoints are there", style="yellow")
    # Printed first: what was played must not be lost to a full disk.
    episodes = episodes_of(played)
    console.print(score_table(suite, episodes))
    table = f"evaluation-{file_name(suite.name)}-seed{request.seed}-cycle{played[-1].cycle}.csv"
    path = directory / table
    write_evaluations(path, played)
    write_record(path, asked, played[-1].cycle)
    console.print(f"rows: {printable(str(path))}", markup=False, highlight=False, soft_wrap=True)
    return episodes


def _suite(domain: Domain, name: str) -> Suite:
    """The suite of a name, or in a file, which was found good before.

    Whatever a domain calls a suite in a file, its rows are not to be taken for another suite.
    """
    if name in domain.suites:
        return domain.suites[name]()
    assert domain.suite_of_file is not None
    content = read_suite_file(name)
    suite = domain.suite_of_file(name, content)
    return dataclasses.replace(suite, name=file_suite_name(name, content))


def score_table(suite: Suite, episodes: Episodes) -> Table:
    """The scores of each level, averaged over the checkpoints; of a large suite also its worst part."""
    updates = ", ".join(str(number) for number in dict.fromkeys(episodes.updates.tolist()))
    table = Table("held-out level", suite.measure, title=_plain(f"{suite.name} after {updates} updates"))
    means = episodes.level_means()
    for level, score in means.items():
        table.add_row(_plain(level), f"{score:.2f}")
    table.add_section()
    table.add_row("mean", f"{suite_mean(means):.3f}")
    worst = worst_levels(list(zip(episodes.level, episodes.variant, strict=True)), episodes.score)
    if worst is not None:
        table.add_row(f"worst {WORST:.0%} of {len(suite.entries)} levels (CVaR)", f"{worst:.3f}")
    return table


def _plain(text: str) -> Text:
    """As it is: the name of a suite or level may look like the markup of terminals."""
    return Text(printable(text))
