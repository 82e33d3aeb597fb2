"""From a config, and what is passed from Python, to the parts of a run."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jax.stages import Lowered
from jaxtyping import PRNGKeyArray, PyTree

from cenie import devices
from cenie.envs.base import Domain
from cenie.envs.domains import DOMAINS
from cenie.run.compilation import give_back_memory
from cenie.run.config import Config
from cenie.run.devices import is_known
from cenie.run.traces import Flat, Program, Results, Traced, read, shape_of, trace_file, write
from cenie.settings import Problem, SettingsError, show, to_data
from cenie.spaces import Space
from cenie.student.networks import Network
from cenie.teach.curriculum import Curriculum, TeacherState
from cenie.teach.cycle import Counters, Metrics, Setup, Told, TrainState, cycles, play_turn, tell_turn
from cenie.teach.methods import OWN, OwnTeacher
from cenie.teach.novelty import Novelty
from cenie.teach.recipes import curriculum
from cenie.teach.record import PointSample, Record
from cenie.teach.scores import Score
from cenie.teach.source import Source


@dataclass(frozen=True)
class Parts:
    """What a run takes from Python in the place of what its settings name; None leaves that as it is.

    `source`, `score` and `novelty` change the curriculum of the config's method. `curriculum` replaces it
    altogether; the method is then "own". `network(observation_space, action_space, key)` makes the network of
    a student.
    """

    source: Source | None = None
    score: Score | None = None
    novelty: Novelty | None = None
    curriculum: Curriculum | None = None
    network: Callable[[PyTree[Space], Space, PRNGKeyArray], Network] | None = None

    def __post_init__(self) -> None:
        problems = [
            Problem(name, f"must be a cenie.{kind.__name__}, got {show(getattr(self, name))}")
            for name, kind in _KINDS.items()
            if getattr(self, name) is not None and not isinstance(getattr(self, name), kind)
        ]
        if self.network is not None and not callable(self.network):
            problems.append(Problem("network", "must be a function of two spaces and a key"))
        changes = [name for name in ("source", "score", "novelty") if getattr(self, name) is not None]
        if self.curriculum is not None and changes:
            problems.append(Problem("curriculum", f"has its own {', '.join(changes)}: pass either"))
        if problems:
            raise SettingsError(problems)

    @property
    def names(self) -> tuple[str, ...]:
        """What was passed, in words, for the files of a run."""
        given = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return tuple(f"{part} {_name(value)}" for part, value in given if value is not None)


_KINDS: dict[str, Any] = {"source": Source, "score": Score, "novelty": Novelty, "curriculum": Curriculum}


def _name(value: Any) -> str:
    own = value.name if isinstance(value, Score) else getattr(value, "__name__", None)
    return own if isinstance(own, str) else type(value).__name__


def build(config: Config, parts: Parts | None = None) -> tuple[Domain, Setup]:
    """The domain and the fixed parts of the training cycle. Raises `SettingsError` if `parts` do not fit."""
    parts = parts or Parts()
    domain = config.entry.build(config.env)
    mesh = devices.level_mesh(config.device_count(jax.device_count()))
    teacher = _curriculum(config, domain, parts, mesh)
    setup = Setup(
        environment=domain.environment,
        statistics=domain.statistics,
        students=config.students if parts.curriculum is None else (config.student,) * teacher.students,
        curriculum=teacher,
        mesh=mesh,
        network=parts.network,
        recorded_points=config.run.recorded_points,
    )
    return domain, setup


def _curriculum(config: Config, domain: Domain, parts: Parts, mesh: Mesh | None) -> Curriculum:
    own, batch = parts.curriculum, config.student.num_levels
    if isinstance(config.teacher, OwnTeacher):
        if own is None:
            raise SettingsError([Problem("curriculum", f"is needed for the method {show(OWN)}")])
        if own.replay is not None and own.replay.config.capacity < batch:
            raise SettingsError(
                [Problem("curriculum", f"needs room for student.num_levels ({batch}) levels")]
            )
        return own
    if own is not None:
        message = f"must be {show(OWN)} with a curriculum of your own, got {show(config.method)}"
        raise SettingsError([Problem("method", message)])
    made = curriculum(domain, config.teacher, mesh)
    for name in ("score", "novelty"):
        if made.replay is None and getattr(parts, name) is not None:
            raise SettingsError([Problem(name, f"is of no use to {config.method}, which replays no levels")])
    if made.replay is not None and parts.score is not None:
        made = dataclasses.replace(made, replay=dataclasses.replace(made.replay, score=parts.score))
    return dataclasses.replace(
        made, source=parts.source or made.source, novelty=parts.novelty or made.novelty
    )


_NEWER_KERNELS = "xla_cpu_use_fusion_emitters"
"""XLA's newer way to write kernels. Without it the second half of a cycle runs as fast, and takes two thirds
of the time and half of the memory to compile; the first half, where students learn, is slower by a tenth."""


class CompiledCycles:
    """`cycles` of a setup: a function of a state, placed as `place` does it, and the number of updates.

    Up to `count` cycles at a time, compiled when they are first needed, with these `options` of XLA's. The
    two halves of a cycle are compiled side by side, since XLA compiles each program on one core. `settings`,
    if given, are all that they depend on (`program_settings`): once traced they are kept in the `directory`.
    """

    def __init__(
        self,
        setup: Setup,
        count: int,
        options: dict[str, Any] | None = None,
        *,
        settings: Any = None,
        directory: Path | None = None,
    ):
        self._setup, self._count, self._options = setup, count, options
        self._settings, self._directory = settings, directory
        self._halves: tuple[Program, Program] | None = None
        self._pending: tuple[Future[Program], ...] | None = None
        self._found = False

    def begin(self, state: TrainState) -> None:
        """Compile for states like this one, of which the shapes are enough, while the caller goes on."""
        if self._pending is not None or self._halves is not None:
            return
        pool = ThreadPoolExecutor(2, "compiling")
        self._pending = self._compiled(pool, devices.expected(self._setup.mesh, state, split=False))
        pool.shutdown(wait=False)

    def wait_if_long(self, state: TrainState) -> None:
        """Wait for the compiler, unless an earlier run has left it little to do.

        Other programs would have to wait for it anyway, since they share its threads, and take more memory.
        """
        self.begin(state)
        if not self._found:
            self.programs(state)

    def _compiled(self, pool: ThreadPoolExecutor, state: TrainState) -> tuple[Future[Program], ...]:
        if self._settings is None or self._directory is None:
            return self._traced_now(pool, state, None)
        file = trace_file(self._directory, self._settings, state)
        kept = read(file)
        try:
            play, tell = kept
            lowered = play.lowered(state), tell.lowered(state.teacher, self._expected(play.results))
        except Exception:  # Nothing that is wrong with what was kept may stop a run.
            return self._traced_now(pool, state, file)
        self._found = True
        return tuple(
            pool.submit(self._finished, half, program.results, number)
            for number, (half, program) in enumerate(zip(lowered, kept))
        )

    def _traced_now(
        self, pool: ThreadPoolExecutor, state: TrainState, file: Path | None
    ) -> tuple[Future[Program], ...]:
        play = Flat("play_turn", functools.partial(play_turn, self._setup), state)
        first = pool.submit(self._half, play, state)

        def compile_second() -> Program:
            traced = first.result().traced

            def tell_leaves(teacher: TeacherState, leaves: list[Any]) -> Told:
                return tell_turn(self._setup, teacher, jax.tree.unflatten(play.structure, leaves))

            arguments = state.teacher, self._expected(play.results)
            tell = Flat("tell_turn", tell_leaves, *arguments)
            second = self._half(tell, *arguments)
            if file is not None and traced is not None and second.traced is not None:
                write(file, (traced, second.traced))
            return self._finished(second.lowered, tell.results, 1)

        return (
            pool.submit(lambda: self._finished(first.result().lowered, play.results, 0)),
            pool.submit(compile_second),
        )

    def _half(self, function: Flat, *arguments: Any) -> "_Half":
        """One that depends on settings alone goes through its module even if that is not kept: so all runs
        of the same settings have the same program."""
        if self._settings is not None:
            # Some operations cannot be kept: calls of the host, and what a library makes no promise about.
            with contextlib.suppress(ValueError, NotImplementedError):
                traced = function.traced()
                return _Half(traced.lowered(*arguments), traced)
        return _Half(function.lowered(), None)

    def _expected(self, results: Results) -> list[Any]:
        """The leaves of a turn, as they will be placed."""
        return [
            devices.expected(
                self._setup.mesh, shape_of(shape, kind), split=path.startswith(("played.", "statistics."))
            )
            for path, shape, kind in results
        ]

    def _finished(self, lowered: Lowered, results: Results, number: int) -> Program:
        plain = number == 1 and jax.default_backend() == "cpu" and is_known(_NEWER_KERNELS)
        options = {_NEWER_KERNELS: False} if plain else {}
        program = lowered.compile(options | (self._options or {}))
        give_back_memory()
        return Program(results, program)

    def programs(self, state: TrainState) -> tuple[Program, Program]:
        """Both halves, for states like this one; waits for the compiler the first time."""
        if self._halves is None:
            self.begin(state)
            assert self._pending is not None
            (first, second), self._pending = self._pending, None
            self._halves = first.result(), second.result()
        return self._halves

    def _run(self, _: Setup, state: TrainState) -> tuple[TrainState, Metrics, Record]:
        play, tell = self.programs(state)
        turn = play(state)
        told = tell(state.teacher, turn)
        played, evaluated = play.part(turn, "students", state.students), tell.entries(told, "students")
        after = TrainState(
            key=state.key,
            counters=play.part(turn, "counters", state.counters),
            students=tell.part(told, "students", state.students) if evaluated else played,
            teacher=tell.part(told, "teacher", state.teacher),
        )
        points = play.entries(turn, "points")
        record = Record(tell.entries(told, "levels"), PointSample(**points) if points else None)
        return after, play.entries(turn, "metrics") | tell.entries(told, "metrics"), record

    def __call__(
        self, state: TrainState, updates: int, most: int | None = None
    ) -> tuple[TrainState, Counters, dict[str, np.ndarray], Record]:
        """With `most`, no more cycles than that."""
        count = self._count if most is None else min(self._count, most)
        return cycles(self._setup, state, count, updates, self._run)


class _Half(NamedTuple):
    """One half of a cycle; `traced` is what can be kept of it."""

    lowered: Lowered
    traced: Traced | None


def program_settings(config: Config, parts: Parts | None) -> Any:
    """All of a config that the programs of its cycle depend on, as plain data.

    None if they depend on more: on something that was passed from Python, or on a domain that is not ours. If
    the devices belong to several processes, too: a program of one of these is not one of another.
    """
    own = parts is None or not parts.names
    if not own or config.from_python or DOMAINS.get(config.domain) is not config.entry:
        return None
    if config.method == OWN or jax.process_count() > 1:
        return None
    data = to_data(config)
    chosen = {name: data[name] for name in ("domain", "method", "env", "student", "teacher")}
    return chosen | {"recorded_points": config.run.recorded_points}


def place(setup: Setup, state: TrainState) -> TrainState:
    """Put a state on every device of the run."""
    return devices.place(setup.mesh, state)
