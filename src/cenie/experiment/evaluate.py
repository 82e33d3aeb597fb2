"""Play held-out levels with a fixed student: one episode per level, actions sampled, no learning."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from cenie.envs.base import Domain, Environment, Suite
from cenie.experiment.config import MAX_PARALLEL_EPISODES
from cenie.experiment.rows import EvaluationRow
from cenie.records import EnvState, Level, Memory, Observation, Prepared
from cenie.student.networks.base import Network
from cenie.xla import devices

SEGMENT = 128
"""Steps between two looks at which episodes are still running."""

LONGEST_EPISODE = 50_000
"""An episode that an environment does not end by itself is cut here and counts as not solved."""


class _Play(eqx.Module):
    observation: Observation
    state: EnvState
    memory: Memory
    running: Bool[Array, " n"]
    start: Bool[Array, " n"]
    total: Float[Array, " n"]
    solved: Bool[Array, " n"]
    length: Int[Array, " n"]


@dataclass(frozen=True)
class Episode:
    """One episode as it went: its states on the host, from the first to the last, along a leading axis.

    There is one state more than there were steps, unless the episode was cut because it took too long.
    """

    states: EnvState
    episode_return: float
    solved: bool
    length: int


def evaluate(
    domain: Domain,
    network: Network,
    suite: Suite,
    *,
    episodes: int,
    seed: int,
    mesh: Mesh | None = None,
    batch_size: int = MAX_PARALLEL_EPISODES,
    progress: Callable[[int, int], None] = lambda finished, total: None,
) -> list[EvaluationRow]:
    """Play `episodes` episodes on every entry of a suite, in the suite's environment if it has its own.

    Levels and keys depend on the seed, the entry and the episode, not on the student, so that methods and
    checkpoints are compared on the same draws.

    Args:
        domain: The domain that the student was trained in.
        network: The student.
        suite: The held-out levels, such as `domain.suites["cenie8"]()`.
        episodes: The number of episodes on each entry.
        seed: Decides all draws.
        mesh: The devices to split the episodes over.
        batch_size: At most this many episodes are played side by side, which bounds the memory. How sums are
            rounded depends on it, and with that how single episodes of walkers and cars go.
        progress: Called now and then with the numbers of finished and of all episodes.

    Returns:
        A row for each episode, in the order of the suite.

    Raises:
        ValueError: The batch size is below 1, or the suite's environment has other spaces than the domain's.
    """
    environment = environment_of(domain, suite)
    labels, levels = suite.draw(seed, episodes)
    keys = episode_keys(seed, len(labels), episodes)
    results = play_once(
        environment,
        network,
        domain.stack(levels),
        keys=keys,
        mesh=mesh,
        batch_size=batch_size,
        progress=progress,
    )
    rows = []
    for number, (label, total, solved, length) in enumerate(zip(labels, *results, strict=True)):
        score = suite.entries[number // episodes].score(float(total), bool(solved))
        rows.append(EvaluationRow(suite.name, *label, float(total), bool(solved), score, int(length)))
    return rows


def play_once(
    environment: Environment,
    network: Network,
    levels: Level,
    *,
    keys: Key[Array, " n"],
    mesh: Mesh | None = None,
    batch_size: int = MAX_PARALLEL_EPISODES,
    progress: Callable[[int, int], None] = lambda finished, total: None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, solved flag and length of one episode on each level; one key per level."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    total = keys.shape[0]
    # Chunks of one size, so that one compiled program plays them all.
    size = -(-total // -(-total // batch_size))
    parts = []
    for first in range(0, total, size):
        chunk = levels, keys
        if size < total:
            # The last level is repeated where a chunk has too few.
            rows = np.minimum(np.arange(first, first + size), total - 1)
            chunk = jax.tree.map(lambda array, rows=rows: array[rows], chunk)
        parts.append(
            _play_chunk(
                environment,
                network,
                *devices.shard_rows(mesh, chunk),
                mesh=mesh,
                count=min(size, total - first),
                progress=lambda finished, first=first: progress(first + finished, total),
            )
        )
    returns, solved, lengths = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return returns, solved, lengths


def _play_chunk(
    environment: Environment,
    network: Network,
    levels: Level,
    keys: Key[Array, " n"],
    *,
    mesh: Mesh | None,
    count: int,
    progress: Callable[[int], None],
) -> tuple[np.ndarray, ...]:
    """Play all levels side by side until the first `count` episodes have ended; the rest is padding."""
    prepared = _prepare(environment, levels, mesh)
    play = _begun(environment, network, prepared, keys, mesh)
    for _ in range(0, LONGEST_EPISODE, SEGMENT):
        play, _ = _segment(environment, network, prepared, keys, play, mesh=mesh)
        running = int(np.sum(devices.to_host(play.running)[:count]))
        progress(count - running)
        if running == 0:
            break
    results = devices.to_host((play.total, play.solved, play.length))
    return tuple(array[:count] for array in results)


def record_episodes(
    environment: Environment,
    network: Network,
    levels: Level,
    *,
    keys: Key[Array, " n"],
    longest: int = LONGEST_EPISODE,
) -> list[Episode]:
    """One episode on each of the stacked levels with all its states, for pictures; one key per level.

    With the keys of an evaluation these are the episodes that it counted, but for rounding, which depends on
    how many are played side by side: those of a walker or a car may part after some steps, and end otherwise.
    """
    prepared = _prepare(environment, levels, None)
    play = _begun(environment, network, prepared, keys, None)
    parts = [jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], play.state)]
    for _ in range(0, longest, SEGMENT):
        play, states = _segment(environment, network, prepared, keys, play, mesh=None, keep_states=True)
        parts.append(jax.tree.map(lambda leaf: np.moveaxis(np.asarray(leaf), 0, 1), states))
        if not np.any(play.running):
            break
    states = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *parts)
    results = zip(*map(np.asarray, (play.total, play.solved, play.length)), strict=True)
    return [
        Episode(
            jax.tree.map(lambda leaf, row=row, end=length + 1: leaf[row, :end], states),
            float(total),
            bool(solved),
            int(length),
        )
        for row, (total, solved, length) in enumerate(results)
    ]


def environment_of(domain: Domain, suite: Suite) -> Environment:
    """Where the suite is played; a student must be able to read and to act there."""
    if suite.environment is None:
        return domain.environment
    ours, theirs = (
        jax.tree.flatten((each.observation_space, each.action_space))
        for each in (domain.environment, suite.environment)
    )
    if ours != theirs:
        raise ValueError(f"the environment of suite {suite.name!r} has other spaces than the domain's")
    return suite.environment


def episode_keys(seed: int, count: int, episodes: int) -> Key[Array, " n"]:
    """A key for each episode that depends on the entry and the episode, not on how many there are."""
    return _episode_keys(jax.random.key(seed), count, episodes)


@functools.partial(jax.jit, static_argnums=1)
def _episode_keys(key: PRNGKeyArray, count: int, episodes: Int[Array, ""]) -> Key[Array, " n"]:
    number = jnp.arange(count)
    entries = jax.vmap(jax.random.fold_in, (None, 0))(key, number // episodes)
    return jax.vmap(jax.random.fold_in)(entries, number % episodes)


@eqx.filter_jit
def _prepare(environment: Environment, levels: Level, mesh: Mesh | None) -> Prepared:
    return devices.on_own_rows(mesh, jax.vmap(environment.prepare), levels)


def _begun(
    environment: Environment, network: Network, levels: Prepared, keys: Key[Array, " n"], mesh: Mesh | None
) -> _Play:
    """Episodes before their first step.

    Placed as a segment of a placed network leaves them: otherwise the second segment would be compiled again.
    """
    play = _begin(environment, network, levels, keys, mesh)
    return devices.place_beside(network, play) if mesh is None else play


@eqx.filter_jit
def _begin(
    environment: Environment, network: Network, levels: Prepared, keys: Key[Array, " n"], mesh: Mesh | None
) -> _Play:
    # Step numbers start at 1, so that 0 is free for the key of the reset.
    reset_keys = _keys_of_step(keys, 0)
    observation, state = devices.on_own_rows(mesh, jax.vmap(environment.reset), reset_keys, levels)
    count = keys.shape[0]
    play = _Play(
        observation=observation,
        state=state,
        memory=network.initial_memory(count),
        running=jnp.ones(count, bool),
        start=jnp.ones(count, bool),
        total=jnp.zeros(count),
        solved=jnp.zeros(count, bool),
        length=jnp.zeros(count, jnp.int32),
    )
    # As a segment leaves it: placed otherwise, the second segment would be compiled again.
    return devices.split(mesh, play)


@eqx.filter_jit
def _segment(
    environment: Environment,
    network: Network,
    levels: Prepared,
    keys: Key[Array, " n"],
    play: _Play,
    *,
    mesh: Mesh | None,
    keep_states: bool = False,
) -> tuple[_Play, EnvState | None]:
    """Go on for some steps; with the states that they led to, [steps, n, ...], if those are asked for."""

    def body(play: _Play, _: None) -> tuple[_Play, EnvState | None]:
        memory, decision = network.step(play.memory, play.observation, play.start)
        action_keys, step_keys = jnp.moveaxis(
            jax.vmap(jax.random.split)(_keys_of_step(keys, play.length + 1)), 1, 0
        )
        action = jax.vmap(lambda policy, key: policy.sample(key))(decision.policy, action_keys)
        make_step = jax.vmap(environment.step)
        step = devices.on_own_rows(mesh, make_step, step_keys, levels, play.state, action)
        ended = step.terminated | step.truncated
        return _Play(
            observation=step.observation,
            state=step.state,
            memory=memory,
            running=play.running & ~ended,
            start=jnp.zeros_like(play.start),
            total=play.total + jnp.where(play.running, step.reward, 0.0),
            solved=play.solved | (play.running & step.solved),
            length=play.length + play.running,
        ), (step.state if keep_states else None)

    play, states = jax.lax.scan(body, play, length=SEGMENT)
    return devices.split(mesh, play), states


def _keys_of_step(keys: Key[Array, " n"], step: Array | int) -> Key[Array, " n"]:
    steps = jnp.broadcast_to(jnp.asarray(step), keys.shape)
    return jax.vmap(jax.random.fold_in)(keys, steps)
