"""The data of the page: everything that it shows, as plain JSON. Loads no JAX, but to draw pictures."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import cenie
from cenie.envs.suite_files import is_file_suite
from cenie.report.appearance import colours, group_title
from cenie.report.measure import stats
from cenie.report.measure.comparable import comparability
from cenie.report.measure.scores import SuiteScores, measured_domains
from cenie.report.page.charts import suite_results, training_data
from cenie.report.page.curriculum import MOST_FRAMES, Moments, curriculum_data, read_curriculum
from cenie.report.runs import Group
from cenie.rundir.again import train_command
from cenie.rundir.files import flat
from cenie.rundir.run import Run

if TYPE_CHECKING:
    from cenie.report.page.pictures import Studio

FORMAT = 1
"""The format of the data; the template checks that it is its own."""


@dataclass(frozen=True)
class Limits:
    """The limits of a page, so that it stays small enough to be sent and opened."""

    curricula: int = 12
    """Runs whose level buffers are shown: one of each group."""
    points: int = 40_000
    """Levels at all moments of all of them."""
    levels: int = 800
    """Levels of one run at one moment."""
    pictures: int = 1600
    """Pictures of levels in all."""
    picture_bytes: int = 1_750_000
    filmed: int = 4
    """Runs whose students are filmed, for which each has to be loaded."""
    films: int = 48
    """Episodes on stored levels in all; each run that is shown also has some on held-out levels."""
    suite_films: int = 12
    film_bytes: int = 2_900_000


LIMITS = Limits()


def page_data(
    groups: Sequence[Group],
    *,
    skipped: Sequence[str] = (),
    studio: "Studio | None" = None,
    limits: Limits = LIMITS,
    stratified: bool = False,
    measured: Mapping[str, Sequence[SuiteScores]] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Everything that the page shows of groups of runs; `skipped` says which directories it does not.

    With a `studio`, levels are drawn and episodes are filmed, which takes JAX and, for episodes, checkpoints.
    `stratified` asks for rliable's intervals. `measured` are the scores of each domain, if they are known.
    """
    problems: list[str] = []
    if studio is not None:
        studio.begin_page()
    measured = measured or measured_domains(groups)
    suites = suite_results(groups, measured, stratified=stratified)
    runs = [run for group in groups for run in group.runs]
    chosen, left_out = _shown_runs(groups, limits)
    filmed = _most_to_see(chosen, limits.filmed)
    curricula = []
    for number, run in enumerate(chosen):
        say(f"page: {run.path} ({number + 1} of {len(chosen)})")
        share = _share(limits, len(chosen), is_filmed=run in filmed)
        try:
            made = _curriculum(run, runs.index(run), share, studio=studio, problems=problems)
        except Exception as error:  # Whatever stands in its files, the other runs are shown.
            problems.append(f"the curriculum of {run.path} is left out: {type(error).__name__}: {error}")
            continue
        if made is not None:
            curricula.append(made)
    return {
        "format": FORMAT,
        "version": cenie.__version__,
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "live": False,
        "groups": _groups(groups),
        "runs": [_run(run, groups) for run in runs],
        "suites": suites,
        "intervals": stats.COVERS_STRATIFIED if stratified else stats.COVERS,
        "training": training_data(groups),
        "curricula": curricula,
        "notes": _notes(groups, measured),
        "skipped": [*skipped, *problems],
        "leftOut": [*left_out, *_left_out(curricula, studio)],
    }


def _groups(groups: Sequence[Group]) -> list[dict[str, Any]]:
    found = []
    for group in groups:
        same = [other for other in groups if other.domain == group.domain]
        found.append(
            {
                "domain": group.domain,
                "method": group.method,
                "label": group.label,
                "title": group_title(group),
                "colour": colours(same)[group.label],
                "seeds": [run.seed for run in group.runs],
            }
        )
    return found


def _run(run: Run, groups: Sequence[Group]) -> dict[str, Any]:
    group = next(number for number, group in enumerate(groups) if run in group.runs)
    return {
        "name": run.path.resolve().name,
        "path": str(run.path),
        "group": group,
        "seed": run.seed,
        "budget": run.budget,
        "finished": run.summary is not None,
        "updates": (run.summary or {}).get("updates"),
        "version": run.version,
        "command": train_command(run.settings),
        "config": [[path, value] for path, value in flat(run.settings)],
    }


def _notes(groups: Sequence[Group], measured: Mapping[str, Sequence[SuiteScores]]) -> list[str]:
    """In what runs that are shown side by side differ."""
    found = []
    for domain, suites in measured.items():
        for sentence in comparability([group for group in groups if group.domain == domain], suites):
            found.append(f"{domain}: {sentence}" if len(measured) > 1 else sentence)
    return found


def _shown_runs(groups: Sequence[Group], limits: Limits) -> tuple[list[Run], list[str]]:
    """One run of each group, a finished one if there is any, and what is not shown."""
    chosen = [next((run for run in group.runs if run.summary is not None), group.runs[0]) for group in groups]
    shown, left_out = _most_to_see(chosen, limits.curricula), []
    others = sum(len(group.runs) for group in groups) - len(chosen)
    if others:
        left_out.append(
            f"level buffers are shown of one run of each group; {others} other runs are left out "
            "(name a single run to see its own)"
        )
    if len(chosen) > len(shown):
        names = ", ".join(group.label for group, run in zip(groups, chosen) if run not in shown)
        left_out.append(
            f"level buffers of more than {limits.curricula} groups would be too much: not of {names}"
        )
    return shown, left_out


def _most_to_see(runs: Sequence[Run], most: int) -> list[Run]:
    """Some of the runs, in their order: of each domain in turn those with novelty first, then those with a
    level buffer."""

    def worth(run: Run) -> int:
        teacher = run.settings.get("teacher")
        parts = teacher if isinstance(teacher, dict) else {}
        return bool(parts.get("novelty")) + bool(parts.get("replay"))

    turns: list[tuple[int, Run]] = []
    for domain in dict.fromkeys(run.domain_name for run in runs):
        own = sorted((run for run in runs if run.domain_name == domain), key=worth, reverse=True)
        turns += enumerate(own)
    first = [run for _, run in sorted(turns, key=lambda each: each[0])[:most]]
    return [run for run in runs if run in first]


def _share(limits: Limits, runs: int, *, is_filmed: bool) -> Limits:
    """The limits of one of several runs that share a page."""
    filmed = max(1, min(runs, limits.filmed))
    return replace(
        limits,
        points=limits.points // runs,
        pictures=limits.pictures // runs,
        picture_bytes=limits.picture_bytes // runs,
        films=limits.films // filmed if is_filmed else 0,
        film_bytes=limits.film_bytes // filmed,
    )


def _curriculum(
    run: Run, number: int, share: Limits, *, studio: "Studio | None", problems: list[str]
) -> dict[str, Any] | None:
    """The level buffer of a run over training, with pictures if there is a studio."""
    moments = max(1, min(len(run.snapshots), MOST_FRAMES))
    curriculum = read_curriculum(run, max(20, min(share.levels, share.points // moments)))
    problems += curriculum.problems
    data = curriculum_data(curriculum)
    if data is None and studio is None:
        return None
    data = data or {"frames": []}
    data |= {"run": number, "pictures": {}, "films": {}, "heldOut": [], "suite": None, "noFilms": None}
    if studio is None:
        data["noFilms"] = "this page was made without pictures and episodes"
        return data if data["frames"] else None
    _draw(data, run, curriculum, share=share, studio=studio)
    return data if data["frames"] or data["heldOut"] else None


def _draw(data: dict[str, Any], run: Run, curriculum: Moments, *, share: Limits, studio: "Studio") -> None:
    """Add pictures and films; a run that cannot be drawn or played says why, and the page goes on."""
    from cenie.report.page.pictures import notable

    try:
        # Half of the films for stored levels, half for held-out ones.
        studio.begin_run(share.picture_bytes, share.film_bytes // 2)
        if curriculum.has_buffer:
            data["pictures"] = studio.level_pictures(run, curriculum, share.pictures)
        if not share.films:
            data["noFilms"] = "no episodes of this run: a page has episodes of a few runs only"
            return
        data["films"] = studio.level_films(run, curriculum, notable(curriculum, share.films))
        data["suite"] = next((suite for suite in run.suites if not is_file_suite(suite)), None)
        if data["suite"] is not None:
            studio.begin_run(share.picture_bytes // 10, share.film_bytes // 2)
            data["heldOut"] = studio.suite_films(run, data["suite"], share.suite_films)
    except Exception as error:  # A domain of somebody else's draws here, from levels that may be damaged.
        missing = "episodes" if data["pictures"] else "pictures or episodes"
        data["noFilms"] = f"no {missing}: {error}"


def _left_out(curricula: list[dict[str, Any]], studio: "Studio | None") -> list[str]:
    found = []
    thinned = [each for each in curricula if any(len(f["levels"]) < f["total"] for f in each["frames"])]
    if thinned:
        shown = max(len(frame["levels"]) for each in thinned for frame in each["frames"])
        found.append(f"of a level buffer at most {shown} levels are shown at a time, the same ones all along")
    if studio is not None:
        drawn = sum(len(each["pictures"]) for each in curricula)
        all_levels = sum(len(each.get("ids", ())) for each in curricula if each.get("hasBuffer"))
        if drawn < all_levels:
            found.append(f"{drawn} of the {all_levels} stored levels that are shown have pictures")
        if studio.films.refused:
            found.append(f"{studio.films.refused} episodes did not fit on the page")
        filmed = sum(len(each["films"]) for each in curricula)
        if filmed < all_levels:
            found.append(
                f"{filmed} stored levels have an episode to play; `cenie play RUN ID` films any other"
            )
    return found
