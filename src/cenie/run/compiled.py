"""The training cycle as compiled programs, made in the background and kept for later runs."""

import contextlib
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.stages import Lowered

from cenie import devices
from cenie.envs.domains import DOMAINS
from cenie.run.build import Parts
from cenie.run.compilation import give_back_memory
from cenie.run.config import Config
from cenie.run.devices import is_known
from cenie.run.traces import Flat, Program, Results, Traced, read, shape_of, trace_file, write
from cenie.settings import to_data
from cenie.teach.curriculum import TeacherState
from cenie.teach.cycle import Counters, Metrics, Setup, Told, TrainState, cycles, play_turn, tell_turn
from cenie.teach.methods import OWN
from cenie.teach.record import PointSample, Record

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
