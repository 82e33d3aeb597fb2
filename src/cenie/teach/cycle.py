"""The one training cycle. Every method runs through it; adding a method does not change it."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from cenie.envs.base import Environment
from cenie.envs.reset import step_and_restart
from cenie.records import Level, Rollout, strongly_typed
from cenie.replay.outcomes import Played, Points, episode_outcomes, in_first_episode
from cenie.spaces import Space
from cenie.student.config import StudentConfig
from cenie.student.features import observed_features, state_action_features, with_action
from cenie.student.networks import Network, make_network
from cenie.student.partition import partitioned
from cenie.student.ppo import StudentState, advantages_for, init_student, learn
from cenie.student.rollout import collect
from cenie.teach import teacher
from cenie.teach.curriculum import Assignment, Curriculum, TeacherState
from cenie.teach.measure import not_measured
from cenie.teach.recording import PointSample, Record, draw_points, outcome_columns, stacked
from cenie.teach.source import PopulationSource
from cenie.xla import devices

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


def announced(setup: Setup, seed: int) -> tuple[TrainState, Callable[[], TrainState]]:
    """The state before the first cycle as shapes, which are there at once; and what makes its arrays.

    All that Python has to do is done then: XLA goes on while other programs are traced.
    """
    key = jax.random.key(seed)
    traced = _init.trace(setup, key)
    lowered = traced.lower()
    return traced.out_info, lambda: lowered.compile()(key)


def state_shapes(setup: Setup) -> TrainState:
    """The state with shapes in the place of arrays, for `load_newest`: nothing is compiled or computed."""
    return _init.trace(setup, jax.eval_shape(lambda: jax.random.key(0))).out_info


@functools.partial(jax.jit, static_argnames="setup")
def _init(setup: Setup, run_key: PRNGKeyArray) -> TrainState:
    # Compiled as one program, because hundreds of small ones take seconds.
    network_key, cycle_key = jax.random.split(run_key)
    networks = [
        _network(setup, config, _nth(network_key, number)) for number, config in enumerate(setup.students)
    ]
    students = tuple(map(init_student, setup.students, networks))
    teacher_state = teacher.init(
        setup.curriculum,
        setup.student.num_levels,
        jax.random.fold_in(run_key, 1),
        _points_shape(setup, networks[0]),
        networks[0],
    )
    source = setup.curriculum.source
    if isinstance(source, PopulationSource):
        with_students = source.with_student(teacher_state.source, students[0])
        teacher_state = dataclasses.replace(teacher_state, source=with_students)
    counters = Counters(*(jnp.zeros((), jnp.int32) for _ in range(3)))
    return strongly_typed(TrainState(cycle_key, counters, students, teacher_state))


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
    return partitioned(network)


def _nth(key: PRNGKeyArray, number: int) -> PRNGKeyArray:
    """A key for each student; the first one's does not depend on how many there are."""
    return key if number == 0 else jax.random.fold_in(key, number)


class Turn(eqx.Module):
    """What is asked and played in a cycle.

    `asked` is what asking has changed in the teacher, None elsewhere. `played` and `statistics` have a row
    for each level and are split over the devices; the rest is everywhere.
    """

    assignment: Assignment
    asked: TeacherState
    played: tuple[Played, ...]
    statistics: tuple[Metrics, ...]
    counters: Counters
    metrics: Metrics
    points: PointSample | None
    learn_key: PRNGKeyArray
    tell_key: PRNGKeyArray

    def placed(self, rows: Callable[[Any], Any], rest: Callable[[Any], Any]) -> "Turn":
        """The turn after `rows` has placed what is split, and `rest` everything else."""
        per_level = rows((self.played, self.statistics))
        return eqx.tree_at(lambda turn: (turn.played, turn.statistics), rest(self), per_level)


def cycle(setup: Setup, state: TrainState) -> tuple[TrainState, Metrics, Record]:
    """Ask the teacher for levels, which every student plays; all learn if told to; tell the teacher.

    Returns what to log of the cycle as a whole, and a record of its levels.

    All randomness is derived from the run key and the cycle number, so that a resumed run needs no
    hidden position in a random stream.

    A pure function, to be traced. `xla/parts.py` compiles its three parts, each in its own way.
    """
    turn = play_turn(setup, state)
    learned = learn_turn(setup, state, turn)
    return after_turn(state, turn, learned, tell_turn(setup, state.teacher, turn, learned.students))


@functools.partial(jax.jit, static_argnames="setup")
def play_turn(setup: Setup, state: TrainState) -> Turn:
    """The first part of a cycle: what is asked and played."""
    cycle_key = _cycle_key(state)
    ask_key, play_key, learn_key, tell_key = jax.random.split(cycle_key, 4)

    assignment, asked = teacher.ask(setup.curriculum, state.teacher, ask_key, setup.student.num_levels)
    played, metrics = [], {}
    for number, student in enumerate(_players(setup, state)):
        levels = devices.split(setup.mesh, assignment.batch_of(number).levels)
        played.append(play(setup, number, student, levels, _nth(play_key, number)))
        metrics |= _named(number, _fared(played[-1]), plain="")
    counters = Counters(
        cycles=state.counters.cycles + 1,
        rollouts=state.counters.rollouts + len(played),
        updates=state.counters.updates + assignment.students_learn,
    )
    statistics = tuple(_statistics(setup, one.levels) for one in played[: len(assignment.batches)])
    metrics |= {name: jnp.mean(value) for name, value in statistics[0].items()}
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
    turn = Turn(
        assignment=assignment,
        asked=jax.tree.map(lambda new, old: None if new is old else new, asked, state.teacher),
        played=tuple(played),
        statistics=statistics,
        counters=counters,
        metrics=metrics,
        points=points,
        learn_key=learn_key,
        tell_key=tell_key,
    )
    placed = turn.placed(
        functools.partial(devices.split, setup.mesh), functools.partial(devices.replicate, setup.mesh)
    )
    return strongly_typed(placed)


class Learned(eqx.Module):
    """The students after a turn, and what to log of their learning."""

    students: tuple[StudentState, ...]
    metrics: Metrics


@functools.partial(jax.jit, static_argnames="setup")
def learn_turn(setup: Setup, state: TrainState, turn: Turn) -> Learned:
    """The second part of a cycle: what is learned from it, if anything."""
    students, metrics = [], {}
    for number, student in enumerate(_players(setup, state)):
        rollout = _once_learned(students, turn.played[number].rollout)
        after, learned = _learn_if(
            turn.assignment.students_learn, setup, number, student, rollout, _nth(turn.learn_key, number)
        )
        students.append(after)
        metrics |= _named(number, learned, plain="student/")
    return strongly_typed(devices.replicate(setup.mesh, Learned(tuple(students), metrics)))


class Told(eqx.Module):
    """The teacher after it was told of a turn, what to log of it, and a row for each level.

    `students` are those that are evaluated, if they are not simply those that played.
    """

    teacher: TeacherState
    metrics: Metrics
    levels: Metrics
    students: tuple[StudentState, ...] | None


@functools.partial(jax.jit, static_argnames="setup")
def tell_turn(setup: Setup, before: TeacherState, turn: Turn, learned: tuple[StudentState, ...]) -> Told:
    """The last part of a cycle; `learned` are the students after it."""
    source, before, students = setup.curriculum.source, eqx.combine(turn.asked, before), None
    if isinstance(source, PopulationSource):
        before = dataclasses.replace(before, source=source.taken_back(before.source, learned[0]))
    after, metrics, rows = teacher.tell(
        setup.curriculum,
        before,
        turn.assignment,
        played=turn.played,
        key=turn.tell_key,
        student=learned[0].network,
        mesh=setup.mesh,
    )
    levels = [
        row | outcome_columns(one.outcomes) | turn.statistics[min(number, len(turn.statistics) - 1)]
        for number, (row, one) in enumerate(zip(rows, turn.played, strict=True))
    ]
    if isinstance(source, PopulationSource):
        students = (source.evaluated(after.source),)
    named = {f"teacher/{name}": value for name, value in metrics.items()}
    told = Told(after, named, stacked(levels, turn.assignment.kind), students)
    return devices.replicate(setup.mesh, told)


def after_turn(
    state: TrainState, turn: Turn, learned: Learned, told: Told
) -> tuple[TrainState, Metrics, Record]:
    """What a cycle returns, from its three parts."""
    students = learned.students if told.students is None else told.students
    after = TrainState(state.key, turn.counters, students, told.teacher)
    return after, turn.metrics | learned.metrics | told.metrics, Record(told.levels, turn.points)


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
        described = rollout
        if setup.curriculum.features == "observation":
            observed = observed_features(rollout.observation, setup.environment.observation_space)
            described = dataclasses.replace(rollout, features=observed)
        values = state_action_features(described, setup.environment.action_space)
        points = Points(values, jnp.ones(values.shape[:2], bool), in_first_episode(rollout.done))
    advantages = advantages_for(config, student, rollout)
    return Played(levels, rollout, advantages, episode_outcomes(rollout), points)


def _players(setup: Setup, state: TrainState) -> tuple[StudentState, ...]:
    """The students that play."""
    source = setup.curriculum.source
    if isinstance(source, PopulationSource):
        return (source.player(state.teacher.source),)
    return state.students


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
    environment, count = setup.environment, setup.student.num_levels

    def first_points(key: PRNGKeyArray) -> Array:
        source = setup.curriculum.source
        levels, _ = source.propose(source.init(key), key, count)
        observation, _ = jax.vmap(lambda level: environment.reset(key, environment.prepare(level)))(levels)
        _, decision = network.step(network.initial_memory(count), observation, jnp.ones(count, bool))
        features = decision.features
        if setup.curriculum.features == "observation":
            features = observed_features(observation, environment.observation_space)
        return with_action(features, decision.policy.sample(key), environment.action_space)

    key = jax.eval_shape(lambda: jax.random.key(0))  # a real one would start a backend
    return setup.student.num_steps, jax.eval_shape(first_points, key).shape[1]


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


def _once_learned(students: Sequence[StudentState], tree: PyTree) -> PyTree:
    """The same arrays, which are not there before the last of these students has learned.

    Learning exchanges gradients in a loop, and XLA on CPU does not order that against other exchanges, such
    as those of another student, unless one needs the result of the other. So it gets a question that only the
    end of the loop can answer, and whose answer is always no.
    """
    if not students:
        return tree
    never = students[-1].skipped < 0
    return jax.tree.map(lambda leaf: jnp.where(never, jnp.zeros_like(leaf), leaf), tree)


def _fared(played: Played) -> Metrics:
    """How a student fared on its levels."""
    outcomes, masked = played.outcomes, played.rollout.masked
    episodes = jnp.sum(outcomes.finished)
    share = outcomes.finished / jnp.maximum(episodes, 1)
    return {
        "episodes": episodes,
        "solved": jnp.sum(outcomes.solved) / jnp.maximum(episodes, 1),
        "return": jnp.sum(outcomes.mean_return * share),
        "length": jnp.sum(outcomes.mean_length * share),
        "non_finite": jnp.sum(0 if masked is None else masked),
    }


def _named(number: int, metrics: Metrics, *, plain: str) -> Metrics:
    """What is logged of a student, under its number; of the first one, under a `plain` prefix."""
    prefix = f"student{number}/" if number else plain
    return {f"{prefix}{name}": value for name, value in metrics.items()}
