"""The training cycle as compiled programs, made in the background and kept for later runs.

All cycles of the library run here, in `cenie train` and in a loop of the user's own (`cycle`,
`cycles`). So they have the same bits.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.stages import Lowered

from cenie.teach.curriculum import TeacherState
from cenie.teach.cycle import (
    Counters,
    Metrics,
    Setup,
    TrainState,
    Turn,
    ask_and_play,
    first_state,
    learn_all,
    tell_all,
)
from cenie.teach.cycle import cycle as traced_cycle
from cenie.teach.measure import apart
from cenie.teach.recording import PointSample, Record, merged
from cenie.xla import devices
from cenie.xla.cache import give_back_memory
from cenie.xla.flags import NEWER_KERNELS, is_known
from cenie.xla.traces import (
    FlatFunction,
    Program,
    Results,
    TracedProgram,
    arrays,
    like,
    read,
    shape_of,
    trace_file,
    write,
)

_WITHOUT_TREES = {"xla_disable_hlo_passes": "tree_reduction_rewriter"}
"""XLA makes three kernels of every longer sum, for its last digits. A buffer has many sums, over at most its
number of slots; they are a sixth of all kernels to compile. Learning may sum over much more."""

PARTS = {
    "ask_and_play": _WITHOUT_TREES,
    "learn_all": {NEWER_KERNELS: True},
    "tell_all": {NEWER_KERNELS: False} | _WITHOUT_TREES,
}
"""The parts of a cycle, in their order, and how each is compiled for CPUs."""


_SETUPS_AT_ONCE = 4
"""The setups whose programs stay in memory for `cycle` and `cycles`."""


def cycle(setup: Setup, state: TrainState) -> tuple[TrainState, Metrics, Record]:
    """Run one training cycle: ask the teacher for levels, play, learn if told to, tell the teacher.

    Called with arrays, it runs the programs of `cenie train` and returns the same bits. They are compiled at
    the first call for a setup. Called inside of `jax.jit` or another transformation, it becomes a part of
    that program, which may round differently in the last digits.

    Args:
        setup: The fixed parts of a run, from `cenie.build`.
        state: The state before the cycle, from `cenie.init` or an earlier cycle.

    Returns:
        The state after the cycle, what is logged of it, and a record of its levels. The arguments stay valid.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state)):
        return traced_cycle(setup, state)
    return _programs_of(setup).cycle(devices.place(setup.mesh, state))


def cycles(
    setup: Setup, state: TrainState, count: int, updates: int
) -> tuple[TrainState, Counters, dict[str, np.ndarray], Record]:
    """Run `count` training cycles, or fewer once the student has had `updates` updates.

    This is the loop of `cenie train` without its files and evaluations, and returns the same bits. It runs on
    the host: it cannot be called inside of `jax.jit`. `cycle` can.

    Args:
        setup: The fixed parts of a run, from `cenie.build`.
        state: The state before the first cycle, from `cenie.init` or earlier cycles.
        count: The largest number of cycles.
        updates: The number of updates of the whole run, those that `state` has had included.

    Returns:
        The state after the last cycle; the counters, the metrics and the rows of the levels after each cycle
        that was run, stacked in NumPy arrays with a leading axis of cycles. The points of the record are one
        sample of all cycles.
    """
    return _programs_of(setup)(devices.place(setup.mesh, state), updates, count)


@functools.lru_cache(_SETUPS_AT_ONCE)
def _programs_of(setup: Setup) -> "CompiledCycles":
    return CompiledCycles(setup, 1)


class CompiledCycles:
    """`cycles` of a setup: a function of a state, placed as `place` does it, and the number of updates.

    Up to `count` cycles at a time, unless a call says another number. They are compiled when they are first
    needed, with these `options` of XLA's. The parts of a cycle are compiled side by side, since XLA does much
    of the work on a program on one core. `settings`, if given, are all that they depend on
    (`program_settings`): once traced they are kept in the `directory`.
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
        self._programs: dict[str, Program] | None = None
        self._pending: Future[dict[str, Program]] | None = None

    def begin(self, state: TrainState) -> None:
        """Begin to compile for states like this one, while the caller goes on; shapes are enough."""
        if self._pending is not None or self._programs is not None:
            return
        pool = ThreadPoolExecutor(1 + len(PARTS), "compiling")
        state = devices.expected(self._setup.mesh, state, split=False)
        parts = self._kept(state) or self._traced(state)
        self._pending = pool.submit(self._compiled, pool, parts)

    def _compiled(self, pool: ThreadPoolExecutor, parts: Iterable["_Part"]) -> dict[str, Program]:
        """Each part is compiled as soon as it is there, while the next one may still have to be traced."""
        try:
            compiling = {part.name: pool.submit(self._finished, part) for part in parts}
        finally:
            pool.shutdown(wait=False)
        programs = {name: program.result() for name, program in compiling.items()}
        give_back_memory()
        return programs

    def _kept(self, state: TrainState) -> list["_Part"]:
        """The parts of a cycle that an earlier run has traced, or nothing."""
        if (file := self._file(state)) is None:
            return []
        try:
            kept = {traced.name: traced for traced in read(file)}
            arguments = self._arguments(state, self._expected(kept["ask_and_play"].results))
            return [_Part(name, kept[name].lowered(*arguments[name]), kept[name].results) for name in PARTS]
        except Exception:  # Nothing that is wrong with what was kept may stop a run.
            return []

    def _file(self, state: TrainState) -> Path | None:
        if self._settings is None or self._directory is None:
            return None
        return trace_file(self._directory, self._settings, state)

    def _traced(self, state: TrainState) -> Iterator["_Part"]:
        """The parts of a cycle, traced one by one; the one that takes longest to compile comes second."""
        setup = self._setup
        play = FlatFunction("ask_and_play", functools.partial(ask_and_play, setup), state)
        parts = [self._part(play, state)]
        yield parts[0]
        arguments = self._arguments(state, self._expected(play.results))

        def turn_of(leaves: list[Any]) -> Turn:
            turn_structure, *_ = play.structure.children()
            return jax.tree.unflatten(turn_structure, leaves)

        def learn_leaves(state: TrainState, leaves: list[Any]) -> Any:
            return learn_all(setup, state, turn_of(leaves))

        def tell_leaves(teacher: TeacherState, leaves: list[Any], students: Any) -> Any:
            return tell_all(setup, teacher, turn_of(leaves), students)

        for name, function in {"tell_all": tell_leaves, "learn_all": learn_leaves}.items():
            parts.append(self._part(FlatFunction(name, function, *arguments[name]), *arguments[name]))
            yield parts[-1]
        whole = [part.traced for part in parts if part.traced is not None]
        if len(whole) == len(parts) and (file := self._file(state)) is not None:
            write(file, whole)

    def _arguments(self, state: TrainState, turn: list[Any]) -> dict[str, tuple[Any, ...]]:
        """The arguments of each part; for a turn, the leaves."""
        return {
            "ask_and_play": (state,),
            "learn_all": (state, turn),
            "tell_all": (state.teacher, turn, state.students),
        }

    def _part(self, function: FlatFunction, *arguments: Any) -> "_Part":
        """A program is compiled from its module even if that is not kept, so that no bit depends on that."""
        if jax.process_count() == 1:
            # Some operations have no module: calls of the host, and what a library makes no promise about.
            with contextlib.suppress(ValueError, NotImplementedError):
                traced = function.traced()
                return _Part(traced.name, traced.lowered(*arguments), traced.results, traced)
        lowered = function.lowered()
        return _Part(function.__name__, lowered, function.results)

    def _expected(self, results: Results) -> list[Any]:
        """The leaves of a turn, the first that `ask_and_play` returns, as they will be placed."""
        return [
            devices.expected(self._setup.mesh, shape_of(each.shape, each.kind), split=each.is_split)
            for each in results
            if each.path.startswith("0.")
        ]

    def _finished(self, part: "_Part") -> Program:
        on_cpu = jax.default_backend() == "cpu" and is_known(NEWER_KERNELS)
        options = PARTS[part.name] if on_cpu else {}
        return Program(part.results, part.lowered.compile(options | (self._options or {})))

    def programs(self, state: TrainState) -> dict[str, Program]:
        """The parts of a cycle, for states like this one; waits for the compiler the first time."""
        if self._programs is None:
            self.begin(state)
            assert self._pending is not None
            pending, self._pending = self._pending, None
            self._programs = pending.result()
        return self._programs

    def cycle(self, state: TrainState) -> tuple[TrainState, Metrics, Record]:
        """One cycle: `traced_cycle` by its compiled parts, which pass the turn on as a list of arrays."""
        play, learn, tell = (self.programs(state)[name] for name in PARTS)

        def students(item: dict[str, Any]) -> Any:
            return like(state.students)(item) if item else ()

        parts = (
            play.returning(arrays, like(state.counters), dict, _points),
            learn.returning(like(state.students), dict),
            tell.returning(like(state.teacher), students, dict, dict),
        )
        return traced_cycle(self._setup, state, parts)

    def __call__(
        self, state: TrainState, updates: int, count: int | None = None
    ) -> tuple[TrainState, Counters, dict[str, np.ndarray], Record]:
        """See `cycles`."""
        count, found = self._count if count is None else count, []
        while len(found) < count and int(devices.to_host(state.counters.updates)) < updates:
            state, metrics, record = self.cycle(state)
            found.append((state.counters, metrics, record))
        found = devices.to_host(found)
        if not found:
            nothing = jax.tree.map(lambda leaf: np.zeros(0, leaf.dtype), state.counters)
            return state, nothing, {}, Record({}, None)
        rows = ((counters, metrics, record.levels) for counters, metrics, record in found)
        counters, metrics, levels = jax.tree.map(lambda *values: np.stack(values), *rows)
        samples = [record.points for *_, record in found if record.points is not None]
        return state, counters, apart(metrics), Record(levels, merged(samples) if samples else None)


def init_later(setup: Setup, seed: int) -> tuple[TrainState, Callable[[], TrainState]]:
    """The shapes of the state before the first cycle, and a function that computes its arrays.

    Tracing is finished when this returns, so that XLA can compile while other programs are traced.
    """
    key = jax.random.key(seed)
    traced = first_state.trace(setup, key)
    lowered = traced.lower()
    return traced.out_info, lambda: lowered.compile()(key)


def _points(item: dict[str, Any]) -> PointSample | None:
    return PointSample(**item) if item else None


class _Part(NamedTuple):
    """One part of a cycle, ready to be compiled, and what can be kept of it."""

    name: str
    lowered: Lowered
    results: Results
    traced: TracedProgram | None = None
