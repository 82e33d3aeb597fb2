"""The host loop: run chunks of training cycles, write what happened, evaluate, checkpoint, stop well."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cenie import __version__, settings
from cenie.envs.base import Suite
from cenie.experiment.build import Parts, place
from cenie.experiment.config import CHANGES_BITS, Config
from cenie.experiment.devices import unused_devices
from cenie.experiment.evaluate import evaluate
from cenie.experiment.rows import level_scores, suite_mean
from cenie.rundir import checkpoint
from cenie.rundir.documents import write_config, write_divergence, write_summary
from cenie.rundir.evaluations import read_evaluations
from cenie.rundir.files import RunDirectory, RunDirectoryError, differing_settings
from cenie.rundir.levels import is_recorded
from cenie.rundir.plays import PLAYS, Plays, newest, only, plays_bytes, plays_of
from cenie.rundir.resume import CheckpointFacts, Decay, check_own, check_unused
from cenie.rundir.run_tables import RunTables, changed_tables, open_tables
from cenie.rundir.snapshot_arrays import snapshot_arrays
from cenie.system.signals import GracefulStop
from cenie.teach.cycle import Counters, TrainState
from cenie.teach.recording import PointSample
from cenie.training.progress import Progress
from cenie.training.sinks import Sinks, make_sinks
from cenie.training.start import Built, Counts, Start, begun, build_all, resumed
from cenie.training.warnings import Watch, remedy, too_short
from cenie.xla.cache import kept_programs, unusable_cache
from cenie.xla.devices import in_any_process, is_writer, to_host
from cenie.xla.platform_facts import differing_facts, environment_facts


class TrainingDiverged(Exception):
    """Too many updates in a row had a non-finite loss or gradient."""


@dataclass
class _Run:
    """The open files and the clocks of a running training."""

    built: Built
    directory: RunDirectory
    progress: Progress
    suite: Suite
    state: TrainState
    tables: RunTables
    sinks: Sinks
    watch: Watch
    deviations: list[str]
    failed_checkpoints: int = 0
    points: PointSample | None = None
    """Points of the newest chunk of cycles."""
    plays: list[Plays] = field(default_factory=list)
    """For each level buffer the newest play of each of its levels; none if there are no snapshots."""

    @property
    def config(self) -> Config:
        return self.built.config

    @property
    def steps_per_rollout(self) -> int:
        return self.config.student.num_levels * self.config.student.num_steps

    def env_steps(self, counters: Counts) -> int:
        """Environment steps of the students so far."""
        return counters.rollouts * self.steps_per_rollout

    def is_over(self, counters: Counts) -> bool:
        return self.config.is_over(counters.updates, self.env_steps(counters))


def train(
    config: Config,
    directory: RunDirectory,
    progress: Progress,
    *,
    resume: bool,
    decay: Decay | None = None,
    parts: Parts | None = None,
) -> bool:
    """Train until the config's number of updates.

    Everything needed to go on is in the run directory after every checkpoint, but `parts` from Python.

    Args:
        config: of the run.
        directory: where the run is, or is to be.
        progress: hears how far it is, and what a user should know.
        resume: go on with the run that is there, if there is one.
        decay: for runs that were made longer; None keeps the learning rate's schedule, and says so if that
            matters.
        parts: what is passed from Python. None means that no script is there at all, as on the command line.

    Returns:
        True if it got there, False if it was told to stop.

    Raises:
        RunDirectoryError: the directory is not this run's; nothing is touched then.
        TrainingDiverged: too many updates in a row were not finite.
    """
    if resume:
        check_own(config, directory)
    elif is_writer():
        check_unused(directory)
    with (
        kept_programs() as kept,
        _where_to_write(directory) as own,
        own.lock() as note,
        GracefulStop() as stop,
    ):
        if note:
            progress.note(note)
        if kept is None and (message := unusable_cache(os.environ)):
            progress.note(message)
        built = build_all(config, parts, kept)
        start = (
            resumed(built, directory, progress, decay=decay, parts=parts, kept=kept)
            if resume
            else begun(built, own)
        )
        run = _open(start, own, progress)
        try:
            return _train(run, stop)
        finally:
            run.sinks.close()


@contextlib.contextmanager
def _where_to_write(directory: RunDirectory) -> Iterator[RunDirectory]:
    """The run directory, for the one process that writes; the others write where nobody looks.

    So they all do the same, whatever a run writes: a process that took a short cut would leave the others
    waiting for it.
    """
    if is_writer():
        yield directory
    else:
        with tempfile.TemporaryDirectory(prefix="cenie-") as path:
            yield RunDirectory(Path(path))


def _open(start: Start, directory: RunDirectory, progress: Progress) -> _Run:
    """Open the files of a run, and tell what its user should know."""
    built, config = start.built, start.built.config
    setup, curriculum = built.setup, built.setup.curriculum
    longest = setup.environment.max_steps
    for message in too_short(curriculum, config.student.num_steps, longest):
        progress.note(message)
    are_cores = jax.default_backend() == "cpu"
    for message in unused_devices(config, jax.device_count(), are_cores=are_cores):
        progress.note(message)
    write_config(directory.config, config)
    tables = open_tables(directory, start.cycle)
    deviations = [] if start.facts is None else list(start.facts.deviations)
    # After cycle 0 there is nothing to keep: the tables begin anew.
    if start.facts is not None and start.cycle:
        for message in _new_deviations(config, start.facts, tables):
            progress.note(f"this run is not bit-exact: {message}")
            deviations.append(f"after cycle {start.cycle}: {message}")
    keeps_plays = curriculum.replay is not None and config.run.recorded_evaluations
    return _Run(
        built=built,
        directory=directory,
        progress=progress,
        suite=built.domain.suites[config.run.suite](),
        state=place(setup, start.state),
        tables=tables,
        sinks=make_sinks(config.run.sinks, directory.path, settings.to_data(config), progress.note),
        watch=Watch(curriculum.replay, remedy(longest)),
        deviations=deviations,
        plays=(start.plays or [{} for _ in range(curriculum.buffers)]) if keeps_plays else [],
    )


def _new_deviations(config: Config, facts: CheckpointFacts, tables: RunTables) -> list[str]:
    """Why the run from here on is not the one that would have come without an interruption."""
    lines = differing_facts(facts.environment, environment_facts())
    lines += differing_settings(facts.settings, settings.to_data(config), only=CHANGES_BITS)
    return lines + changed_tables(facts.rows, tables.rows())


def _train(run: _Run, stop: GracefulStop) -> bool:
    """Chunks of cycles until the run is over or told to stop; whether it is over."""
    counters = Counts.of(run.state.counters)
    if not run.is_over(counters):
        run.built.cycles.programs(run.state)
    elif counters.cycles == 0:
        _evaluate(run, counters, run.state, final=False)
    while not run.is_over(counters) and not in_any_process(stop.requested):
        counters = _chunk(run, counters)
    if not run.is_over(counters):
        _checkpoint(run, counters)
        return False
    _finish(run, counters)
    return True


def _chunk(run: _Run, before: Counts) -> Counts:
    """A few cycles, then whatever is due: rows, an evaluation, a checkpoint."""
    began, first = time.perf_counter(), run.state
    run.state, history, metrics, record = run.built.cycles(
        first, run.config.updates, _next_cycles(run, before)
    )
    run.points = record.points
    rows = list(_metrics_rows(history, metrics, before, run.steps_per_rollout))
    counters = Counts.of(history, (-1,))
    seconds = time.perf_counter() - began
    steps = run.env_steps(counters) - run.env_steps(before)
    _write_rows(run, rows, record.levels)
    run.tables.timing.write(
        [{"cycle": counters.cycles, "seconds": seconds, "steps_per_second": steps / seconds}]
    )
    for row in rows:
        run.sinks.log(row)
        _watch(run, row)
    run.progress.advance(
        counters.updates, run.env_steps(counters), steps / seconds, rows[-1], run.suite.measure
    )
    if before.cycles == 0:
        # Only now, so that the first cycles are seen before the first evaluation is played.
        _evaluate(run, before, first, final=False)
    _stop_if_diverged(run, counters)
    finished = run.is_over(counters)
    if finished or _crossed(before.updates, counters.updates, run.config.run.evaluate_every):
        _evaluate(run, counters, run.state, final=finished)
    if finished or _crossed(before.updates, counters.updates, run.config.run.checkpoint_every):
        _checkpoint(run, counters)
    return counters


def _next_cycles(run: _Run, counters: Counts) -> int:
    """The number of cycles in the next chunk: no more than are left of the environment steps, if limited."""
    chunk, env_steps = run.config.run.cycles_per_chunk, run.config.run.env_steps
    if env_steps is None:
        return chunk
    left = env_steps - run.env_steps(counters)
    return min(chunk, -(-left // (run.built.setup.curriculum.students * run.steps_per_rollout)))


def _metrics_rows(
    history: Counters, metrics: dict[str, np.ndarray], before: Counts, steps_per_rollout: int
) -> Iterable[dict[str, Any]]:
    """One row for each cycle that was run; deterministic, so without any clock."""
    for index in range(history.cycles.shape[0]):
        now = Counts.of(history, (index,))
        if now.cycles == before.cycles:
            return
        before = now
        yield {
            "cycle": now.cycles,
            "updates": now.updates,
            "rollouts": now.rollouts,
            "env_steps": now.rollouts * steps_per_rollout,
            **{name: values[index].item() for name, values in sorted(metrics.items())},
        }


def _write_rows(run: _Run, rows: list[dict[str, Any]], levels: Mapping[str, Any]) -> None:
    """Write the rows of the cycles of a chunk, which are the first ones of the columns of its levels."""
    run.tables.metrics.write(rows)
    cycles, updates = ([row[name] for row in rows] for name in ("cycle", "updates"))
    chosen = [
        index for index, cycle in enumerate(cycles) if is_recorded(cycle, run.config.run.recorded_cycles)
    ]
    if chosen:
        kept = {name: values[chosen] for name, values in levels.items()}
        run.tables.levels.write([cycles[index] for index in chosen], kept)
    # Of the newest plays all cycles count, whether they are recorded or not.
    for number, before in enumerate(run.plays):
        run.plays[number] = newest(before, plays_of(levels, cycles, updates, number))


def _watch(run: _Run, row: dict[str, Any]) -> None:
    """Warn of what silently spoils a curriculum."""
    unscored, equal = row.get("teacher/unscored", 0), row.get("teacher/equal_scores", False)
    for message in run.watch.look(run.config.student.num_levels, unscored, equal):
        run.progress.note(message)


def _stop_if_diverged(run: _Run, counters: Counts) -> None:
    limit = run.config.student.ppo.max_bad_updates
    in_a_row = max(int(student.bad_in_a_row) for student in run.state.students)
    if in_a_row >= limit:
        dump = write_divergence(run.directory, counters.cycles, counters.updates, in_a_row)
        raise TrainingDiverged(
            f"{in_a_row} updates in a row had a non-finite loss or gradient (limit {limit}, "
            f"student.ppo.max_bad_updates); the last checkpoint is from before; see {dump}"
        )


def _evaluate(run: _Run, counters: Counts, state: TrainState, *, final: bool) -> None:
    """Play the held-out levels, write what came of it, and keep a snapshot."""
    config, suite = run.config.run, run.suite
    with run.progress.evaluation(suite.name) as on_progress:
        rows = evaluate(
            run.built.domain,
            state.student.network,
            suite,
            episodes=config.final_episodes if final else config.episodes,
            seed=config.evaluation_seed,
            mesh=run.built.setup.mesh,
            progress=on_progress,
        )
    run.tables.evaluations.write(counters.cycles, counters.updates, run.env_steps(counters), rows)
    score = suite_mean(level_scores(rows))
    run.sinks.log({"cycle": counters.cycles, f"{suite.measure}/{suite.name}": score})
    run.progress.evaluated(counters.updates, suite.name, suite.measure, score)
    _record_snapshot(run, counters, final=final)


def _record_snapshot(run: _Run, counters: Counts, *, final: bool) -> None:
    """Write the snapshot of an evaluation; before the first cycle, and at many late ones, there is none."""
    number, full = counters.updates // run.config.run.evaluate_every, run.config.run.recorded_evaluations
    if not (counters.cycles and full and (final or is_recorded(number, full))):
        return
    arrays = snapshot_arrays(run.built.setup, run.state.teacher, run.points, run.plays)
    if arrays:
        now = {"cycle": np.asarray(counters.cycles), "updates": np.asarray(counters.updates)}
        run.tables.snapshots.write(counters.cycles, now | arrays)


def _checkpoint(run: _Run, counters: Counts) -> None:
    """Write a checkpoint; a full disk costs the checkpoint, not the run, unless it is the last one."""
    facts = CheckpointFacts(
        version=__version__,
        updates=counters.updates,
        env_steps=run.env_steps(counters),
        settings=settings.to_data(run.config),
        environment=environment_facts(),
        rows=run.tables.rows(),
        bit_exact=not run.deviations,
        deviations=run.deviations,
    )
    run.tables.sync()
    _drop_plays(run)
    try:
        checkpoint.save(
            run.directory.checkpoints,
            run.state,
            step=counters.cycles,
            facts=facts.to_data(),
            keep=run.config.run.keep_checkpoints,
            beside={PLAYS: plays_bytes(run.plays)} if run.plays else {},
        )
    except checkpoint.CheckpointError as error:
        if run.is_over(counters):
            raise
        run.failed_checkpoints += 1
        run.progress.note(f"checkpoint not written ({error}); training goes on")


def _drop_plays(run: _Run) -> None:
    """Forget the levels that are stored no more."""
    if run.plays:
        ids = to_host([buffer.ids for buffer in run.state.teacher.buffers])
        run.plays = [only(each, own) for each, own in zip(run.plays, ids, strict=True)]


def _finish(run: _Run, counters: Counts) -> None:
    """Say what the run came to, and write it down."""
    config, suite = run.config, run.config.run.suite
    untrained, trained = _scores_of(run, 0), _scores_of(run, counters.cycles)
    notes = [
        f"{run.directory.evaluations.name} has no evaluation on {suite} {when} training"
        for scores, when in ((untrained, "before"), (trained, "after"))
        if not scores
    ]
    run.deviations += changed_tables(run.tables.rows(), run.tables.found())
    for message in (*notes, *(f"not bit-exact: {reason}" for reason in run.deviations)):
        run.progress.note(message)
    summary = {
        "version": __version__,
        **{name: getattr(config, name) for name in ("domain", "method", "preset", "seed")},
        "cycles": counters.cycles,
        "updates": counters.updates,
        "env_steps": run.env_steps(counters),
        "suite": suite,
        "measure": run.suite.measure,
        "untrained": untrained,
        "trained": trained,
        "failed_checkpoints": run.failed_checkpoints,
        "bit_exact": not run.deviations,
        "deviations": run.deviations,
        "notes": notes,
    }
    write_summary(run.directory.summary, summary)
    run.progress.finished(run.directory.path, suite, run.suite.measure, untrained, trained)


def _scores_of(run: _Run, cycle: int) -> dict[str, float]:
    """The score on each level at an evaluation, from the table: the first one may have been made before a
    resume. Empty if the table does not have it any more."""
    try:
        episodes = read_evaluations(run.directory.evaluations)
    except RunDirectoryError:
        return {}
    return episodes.after(cycle).of(run.config.run.suite).level_means()


def _crossed(before: int, after: int, every: int) -> bool:
    return before // every < after // every
