"""`cenie play` and `cenie gallery`: films and pictures of levels, and of what a student does on them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cenie.command.configs import check_has_student, open_player
from cenie.command.exit_codes import OK, say
from cenie.command.options import let_import, read_request
from cenie.envs.domains import DOMAINS, find_domain, is_reference
from cenie.report.level_files import Drawing, looks_like_file, read_drawing
from cenie.rundir.export import Student
from cenie.rundir.files import RunDirectoryError, file_name
from cenie.rundir.run import Run
from cenie.settings import Problem, SettingsError, setting, show
from cenie.system.durable import WriteError, replace_file
from cenie.xla.flags import show_devices

if TYPE_CHECKING:
    from cenie.envs.base import Domain
    from cenie.report.shown_levels import Scene

PLAY_USAGE = """\
cenie play RUN|STUDENT [LEVEL] [--suite NAME] [--episode N] [--seed S] [--fps F] [--out FILE]
           [--domain MODULE:ATTRIBUTE]

films the student of a run, or an exported one, on a level, as a GIF; with --out FILE.png: a picture of the
end of the episode

LEVEL is the name of a level of a suite (LEVEL or LEVEL:VARIANT; by default the first of the run's own suite),
the id of a level of the run's buffer, or a file: JSON, or for mazes a drawing of # . G and > v < ^
The episode on a level of a suite is the one of this number that `cenie evaluate` with this seed counts.
--domain names the run's domain again if it is one of your own: none is imported because a file names it.
"""

GALLERY_USAGE = """\
cenie gallery DOMAIN [LEVEL ...] [--suite NAME | --generator NAME] [--count N] [--seed S]
cenie gallery RUN [LEVEL ...] [--suite NAME | --by COLUMN] [--count N] [--seed S]
              [--columns N] [--out FILE.png|FILE.gif] [--fps F] [--domain MODULE:ATTRIBUTE]

draws levels side by side, as a PNG, and says which: of a DOMAIN the levels that a generator draws, or the
levels of a suite; of a RUN the stored levels that are likeliest to be replayed (or have the most of a column:
--by regret, novelty, generation, ...), or with --suite held-out levels and what the student does on each
with --out FILE.gif and a RUN: a film of the student on all of them
--count N   how many: by default a whole suite (of 100 levels at most), and 16 of others

LEVEL is the name of a level of a suite, the id of a level of the run's buffer, or a file: JSON, or for mazes
a drawing of # . G and > v < ^
--domain names the run's domain again if it is one of your own: none is imported because a file names it.
"""

_FORMATS = (".png", ".gif")
_MOST_OF_SUITE, _MOST_OF_OTHERS = 100, 16
"""The number of levels that a gallery has by default."""


@dataclass(frozen=True)
class PlayRequest:
    """The request of `cenie play`, besides the level."""

    suite: str | None = None
    episode: int = setting(0, minimum=0, maximum=1000)
    seed: int = setting(0, minimum=0, maximum=2**31 - 1)
    fps: float | None = setting(None, above=0, maximum=50)
    longest: int = setting(5000, minimum=1, maximum=50_000)


@dataclass(frozen=True)
class GalleryRequest:
    """The request of `cenie gallery`, besides levels."""

    suite: str | None = None
    generator: str | None = None
    by: str | None = None
    count: int | None = setting(None, minimum=1, maximum=400)
    columns: int | None = setting(None, minimum=1, maximum=40)
    seed: int = setting(0, minimum=0, maximum=2**31 - 1)
    fps: float | None = setting(None, above=0, maximum=50)
    longest: int = setting(1000, minimum=1, maximum=50_000)


@dataclass(frozen=True)
class Gallery:
    """Everything that is known before JAX is used: of a domain, or of a run or an exported student."""

    entry: "Domain"
    player: Run | Student | None
    levels: tuple[str | Drawing, ...]
    request: GalleryRequest
    is_film: bool

    @property
    def is_played(self) -> bool:
        """Whether a student plays the levels."""
        return self.player is not None and (self.is_film or self.request.suite is not None)


def play_command(words: list[str], options: dict[str, str]) -> int:
    if not 1 <= len(words) <= 2:
        expected = PLAY_USAGE.splitlines()[0].removeprefix("cenie play ")
        raise SettingsError([Problem("play", f"expected {expected}")])
    path, *named = words
    player = open_player(Path(path), options.pop("domain", None), devices=1)
    config = player.config
    out = options.pop("out", None)
    request = read_request(PlayRequest, options)
    if problems := _unknown("suite", request.suite, tuple(config.entry.suites)):
        raise SettingsError(problems)
    (level,) = map(_level, named) if named else (None,)
    shown = level.name if isinstance(level, Drawing) else level or "level"
    file = _picture_file(out, f"{Path(path).resolve().name}-{shown}", ".gif")
    check_has_student(player)
    show_devices(1, *config.entry.xla_flags)
    from cenie.report import films, shown_levels
    from cenie.xla.cache import kept_programs

    domain = player.domain
    shown_levels.renderer_of(domain)
    own = request.suite or config.run.suite
    if level is None:
        scene = shown_levels.suite_scenes(domain, own, seed=request.seed, episode=request.episode)[0]
    else:
        suites = [own] if request.suite else [own, *(name for name in domain.suites if name != own)]
        scene = _scene(domain, level, suites, run=player.path, seed=request.seed, episode=request.episode)
    with kept_programs():
        (episode,) = films.record(domain, player.network, [scene], request.longest)
    for message in player.passed_over:
        say(message)
    if file.suffix.lower() == ".gif":
        content = films.sheet_gif([films.film(domain, scene, episode)], 1, request.fps)
    else:
        content = films.sheet_png([films.last_look(domain, scene, episode)], 1)
    replace_file(file, content)
    say(f"{scene.name}: {films.outcome(episode)}")
    if level is None or not (isinstance(level, Drawing) or _is_id(level)):
        say(films.PLAYED_AGAIN)
    say(str(file))
    return OK


def gallery_command(words: list[str], options: dict[str, str]) -> int:
    if not words:
        raise SettingsError([Problem("gallery", "expected DOMAIN or RUN, e.g. `cenie gallery maze`")])
    out, domain = options.pop("out", None), options.pop("domain", None)
    request = read_request(GalleryRequest, options)
    place, *named = words
    if place in DOMAINS or is_reference(place):
        let_import(place)
        entry, player = find_domain(place), None
    elif Path(place).is_dir():
        player = open_player(Path(place), domain, devices=1)
        entry = player.config.entry
    else:
        known = f"must be a run directory or one of {', '.join(DOMAINS)}, got {show(place)}"
        raise SettingsError([Problem("gallery", known)])
    what = request.suite or request.generator or request.by or "levels"
    file = _picture_file(out, f"{place if player is None else Path(place).resolve().name}-{what}", ".png")
    gallery = Gallery(
        entry, player, tuple(map(_level, named)), request, is_film=file.suffix.lower() == ".gif"
    )
    _check(gallery)
    show_devices(1, *entry.xla_flags)
    replace_file(file, _drawn(gallery))
    say(str(file))
    return OK


def _picture_file(given: str | None, name: str, suffix: str) -> Path:
    """The file that was asked for, or one in the present directory, named after what it shows.

    Raises `SettingsError` or `WriteError` if no picture can be written there.
    """
    path = Path(file_name(name) + suffix if given is None else given)
    problem = None
    if path.suffix.lower() not in _FORMATS:
        problem = f"must be a file that ends in {' or '.join(_FORMATS)}, got {show(str(path))}"
    elif path.is_dir():
        problem = f"{show(str(path))} is a directory"
    elif not path.parent.is_dir():
        problem = f"there is no directory {show(str(path.parent))}"
    if problem is not None:
        raise SettingsError([Problem("out", problem)])
    if not os.access(path.parent, os.W_OK):
        raise WriteError(f"cannot write in {path.parent}, where {path.name} would go")
    return path


def _level(word: str) -> str | Drawing:
    """The content of a file, if the word names one; otherwise a name or an id."""
    return read_drawing(Path(word)) if looks_like_file(word) else word


def _is_id(level: str) -> bool:
    return level.isascii() and level.isdigit()


def _unknown(name: str, given: str | None, known: Sequence[str]) -> list[Problem]:
    if given is None or given in known:
        return []
    return [Problem(name, f"must be one of {', '.join(known)}, got {show(given)}")]


def _check(gallery: Gallery) -> None:
    """Refuse what cannot be drawn, with every reason."""
    request, entry = gallery.request, gallery.entry
    problems = [
        *_unknown("suite", request.suite, tuple(entry.suites)),
        *_unknown("generator", request.generator, (*entry.generators, *entry.roles)),
    ]
    if gallery.player is None:
        if request.by is not None:
            problems.append(Problem("by", "is for the stored levels of a run; a domain has none"))
        if gallery.is_film:
            problems.append(Problem("out", "a film needs a student: name a run instead of a domain"))
        if any(isinstance(level, str) and level.isdigit() for level in gallery.levels):
            problems.append(Problem("level", "an id is of a level of a run's buffer; a domain has none"))
    elif request.generator is not None:
        problems.append(
            Problem("generator", f"is for a domain: cenie gallery {gallery.player.config.domain} ...")
        )
    chosen = [name for name in ("suite", "generator", "by") if getattr(request, name) is not None]
    if len(chosen) > 1:
        problems.append(Problem(chosen[1], f"contradicts --{chosen[0]}"))
    if problems:
        raise SettingsError(problems)
    if gallery.player is not None and gallery.is_played:
        check_has_student(gallery.player)


def _drawn(gallery: Gallery) -> bytes:
    """The content of the file."""
    from cenie.report import films, shown_levels
    from cenie.xla.cache import kept_programs

    player = gallery.player
    domain = gallery.entry if player is None else player.domain
    renderer = shown_levels.renderer_of(domain)
    chosen, what = _scenes(domain, gallery)
    columns = gallery.request.columns or _columns(len(chosen), renderer.level(chosen[0].level).shape)
    say(what)
    for number, first in enumerate(range(0, len(chosen), columns), 1):
        say(f"  row {number}: {', '.join(scene.name for scene in chosen[first : first + columns])}")
    if player is None or not gallery.is_played:
        return films.sheet_png([renderer.level(scene.level) for scene in chosen], columns)
    with kept_programs():
        episodes = films.record(domain, player.network, chosen, gallery.request.longest)
    played = list(zip(chosen, episodes, strict=True))
    for scene, episode in played:
        say(f"{scene.name}: {films.outcome(episode)}")
    if gallery.request.suite:
        say(films.PLAYED_AGAIN)
    if not gallery.is_film:
        return films.sheet_png([films.last_look(domain, *each) for each in played], columns)
    made = [films.film(domain, *each, most_frames=films.FRAMES_TOGETHER) for each in played]
    return films.sheet_gif(made, columns, gallery.request.fps)


def _scenes(domain: "Domain", gallery: Gallery) -> "tuple[Sequence[Scene], str]":
    """The levels to draw, at least one, and what they are."""
    from cenie.report import shown_levels

    request, seed = gallery.request, gallery.request.seed
    run = None if gallery.player is None else gallery.player.path
    if gallery.levels:
        suites = [request.suite] if request.suite else list(domain.suites)
        named = [_scene(domain, level, suites, run=run, seed=seed) for level in gallery.levels]
        return named, "the levels that were named:"
    if request.suite is not None:
        suite = shown_levels.suite_scenes(domain, request.suite, seed=seed)
        drawn = suite[: request.count or _MOST_OF_SUITE]
        number = f"all {len(suite)}" if len(drawn) == len(suite) else f"{len(drawn)} of the {len(suite)}"
        return drawn, f"{number} levels of {request.suite}:"
    count = request.count or _MOST_OF_OTHERS
    if run is None:
        generator = request.generator or "random"
        made = shown_levels.generated_scenes(domain, generator, count, seed=seed)
        return made, f"{count} levels of the generator {generator}, seed {seed}:"
    by = request.by or "probability"
    stored = shown_levels.best_stored_scenes(domain, run, by, count)
    if not stored:
        raise RunDirectoryError(
            f"{run} has no snapshot of a level buffer; --suite NAME draws held-out levels"
        )
    return stored, f"the {len(stored)} stored levels of the highest {by}:"


def _scene(
    domain: "Domain",
    level: str | Drawing,
    suites: Sequence[str],
    *,
    run: Path | None,
    seed: int,
    episode: int = 0,
) -> "Scene":
    """The level of a file, of an id in the buffer of a run, or of a name in one of the suites."""
    from cenie.report import shown_levels

    if isinstance(level, Drawing):
        return shown_levels.drawn_scene(domain, level, seed=seed)
    if run is not None and _is_id(level):
        return shown_levels.stored_scene(domain, run, int(level))
    return shown_levels.find_suite_scene(domain, level, suites, seed=seed, episode=episode)


def _columns(count: int, shape: tuple[int, ...]) -> int:
    """As many in a row as make the sheet somewhat wider than high, and its last row as full as may be."""
    height, width = shape[:2]
    wanted = max(1, min(count, round((count * height / width) ** 0.5 * 1.3)))
    return min(range(wanted, min(count, wanted + 2) + 1), key=lambda columns: -count % columns)
