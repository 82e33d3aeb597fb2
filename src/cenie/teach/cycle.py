"""The one training cycle. Every method runs through it; adding a method does not change it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from cenie import devices
from cenie.envs.base import Environment
from cenie.envs.reset import step_and_restart
from cenie.spaces import Space
from cenie.student.config import StudentConfig
from cenie.student.features import state_action_features
from cenie.student.networks import Network, make_network
from cenie.student.ppo import StudentState, advantages_for, init_student, learn
from cenie.student.rollout import collect
from cenie.teach import teacher
from cenie.teach.curriculum import Curriculum, TeacherState
from cenie.teach.measure import not_measured
from cenie.teach.played import Played, Points, episode_outcomes
from cenie.teach.record import PointSample, Record, draw_points, merge_samples, outcome_columns, stacked
from cenie.types import Level, Rollout, strongly_typed

Metrics = dict[str, Array]

_learn = jax.jit(learn, static_argnames=("config", "mesh"))


@dataclass(frozen=True)
class Setup:
    """The fixed parts of a run.

    `students` has the settings of each student of the curriculum; all play equally many levels and steps.
    `mesh`, if given, has one axis over which the level axis is split. `network`, if given, makes the network
    of each student from the spaces of the environment and a key, instead of the one that its settings name.
    `recorded_points` is how many state-action points are sampled from a chunk of cycles, to be looked at.
    """

    environment: Environment
    statistics: Callable[[Level], Metrics]
    students: tuple[StudentConfig, ...]
    curriculum: Curriculum
    mesh: Mesh | None = None
    network: Callable[[PyTree[Space], Space, PRNGKeyArray], Network] | None = None
    recorded_points: int = 0

    def __post_init__(self) -> None:
        if len(self.students) != self.curriculum.students:
            wanted = self.curriculum.students
            raise ValueError(f"the curriculum has {wanted} students, got settings of {len(self.students)}")
        if len({(student.num_levels, student.num_steps) for student in self.students}) > 1:
            raise ValueError("all students must have the same num_levels and num_steps")

    @property
    def student(self) -> StudentConfig:
        """The settings of the first student, the one that is evaluated."""
        return self.students[0]


class Counters(eqx.Module):
    """`updates` counts cycles in which the students took gradient steps; environment steps follow from
    `rollouts`, which counts one for each student and cycle, and are computed outside, where they cannot
    overflow 32 bits."""

    cycles: Int[Array, ""]
    rollouts: Int[Array, ""]
    updates: Int[Array, ""]


class TrainState(eqx.Module):
    """A run is its config and this tree: nothing else is needed to go on."""

    key: PRNGKeyArray
    counters: Counters
    students: tuple[StudentState, ...]
    teacher: TeacherState

    @property
    def student(self) -> StudentState:
        """The first student, the one that is evaluated."""
        return self.students[0]


def init(setup: Setup, seed: int) -> TrainState:
    """The state before the first cycle."""
    return _init(setup, jax.random.key(seed))


def state_shapes(setup: Setup) -> TrainState:
    """The state with shapes in the place of arrays, for `load_newest`: nothing is compiled or computed."""
    return eqx.filter_eval_shape(init, setup, 0)


@eqx.filter_jit
def _init(setup: Setup, run_key: PRNGKeyArray) -> TrainState:
    # Compiled as one program, because hundreds of small ones take seconds.
    network_key, cycle_key = jax.random.split(run_key)
    networks = [
        _network(setup, config, _nth(network_key, number)) for number, config in enumerate(setup.students)
    ]
    state = TrainState(
        key=cycle_key,
        counters=Counters(*(jnp.zeros((), jnp.int32) for _ in range(3))),
        students=tuple(map(init_student, setup.students, networks)),
        teacher=teacher.init(
            setup.curriculum,
            setup.student.num_levels,
            jax.random.fold_in(run_key, 1),
            _points_shape(setup, networks[0]),
        ),
    )
    return strongly_typed(state)


def _network(setup: Setup, config: StudentConfig, key: PRNGKeyArray) -> Network:
    """The network of a student that has learned nothing. Consumes the key."""
    make = setup.network or functools.partial(make_network, config.network)
    network = make(setup.environment.observation_space, setup.environment.action_space, key)
    if not isinstance(network, Network):
        raise ValueError(f"network: must make a cenie Network, got {type(network).__name__}")
    # The settings were checked for the network that they name, which may be another one.
    unit, per_level = ("levels", 1) if network.recurrent else ("steps", config.num_steps)
    rows, device_count = config.num_levels * per_level, 1 if setup.mesh is None else setup.mesh.size
    if rows % (config.ppo.minibatches * device_count):
        raise ValueError(
            f"ppo.minibatches: {config.ppo.minibatches} on {device_count} device(s) must share the {rows} "
            f"{unit} of a rollout evenly, for a network {'with' if network.recurrent else 'without'} memory"
        )
    return network


def _nth(key: PRNGKeyArray, number: int) -> PRNGKeyArray:
    """A key for each student; the first one's does not depend on how many there are."""
    return key if number == 0 else jax.random.fold_in(key, number)


@functools.partial(jax.jit, static_argnames="setup")
def cycle(setup: Setup, state: TrainState) -> tuple[TrainState, Metrics, Record]:
    """Ask the teacher for levels; every student plays them, and learns if told to; tell the teacher.

    Returns what to log of the cycle as a whole, and a record of its levels.

    All randomness is derived from the run key and the cycle number, so that a resumed run needs no
    hidden position in a random stream.
    """
    cycle_key = _cycle_key(state)
    ask_key, play_key, learn_key, tell_key = jax.random.split(cycle_key, 4)

    assignment, teacher_state = teacher.ask(
        setup.curriculum, state.teacher, ask_key, setup.student.num_levels
    )
    played, students, metrics = [], [], {}
    for number, student in enumerate(state.students):
        levels = devices.split(setup.mesh, assignment.batch_of(number).levels)
        batch_played = play(setup, number, student, levels, _nth(play_key, number))
        after, learn_metrics = _learn_if(
            assignment.students_learn, setup, number, student, batch_played.rollout, _nth(learn_key, number)
        )
        played.append(batch_played)
        students.append(after)
        metrics |= _student_metrics(number, batch_played, learn_metrics)
    teacher_state, teacher_metrics, rows = teacher.tell(
        setup.curriculum, teacher_state, assignment, played=tuple(played), key=tell_key, mesh=setup.mesh
    )
    counters = Counters(
        cycles=state.counters.cycles + 1,
        rollouts=state.counters.rollouts + len(played),
        updates=state.counters.updates + assignment.students_learn,
    )
    statistics = [_statistics(setup, one.levels) for one in played[: len(assignment.batches)]]
    metrics |= {name: jnp.mean(value) for name, value in statistics[0].items()}
    metrics |= {f"teacher/{name}": value for name, value in teacher_metrics.items()}
    levels = [
        row | outcome_columns(one.outcomes) | statistics[min(number, len(statistics) - 1)]
        for number, (row, one) in enumerate(zip(rows, played, strict=True))
    ]
    points = None
    if setup.recorded_points:
        points = draw_points(
            played[0].rollout,
            setup.environment.action_space,
            setup.recorded_points,
            cycle=counters.cycles,
            kind=assignment.kind,
            cycle_key=cycle_key,
        )
    record = Record(stacked(levels, assignment.kind), points)
    return TrainState(state.key, counters, tuple(students), teacher_state), metrics, record


def cycles(
    setup: Setup, state: TrainState, count: int, updates: int | Int[Array, ""]
) -> tuple[TrainState, Counters, Metrics, Record]:
    """Run `count` cycles, or fewer once the student has had `updates` updates.

    Returns the counters, the metrics and the rows of the levels after each cycle, stacked; a cycle that was
    not run repeats the counters of the last one. The points are one sample of all cycles that were run.
    """
    _, metrics_like, record_like = jax.eval_shape(lambda s: cycle(setup, s), state)
    no_points = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), record_like.points)
    first = state.counters.cycles

    def run(
        state: TrainState, kept: PointSample | None
    ) -> tuple[TrainState, PointSample | None, Metrics, Metrics]:
        after, metrics, record = cycle(setup, state)
        if kept is not None and record.points is not None:
            seen = state.counters.cycles - first
            kept = merge_samples(kept, record.points, seen, _cycle_key(state))
        return after, kept, metrics, record.levels

    def body(carry: Any, _: None) -> tuple[Any, tuple[Counters, Metrics, Metrics]]:
        state, kept, metrics, levels = jax.lax.cond(
            carry[0].counters.updates < updates,
            run,
            lambda state, kept: (state, kept, not_measured(metrics_like), not_measured(record_like.levels)),
            *carry,
        )
        return (state, kept), (state.counters, metrics, levels)

    (state, points), (counters, metrics, levels) = jax.lax.scan(body, (state, no_points), length=count)
    return state, counters, metrics, Record(levels, points)


def play(setup: Setup, number: int, student: StudentState, levels: Level, key: PRNGKeyArray) -> Played:
    """Let a student play a batch of levels. Consumes the key."""
    config = setup.students[number]
    # Novelty is that of the experience of the first student, and so is what is recorded of it.
    keeps_points = setup.curriculum.novelty is not None and number == 0
    rollout = collect(
        setup.environment,
        student.network,
        levels,
        key=key,
        num_steps=config.num_steps,
        advance=step_and_restart,
        bootstrap_at_timeout=config.ppo.bootstrap_at_timeout,
        keep_features=keeps_points or (setup.recorded_points > 0 and number == 0),
        keep_entropy=setup.curriculum.reads("entropy"),
        mesh=setup.mesh,
    )
    points = None
    if keeps_points:
        values = state_action_features(rollout, setup.environment.action_space)
        points = Points(values, jnp.ones(values.shape[:2], bool))
    advantages = advantages_for(config, student, rollout)
    return Played(levels, rollout, advantages, episode_outcomes(rollout), points)


def _cycle_key(state: TrainState) -> PRNGKeyArray:
    """The key of the next cycle: no hidden position in a random stream."""
    return jax.random.fold_in(state.key, state.counters.cycles)


def _statistics(setup: Setup, levels: Level) -> Metrics:
    """What the domain says of each level."""
    # A loop in there must not wait for the loops of other devices.
    found = devices.on_own_rows(setup.mesh, jax.vmap(setup.statistics), levels)
    return {f"level/{name}": value for name, value in found.items()}


def _points_shape(setup: Setup, network: Network) -> tuple[int, int]:
    """How many points a level has, and of how many numbers; nothing is played to find out."""
    if setup.curriculum.novelty is None:
        return 0, 0

    def points(key: PRNGKeyArray) -> Points | None:
        source = setup.curriculum.source
        levels, _ = source.propose(source.init(key), key, setup.student.num_levels)
        return play(setup, 0, init_student(setup.student, network), levels, key).points

    shapes = jax.eval_shape(points, jax.random.key(0))
    assert shapes is not None
    return shapes.values.shape[1:]


def _learn_if(
    condition: Array, setup: Setup, number: int, state: StudentState, rollout: Rollout, key: PRNGKeyArray
) -> tuple[StudentState, Metrics]:
    """Gradient steps where asked for; otherwise no loss is computed and the metrics are NaN."""
    config = setup.students[number]
    # Both look-ups below share one trace, because the function they call is jitted.
    _, shapes = jax.eval_shape(lambda: _learn(config, state, rollout, key, setup.mesh))
    return jax.lax.cond(
        condition,
        lambda: _learn(config, state, rollout, key, setup.mesh),
        lambda: (state, not_measured(shapes)),
    )


def _student_metrics(number: int, played: Played, learned: Metrics) -> Metrics:
    """How the student fared and what it learned; the first student's numbers have plain names."""
    outcomes, masked = played.outcomes, played.rollout.masked
    episodes = jnp.sum(outcomes.finished)
    share = outcomes.finished / jnp.maximum(episodes, 1)
    results = {
        "episodes": episodes,
        "solved": jnp.sum(outcomes.solved) / jnp.maximum(episodes, 1),
        "return": jnp.sum(outcomes.mean_return * share),
        "length": jnp.sum(outcomes.mean_length * share),
        "non_finite": jnp.sum(0 if masked is None else masked),
    }
    if number == 0:
        return results | {f"student/{name}": value for name, value in learned.items()}
    return {f"student{number}/{name}": value for name, value in (results | learned).items()}
