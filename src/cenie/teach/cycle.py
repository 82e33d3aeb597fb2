"""The one training cycle. Every method runs through it; adding a method does not change it."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PRNGKeyArray

from cenie.envs.base import Environment
from cenie.envs.reset import step_and_restart
from cenie.student.config import StudentConfig
from cenie.student.features import state_action_features
from cenie.student.networks import Network, make_network
from cenie.student.ppo import StudentState, advantages_for, init_student, learn
from cenie.student.rollout import collect
from cenie.teach import teacher
from cenie.teach.curriculum import Curriculum, TeacherState
from cenie.teach.novelty import Points
from cenie.teach.scores import episode_outcomes
from cenie.types import Level, Rollout

Metrics = dict[str, Array]

_learn = jax.jit(learn, static_argnames=("config", "mesh"))


@dataclass(frozen=True)
class Setup:
    """The fixed parts of a run. `mesh`, if given, has one axis over which the level axis is split."""

    environment: Environment
    statistics: Callable[[Level], Metrics]
    student: StudentConfig
    curriculum: Curriculum
    mesh: Mesh | None = None


class Counters(eqx.Module):
    """`updates` counts cycles in which the student took gradient steps; environment steps follow from
    `rollouts` and are computed outside, where they cannot overflow 32 bits."""

    cycles: Int[Array, ""]
    rollouts: Int[Array, ""]
    updates: Int[Array, ""]


class TrainState(eqx.Module):
    """A run is its config and this tree: nothing else is needed to go on."""

    key: PRNGKeyArray
    counters: Counters
    student: StudentState
    teacher: TeacherState


def init(setup: Setup, seed: int) -> TrainState:
    """The state before the first cycle."""
    run_key = jax.random.key(seed)
    network_key, cycle_key = jax.random.split(run_key)
    environment = setup.environment
    network = make_network(
        setup.student.network, environment.observation_space, environment.action_space, network_key
    )
    state = TrainState(
        key=cycle_key,
        counters=Counters(*(jnp.zeros((), jnp.int32) for _ in range(3))),
        student=init_student(setup.student, network),
        teacher=teacher.init(setup.curriculum, setup.student.num_levels, _points_shape(setup, network)),
    )
    return jax.tree.map(_strongly_typed, state)


def _strongly_typed(leaf: Array) -> Array:
    """The same array. One made of a Python number is weakly typed, unlike the one a checkpoint brings back:
    to the compiler these are two types, and a resumed run would compile everything again."""
    if not eqx.is_array(leaf) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return jax.lax.convert_element_type(leaf, leaf.dtype)


@functools.partial(jax.jit, static_argnames="setup")
def cycle(setup: Setup, state: TrainState) -> tuple[TrainState, Metrics]:
    """Ask the teacher for levels, play them, learn from them if told to, and tell the teacher.

    All randomness is derived from the run key and the cycle number, so that a resumed run needs no
    hidden position in a random stream.
    """
    cycle_key = jax.random.fold_in(state.key, state.counters.cycles)
    ask_key, play_key, learn_key, tell_key = jax.random.split(cycle_key, 4)

    assignment, teacher_state = teacher.ask(
        setup.curriculum, state.teacher, ask_key, setup.student.num_levels
    )
    levels = split_over_devices(setup.mesh, assignment.levels)
    rollout = _play(setup, state.student.network, levels, play_key)
    student_state, learn_metrics = _learn_if(assignment.learn, setup, state.student, rollout, learn_key)
    teacher_state, teacher_metrics = teacher.tell(
        setup.curriculum,
        teacher_state,
        assignment,
        rollout,
        advantages_for(setup.student, state.student, rollout),
        setup.student.ppo.gamma,
        tell_key,
        _points(setup, rollout),
        setup.mesh,
    )
    counters = Counters(
        cycles=state.counters.cycles + 1,
        rollouts=state.counters.rollouts + 1,
        updates=state.counters.updates + assignment.learn,
    )
    metrics = {
        **_play_metrics(rollout),
        **{f"level/{name}": jnp.mean(value) for name, value in _statistics(setup, levels).items()},
        **{f"teacher/{name}": value for name, value in teacher_metrics.items()},
        **{f"student/{name}": value for name, value in learn_metrics.items()},
    }
    return TrainState(state.key, counters, student_state, teacher_state), metrics


def cycles(
    setup: Setup, state: TrainState, count: int, updates: int | Int[Array, ""]
) -> tuple[TrainState, Counters, Metrics]:
    """Run `count` cycles, or fewer once the student has had `updates` updates.

    Returns the counters and the metrics after each cycle, stacked; a cycle that was not run repeats the
    counters of the last one.
    """
    shapes = jax.eval_shape(lambda s: cycle(setup, s)[1], state)

    def body(state: TrainState, _: None) -> tuple[TrainState, tuple[Counters, Metrics]]:
        state, metrics = jax.lax.cond(
            state.counters.updates < updates,
            lambda s: cycle(setup, s),
            lambda s: (s, _not_measured(shapes)),
            state,
        )
        return state, (state.counters, metrics)

    state, (counters, metrics) = jax.lax.scan(body, state, length=count)
    return state, counters, metrics


def split_over_devices(mesh: Mesh | None, tree: Level) -> Level:
    """Place the leading axis of every array over the devices of the mesh."""
    if mesh is None:
        return tree
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
    return jax.lax.with_sharding_constraint(tree, sharding)


def _statistics(setup: Setup, levels: Level) -> Metrics:
    """The statistics of every level; each device computes those of its own levels and asks no other.

    A loop in there must not wait for the loops of other devices: XLA does not order an exchange in the
    condition of a loop against other exchanges, and two of them can wait for each other for ever.
    """
    statistics = jax.vmap(setup.statistics)
    if setup.mesh is None:
        return statistics(levels)
    own = PartitionSpec(setup.mesh.axis_names[0])
    return jax.shard_map(statistics, mesh=setup.mesh, in_specs=own, out_specs=own, check_vma=False)(levels)


def _play(setup: Setup, network: Network, levels: Level, key: PRNGKeyArray) -> Rollout:
    return collect(
        setup.environment,
        network,
        levels,
        key,
        setup.student.num_steps,
        advance=step_and_restart,
        bootstrap_at_timeout=setup.student.ppo.bootstrap_at_timeout,
        keep_features=setup.curriculum.novelty is not None,
        keep_entropy=setup.curriculum.reads_entropy,
    )


def _points(setup: Setup, rollout: Rollout) -> Points | None:
    """What novelty is measured on: every step of the rollout, if the curriculum has novelty."""
    if setup.curriculum.novelty is None:
        return None
    points = state_action_features(rollout, setup.environment.action_space)
    return points, jnp.ones(points.shape[:2], bool)


def _points_shape(setup: Setup, network: Network) -> tuple[int, int]:
    """How many points a level has, and of how many numbers; nothing is played to find out."""

    def points() -> Points | None:
        key = jax.random.key(0)
        levels = jax.vmap(setup.curriculum.generate)(jax.random.split(key, setup.student.num_levels))
        return _points(setup, _play(setup, network, levels, key))

    shapes = jax.eval_shape(points) if setup.curriculum.novelty is not None else None
    return shapes[0].shape[1:] if shapes is not None else (0, 0)


def _learn_if(
    condition: Array, setup: Setup, state: StudentState, rollout: Rollout, key: PRNGKeyArray
) -> tuple[StudentState, Metrics]:
    """Gradient steps where asked for; otherwise no loss is computed and the metrics are NaN."""
    # Both look-ups below share one trace, because the function they call is jitted.
    _, shapes = jax.eval_shape(lambda: _learn(setup.student, state, rollout, key, setup.mesh))
    return jax.lax.cond(
        condition,
        lambda: _learn(setup.student, state, rollout, key, setup.mesh),
        lambda: (state, _not_measured(shapes)),
    )


def _not_measured(shapes: Mapping[str, jax.ShapeDtypeStruct]) -> Metrics:
    """Metrics of something that did not happen: NaN, written to the logs as null."""
    return {
        name: jnp.full(leaf.shape, jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0, leaf.dtype)
        for name, leaf in shapes.items()
    }


def _play_metrics(rollout: Rollout) -> Metrics:
    outcomes = episode_outcomes(rollout)
    episodes = jnp.sum(outcomes.finished)
    share = outcomes.finished / jnp.maximum(episodes, 1)
    return {
        "episodes": episodes,
        "solved": jnp.sum(outcomes.solved) / jnp.maximum(episodes, 1),
        "return": jnp.sum(outcomes.mean_return * share),
        "length": jnp.sum(outcomes.mean_length * share),
        "non_finite": jnp.sum(0 if rollout.masked is None else rollout.masked),
    }
