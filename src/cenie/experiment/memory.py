"""The least memory that a run takes, read off the shapes of its arrays. Nothing is compiled.

Only what must be there at the same time is counted, each array once unless it is said otherwise, so that no
run is refused that would have worked. What is refused could not have been allocated.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from cenie.envs.base import Domain, Environment
from cenie.experiment.build import Parts, build
from cenie.experiment.config import MAX_PARALLEL_EPISODES, Config
from cenie.records import Rollout
from cenie.settings import Problem
from cenie.spaces import Space
from cenie.student.config import StudentConfig
from cenie.student.networks.base import Network
from cenie.teach.cycle import Setup, TrainState, state_shapes
from cenie.teach.source import LearningSource

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how much of the machine a container may have."""


@dataclasses.dataclass(frozen=True)
class Need:
    """Memory that a run takes, for what, and the settings that decide how much."""

    size: int
    purpose: str
    fields: tuple[str, ...]


def memory_problems(needs: Iterable[Need], available: int | None = None) -> list[Problem]:
    """Why what is needed does not fit in the memory (by default this machine's); empty if it may fit."""
    available = memory_size() if available is None else available
    needs = sorted(needs, key=lambda need: need.size, reverse=True)
    total = sum(need.size for need in needs)
    if available is None or total <= available:
        return []
    return [
        Problem(
            ", ".join(need.fields),
            f"{need.purpose} takes {format_bytes(need.size)} or more of the {format_bytes(total)} that are "
            f"needed; this machine has {format_bytes(available)} of memory",
        )
        # What is small beside the rest is not worth changing.
        for need in needs
        if need.size > total / 5
    ]


def memory_size() -> int | None:
    """The bytes of memory that this process may use; None if the system does not say."""
    try:
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (ValueError, OSError):
        return None
    for name in _CGROUP_LIMITS:
        try:
            sizes.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(size for size in sizes if size > 0)


def training_problems(config: Config, parts: Parts | None = None) -> list[Problem]:
    """Why this machine has not the memory to train a run; empty if it may have.

    Args:
        config: The settings of the run.
        parts: What is passed from Python in the place of what they name.

    Raises:
        SettingsError: The parts do not fit the settings.
    """
    return memory_problems(training_needs(config, *build(config, parts)))


def evaluation_problems(config: Config, episodes: int, parts: Parts | None = None) -> list[Problem]:
    """The reasons why this machine lacks the memory to evaluate a run with this many episodes; empty if it
    may have it."""
    return memory_problems(evaluation_needs(build(config, parts)[1], episodes))


def training_needs(config: Config, domain: Domain, setup: Setup) -> Iterator[Need]:
    """The large arrays of a run that trains: the state before and after a cycle, and what a cycle plays."""
    state = state_shapes(setup)
    yield from _state_needs(state, copies=2)
    settings, sizes = setup.student, ("student.num_levels", "student.num_steps")
    # The plays of all students are told together; features are kept of the first one only.
    has_features = setup.curriculum.novelty is not None or setup.recorded_points > 0
    rollouts = [
        _rollout(setup.environment, settings, each.network, keep_features=has_features and not number)
        for number, each in enumerate(state.students)
    ]
    yield Need(_bytes(rollouts), "a rollout", sizes)
    source = setup.curriculum.source
    if isinstance(source, LearningSource):
        played = _rollout(*source.learner(state.teacher.source, settings.num_levels))
        yield Need(_bytes(played), "a rollout of the designer", ("student.num_levels", "env"))
    prepared = settings.num_levels * _prepared_bytes(domain)
    yield Need(prepared, "a batch of prepared levels", ("student.num_levels", "env"))
    # They learn one after another.
    yield max(gradient_needs(setup, state), key=lambda need: need.size)
    episodes = max(config.run.episodes, config.run.final_episodes)
    yield _evaluation_need(setup, state, episodes)


def evaluation_needs(setup: Setup, episodes: int) -> Iterator[Need]:
    """The large arrays of a run that is evaluated: its state, and what is seen and remembered in playing."""
    state = state_shapes(setup)
    yield from _state_needs(state, copies=1)
    yield _evaluation_need(setup, state, episodes)


def _state_needs(state: TrainState, copies: int) -> Iterator[Need]:
    """The state of the students, and each part of the teacher's, with the group of settings of that name."""
    yield Need(copies * _bytes(state.students), "the state of the students", ("student.network",))
    settings = {"buffers": ("teacher.replay.capacity", "env"), "novelty": ("teacher.novelty",)}
    for field in dataclasses.fields(state.teacher):
        size = copies * _bytes(getattr(state.teacher, field.name))
        yield Need(size, f"the teacher's state ({field.name})", settings.get(field.name, ("teacher",)))


def gradient_needs(setup: Setup, state: TrainState) -> Iterator[Need]:
    """The arrays that the gradients of all that learns keep from the forward pass.

    Args:
        setup: The fixed parts of a run.
        state: Its state, as shapes.

    Yields:
        One for each student, one for a designer of levels, and one for a correction of scores.
    """
    sizes = ("student.num_levels", "student.num_steps")
    for settings, student in zip(setup.students, state.students):
        size = _residual_bytes(setup.environment, settings, student.network)
        fields = (*sizes, "student.ppo.minibatches", "student.network")
        yield Need(size, "the gradient of a minibatch", fields)
    source, replay = setup.curriculum.source, setup.curriculum.replay
    if isinstance(source, LearningSource):
        size = _residual_bytes(*source.learner(state.teacher.source, setup.student.num_levels))
        yield Need(size, "the gradient of the designer", ("student.num_levels", "teacher.designer"))
    if replay is not None and replay.correction is not None:
        rollout = _rollout(setup.environment, setup.student, state.student.network)
        residuals = _residuals(replay.correction.errors, state.teacher.correction, rollout)
        yield Need(_bytes(residuals), "the gradient of the correction", (*sizes, "teacher.correction"))


def _evaluation_need(setup: Setup, state: TrainState, episodes: int) -> Need:
    """A suite has one level or more; all of its `episodes` are played at the same time."""
    memory = jax.eval_shape(lambda network: network.initial_memory(1), state.student.network)
    size = _bytes(memory) + _bytes(_observations(setup.environment))
    fields = ("run.episodes", "run.final_episodes", "student.network")
    return Need(min(episodes, MAX_PARALLEL_EPISODES) * size, "an evaluation", fields)


def _rollout(
    environment: Environment, settings: StudentConfig, network: Network, *, keep_features: bool = False
) -> Rollout:
    """The rollout of a student, but for a count of bad numbers."""
    levels, steps = settings.num_levels, settings.num_steps

    def play_one_step(network: Network, seen: PyTree[Array], flag: Array, key: Array) -> Rollout:
        _, decision = network.step(network.initial_memory(1), seen, flag)
        of_step = seen, decision.policy.sample(key), decision.value, flag, decision.features
        seen, action, number, flag, features = jax.tree.map(lambda leaf: leaf[None], of_step)
        return Rollout(
            observation=seen,
            action=action,
            log_prob=number,
            value=number,
            reward=number,
            terminated=flag,
            truncated=flag,
            solved=flag,
            start=flag,
            memory=(),
            last_value=number[0],
            final_value=number if settings.ppo.bootstrap_at_timeout else None,
            features=features if keep_features else None,
        )

    def of_all_levels(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        shape = (levels,) if leaf.ndim == 1 else (levels, steps, *leaf.shape[2:])
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    flag = jax.ShapeDtypeStruct((1,), np.bool_)
    step = eqx.filter_eval_shape(play_one_step, network, _observations(environment, 1), flag, _key())
    memory = eqx.filter_eval_shape(lambda network: network.initial_memory(levels), network)
    return eqx.tree_at(lambda rollout: rollout.memory, jax.tree.map(of_all_levels, step), memory)


def _prepared_bytes(domain: Domain) -> int:
    """The size of what `Environment.prepare` makes of a level, beyond the level."""
    level = jax.eval_shape(domain.generator("random"), _key())
    return max(0, _bytes(jax.eval_shape(domain.environment.prepare, level)) - _bytes(level))


def _residual_bytes(environment: Environment, settings: StudentConfig, network: Network) -> int:
    """The arrays that the gradient of a minibatch keeps from the forward pass, in bytes."""
    steps, parts = settings.num_steps, settings.ppo.minibatches
    rows = settings.num_levels // parts if network.recurrent else settings.num_levels * steps // parts
    if not network.recurrent:
        rows = min(rows, network.rows_at_once or rows)
    shape = (rows, steps) if network.recurrent else (rows,)

    def way_forward(network: Network, observations: PyTree[Array], start: Array) -> Any:
        memory = network.initial_memory(rows)
        if network.recurrent:
            decision = network.sequence(memory, observations, start)
        else:
            decision = network.step(memory, observations, start)[1]
        return decision.policy, decision.value

    start = jax.ShapeDtypeStruct(shape, np.bool_)
    return _bytes(_residuals(way_forward, network, _observations(environment, *shape), start))


def _residuals(forward: Callable[..., Any], model: PyTree, *seen: Any) -> Any:
    """The arrays kept by the derivative of `forward(model, *seen)` by the numbers of the model."""

    def residuals(model: PyTree, *seen: Any) -> Any:
        learned, fixed = eqx.partition(model, eqx.is_inexact_array)
        return jax.vjp(lambda learned: forward(eqx.combine(learned, fixed), *seen), learned)[1]

    return eqx.filter_eval_shape(residuals, model, *seen)


def _observations(environment: Environment, *shape: int) -> PyTree[jax.ShapeDtypeStruct]:
    def of_space(space: Space) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*shape, *space.shape), space.dtype)

    return jax.tree.map(of_space, environment.observation_space)


def _key() -> jax.ShapeDtypeStruct:
    """The shape of a key; a real one would start a backend."""
    return jax.eval_shape(lambda: jax.random.key(0))


def _bytes(tree: PyTree) -> int:
    """The size of all arrays in a tree, which may be shapes only."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype"))
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


def format_bytes(size: int) -> str:
    """Bytes in the largest fitting unit."""
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(max(len(str(size)) - 1, 0) // 3, len(units) - 1)
    return f"{size / 1000**power:.3g} {units[power]}"
