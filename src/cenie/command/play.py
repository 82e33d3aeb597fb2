"""`cenie play`: film the student of a run, or an exported one, on a level."""

import sys
from dataclasses import dataclass
from pathlib import Path

from cenie import settings
from cenie.command.exit_codes import OK, say
from cenie.command.options import check_has_student, open_player, parse
from cenie.command.picture_file import is_film, picture_file, plain_values
from cenie.report.level_files import looks_like_file, read_drawing
from cenie.settings import Problem, SettingsError, setting, show
from cenie.system.durable import replace_file
from cenie.xla.flags import show_devices

USAGE = """\
cenie play RUN|STUDENT [LEVEL] [--suite NAME] [--episode N] [--seed S] [--fps F] [--out FILE]
           [--domain MODULE:ATTRIBUTE]

films the student of a run, or an exported one, on a level, as a GIF; with --out FILE.png: a picture of the
end of the episode

LEVEL is the name of a level of a suite (LEVEL or LEVEL:VARIANT; by default the first of the run's own suite),
the id of a level of the run's buffer, or a file: JSON, or for mazes a drawing of # . G and > v < ^
The episode on a level of a suite is the one of this number that `cenie evaluate` with this seed counts.
--domain names the run's domain again if it is one of your own: none is imported because a file names it.
"""


@dataclass(frozen=True)
class PlayRequest:
    """The request of `cenie play`, besides the level."""

    suite: str | None = None
    episode: int = setting(0, minimum=0, maximum=1000)
    seed: int = setting(0, minimum=0, maximum=2**31 - 1)
    fps: float | None = setting(None, above=0, maximum=50)
    longest: int = setting(5000, minimum=1, maximum=50_000)

    def check_suite(self, suites: tuple[str, ...]) -> None:
        """Raise `SettingsError` if the domain has no suite of the name."""
        if self.suite is not None and self.suite not in suites:
            known = f"must be one of {', '.join(suites)}, got {show(self.suite)}"
            raise SettingsError([Problem("suite", known)])


def play_command(arguments: list[str]) -> int:
    words, options = parse(arguments)
    if "help" in options:
        sys.stdout.write(USAGE)
        return OK
    if not 1 <= len(words) <= 2:
        expected = USAGE.splitlines()[0].removeprefix("cenie play ")
        raise SettingsError([Problem("play", f"expected {expected}")])
    path, level = Path(words[0]), words[1] if len(words) == 2 else None
    player = open_player(path, options.pop("domain", None), devices=1)
    config = player.config
    out = options.pop("out", None)
    request = settings.read(PlayRequest, plain_values(options))
    request.check_suite(tuple(config.entry.suites))
    drawing = read_drawing(Path(level)) if level is not None and looks_like_file(level) else None
    shown = "level" if level is None else level if drawing is None else drawing.name
    file = picture_file(out, f"{path.resolve().name}-{shown}", ".gif")
    check_has_student(player)
    show_devices(1, *config.entry.xla_flags)
    from cenie.report import films, shown_levels
    from cenie.xla.cache import kept_programs

    domain = player.domain
    shown_levels.renderer_of(domain)
    of_suite = False
    if drawing is not None:
        scene = shown_levels.drawn_scene(domain, drawing, seed=request.seed)
    elif level is not None and level.isascii() and level.isdigit():
        scene = shown_levels.stored_scene(domain, path, int(level))
    else:
        own = request.suite or config.run.suite
        suites = [own] if request.suite else [own, *(name for name in domain.suites if name != own)]
        of_suite = True
        found = {"seed": request.seed, "episode": request.episode}
        if level is None:
            scene = shown_levels.suite_scenes(domain, own, **found)[0]
        else:
            scene = shown_levels.find_suite_scene(domain, level, suites, **found)
    with kept_programs():
        (episode,) = films.record(domain, player.network, [scene], request.longest)
    for message in player.passed_over:
        say(message)
    if is_film(file):
        content = films.sheet_gif([films.film(domain, scene, episode)], 1, request.fps)
    else:
        content = films.sheet_png([films.last_look(domain, scene, episode)], 1)
    replace_file(file, content)
    say(f"{scene.name}: {films.outcome(episode)}")
    if of_suite:
        say(films.PLAYED_AGAIN)
    say(str(file))
    return OK
