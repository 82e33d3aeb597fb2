"""`cenie compare`: train methods with several seeds, evaluate them, and report."""

import dataclasses
import hashlib
import importlib.util
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cenie import settings
from cenie.command.configs import typed
from cenie.command.exit_codes import FAILED, OK, complain, say
from cenie.command.options import directory_option, let_import, parse, plain, read_request
from cenie.command.report import ReportRequest, check_installed, make_report
from cenie.command.sweep import Outcome, RunTask, next_command, read_counts, run_tasks, updates_of
from cenie.envs.domains import is_reference
from cenie.experiment.config import DECAY_SETTINGS, Config, evaluation_request
from cenie.experiment.presets import preset
from cenie.rundir.asked import asked_for
from cenie.rundir.documents import load_config
from cenie.rundir.files import RunDirectory, RunDirectoryError, differing_settings
from cenie.rundir.resume import decays
from cenie.settings import Problem, SettingsError, setting, show
from cenie.system.streams import printable
from cenie.training.preflight import check_start
from cenie.xla.flags import core_count

USAGE = """\
cenie compare DOMAIN METHOD ... [--seeds N|A,B,...] [--out DIR] [--preset NAME] [--updates N]
              [--suites A,B] [--episodes N] [--checkpoints N] [--jobs N] [--any.field VALUE ...]
              [--cluster slurm|local] [--minutes N] [--partition NAME] [--memory GB] [--no-wait]

trains every METHOD with every seed, one run on one core, --jobs at a time (by default one for each core);
then the last checkpoints of each run play held-out levels, and a report is written to DIR/report
given again, it goes on where it was stopped or killed, to the same bits; what is finished is not repeated;
with more --updates or --run.env_steps, runs whose learning rate does not fall are made longer

METHOD may have settings of its own: "accel --teacher.generator uniform60"; --any.field is for all of them
--seeds       how many (0, 1, ...; by default 3), or which: 10,11,12 (a single one: 10,)
--suites      suites to play at the end (by default the one of the preset), --episodes of each entry (10),
              with the last --checkpoints students (5)
--cluster     through submitit: jobs of Slurm, or local processes; jobs that are preempted or reach --minutes
              are queued again and go on; --no-wait leaves at once, and the command given later reports
and the options of `cenie report`
"""
_SPACING = 20
"""A checkpoint is written after each such part of a run, so that the last ones are of the end of training."""
_PAUSE_SECONDS = 2.0
_MOST_SEEDS = 1000
_LONGEST_NAME = 120
"""Letters of the name of a run directory, without its seed; file systems take 255, with `.log` and others."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9.,+_-]+")
_BUDGET = "run.env_steps"
"""The one setting of the group `run` that decides what a student learns."""


@dataclass(frozen=True)
class CompareRequest:
    """The request of `cenie compare`, besides methods and settings of runs."""

    seeds: tuple[int, ...] = (0, 1, 2)
    suites: tuple[str, ...] = ()
    episodes: int = setting(10, minimum=1, maximum=100_000)
    checkpoints: int = setting(5, minimum=1, maximum=1000)
    jobs: int | None = setting(None, minimum=1, maximum=1000)
    cluster: Literal["slurm", "local"] | None = None
    minutes: int = setting(24 * 60, minimum=1)
    partition: str | None = None
    memory: int | None = setting(None, minimum=1)
    no_wait: bool = False


def compare_command(words: list[str], options: dict[str, str]) -> int:
    if len(words) < 2:
        example = "`cenie compare maze dr plr-cenie --seeds 3`"
        raise SettingsError([Problem("compare", f"expected DOMAIN METHOD ..., e.g. {example}")])
    import jax

    domain, *recipes = words
    let_import(domain)
    out = directory_option(options, "out") or Path("runs") / f"compare-{domain.replace(':', '-')}"
    request = _request(_taken(options, CompareRequest))
    report = read_request(ReportRequest, _taken(options, ReportRequest))
    if "seed" in options:
        raise SettingsError([Problem("seed", "is given by --seeds N or --seeds A,B,...")])
    _check_names(recipes)
    # This process plans, and takes no accelerator from those that train.
    jax.config.update("jax_platforms", "cpu")
    tasks = [
        _task(out, domain, recipe, options | {"seed": str(seed)}, request)
        for seed in request.seeds
        for recipe in recipes
    ]
    check_installed()
    if request.cluster and importlib.util.find_spec("submitit") is None:
        raise SettingsError([Problem("cluster", "needs submitit: pip install 'cenie[cluster]'")])
    own = dataclasses.replace(report, domain=domain if is_reference(domain) else None)
    return _compare(tasks, out, request, own)


def _taken(options: dict[str, str], request: type) -> dict[str, str]:
    """Take the options that a request has out of all others."""
    names = [each.name for each in dataclasses.fields(request) if each.name in options]
    return {name: options.pop(name) for name in names}


def _request(options: dict[str, str]) -> CompareRequest:
    values = {name: plain(text) for name, text in options.items()}
    for name in {"seeds", "suites"} & options.keys():
        values[name] = [plain(part) for part in options[name].split(",") if part]
    count = options.get("seeds", "")
    if count.isdecimal():
        # Its length first: a number of thousands of digits is none for Python.
        if len(count) > len(str(_MOST_SEEDS)) or int(count) > _MOST_SEEDS:
            raise SettingsError([Problem("seeds", f"must be at most {_MOST_SEEDS}, got {show(count)}")])
        values["seeds"] = list(range(int(count)))
    if values.get("suites") == []:
        raise SettingsError([Problem("suites", "needs at least one name of a suite")])
    request = settings.read(CompareRequest, values)
    if not request.seeds or len(set(request.seeds)) < len(request.seeds):
        raise SettingsError([Problem("seeds", "must be a number from 1 on, or different seeds: 10,11,12")])
    return request


def _task(out: Path, domain: str, recipe: str, options: dict[str, str], request: CompareRequest) -> RunTask:
    """One run, whose settings are found good. Raises `SettingsError`, or `RunDirectoryError` if its directory
    holds a run of other settings."""
    method, own = _parsed(recipe)
    given = options | own
    name = given.pop("preset", None)
    config = preset(domain, method, name, typed(domain, method, given))
    added = {
        "run.devices": "1",
        "run.keep_checkpoints": str(request.checkpoints),
        "run.checkpoint_every": str(max(config.updates // _SPACING, 1)),
    }
    given = added | given
    config = preset(domain, method, name, typed(domain, method, given))
    check_start(config)
    suites = request.suites or (config.run.suite,)
    how = {"episodes": request.episodes, "checkpoints": request.checkpoints}
    evaluations = [evaluation_request(config, {"suite": suite, **how}) for suite in suites]
    directory = out / f"{_name_of(recipe)}-seed{config.seed}"
    _check_directory(directory, config)
    budget = {"updates": config.updates, "run.env_steps": config.run.env_steps}
    words = ["train", domain, method, *([] if name is None else ["--preset", name]), "--out", str(directory)]
    return RunTask(
        directory=directory,
        begin=(*words, *(f"--{path}={text}" for path, text in given.items())),
        evaluations=tuple(asked_for(config, evaluation) for evaluation in evaluations),
        updates=config.updates,
        env_steps=config.run.env_steps,
        longer=tuple(f"--{path}={value}" for path, value in budget.items() if value is not None),
        again=("--domain", domain) if is_reference(domain) else (),
    )


def _parsed(recipe: str) -> tuple[str, dict[str, str]]:
    """The method of a recipe and its own options."""
    try:
        words = shlex.split(recipe)
    except ValueError as error:
        raise SettingsError([Problem("compare", f"{show(recipe)} cannot be split: {error}")]) from error
    methods, own = parse(words)
    if len(methods) != 1:
        found = "more than one method; write them as words" if methods else "no method"
        raise SettingsError([Problem("compare", f"{show(recipe)} has {found}")])
    if "seed" in own:
        message = f"{show(recipe)} has a seed of its own; --seeds says which seeds all methods have"
        raise SettingsError([Problem("compare", message)])
    return methods[0], own


def _name_of(recipe: str) -> str:
    """The name of a recipe's directories without the seed: its method and the options that decide how a
    student learns, in the order of their names."""
    method, own = _parsed(recipe)
    parts = [method]
    for path, text in sorted(own.items()):
        if not path.startswith("run.") or path == _BUDGET:
            parts.append(path if text == "true" else f"{path}-{text}")
    name = "-".join(parts)
    if _PLAIN_NAME.fullmatch(name) and len(name) <= _LONGEST_NAME:
        return name
    # What cannot stand in a name, or is too long for one, is told apart by a hash of all of it.
    short = re.sub(r"[^A-Za-z0-9.,+_-]+", "-", name)[:_LONGEST_NAME].strip("-")
    return f"{short}-{hashlib.sha256(name.encode(errors='backslashreplace')).hexdigest()[:8]}"


def _check_names(recipes: Sequence[str]) -> None:
    """Two recipes must not share a directory; some file systems take upper and lower case for the same."""
    found: dict[str, str] = {}
    for recipe in recipes:
        name = _name_of(recipe)
        if name.casefold() in found:
            message = (
                f"{show(found[name.casefold()])} and {show(recipe)} would both train into {name}-seedN; "
                f"neither settings of `run` (but {_BUDGET}) nor capitals make another name"
            )
            raise SettingsError([Problem("compare", message)])
        found[name.casefold()] = recipe


def _check_directory(directory: Path, config: Config) -> None:
    """A run that is there already must be the one that is asked for, or a beginning of it."""
    files = RunDirectory(directory)
    file = files.config
    if not os.path.lexists(file):
        files.check_free()
        return
    read_counts(files)
    before = load_config(file, config.entry)
    saved, asked = settings.to_data(before), settings.to_data(config)
    steps_before, steps = before.run.env_steps, config.run.env_steps
    is_longer = config.updates >= before.updates and (
        steps == steps_before or (steps is not None and steps_before is not None and steps > steps_before)
    )
    # While the rate does not fall, when it would fall says nothing.
    may_change = {"run", "updates"} | (set() if decays(config) else set(DECAY_SETTINGS))
    differing = differing_settings(saved, asked, tuple(may_change))
    if not is_longer:
        differing += differing_settings(saved, asked, only=("updates", "run.env_steps"))
    if differing:
        lines = "\n  ".join(differing)
        raise RunDirectoryError(
            f"{directory} holds a run of other settings; choose another --out:\n  {lines}"
        )


def _compare(tasks: Sequence[RunTask], out: Path, request: CompareRequest, report: ReportRequest) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    say(f"{len(tasks)} runs: {out}")
    ended: list[Outcome] = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        line = bar.add_task("updates", total=sum(task.updates for task in tasks))

        def progress() -> None:
            done = sum(map(updates_of, tasks))
            text = f"{len(ended)} of {len(tasks)} runs finished; updates"
            bar.update(line, completed=done, description=text)

        def tell(message: str) -> None:
            console.print(printable(message), highlight=False, markup=False, soft_wrap=True)

        progress()
        for outcome in _outcomes(tasks, out, request, progress, tell):
            ended.append(outcome)
            if outcome.error:
                complain(outcome.error)
            elif not outcome.stopped:
                tell(f"finished: {outcome.task.directory}")
    if len(ended) < len(tasks):
        say("jobs are queued; give the same command again to see how far they are, and for the report")
        return OK
    stopped = [outcome for outcome in ended if outcome.stopped]
    if stopped:
        say("stopped; the same command goes on")
        return OK
    failed = [outcome for outcome in ended if outcome.error]
    good = [outcome.task.directory for outcome in ended if not outcome.error]
    if good:
        make_report(good, out / "report", report)
    if failed:
        complain(f"{len(failed)} of {len(tasks)} runs failed; their logs are beside their directories")
    return FAILED if failed else OK


def _outcomes(
    tasks: Sequence[RunTask],
    out: Path,
    request: CompareRequest,
    progress: Callable[[], None],
    tell: Callable[[str], None],
) -> Iterator[Outcome]:
    """Carry out the tasks here or on a cluster."""
    if request.cluster is None:
        yield from run_tasks(tasks, request.jobs or core_count(), progress, tell)
        return
    from cenie.command import cluster

    left = [task for task in tasks if next_command(task) is not None]
    yield from (Outcome(task) for task in tasks if task not in left)
    options: dict[str, Any] = {"timeout_min": request.minutes, "cpus_per_task": 1}
    if request.memory is not None:
        options["mem_gb"] = request.memory
    if request.partition is not None:
        options["slurm_partition"] = request.partition
    jobs = cluster.submit(left, out / "jobs", request.cluster, options)
    for task, job in zip(left, jobs):
        say(f"job {job.job_id}: {task.directory}")
    if not request.no_wait:
        yield from cluster.outcomes(left, jobs, progress, lambda: time.sleep(_PAUSE_SECONDS))
