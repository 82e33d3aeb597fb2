"""The host loop: run chunks of training cycles, write what happened, evaluate, checkpoint, stop well."""

import contextlib
import functools
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
from cenie.envs.base import Domain, Suite
from cenie.experiment.build import Parts, build, place, program_settings
from cenie.experiment.config import CHANGES_BITS, MAY_CHANGE_ON_RESUME, Config
from cenie.experiment.devices import unused_devices
from cenie.experiment.evaluate import evaluate, level_scores, suite_mean
from cenie.rundir import checkpoint
from cenie.rundir.files import (
    FORMAT,
    RunDirectory,
    RunDirectoryError,
    config_hash,
    differing_settings,
    write_json,
)
from cenie.rundir.levels import Snapshots, cut_snapshots, is_recorded
from cenie.rundir.metrics import EvaluationTable, JsonLines, LevelTable, check_format, cut_after
from cenie.rundir.plays import PLAYS, Plays, newest, only, plays_bytes, plays_of, read_plays
from cenie.rundir.resume import (
    Decay,
    Facts,
    check_belongs,
    check_checkpoints,
    check_own,
    check_unused,
    decay_note,
    decays,
    read_facts,
    with_decay,
)
from cenie.rundir.snapshot import snapshot_arrays
from cenie.system.signals import GracefulStop
from cenie.teach.cycle import Counters, Setup, TrainState, init, state_shapes
from cenie.teach.recording import PointSample
from cenie.training.progress import Progress
from cenie.training.sinks import Sinks, make_sinks
from cenie.training.warnings import Watch, remedy, too_short
from cenie.xla.cache import kept_programs, unusable_cache
from cenie.xla.devices import in_any_process, is_writer, to_host
from cenie.xla.parts import CompiledCycles, init_later
from cenie.xla.platform_facts import differing_facts, environment_facts


class TrainingDiverged(Exception):
    """Too many updates in a row had a non-finite loss or gradient."""


@dataclass(frozen=True)
class Counts:
    """The counters of a run as Python numbers, which do not overflow."""

    cycles: int
    rollouts: int
    updates: int

    @staticmethod
    def of(counters: Counters, index: tuple[int, ...] = ()) -> "Counts":
        values = to_host((counters.cycles, counters.rollouts, counters.updates))
        return Counts(*(int(value[index]) for value in values))


@dataclass
class _Run:
    """The open files and the clocks of a running training."""

    config: Config
    directory: RunDirectory
    progress: Progress
    setup: Setup
    domain: Domain
    suite: Suite
    state: TrainState
    advance: CompiledCycles
    metrics: JsonLines
    timing: JsonLines
    table: EvaluationTable
    levels: LevelTable
    snapshots: Snapshots
    sinks: Sinks
    watch: Watch
    deviations: list[str]
    failed_checkpoints: int = 0
    points: PointSample | None = None
    """Of the newest chunk of cycles."""
    plays: list[Plays] = field(default_factory=list)
    """For each level buffer the newest play of each of its levels; none if there are no snapshots."""

    @property
    def steps_per_rollout(self) -> int:
        return self.config.student.num_levels * self.config.student.num_steps


def train(
    config: Config,
    directory: RunDirectory,
    progress: Progress,
    *,
    resume: bool,
    decay: Decay | None = None,
    parts: Parts | None = None,
) -> bool:
    """Train until the config's number of updates; True if it got there, False if it was told to stop.

    Everything needed to go on is in the run directory after every checkpoint, but `parts` from Python. None
    means that no script is there at all, as on the command line.
    `decay` is for runs that were made longer; None keeps the learning rate's schedule, and says so if that
    matters. Raises `RunDirectoryError`, before anything is touched, if the directory is not this run's.
    """
    if resume:
        check_own(config, directory)
    elif is_writer():
        check_unused(directory)
    with (
        kept_programs() as programs,
        _where_to_write(directory) as own,
        own.lock() as note,
        GracefulStop() as stop,
    ):
        if note:
            progress.note(note)
        if programs is None and (message := unusable_cache(os.environ)):
            progress.note(message)
        run = _open(config, directory, own, progress, parts, programs=programs, resume=resume, decay=decay)
        try:
            counters = Counts.of(run.state.counters)
            if not _is_over(run, counters):
                run.advance.programs(run.state)
            elif counters.cycles == 0:
                _evaluate(run, counters, run.state, final=False)
            while not _is_over(run, counters) and not in_any_process(stop.requested):
                counters = _chunk(run, counters)
            if not _is_over(run, counters):
                _checkpoint(run, counters)
                return False
            _write_summary(run, counters)
            return True
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


@dataclass(frozen=True)
class _Start:
    """Where a run begins or goes on."""

    config: Config
    state: TrainState
    cycle: int
    facts: Facts | None
    plays: list[Plays] | None = None


def _open(
    config: Config,
    source: RunDirectory,
    directory: RunDirectory,
    progress: Progress,
    parts: Parts | None,
    *,
    programs: Path | None,
    resume: bool,
    decay: Decay | None,
) -> _Run:
    """Begin or go on from the checkpoints of `source`, which is `directory` in the process that writes."""
    domain, setup = build(config, parts)
    # A script may have changed our own modules: what it runs is traced.
    kept_in = programs if parts is None else None
    advance = _cycles(config, setup, parts, kept_in)
    if resume:
        check_format(source.evaluations)
        start = _load(config, setup, source, progress, decay)
    else:
        check_unused(directory)  # Once more, as nobody else writes here now.
        shapes, make = init_later(setup, config.seed)
        if not config.is_over(0, 0):
            advance.begin(shapes)
        start = _Start(config, make(), 0, None)
    if start.config != config:  # another schedule of the learning rate
        domain, setup = build(start.config, parts)
        advance = _cycles(start.config, setup, parts, kept_in)
    config, cycle, facts = start.config, start.cycle, start.facts
    replay = setup.curriculum.replay
    longest = setup.environment.max_steps
    for message in too_short(setup.curriculum, config.student.num_steps, longest):
        progress.note(message)
    are_cores = jax.default_backend() == "cpu"
    for message in unused_devices(config, jax.device_count(), are_cores=are_cores):
        progress.note(message)
    for path in (directory.metrics, directory.timing, directory.evaluations, directory.levels):
        cut_after(path, cycle if cycle else -1)
    cut_snapshots(directory.snapshots, cycle if cycle else -1)
    write_json(directory.config, settings.to_data(config))
    run = _Run(
        config=config,
        directory=directory,
        progress=progress,
        setup=setup,
        domain=domain,
        suite=domain.suites[config.run.suite](),
        state=place(setup, start.state),
        advance=advance,
        metrics=JsonLines(directory.metrics),
        timing=JsonLines(directory.timing),
        table=EvaluationTable(directory.evaluations),
        levels=LevelTable(directory.levels),
        snapshots=Snapshots(directory.snapshots),
        sinks=make_sinks(config.run.sinks, directory.path, settings.to_data(config), progress.note),
        watch=Watch(replay, remedy(longest)),
        deviations=[] if facts is None else list(facts.deviations),
        plays=_first_plays(config, setup, start.plays),
    )
    # After cycle 0 there is nothing to keep: the tables begin anew.
    if facts is not None and cycle:
        for message in _deviations(run, facts):
            progress.note(f"this run is not bit-exact: {message}")
            run.deviations.append(f"after cycle {cycle}: {message}")
    return run


def _first_plays(config: Config, setup: Setup, kept: list[Plays] | None) -> list[Plays]:
    """The plays to begin with: those beside the checkpoint, if there are any and snapshots are wanted."""
    if setup.curriculum.replay is None or not config.run.recorded_evaluations:
        return []
    return kept or [{} for _ in range(setup.curriculum.buffers)]


def _cycles(config: Config, setup: Setup, parts: Parts | None, directory: Path | None) -> CompiledCycles:
    own_settings = program_settings(config, parts)
    return CompiledCycles(setup, config.run.cycles_per_chunk, settings=own_settings, directory=directory)


def _load(
    config: Config, setup: Setup, directory: RunDirectory, progress: Progress, decay: Decay | None
) -> _Start:
    """The newest checkpoint of this config; the beginning if there is none yet."""
    check_checkpoints(config, directory)
    loaded = checkpoint.load_newest(
        directory.checkpoints, state_shapes(setup), functools.partial(check_belongs, config)
    )
    if loaded is None:
        progress.note("no checkpoint yet: starting from the beginning")
        _tell_decay(config, progress, decay)
        return _Start(with_decay(config, decay or "keep", 0), init(setup, config.seed), 0, None)
    for message in loaded.skipped:
        progress.note(message)
    facts, counters = read_facts(loaded.facts), Counts.of(loaded.tree.counters)
    if counters.cycles != loaded.step or not 0 <= counters.updates <= counters.cycles:
        raise RunDirectoryError(
            f"the checkpoint of cycle {loaded.step} counts {counters.cycles} cycles and {counters.updates} "
            "updates: it was not written by a training"
        )
    progress.note(f"resuming after cycle {loaded.step}")
    progress.resumed(counters.updates)
    if config.updates > facts.settings.get("updates", 0):
        _tell_decay(config, progress, decay)
    longer = with_decay(config, decay or "keep", counters.updates)
    plays = read_plays(loaded.path / PLAYS, setup.curriculum.buffers)
    return _Start(longer, loaded.tree, loaded.step, facts, plays)


def _tell_decay(config: Config, progress: Progress, decay: Decay | None) -> None:
    """What a longer run should know of its learning rate, unless its user has chosen."""
    if decay is None and (note := decay_note(config)):
        progress.note(note)
    if decay is not None and not decays(config):
        progress.note("the learning rate of this run does not fall: --decay changes nothing")


def _deviations(run: _Run, facts: Facts) -> list[str]:
    """Why the run from here on is not the one that would have come without an interruption."""
    lines = differing_facts(facts.environment, environment_facts())
    lines += differing_settings(facts.settings, settings.to_data(run.config), only=CHANGES_BITS)
    return lines + _changed_tables(facts.rows, _rows(run))


def _rows(run: _Run) -> dict[str, int]:
    """How many rows each table should have, those of times excepted."""
    return {path.name: table.rows for path, table in _counted(run).items()}


def _counted(run: _Run) -> dict[Path, JsonLines | EvaluationTable | LevelTable | Snapshots]:
    """What must be complete at the end of a run."""
    return {
        run.directory.metrics: run.metrics,
        run.directory.evaluations: run.table,
        run.directory.levels: run.levels,
        run.directory.snapshots: run.snapshots,
    }


def _changed_tables(expected: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Rows can be lost, and nothing brings them back; but it must be known."""
    return [
        f"{name} was changed or deleted: {found[name]} {'rows' if '.' in name else 'files'} instead of {rows}"
        for name, rows in expected.items()
        if name in found and found[name] != rows
    ]


def _chunk(run: _Run, before: Counts) -> Counts:
    """A few cycles, then whatever is due: rows, an evaluation, a checkpoint."""
    began, first = time.perf_counter(), run.state
    run.state, history, metrics, record = run.advance(first, run.config.updates, _next_cycles(run, before))
    run.points = record.points
    rows = list(_metrics_rows(history, metrics, before, run.steps_per_rollout))
    counters = Counts.of(history, (-1,))
    seconds = time.perf_counter() - began
    steps = (counters.rollouts - before.rollouts) * run.steps_per_rollout
    run.metrics.write(rows)
    _record_levels(run, [row["cycle"] for row in rows], record.levels)
    _keep_plays(run, rows, record.levels)
    run.timing.write([{"cycle": counters.cycles, "seconds": seconds, "steps_per_second": steps / seconds}])
    for row in rows:
        run.sinks.log(row)
        _watch(run, row)
    env_steps = counters.rollouts * run.steps_per_rollout
    run.progress.advance(counters.updates, env_steps, steps / seconds, rows[-1], run.suite.measure)
    if before.cycles == 0:
        # Only now, so that nobody waits for it who wants to see a run begin.
        _evaluate(run, before, first, final=False)
    _stop_if_diverged(run, counters)
    finished = _is_over(run, counters)
    if finished or _crossed(before.updates, counters.updates, run.config.run.evaluate_every):
        _evaluate(run, counters, run.state, final=finished)
    if finished or _crossed(before.updates, counters.updates, run.config.run.checkpoint_every):
        _checkpoint(run, counters)
    return counters


def _is_over(run: _Run, counters: Counts) -> bool:
    return run.config.is_over(counters.updates, counters.rollouts * run.steps_per_rollout)


def _next_cycles(run: _Run, counters: Counts) -> int:
    """How many cycles the next chunk has: no more than are left of the environment steps, if limited."""
    chunk, env_steps = run.config.run.cycles_per_chunk, run.config.run.env_steps
    if env_steps is None:
        return chunk
    left = env_steps - counters.rollouts * run.steps_per_rollout
    return min(chunk, -(-left // (run.setup.curriculum.students * run.steps_per_rollout)))


def _record_levels(run: _Run, cycles: list[int], columns: Mapping[str, Any]) -> None:
    """The levels of the `cycles` of a chunk, which are the first ones of the columns."""
    full = run.config.run.recorded_cycles
    chosen = [index for index, cycle in enumerate(cycles) if is_recorded(cycle, full)]
    if chosen:
        kept = {name: values[chosen] for name, values in columns.items()}
        run.levels.write([cycles[index] for index in chosen], kept)


def _keep_plays(run: _Run, rows: list[dict[str, Any]], columns: Mapping[str, Any]) -> None:
    """Take the newest plays of a chunk: all of its cycles count, whether they are recorded or not."""
    cycles, updates = ([row[name] for row in rows] for name in ("cycle", "updates"))
    for number, before in enumerate(run.plays):
        run.plays[number] = newest(before, plays_of(columns, cycles, updates, number))


def _drop_plays(run: _Run) -> None:
    """Forget the levels that are stored no more."""
    if run.plays:
        ids = to_host([buffer.ids for buffer in run.state.teacher.buffers])
        run.plays = [only(each, own) for each, own in zip(run.plays, ids, strict=True)]


def _record_snapshot(run: _Run, counters: Counts, *, final: bool) -> None:
    """What there is to keep at an evaluation; before the first cycle, and at many late ones, nothing."""
    number, full = counters.updates // run.config.run.evaluate_every, run.config.run.recorded_evaluations
    if not (counters.cycles and full and (final or is_recorded(number, full))):
        return
    arrays = snapshot_arrays(run.setup, run.state.teacher, run.points, run.plays)
    if arrays:
        now = {"cycle": np.asarray(counters.cycles), "updates": np.asarray(counters.updates)}
        run.snapshots.write(counters.cycles, now | arrays)


def _watch(run: _Run, row: dict[str, Any]) -> None:
    unscored, equal = row.get("teacher/unscored", 0), row.get("teacher/equal_scores", False)
    for message in run.watch.look(run.config.student.num_levels, unscored, equal):
        run.progress.note(message)


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


def _evaluate(run: _Run, counters: Counts, state: TrainState, *, final: bool) -> None:
    config, suite = run.config.run, run.suite
    with run.progress.evaluation(suite.name) as on_progress:
        rows = evaluate(
            run.domain,
            state.student.network,
            suite,
            episodes=config.final_episodes if final else config.episodes,
            seed=config.evaluation_seed,
            mesh=run.setup.mesh,
            progress=on_progress,
        )
    env_steps = counters.rollouts * run.steps_per_rollout
    run.table.write(counters.cycles, counters.updates, env_steps, rows)
    score = suite_mean(level_scores(rows))
    run.sinks.log({"cycle": counters.cycles, f"{suite.measure}/{suite.name}": score})
    run.progress.evaluated(counters.updates, suite.name, suite.measure, score)
    _record_snapshot(run, counters, final=final)


def _checkpoint(run: _Run, counters: Counts) -> None:
    """Write a checkpoint; a full disk costs the checkpoint, not the run, unless it is the last one."""
    data = settings.to_data(run.config)
    facts = Facts(
        version=__version__,
        updates=counters.updates,
        env_steps=counters.rollouts * run.steps_per_rollout,
        config_hash=config_hash(data, MAY_CHANGE_ON_RESUME),
        settings=data,
        environment=environment_facts(),
        rows=_rows(run),
        bit_exact=not run.deviations,
        deviations=run.deviations,
    )
    for rows in (run.metrics, run.timing, run.table, run.levels):
        rows.sync()
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
        if _is_over(run, counters):
            raise
        run.failed_checkpoints += 1
        run.progress.note(f"checkpoint not written ({error}); training goes on")


def _stop_if_diverged(run: _Run, counters: Counts) -> None:
    limit = run.config.student.ppo.max_bad_updates
    in_a_row = max(int(student.bad_in_a_row) for student in run.state.students)
    if in_a_row >= limit:
        dump = run.directory.path / "diverged.json"
        write_json(
            dump, {"cycle": counters.cycles, "updates": counters.updates, "skipped_in_a_row": in_a_row}
        )
        raise TrainingDiverged(
            f"{in_a_row} updates in a row had a non-finite loss or gradient (limit {limit}, "
            f"student.ppo.max_bad_updates); the last checkpoint is from before; see {dump}"
        )


def _write_summary(run: _Run, counters: Counts) -> None:
    # From the table, because the first evaluation may have been made before a resume.
    table = run.table.read()
    suite = run.config.run.suite
    untrained, trained = (
        level_scores(row for cycle, row in table if cycle == wanted and row.suite == suite)
        for wanted in (0, counters.cycles)
    )
    notes = [
        f"{run.directory.evaluations.name} has no evaluation on {suite} {when} training"
        for scores, when in ((untrained, "before"), (trained, "after"))
        if not scores
    ]
    found = {path.name: table.found() for path, table in _counted(run).items()}
    run.deviations += _changed_tables(_rows(run), found)
    for message in (*notes, *(f"not bit-exact: {reason}" for reason in run.deviations)):
        run.progress.note(message)
    write_json(
        run.directory.summary,
        {
            "format": FORMAT,
            "version": __version__,
            "domain": run.config.domain,
            "method": run.config.method,
            "preset": run.config.preset,
            "seed": run.config.seed,
            "cycles": counters.cycles,
            "updates": counters.updates,
            "env_steps": counters.rollouts * run.steps_per_rollout,
            "suite": suite,
            "measure": run.suite.measure,
            "untrained": untrained,
            "trained": trained,
            "failed_checkpoints": run.failed_checkpoints,
            "bit_exact": not run.deviations,
            "deviations": run.deviations,
            "notes": notes,
        },
    )
    run.progress.finished(run.directory.path, suite, run.suite.measure, untrained, trained)


def _crossed(before: int, after: int, every: int) -> bool:
    return before // every < after // every
