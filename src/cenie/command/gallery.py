"""`cenie gallery`: pictures of levels side by side, of a domain, of a run or of an exported student."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cenie import settings
from cenie.command.exit_codes import OK, say
from cenie.command.options import check_has_student, let_import, open_player, parse
from cenie.command.picture_file import is_film, picture_file, plain_values
from cenie.envs.domains import DOMAINS, find_domain, is_reference
from cenie.report.level_files import Drawing, looks_like_file, read_drawing
from cenie.rundir.export import Student
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run
from cenie.settings import Problem, SettingsError, setting, show
from cenie.system.durable import replace_file
from cenie.xla.flags import show_devices

if TYPE_CHECKING:
    from cenie.envs.base import Domain
    from cenie.report.shown_levels import Scene

USAGE = """\
cenie gallery DOMAIN [LEVEL ...] [--suite NAME | --generator NAME] [--count N] [--seed S]
cenie gallery RUN|STUDENT [LEVEL ...] [--suite NAME | --by COLUMN] [--count N] [--seed S]
              [--columns N] [--out FILE.png|FILE.gif] [--fps F] [--domain MODULE:ATTRIBUTE]

draws levels side by side, as a PNG, and says which: of a DOMAIN those that a generator draws, or those of a
suite; of a RUN the stored levels that are likeliest to be replayed (--by regret, novelty, generation, ...:
those with the most of it), or with --suite the held-out levels and what the student does on each
with --out FILE.gif and a RUN: a film of the student on all of them
--count N   how many: by default a whole suite (of 100 levels at most), and 16 of others

LEVEL is the name of a level of a suite, the id of a level of the run's buffer, or a file: JSON, or for mazes
a drawing of # . G and > v < ^
--domain names the run's domain again if it is one of your own: none is imported because a file names it.
"""


_MOST_OF_SUITE, _MOST_OF_OTHERS = 100, 16
"""The number of levels that are drawn by default."""


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
class Wanted:
    """Everything that is known before JAX is loaded: the domain, the run, the levels."""

    domain: str
    entry: "Domain"
    player: Run | Student | None
    levels: tuple[str | Drawing, ...]
    request: GalleryRequest
    film: bool


def gallery_command(arguments: list[str]) -> int:
    words, options = parse(arguments)
    if "help" in options:
        sys.stdout.write(USAGE)
        return OK
    if not words:
        raise SettingsError([Problem("gallery", "expected DOMAIN or RUN, e.g. `cenie gallery maze`")])
    out, domain = options.pop("out", None), options.pop("domain", None)
    request = settings.read(GalleryRequest, plain_values(options))
    place, *levels = words
    player = None if _is_domain(place) else open_player(Path(place), domain, devices=1)
    let_import(place)
    entry = find_domain(place) if player is None else player.config.entry
    what = request.suite or request.generator or request.by or "levels"
    file = picture_file(out, f"{Path(place).resolve().name if player else place}-{what}", ".png")
    wanted = Wanted(
        domain=place if player is None else player.config.domain,
        entry=entry,
        player=player,
        levels=tuple(read_drawing(Path(word)) if looks_like_file(word) else word for word in levels),
        request=request,
        film=is_film(file),
    )
    _check(wanted)
    show_devices(1, *entry.xla_flags)
    replace_file(file, _drawn(wanted))
    say(str(file))
    return OK


def _is_domain(word: str) -> bool:
    """Whether a word names a domain; everything else is to be a run directory."""
    if word in DOMAINS or is_reference(word):
        return True
    if not Path(word).is_dir():
        known = f"must be a run directory or one of {', '.join(DOMAINS)}, got {show(word)}"
        raise SettingsError([Problem("gallery", known)])
    return False


def _check(wanted: Wanted) -> None:
    """Refuse what cannot be drawn, with every reason."""
    request, entry = wanted.request, wanted.entry
    problems: list[Problem] = []
    for name, known in (("suite", entry.suites), ("generator", (*entry.generators, *entry.roles))):
        given = getattr(request, name)
        if given is not None and given not in known:
            problems.append(Problem(name, f"must be one of {', '.join(known)}, got {show(given)}"))
    if wanted.player is None:
        if request.by is not None:
            problems.append(Problem("by", "is for the stored levels of a run; a domain has none"))
        if wanted.film:
            problems.append(Problem("out", "a film needs a student: name a run instead of a domain"))
        if any(isinstance(level, str) and level.isdigit() for level in wanted.levels):
            problems.append(Problem("level", "an id is of a level of a run's buffer; a domain has none"))
    elif request.generator is not None:
        problems.append(Problem("generator", f"is for a domain: cenie gallery {wanted.domain} ..."))
    chosen = [name for name in ("suite", "generator", "by") if getattr(request, name) is not None]
    if len(chosen) > 1:
        problems.append(Problem(chosen[1], f"contradicts --{chosen[0]}"))
    if problems:
        raise SettingsError(problems)
    if wanted.player is not None and (wanted.film or request.suite):
        check_has_student(wanted.player)


def _drawn(wanted: Wanted) -> bytes:
    """The content of the file. Loads JAX."""
    from cenie.report import films, shown_levels
    from cenie.xla.cache import kept_programs

    player = wanted.player
    domain = wanted.entry if player is None else player.domain
    renderer = shown_levels.renderer_of(domain)
    chosen, what = _scenes(domain, wanted)
    columns = wanted.request.columns or _columns(len(chosen), renderer.level(chosen[0].level).shape)
    say(what)
    for number, first in enumerate(range(0, len(chosen), columns), 1):
        say(f"  row {number}: {', '.join(scene.name for scene in chosen[first : first + columns])}")
    if player is None or not (wanted.film or wanted.request.suite):
        return films.sheet_png([renderer.level(scene.level) for scene in chosen], columns)
    with kept_programs():
        episodes = films.record(domain, player.network, chosen, wanted.request.longest)
    played = list(zip(chosen, episodes, strict=True))
    for scene, episode in played:
        say(f"{scene.name}: {films.outcome(episode)}")
    if wanted.request.suite:
        say(films.PLAYED_AGAIN)
    if not wanted.film:
        return films.sheet_png([films.last_look(domain, *each) for each in played], columns)
    made = [films.film(domain, *each, most_frames=films.FRAMES_TOGETHER) for each in played]
    return films.sheet_gif(made, columns, wanted.request.fps)


def _scenes(domain: "Domain", wanted: Wanted) -> "tuple[Sequence[Scene], str]":
    """The levels to draw, at least one, and what they are."""
    from cenie.report import shown_levels

    request, seed = wanted.request, wanted.request.seed
    suites = [request.suite] if request.suite else list(domain.suites)
    if wanted.levels:
        named = [_named(domain, wanted, level, suites) for level in wanted.levels]
        return named, "the levels that were named:"
    if request.suite is not None:
        suite = shown_levels.suite_scenes(domain, request.suite, seed=seed)
        drawn = suite[: request.count or _MOST_OF_SUITE]
        number = f"all {len(suite)}" if len(drawn) == len(suite) else f"{len(drawn)} of the {len(suite)}"
        return drawn, f"{number} levels of {request.suite}:"
    count = request.count or _MOST_OF_OTHERS
    if wanted.player is None:
        generator = request.generator or "random"
        made = shown_levels.generated_scenes(domain, generator, count, seed=seed)
        return made, f"{count} levels of the generator {generator}, seed {seed}:"
    by = request.by or "probability"
    stored = shown_levels.best_stored_scenes(domain, wanted.player.path, by, count)
    if not stored:
        raise RunDirectoryError(
            f"{wanted.player.path} has no snapshot of a level buffer; --suite NAME draws held-out levels"
        )
    return stored, f"the {len(stored)} stored levels of the highest {by}:"


def _named(domain: "Domain", wanted: Wanted, level: str | Drawing, suites: list[str]) -> "Scene":
    from cenie.report import shown_levels

    if isinstance(level, Drawing):
        return shown_levels.drawn_scene(domain, level, seed=wanted.request.seed)
    if wanted.player is not None and level.isascii() and level.isdigit():
        return shown_levels.stored_scene(domain, wanted.player.path, int(level))
    return shown_levels.find_suite_scene(domain, level, suites, seed=wanted.request.seed, episode=0)


def _columns(count: int, shape: tuple[int, ...]) -> int:
    """As many in a row as make the sheet somewhat wider than high, and its last row as full as may be."""
    height, width = shape[:2]
    wanted = max(1, min(count, round((count * height / width) ** 0.5 * 1.3)))
    return min(range(wanted, min(count, wanted + 2) + 1), key=lambda columns: -count % columns)
