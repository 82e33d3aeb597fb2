"""How much memory a run takes at least, reckoned from its config alone. Imports no JAX.

Only what must be there at the same time is counted, each array once unless it is said otherwise, so that no
run is refused that would have worked. What is refused could not have been allocated.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cenie.run.config import EPISODES_AT_ONCE, Config
from cenie.settings import Problem
from cenie.spaces import numbers_in
from cenie.student.config import Sizes
from cenie.teach.config import Cenie
from cenie.teach.methods import ReplayTeacher

_NUMBER = 4
"""Bytes of a number in single precision."""

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
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
            f"{need.purpose} takes {readable(need.size)} or more of the {readable(total)} that are needed; "
            f"this machine has {readable(available)} of memory",
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
    for name in _LIMITS:
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
    yield Need(steps * (config.measures.observation_bytes + _NUMBER * (5 + features)), "a rollout", fields)
    size = steps // student.ppo.minibatches * _NUMBER * sizes.activations
    yield Need(size, "a minibatch", (*fields, *sizes.fields))
    yield from evaluation_needs(config, max(config.run.episodes, config.run.final_episodes))


def evaluation_needs(config: Config, episodes: int) -> Iterator[Need]:
    """The large arrays of a run that is evaluated; they are those of its state, and of playing."""
    sizes = _sizes(config)
    # Each with its gradient and the two moments of the optimiser.
    yield Need(4 * _NUMBER * sizes.parameters, "the network", sizes.fields)
    # So many episodes are played at the same time. A suite has one level or more.
    playing = min(episodes, EPISODES_AT_ONCE) * (_NUMBER * sizes.memory + config.measures.observation_bytes)
    yield Need(playing, "an evaluation", ("run.episodes", "run.final_episodes", sizes.fields[0]))
    if isinstance(config.teacher, ReplayTeacher):
        # The buffer before and after a cycle: levels, and some numbers for each.
        slot = 2 * (config.measures.level_bytes + 8 * _NUMBER)
        size = config.teacher.replay.capacity * slot
        yield Need(size, "the level buffer", ("teacher.replay.capacity", "env"))
    novelty = _novelty(config)
    if novelty is not None:
        dimensions = sizes.features + numbers_in(config.measures.action_space)
        yield from _coverage_needs(novelty.coverage, config.student.num_steps, dimensions)


def _novelty(config: Config) -> Cenie | None:
    return config.teacher.novelty if isinstance(config.teacher, ReplayTeacher) else None


def _sizes(config: Config) -> Sizes:
    """Of the network, with the settings that decide them by their full paths."""
    sizes = config.student.network.sizes(config.measures.observation_parts, config.measures.action_space)
    return replace(sizes, fields=tuple(f"student.network.{name}" for name in sizes.fields))


def _coverage_needs(coverage: Any, steps: int, dimensions: int) -> Iterator[Need]:
    path = "teacher.novelty.coverage"
    points = coverage.window * steps
    # The window before and after a cycle.
    window = 2 * _NUMBER * points * dimensions
    yield Need(window, "the coverage window", (f"{path}.window", "student.num_steps"))
    fitted = min(points, coverage.max_points or points)
    if coverage.model in ("mixture", "pca"):
        dimensions = min(dimensions, coverage.pca_dimensions) if coverage.model == "pca" else dimensions
        most = coverage.components[1]
        covariances = most * dimensions * (dimensions if coverage.covariance == "full" else 1)
        size = _NUMBER * (most * fitted + covariances)
        yield Need(size, "the mixture", (f"{path}.components", f"{path}.max_points"))
    elif coverage.model == "neighbours":
        size = _NUMBER * coverage.neighbours_kept * dimensions
        yield Need(size, "the neighbours", (f"{path}.neighbours_kept",))
    else:
        width = coverage.distillation_size
        size = _NUMBER * (width * (width + dimensions) + coverage.distillation_batch * width)
        yield Need(size, "the distillation", (f"{path}.distillation_size", f"{path}.distillation_batch"))


def readable(size: int) -> str:
    """Bytes in the largest fitting unit."""
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(max(len(str(size)) - 1, 0) // 3, len(units) - 1)
    return f"{size / 1000**power:.3g} {units[power]}"
