"""The host loop: run chunks of training cycles, write what happened, evaluate, checkpoint, stop well."""

import functools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cenie import __version__, settings
from cenie.novelty.config import CoverageConfig
from cenie.novelty.coverage import fit
from cenie.run import checkpoint
from cenie.run.build import build, compiled_cycles, place
from cenie.run.config import MAY_CHANGE_ON_RESUME, Config
from cenie.run.directory import RunDirectory, config_hash, write_json
from cenie.run.evaluate import evaluate, solved_rates, suite_mean
from cenie.run.facts import differing_facts, environment_facts
from cenie.run.metrics import EvaluationTable, JsonLines, cut_after
from cenie.run.progress import Progress
from cenie.run.signals import GracefulStop
from cenie.run.sinks import Sinks, make_sinks
from cenie.run.watch import Watch, remedy, too_short
from cenie.teach.cycle import Counters, Setup, TrainState, init

FORMAT = 1
"""Version of the run directory's layout, written to `summary.json`."""


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
        values = jax.device_get((counters.cycles, counters.rollouts, counters.updates))
        return Counts(*(int(value[index]) for value in values))


@dataclass
class _Run:
    """The open files and the clocks of a running training."""

    config: Config
    directory: RunDirectory
    progress: Progress
    setup: Setup
    domain: Any
    state: TrainState
    metrics: JsonLines
    timing: JsonLines
    table: EvaluationTable
    sinks: Sinks
    fit: "_FitClock | None"
    watch: Watch
    failed_checkpoints: int = 0

    @property
    def steps_per_rollout(self) -> int:
        return self.config.student.num_levels * self.config.student.num_steps


class _FitClock:
    """Times one fit of the coverage model by itself: inside the compiled cycle there is no clock."""

    def __init__(self, config: CoverageConfig, mesh: Mesh | None):
        self._refit = jax.jit(functools.partial(fit, config, mesh=mesh))
        self._warm = False

    def __call__(self, state: TrainState) -> float:
        """Milliseconds of a fit to the present window, without compilation."""
        assert state.teacher.novelty is not None
        window, key = state.teacher.novelty.coverage, jax.random.key(0)
        if not self._warm:
            jax.block_until_ready(self._refit(window, key=key))
            self._warm = True
        began = time.perf_counter()
        jax.block_until_ready(self._refit(window, key=key))
        return 1000 * (time.perf_counter() - began)


def train(config: Config, directory: RunDirectory, progress: Progress, *, resume: bool) -> bool:
    """Train until the config's number of updates; True if it got there, False if it was told to stop.

    Everything needed to go on is in the run directory after every checkpoint.
    """
    with directory.lock() as note, GracefulStop() as stop:
        if note:
            progress.note(note)
        run = _open(config, directory, progress, resume=resume)
        try:
            counters = Counts.of(run.state.counters)
            if counters.cycles == 0:
                _evaluate(run, counters, final=True)
            advance = compiled_cycles(run.setup, config.run.cycles_per_chunk)
            while counters.updates < config.updates and not stop.requested:
                counters = _chunk(run, advance, counters)
            finished = counters.updates >= config.updates
            if not finished:
                _checkpoint(run, counters)
                return False
            _write_summary(run, counters)
            return True
        finally:
            run.sinks.close()


def _open(config: Config, directory: RunDirectory, progress: Progress, *, resume: bool) -> _Run:
    domain, setup = build(config)
    replay, novelty = setup.curriculum.replay, setup.curriculum.novelty
    longest = setup.environment.max_steps
    for message in too_short(replay, config.student.num_steps, longest):
        progress.note(message)
    state = init(setup, config.seed)
    cycle = 0
    if resume:
        loaded = checkpoint.load_newest(directory.checkpoints, state)
        if loaded is None:
            progress.note("no checkpoint yet: starting from the beginning")
        else:
            for message in loaded.skipped:
                progress.note(message)
            for message in differing_facts(loaded.facts["environment"], environment_facts()):
                progress.note(f"this run will not be bit-exact: {message}")
            state, cycle = loaded.tree, loaded.step
            progress.note(f"resuming after cycle {cycle}")
    for path in (directory.metrics, directory.timing, directory.evaluations):
        cut_after(path, cycle if cycle else -1)
    write_json(directory.config, settings.to_data(config))
    return _Run(
        config=config,
        directory=directory,
        progress=progress,
        setup=setup,
        domain=domain,
        state=place(setup, state),
        metrics=JsonLines(directory.metrics),
        timing=JsonLines(directory.timing),
        table=EvaluationTable(directory.evaluations),
        sinks=make_sinks(config.run.sinks, directory.path, settings.to_data(config), progress.note),
        fit=None if novelty is None else _FitClock(novelty.coverage, setup.mesh),
        watch=Watch(replay, remedy(longest)),
    )


def _chunk(run: _Run, advance: Any, before: Counts) -> Counts:
    """A few cycles, then whatever is due: rows, an evaluation, a checkpoint."""
    began = time.perf_counter()
    run.state, history, metrics = advance(run.state, updates=jnp.asarray(run.config.updates, jnp.int32))
    history, metrics = jax.device_get((history, metrics))
    rows = list(_rows(history, metrics, before, run.steps_per_rollout))
    counters = Counts.of(history, (-1,))
    seconds = time.perf_counter() - began
    steps = (counters.rollouts - before.rollouts) * run.steps_per_rollout
    run.metrics.write(rows)
    run.timing.write([{"cycle": counters.cycles, "seconds": seconds, "steps_per_second": steps / seconds}])
    for row in rows:
        run.sinks.log(row)
        _watch(run, row)
    run.progress.advance(
        counters.updates, counters.rollouts * run.steps_per_rollout, steps / seconds, rows[-1]
    )
    _stop_if_diverged(run, counters)
    finished = counters.updates >= run.config.updates
    if finished or _crossed(before.updates, counters.updates, run.config.run.evaluate_every):
        _evaluate(run, counters, final=finished)
    if finished or _crossed(before.updates, counters.updates, run.config.run.checkpoint_every):
        _checkpoint(run, counters)
    return counters


def _watch(run: _Run, row: dict[str, Any]) -> None:
    unscored, equal = row.get("teacher/unscored", 0), row.get("teacher/equal_scores", False)
    for message in run.watch.look(run.config.student.num_levels, unscored, equal):
        run.progress.note(message)


def _rows(
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


def _evaluate(run: _Run, counters: Counts, *, final: bool) -> None:
    config = run.config.run
    suite = run.domain.suites[config.suite]()
    with run.progress.evaluation(suite.name) as on_progress:
        rows = evaluate(
            run.domain,
            run.state.student.network,
            suite,
            episodes=config.final_episodes if final else config.episodes,
            seed=run.config.seed,
            mesh=run.setup.mesh,
            progress=on_progress,
        )
    env_steps = counters.rollouts * run.steps_per_rollout
    run.table.write(counters.cycles, counters.updates, env_steps, rows)
    rates = solved_rates(rows)
    run.sinks.log({"cycle": counters.cycles, f"solved/{suite.name}": suite_mean(rates)})
    run.progress.evaluated(counters.updates, suite.name, rates, suite_mean(rates))
    if run.fit is not None and counters.cycles:
        run.timing.write([{"cycle": counters.cycles, "fit_milliseconds": run.fit(run.state)}])


def _checkpoint(run: _Run, counters: Counts) -> None:
    """Write a checkpoint; a full disk costs the checkpoint, not the run, unless it is the last one."""
    facts = {
        "environment": environment_facts(),
        "config_hash": config_hash(settings.to_data(run.config), MAY_CHANGE_ON_RESUME),
        "updates": counters.updates,
        "env_steps": counters.rollouts * run.steps_per_rollout,
        "version": __version__,
    }
    for rows in (run.metrics, run.timing, run.table):
        rows.sync()
    try:
        checkpoint.save(
            run.directory.checkpoints,
            run.state,
            step=counters.cycles,
            facts=facts,
            keep=run.config.run.keep_checkpoints,
        )
    except checkpoint.CheckpointError as error:
        if counters.updates >= run.config.updates:
            raise
        run.failed_checkpoints += 1
        run.progress.note(f"checkpoint not written ({error}); training goes on")


def _stop_if_diverged(run: _Run, counters: Counts) -> None:
    limit = run.config.student.ppo.max_bad_updates
    in_a_row = int(run.state.student.bad_in_a_row)
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
    untrained, trained = (
        solved_rates(row for cycle, row in table if cycle == wanted) for wanted in (0, counters.cycles)
    )
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
            "suite": run.config.run.suite,
            "untrained": untrained,
            "trained": trained,
            "failed_checkpoints": run.failed_checkpoints,
        },
    )
    run.progress.finished(run.directory.path, run.config.run.suite, untrained, trained)


def _crossed(before: int, after: int, every: int) -> bool:
    return before // every < after // every
