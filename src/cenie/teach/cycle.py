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
from cenie.records import Level, Observation, Rollout, strongly_typed
from cenie.replay.outcomes import Points, episode_outcomes, in_first_episode
from cenie.replay.play import Play
from cenie.spaces import Space
from cenie.student.config import StudentConfig
from cenie.student.features import observed_features, rollout_features, with_action
from cenie.student.networks.base import Network
from cenie.student.networks.table import make_network
from cenie.student.partition import partitioned
from cenie.student.ppo import StudentState, advantages_for, init_student, learn
from cenie.student.rollout import collect
from cenie.teach import teacher
from cenie.teach.curriculum import Assignment, Curriculum, TeacherState
from cenie.teach.measure import Metrics, not_measured
from cenie.teach.recording import PointSample, Record, draw_points, outcome_columns, stacked
from cenie.teach.source import PopulationSource
from cenie.xla import devices
from cenie.xla.tricks import after_this

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
    """Make the state before the first cycle.

    Args:
        setup: The fixed parts of a run, from `cenie.build`.
        seed: All randomness of the run follows from it.

    Returns:
        Students that have learned nothing, and a teacher that has seen nothing.
    """
    return first_state(setup, jax.random.key(seed))


def state_shapes(setup: Setup) -> TrainState:
    """The state with shapes in the place of arrays, for `load_newest`: nothing is compiled or computed."""
    return first_state.trace(setup, jax.eval_shape(lambda: jax.random.key(0))).out_info


@functools.partial(jax.jit, static_argnames="setup")
def first_state(setup: Setup, run_key: PRNGKeyArray) -> TrainState:
    """The state before the first cycle of a run with this key.

    Compiled as one program, because hundreds of small ones take seconds.
    """
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


Turn = tuple[Assignment, TeacherState, tuple[Play, ...], PRNGKeyArray, PRNGKeyArray]
"""A turn that was played: the assignment, the changes of the teacher by asking (None elsewhere), the plays,
and the keys for learning and telling."""


def cycle(
    setup: Setup, state: TrainState, parts: Sequence[Callable[..., Any]] | None = None
) -> tuple[TrainState, Metrics, Record]:
    """Run one training cycle: ask the teacher for levels, which every student plays; all learn, if told to;
    tell the teacher.

    All randomness is derived from the run key and the cycle number, so that a resumed run needs no hidden
    position in a random stream.

    Args:
        setup: The fixed parts of a run.
        state: The state before the cycle.
        parts: `PARTS` of this setup, compiled; without them this is a pure function, to be traced.

    Returns:
        The state after the cycle, what to log of it as a whole, and a record of its levels.
    """
    ask_and_play, learn, tell = parts or [functools.partial(part, setup) for part in PARTS]
    turn, counters, played, points = ask_and_play(state)
    students, learned = learn(state, turn)
    after, evaluated, told, levels = tell(state.teacher, turn, students)
    # A source with students of its own says who is evaluated.
    state = TrainState(state.key, counters, evaluated or students, after)
    return state, played | learned | told, Record(levels, points)


def ask_and_play(setup: Setup, state: TrainState) -> tuple[Turn, Counters, Metrics, PointSample | None]:
    """The first part of a cycle: ask for levels, and let every student play them."""
    cycle_key = jax.random.fold_in(state.key, state.counters.cycles)
    ask_key, play_key, learn_key, tell_key = jax.random.split(cycle_key, 4)
    assignment, asked = teacher.ask(setup.curriculum, state.teacher, ask_key, setup.student.num_levels)
    batches = [_prepared(setup, batch) for batch in assignment.batches]
    plays, metrics = [], {}
    for number, student in enumerate(_players(setup, state)):
        batch = batches[min(number, len(batches) - 1)]
        plays.append(play(setup, number, student, batch, _nth(play_key, number)))
        metrics |= _named(number, _fared(plays[-1]), plain="")
    counters = Counters(
        cycles=state.counters.cycles + 1,
        rollouts=state.counters.rollouts + len(plays),
        updates=state.counters.updates + assignment.students_learn,
    )
    metrics |= {name: jnp.mean(value) for name, value in batches[0].statistics.items()}
    points = None
    if setup.recorded_points:
        points = draw_points(
            plays[0].rollout,
            setup.environment.action_space,
            setup.recorded_points,
            cycle=counters.cycles,
            kind=assignment.kind,
            cycle_key=cycle_key,
        )
    # What asking leaves alone in the teacher is not copied through a program.
    changed = jax.tree.map(lambda new, old: None if new is old else new, asked, state.teacher)
    assignment = dataclasses.replace(assignment, batches=())  # they are in the plays
    turn = assignment, changed, tuple(plays), learn_key, tell_key
    return strongly_typed(devices.as_declared(setup.mesh, (turn, counters, metrics, points)))


def learn_all(setup: Setup, state: TrainState, turn: Turn) -> tuple[tuple[StudentState, ...], Metrics]:
    """The second part of a cycle: every student learns from what it played, if it is told to."""
    assignment, _, plays, learn_key, _ = turn
    students, metrics = [], {}
    for number, student in enumerate(_players(setup, state)):
        rollout = plays[number].rollout
        if students:  # One after another, because learning has a collective of gradients.
            rollout = after_this(students[-1].skipped, rollout)
        key = _nth(learn_key, number)
        after, learned = _learn_if(assignment.students_learn, setup, number, student, rollout, key)
        students.append(after)
        metrics |= _named(number, learned, plain="student/")
    return strongly_typed(devices.replicate(setup.mesh, (tuple(students), metrics)))


def tell_all(
    setup: Setup, before: TeacherState, turn: Turn, learned: tuple[StudentState, ...]
) -> tuple[TeacherState, tuple[StudentState, ...], Metrics, Metrics]:
    """The last part of a cycle: tell the teacher; `learned` are the students after it.

    Returns the teacher; the students that are evaluated, if they are not simply those that played; what to
    log; and a row for each level.
    """
    assignment, changed, plays, _, tell_key = turn
    source, before, evaluated = setup.curriculum.source, eqx.combine(changed, before), ()
    if isinstance(source, PopulationSource):
        before = dataclasses.replace(before, source=source.taken_back(before.source, learned[0]))
    after, metrics, rows = teacher.tell(
        setup.curriculum,
        before,
        assignment,
        plays=plays,
        key=tell_key,
        student=learned[0].network,
        mesh=setup.mesh,
    )
    levels = [
        row | outcome_columns(play.outcomes) | play.statistics for row, play in zip(rows, plays, strict=True)
    ]
    if isinstance(source, PopulationSource):
        evaluated = (source.evaluated(after.source),)
    named = {f"teacher/{name}": value for name, value in metrics.items()}
    told = after, evaluated, named, stacked(levels, assignment.kind)
    return devices.replicate(setup.mesh, told)


PARTS: tuple[Callable[..., Any], ...] = ask_and_play, learn_all, tell_all
"""The parts of a cycle, in their order. Each is a program of its own (`xla/parts.py`)."""


def play(setup: Setup, number: int, student: StudentState, batch: Play, key: PRNGKeyArray) -> Play:
    """Let a student play a batch of levels.

    Args:
        setup: The fixed parts of a run.
        number: Which student it is; 0 is the first.
        student: Its state.
        batch: What the teacher asks for; only its `levels` are needed.
        key: For the environment and the policy. Consumed.

    Returns:
        The batch with the rollout, its outcomes and advantages; of the first student also its points, if the
        curriculum has novelty.
    """
    config = setup.students[number]
    # Novelty, and its record, are of the first student's experience.
    keeps_points = setup.curriculum.novelty is not None and number == 0
    rollout = collect(
        setup.environment,
        student.network,
        batch.levels,
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
        assert rollout.features is not None
        features = _described(setup, rollout.features, rollout.observation)
        described = dataclasses.replace(rollout, features=features)
        values = rollout_features(described, setup.environment.action_space)
        points = Points(values, jnp.ones(values.shape[:2], bool), in_first_episode(rollout.done))
    return dataclasses.replace(
        batch,
        rollout=rollout,
        outcomes=episode_outcomes(rollout),
        advantages=advantages_for(config, student, rollout),
        points=points,
    )


def _described(setup: Setup, features: Array, observation: Observation) -> Array:
    """The part of a point besides the action: the student's features, or the observation."""
    if setup.curriculum.features == "memory":
        return features
    return observed_features(observation, setup.environment.observation_space)


def _prepared(setup: Setup, batch: Play) -> Play:
    """A batch as it is played: its levels split over the devices, and the domain's statistics of each."""
    levels = devices.split(setup.mesh, batch.levels)
    # A loop in there must not wait for the loops of other devices.
    found = devices.on_own_rows(setup.mesh, jax.vmap(setup.statistics), levels)
    statistics = {f"level/{name}": value for name, value in found.items()}
    return dataclasses.replace(batch, levels=levels, statistics=statistics)


def _players(setup: Setup, state: TrainState) -> tuple[StudentState, ...]:
    """The students that play."""
    source = setup.curriculum.source
    if isinstance(source, PopulationSource):
        return (source.player(state.teacher.source),)
    return state.students


def _points_shape(setup: Setup, network: Network) -> tuple[int, int]:
    """The number of points of a level, and the length of each; nothing is played to find out."""
    if setup.curriculum.novelty is None:
        return 0, 0
    environment, count = setup.environment, setup.student.num_levels

    def first_points(key: PRNGKeyArray) -> Array:
        source = setup.curriculum.source
        levels, _ = source.propose(source.init(key), key, count)
        observation, _ = jax.vmap(lambda level: environment.reset(key, environment.prepare(level)))(levels)
        _, decision = network.step(network.initial_memory(count), observation, jnp.ones(count, bool))
        features = _described(setup, decision.features, observation)
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


def _fared(play: Play) -> Metrics:
    """The results of a student on its levels."""
    outcomes, masked = play.outcomes, play.rollout.masked
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
    """The logged numbers of a student, under its number; of the first one, under a `plain` prefix."""
    prefix = f"student{number}/" if number else plain
    return {f"{prefix}{name}": value for name, value in metrics.items()}
