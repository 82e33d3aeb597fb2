"""How much memory a run takes at least, reckoned from its config alone. Imports no JAX.

Methods are told apart by their settings, so that no file of a method is loaded.

Only what must be there at the same time is counted, each array once unless it is said otherwise, so that no
run is refused that would have worked. What is refused could not have been allocated.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cenie.envs.domains import DomainSpec
from cenie.experiment.config import MAX_PARALLEL_EPISODES, Config
from cenie.novelty.config import CoverageConfig, MixtureConfig, NeighboursConfig
from cenie.settings import Problem
from cenie.spaces import DesignSpec, numbers_in
from cenie.student.config import Sizes, StudentConfig

_CAPACITY = "teacher.replay.capacity"

_FLOAT_BYTES = 4
"""Bytes of a number in single precision."""

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how much of the machine a container may have."""


@dataclass(frozen=True)
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


def training_needs(config: Config) -> Iterator[Need]:
    """The large arrays of a run that trains."""
    student, sizes = config.student, _sizes(config)
    steps = student.num_levels * student.num_steps
    fields = ("student.num_levels", "student.num_steps")
    features = sizes.features if _novelty(config) is not None or config.run.recorded_points else 0
    step_bytes = config.domain_spec.observation_bytes + _FLOAT_BYTES * 5
    # Those of all students are told of together; features are kept of the first one's only.
    size = steps * (len(config.students) * step_bytes + _FLOAT_BYTES * features)
    yield Need(size, "a rollout", fields)
    if config.domain_spec.prepared_bytes:
        size = student.num_levels * config.domain_spec.prepared_bytes
        yield Need(size, "the prepared levels", ("student.num_levels", "env"))
    minibatch = Need(_minibatch_bytes(student, sizes), "a minibatch", (*fields, *sizes.fields))
    designer = config.designer
    if designer is not None:
        size = _minibatch_bytes(designer, _designer_sizes(config))
        design_fields = ("student.num_levels", "teacher.replaces", *_designer_sizes(config).fields)
        # They learn one after another.
        minibatch = max(minibatch, Need(size, "a minibatch", design_fields), key=lambda need: need.size)
    yield minibatch
    if getattr(config.teacher, "correction", None) is not None:
        # What it reads at each step, and its memory.
        read, memory = config.domain_spec.observation_parts, config.teacher.correction.memory_size
        size = steps * _FLOAT_BYTES * (sum(map(numbers_in, read)) + memory)
        yield Need(size, "the transition model", (*fields, "teacher.correction.memory_size"))
    yield from evaluation_needs(config, max(config.run.episodes, config.run.final_episodes))


def evaluation_needs(config: Config, episodes: int) -> Iterator[Need]:
    """The large arrays of a run that is evaluated; they are those of its state, and of playing."""
    sizes, spec = _sizes(config), config.domain_spec
    # Each with its gradient and the two moments of the optimiser.
    size = len(config.students) * 4 * _FLOAT_BYTES * sizes.parameters
    yield Need(size, "the network", sizes.fields)
    if config.designer is not None:
        designed = _designer_sizes(config)
        yield Need(4 * _FLOAT_BYTES * designed.parameters, "the designer's network", designed.fields)
    # So many episodes are played at the same time. A suite has one level or more.
    episode_bytes = _FLOAT_BYTES * sizes.memory + spec.observation_bytes
    size = min(episodes, MAX_PARALLEL_EPISODES) * episode_bytes
    yield Need(size, "an evaluation", ("run.episodes", "run.final_episodes", sizes.fields[0]))
    capacity = 0
    if config.replay is not None:
        # The buffers (one for each student) before and after a cycle: levels, and some numbers for each.
        capacity = config.replay.capacity
        scores = getattr(config.teacher, "scores", ())
        numbers = 6 + max(1, len(scores)) + (_novelty(config) is not None)
        size = len(config.students) * capacity * 2 * (spec.level_bytes + numbers * _FLOAT_BYTES)
        yield Need(size, "the level buffer", (_CAPACITY, "env"))
    if hasattr(config.teacher, "kept"):
        size = config.teacher.kept * 2 * (spec.level_bytes + _FLOAT_BYTES)
        yield Need(size, "the kept levels", ("teacher.kept", "env"))
    if hasattr(config.teacher, "database"):
        # A task is two numbers or more; and the distances of new ones from all.
        size = config.teacher.database * _FLOAT_BYTES * (2 * 3 + config.student.num_levels)
        yield Need(size, "the past tasks", ("teacher.database", "student.num_levels"))
    if hasattr(config.teacher, "pairs"):
        # Each student with the two moments of the optimiser, before and after a cycle.
        size = 2 * config.teacher.pairs * 3 * _FLOAT_BYTES * sizes.parameters
        yield Need(size, "the population", ("teacher.pairs", *sizes.fields))
    novelty = _novelty(config)
    if novelty is None:
        return
    features = sizes.features
    if novelty.step_features == "observation":
        features = sum(map(numbers_in, spec.observation_parts))
    dimensions = features + numbers_in(spec.action_space)
    match novelty.kind:
        case "cenie":
            if novelty.stored.kind == "rescored":
                size = capacity * 2 * _FLOAT_BYTES * novelty.stored.points * dimensions
                yield Need(size, "the kept points", (_CAPACITY, "teacher.novelty.stored.points"))
            yield from _coverage_needs(novelty.coverage, config.student.num_steps, dimensions)
        case "diplr":
            yield from _distance_needs(novelty, capacity, dimensions)
        case "epoet":
            # The past students before and after a cycle.
            size = 2 * _FLOAT_BYTES * novelty.students * sizes.parameters
            yield Need(size, "the past students", ("teacher.novelty.students", *sizes.fields))
        case _:  # that of POET is small
            pass


def _novelty(config: Config) -> Any:
    return getattr(config.teacher, "novelty", None)


def _distance_needs(novelty: Any, capacity: int, dimensions: int) -> Iterator[Need]:
    """What is kept of the points of each level, and the distances of all pairs, before and after a cycle."""
    distance, path = novelty.distance, "teacher.novelty.distance"
    if distance.kind == "sliced":
        numbers, fields = distance.directions * distance.quantiles, ("directions", "quantiles")
    else:
        numbers, fields = distance.points * dimensions, ("points",)
    size = 2 * _FLOAT_BYTES * capacity * numbers
    yield Need(size, "the occupancies of levels", (_CAPACITY, *(f"{path}.{name}" for name in fields)))
    yield Need(2 * _FLOAT_BYTES * capacity**2, "the distances between levels", (_CAPACITY,))


def _sizes(config: Config) -> Sizes:
    """Of the network, with the settings that decide them by their full paths."""
    spec = config.domain_spec
    return _sizes_of(config.student, spec, "student")


def _designer_sizes(config: Config) -> Sizes:
    designer, spec = config.designer, config.design_spec
    assert designer is not None
    assert spec is not None
    return _sizes_of(designer, spec, "teacher.designer")


def _sizes_of(student: StudentConfig, spec: DomainSpec | DesignSpec, path: str) -> Sizes:
    sizes = student.network.sizes(spec.observation_parts, spec.action_space)
    return replace(sizes, fields=tuple(f"{path}.network.{name}" for name in sizes.fields))


def _minibatch_bytes(student: StudentConfig, sizes: Sizes) -> int:
    steps = student.num_levels * student.num_steps
    return steps // student.ppo.minibatches * _FLOAT_BYTES * sizes.activations


def _coverage_needs(coverage: CoverageConfig, steps: int, dimensions: int) -> Iterator[Need]:
    path = "teacher.novelty.coverage"
    points = coverage.window * steps
    # The window before and after a cycle.
    window = 2 * _FLOAT_BYTES * points * dimensions
    yield Need(window, "the coverage window", (f"{path}.window", "student.num_steps"))
    fitted = min(points, coverage.max_points or points)
    if isinstance(coverage, MixtureConfig):
        dimensions = min(dimensions, coverage.pca_dimensions or dimensions)
        max_components = coverage.components[1]
        covariances = max_components * dimensions * (dimensions if coverage.covariance == "full" else 1)
        size = _FLOAT_BYTES * (max_components * fitted + covariances)
        yield Need(size, "the mixture", (f"{path}.components", f"{path}.max_points"))
    elif isinstance(coverage, NeighboursConfig):
        size = _FLOAT_BYTES * coverage.kept * dimensions
        yield Need(size, "the neighbours", (f"{path}.kept",))


def format_bytes(size: int) -> str:
    """Bytes in the largest fitting unit."""
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(max(len(str(size)) - 1, 0) // 3, len(units) - 1)
    return f"{size / 1000**power:.3g} {units[power]}"


def too_large(config: Config, needs: Iterable[Need]) -> list[Problem]:
    # How large a network from elsewhere is cannot be told from the settings.
    if any(part.startswith("network ") for part in config.from_python):
        return []
    return memory_problems(needs)
