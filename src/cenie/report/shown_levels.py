"""Which levels to show, and where each is played: of a suite, of the level buffer, of a generator, of a file.

Everything goes through `Domain`, so that it works for every domain that has pictures.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from cenie.envs.base import Domain, Environment, Renderer
from cenie.experiment.evaluate import environment_of, episode_keys
from cenie.records import Level
from cenie.report.level_files import Drawing
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run
from cenie.rundir.snapshot_arrays import levels_of_snapshot
from cenie.rundir.snapshots import read_snapshot
from cenie.settings import Problem, SettingsError, show


@dataclass(frozen=True, eq=False)
class Scene:
    """A level to be shown: its name, the environment that it is played in, and the key of the episode."""

    name: str
    level: Level
    environment: Environment
    key: PRNGKeyArray


def renderer_of(domain: Domain) -> Renderer:
    """The renderer of the domain. Raises `SettingsError` if it cannot be."""
    if domain.render is None:
        raise SettingsError([Problem("domain", f"{show(domain.name)} has no pictures (Domain.render)")])
    return domain.render


def suite_scenes(
    domain: Domain, suite: str, *, seed: int = 0, episode: int = 0, all_variants: bool = False
) -> list[Scene]:
    """The levels of a suite, of each name only the first variant unless all are asked for.

    Levels and keys are as for the episode of this number in `cenie evaluate` with this seed.
    """
    made = domain.suites[suite]()
    labels, levels = made.draw(seed, episode + 1)
    keys = episode_keys(seed, len(labels), episode + 1)
    environment = environment_of(domain, made)
    scenes: dict[str, Scene] = {}
    for number in range(episode, len(labels), episode + 1):
        level, variant, _ = labels[number]
        name = f"{level}:{variant}" if all_variants else level
        scenes.setdefault(name, Scene(name, levels[number], environment, keys[number]))
    return list(scenes.values())


def find_suite_scene(domain: Domain, name: str, suites: Sequence[str], *, seed: int, episode: int) -> Scene:
    """The level of a name, `LEVEL` or `LEVEL:VARIANT`, in the first of the suites that has it.

    Raises `SettingsError` if none has.
    """
    known: dict[str, None] = {}
    for suite in suites:
        scenes = suite_scenes(domain, suite, seed=seed, episode=episode, all_variants=":" in name)
        found = next((scene for scene in scenes if scene.name == name), None)
        if found is not None:
            return found
        known |= dict.fromkeys(scene.name for scene in scenes)
    raise SettingsError(
        [Problem("level", f"{show(name)} is no file, no id and none of {', '.join(known) or 'no levels'}")]
    )


def generated_scenes(domain: Domain, generator: str, count: int, *, seed: int = 0) -> list[Scene]:
    """Levels that a generator draws."""
    keys = jax.random.split(jax.random.key(seed), count)
    drawn = jax.device_get(jax.jit(jax.vmap(domain.generator(generator)))(keys))
    return [
        Scene(f"{generator} {number}", _row(drawn, number), domain.environment, keys[number])
        for number in range(count)
    ]


def drawn_scene(domain: Domain, drawing: Drawing, *, seed: int = 0) -> Scene:
    """The level of a file. Raises `SettingsError` with the reason if it is none of this domain."""
    read = domain.from_json if drawing.is_json else domain.from_text
    kind = "JSON" if drawing.is_json else "text"
    if read is None:
        raise SettingsError([Problem("level", f"levels of {show(domain.name)} are not read from {kind}")])
    try:
        level = read(drawing.content)
    except ValueError as error:
        raise SettingsError([Problem("level", f"{drawing.name}: {error}")]) from error
    return Scene(drawing.name, level, domain.environment, jax.random.key(seed))


def stored_scene(domain: Domain, path: Path, number: int) -> Scene:
    """The level of an id in the level buffer of a run, as the latest snapshot has it that has it at all.

    Raises `SettingsError` if none has.
    """
    snapshots = Run(path).snapshots
    for file in reversed(snapshots.values()):
        for buffer in read_snapshot(file).buffers:
            (rows,) = np.nonzero(buffer["id"] == number)
            if len(rows):
                return next(buffer_scenes(domain, buffer, rows[:1].tolist()))
    where = f"the {len(snapshots)} snapshots of {path}" if snapshots else f"{path}, which has no snapshots"
    raise SettingsError([Problem("level", f"there is no level {number} in {where}")])


def best_stored_scenes(domain: Domain, path: Path, by: str, count: int) -> list[Scene]:
    """The stored levels of the newest snapshot with the highest values in a column; none without a buffer.

    Raises `SettingsError` if there is no such column.
    """
    snapshot = Run(path).snapshot()
    if snapshot is None or not snapshot.buffers:
        return []
    buffer = snapshot.buffers[0]
    columns = [name for name, values in buffer.items() if values.ndim == 1 and not name.startswith("levels")]
    if by not in columns:
        raise SettingsError([Problem("by", f"must be one of {', '.join(columns)}, got {show(by)}")])
    order = np.argsort(-np.nan_to_num(buffer[by].astype(float), nan=-np.inf), kind="stable")
    return list(buffer_scenes(domain, buffer, order[:count].tolist()))


def buffer_scenes(domain: Domain, buffer: dict[str, np.ndarray], rows: Iterable[int]) -> Iterator[Scene]:
    """Levels of a buffer of a snapshot, by their rows. The key of an episode is made of the level's id.

    Raises `RunDirectoryError` if they are no levels of the domain.
    """
    try:
        levels = levels_of_snapshot(buffer, _like(domain))
    except KeyError as error:
        raise RunDirectoryError(f"stored levels of {domain.name} lack {error}") from error
    for row in rows:
        number = int(buffer["id"][row])
        yield Scene(f"level {number}", _row(levels, int(row)), domain.environment, jax.random.key(number))


@functools.lru_cache(maxsize=8)
def _like(domain: Domain) -> Level:
    """A template of the domain's levels."""
    return jax.eval_shape(domain.generator("random"), jax.random.key(0))


def _row(levels: Level, number: int) -> Level:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[number], levels)


class CannotDraw(Exception):
    """Why there are no pictures."""


def stored_pictures(
    run: Run,
    chosen: Iterable[tuple[dict[str, np.ndarray], Sequence[int] | np.ndarray]],
    domains: Mapping[str, Domain],
) -> list[list[np.ndarray]]:
    """For each buffer of a snapshot a picture of each of its rows. Raises `CannotDraw` with the reason.

    A domain that is no part of the library must be among the `domains`: none is imported because a file
    names it.
    """
    try:
        domain = Run(run.path, entry=domains.get(run.domain_name)).domain
        draw = renderer_of(domain).level
        return [
            [draw(scene.level) for scene in buffer_scenes(domain, buffer, [int(row) for row in rows])]
            for buffer, rows in chosen
        ]
    except SettingsError as error:
        raise CannotDraw("; ".join(map(str, error.problems))) from error
    except Exception as error:  # A domain of somebody else's draws here, from levels that may be damaged.
        raise CannotDraw(str(error) or type(error).__name__) from error
