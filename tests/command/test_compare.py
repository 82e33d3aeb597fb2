"""Sweeps: what is refused, what is left to do, what a failure and a stop leave, and that jobs come again."""

import dataclasses
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cenie.command import compare, sweep
from cenie.command.cli import run
from cenie.command.exit_codes import BAD_INPUT, FAILED, OK, REFUSED
from cenie.command.sweep import RunTask, next_command, run_tasks, updates_of
from cenie.experiment.config import EvaluationRequest
from cenie.experiment.presets import preset
from cenie.rundir.asked import Asked, asked_for, write_record
from cenie.rundir.files import RunDirectory
from tests.report.synthetic import evaluate_later, write_run
from tests.tiny import tiny

FAKE = """
import shutil, sys, time
from pathlib import Path

prepared, (command, *words) = Path(sys.argv[1]), sys.argv[2:]
if command == "train":
    resumed = "--resume" in words
    out = Path(words[words.index("--resume" if resumed else "--out") + 1])
    if (prepared / f"fail-{out.name}").exists():
        sys.exit("something broke")
    if not resumed:
        summary = shutil.ignore_patterns("summary.json")
        shutil.copytree(prepared / out.name, out, ignore=summary, dirs_exist_ok=True)
        if (prepared / f"stop-{out.name}").exists():
            sys.exit(0)
    shutil.copy(prepared / out.name / "summary.json", out)
else:
    out = Path(words[0])
    suite = words[1].removeprefix("--suite=")
    for kind in ("csv", "json"):
        shutil.copy(prepared / f"evaluation-{suite}-seed0-cycle80.{kind}", out)
print("did", command)
"""
"""A program in the place of `cenie` that copies what a run would leave."""


CONTENT = asked_for(preset("maze", "dr"), EvaluationRequest("cenie8")).content
ASKED = Asked("cenie8", CONTENT, episodes=3, seed=0, checkpoints=1)


def played(path: Path, asked: Asked) -> None:
    """What `cenie evaluate` would write, with its record."""
    evaluate_later(path, "cenie8", 0.5)
    write_record(path / "evaluation-cenie8-seed0-cycle80.csv", asked, 80)


@pytest.fixture(scope="module")
def four_runs(tmp_path_factory):
    """What the runs of `cenie compare maze dr plr-robust --seeds 2` would leave, to be copied."""
    place = tmp_path_factory.mktemp("runs")
    overrides = {"run.devices": 1, "run.keep_checkpoints": 5, "run.checkpoint_every": 2}
    for method in ("dr", "plr-robust"):
        for seed in (0, 1):
            write_run(place / f"{method}-seed{seed}", method, seed=seed, overrides=overrides, points=0)
    return place


@pytest.fixture
def prepared(four_runs, tmp_path, monkeypatch):
    """A copy of the four runs, and the fake program that copies them once more."""
    place = Path(shutil.copytree(four_runs, tmp_path / "prepared"))
    played(place, Asked("cenie8", CONTENT, episodes=10, seed=0, checkpoints=5))
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(sweep, "PROGRAM", (sys.executable, str(tmp_path / "fake.py"), str(place)))
    monkeypatch.setattr(sweep, "_POLL_SECONDS", 0.01)
    return place


QUICK = ["--no-coverage", "--no-pictures", "--no-pdf"]
COMMAND = ["compare", "maze", "dr", "plr-robust", "--seeds", "2", "--updates", "40", *QUICK]
COMMAND += ["--suites", "cenie8", "--jobs", "2"]


def test_a_comparison_trains_evaluates_and_reports(tmp_path, prepared, capsys):
    out = tmp_path / "out"
    assert run([*COMMAND, "--out", str(out)]) == OK
    printed = capsys.readouterr().out
    names = [f"{method}-seed{seed}" for method in ("dr", "plr-robust") for seed in (0, 1)]
    assert all(f"finished: {out / name}" in printed for name in names)
    assert printed.splitlines()[-1].startswith(f"report: {out / 'report'}")
    assert (out / "report/figures/maze-cenie8-levels.png").exists()
    assert (out / "dr-seed0.log").read_text() == "did train\ndid evaluate\n"
    # Given again, nothing is left but the report.
    assert run([*COMMAND, "--out", str(out)]) == OK
    assert (out / "dr-seed0.log").read_text() == "did train\ndid evaluate\n"


def test_a_run_of_other_settings_is_not_mixed_in(tmp_path, prepared, capsys):
    out = tmp_path / "out"
    shutil.copytree(prepared / "dr-seed0", out / "dr-seed0")
    longer = [word if word != "40" else "60" for word in COMMAND]
    assert run([*longer, "--out", str(out)]) == REFUSED
    message = capsys.readouterr().err
    assert "holds a run of other settings" in message
    assert "updates: 40 in the saved run, 60 now" in message
    assert sorted(path.name for path in out.iterdir()) == ["dr-seed0"]


CONSTANT = ["--student.ppo.final_learning_rate_fraction", "1.0"]


def test_runs_of_a_constant_rate_are_made_longer(tmp_path, prepared, capsys):
    """A larger budget was refused, or, in environment steps, passed over in silence."""
    for path in prepared.glob("*-seed?"):
        shutil.rmtree(path)
    names = [f"{method}-seed{seed}" for method in ("dr", "plr-robust") for seed in (0, 1)]
    overrides = {"run.devices": 1, "student.ppo.final_learning_rate_fraction": 1.0}
    for name in names:
        method, seed = name.split("-seed")
        write_run(prepared / name, method, seed=int(seed), overrides=overrides, points=0)
    command = [*COMMAND, *CONSTANT, "--out", str(tmp_path / "out")]
    assert run(command) == OK
    for name in names:
        file = prepared / name / "summary.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"updates": 60}))
    assert run([word if word != "40" else "60" for word in command]) == OK
    log = (tmp_path / "out/dr-seed0.log").read_text()
    assert log == "did train\ndid evaluate\ndid train\n"
    # One that had more than is asked for is another run.
    assert run([word if word != "40" else "20" for word in command]) == REFUSED
    assert "updates: 40 in the saved run, 20 now" in capsys.readouterr().err


def test_what_is_left_to_a_larger_budget(tmp_path):
    path = tmp_path / "dr-seed0"
    write_run(path, "dr")
    played(path, ASKED)
    steps = json.loads((path / "summary.json").read_text())["env_steps"]
    enough = dataclasses.replace(task_of(path), updates=1000, env_steps=steps)
    assert next_command(enough) is None
    more = dataclasses.replace(enough, env_steps=steps + 1, longer=("--run.env_steps=7",))
    assert next_command(more) == ["train", "--resume", str(path), "--run.env_steps=7"]
    assert updates_of(more) == 40


def task_of(path: Path, place: Path | None = None) -> RunTask:
    return RunTask(path, ("train", "maze", "dr", "--out", str(path)), (ASKED,), 40)


def test_what_is_left_is_read_off_the_directory(tmp_path):
    path = tmp_path / "dr-seed0"
    task = task_of(path)
    assert next_command(task) == list(task.begin)
    assert updates_of(task) == 0
    write_run(path, "dr", finished=False)
    assert next_command(task) == ["train", "--resume", str(path)]
    assert updates_of(task) == 40
    write_run(tmp_path / "other", "dr")
    shutil.copy(tmp_path / "other/summary.json", path)
    evaluation = ["evaluate", str(path), *ASKED.options]
    assert next_command(task) == evaluation
    played(path, dataclasses.replace(ASKED, episodes=1))
    assert next_command(task) == evaluation
    played(path, ASKED)
    assert next_command(task) is None


def test_bug_a_table_of_one_episode_was_taken_for_one_of_ten(tmp_path, prepared, capsys):
    out = tmp_path / "out"
    played(prepared, Asked("cenie8", CONTENT, episodes=1, seed=0, checkpoints=5))
    assert run([*COMMAND, "--episodes", "1", "--out", str(out)]) == OK
    assert (out / "dr-seed0.log").read_text() == "did train\ndid evaluate\n"
    played(prepared, Asked("cenie8", CONTENT, episodes=10, seed=0, checkpoints=5))
    assert run([*COMMAND, "--out", str(out)]) == OK
    assert (out / "dr-seed0.log").read_text() == "did train\ndid evaluate\ndid evaluate\n"
    capsys.readouterr()


def test_two_evaluations_that_replace_each_other_do_not_go_on_for_ever(tmp_path, prepared):
    """Two files of one name in different directories, say."""
    task = dataclasses.replace(
        task_of(tmp_path / "dr-seed0"),
        evaluations=(dataclasses.replace(ASKED, episodes=4), dataclasses.replace(ASKED, episodes=5)),
    )
    (outcome,) = run_tasks([task], 1, lambda: None)
    assert "left this undone" in outcome.error


ODD_SUMMARIES = [
    "",
    "[]",
    "null",
    "3",
    "{}",
    '{"cycles": 1}',
    '{"cycles": "1", "updates": 40, "env_steps": 1}',
]


@pytest.mark.parametrize("content", [*ODD_SUMMARIES, "\x00" * 99, "[" * 10_000])
def test_bug_an_odd_summary_gave_a_traceback(tmp_path, prepared, capsys, content):
    out = tmp_path / "out"
    shutil.copytree(prepared / "dr-seed0", out / "dr-seed0")
    (out / "dr-seed0/summary.json").write_text(content)
    assert run([*COMMAND, "--out", str(out)]) == REFUSED
    message = capsys.readouterr().err
    assert str(out / "dr-seed0/summary.json") in message
    assert "is no summary of a run" in message or "is not valid JSON" in message
    assert [path.name for path in out.iterdir()] == ["dr-seed0"]
    assert updates_of(task_of(out / "dr-seed0")) == 0


def test_files_of_somebody_else_in_the_place_of_a_run_are_left_alone(tmp_path, prepared, capsys):
    (tmp_path / "out/dr-seed0").mkdir(parents=True)
    (tmp_path / "out/dr-seed0/metrics.jsonl").write_text("precious")
    assert run([*COMMAND, "--out", str(tmp_path / "out")]) == REFUSED
    assert "dr-seed0 holds metrics.jsonl, and no run" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["dr-seed0"]


def a_directory(path: Path) -> None:
    path.mkdir(parents=True)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def a_link_to_a_file(path: Path) -> None:
    path.with_name("precious").write_text("precious")
    path.symlink_to(path.with_name("precious"))


@pytest.mark.parametrize("make", [a_directory, a_pipe, a_link_to_nothing, a_link_to_a_file])
@pytest.mark.parametrize("name", ["config.json", "summary.json", "lock", "../dr-seed0.log", "."])
def test_odd_things_in_the_place_of_files_are_said_and_nothing_waits_for_them(
    tmp_path, prepared, capsys, monkeypatch, make, name
):
    monkeypatch.setattr(compare, "make_report", lambda *given: None)
    out = tmp_path / "out"
    shutil.copytree(prepared / "dr-seed0", out / "dr-seed0")
    place = Path(os.path.normpath(out / "dr-seed0" / name))
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    make(place)
    code = run([*COMMAND, "--out", str(out)])
    said = capsys.readouterr().err
    # An empty directory is a place for a run, and a lock is looked at by the run itself.
    fine = (name == "." and make is a_directory) or name == "lock"
    assert (code == OK) == fine, said
    assert fine or "dr-seed0" in said
    if make is a_link_to_a_file:
        assert place.with_name("precious").read_text() == "precious"


# Names of run directories


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("accel", "accel"),
        ("accel --teacher.generator uniform60", "accel-teacher.generator-uniform60"),
        ("accel --run.checkpoint_every 10 --run.evaluate_every=1000 --run.devices 1", "accel"),
        ("accel --run.keep_checkpoints 5 --run.env_steps 900", "accel-run.env_steps-900"),
        ("accel --preset paper --env.no_redraw_direction", "accel-env.no_redraw_direction-preset-paper"),
        ("plr-cenie --teacher.novelty.coverage.components 2,4", None),
    ],
)
def test_runs_are_named_after_what_decides_what_a_student_learns(recipe, name):
    """They were called `accel-run.checkpoint_every-10-run.evaluate_every-1000-seed901`."""
    assert compare._name_of(recipe) == name or name is None
    assert len(compare._name_of(recipe)) <= 130


def test_the_order_and_the_way_of_writing_options_is_not_in_a_name():
    one, two = "dr --student.ppo.clip 0.1 --env.size 9", "dr   --env.size=9 --student.ppo.clip=0.1"
    assert compare._name_of(one) == compare._name_of(two) == "dr-env.size-9-student.ppo.clip-0.1"


def test_names_that_are_too_long_or_lose_letters_are_told_apart():
    long = [f"dr --teacher.generator {'x' * 300}{end}" for end in "ab"]
    odd = [f"dr --teacher.generator 'a{letter}b'" for letter in ("/", " ", "*", "\x00", "\ud800")]
    names = {compare._name_of(recipe) for recipe in long + odd}
    assert len(names) == 7
    assert all(len(name) < 140 and "/" not in name and name.isascii() for name in names)


# A comparison that was killed

PATIENT = """
import sys, time
from pathlib import Path
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.system.signals import GracefulStop, end_with, leave_on_signals

leave_on_signals()
end_with(0)
words = sys.argv[1:]
if words[0] == "train":
    out = Path(words[words.index("--resume" if "--resume" in words else "--out") + 1])
    with RunDirectory(out).lock(), GracefulStop() as stop:
        (out / "config.json").touch()
        if "--resume" not in words:
            while not stop.requested:
                time.sleep(0.01)
            while not (out / "written").exists():  # a checkpoint
                time.sleep(0.01)
            (out / "saved").touch()
            sys.exit(0)
        assert (out / "saved").exists(), "resumed before the checkpoint was there"
        (out / "summary.json").write_text('{"cycles": 80, "updates": 40, "env_steps": 1}')
"""
"""A program that trains until it is told to stop, and then takes a while."""

COMPARING = """
import sys
from pathlib import Path
from cenie.command import sweep
from cenie.command.sweep import RunTask, run_tasks
sweep.PROGRAM = (sys.executable, sys.argv[1])
path = Path(sys.argv[2])
task = RunTask(path, ("train", "maze", "dr", "--out", str(path)), (), 40)
for outcome in run_tasks([task], 1, lambda: None, lambda message: print(message, flush=True)):
    print(outcome.error or "done", flush=True)
"""


def test_bug_a_comparison_that_was_killed_left_runs_that_made_the_next_one_fail(tmp_path):
    """Its runs went on unseen and held their locks: the next call failed with "is in use by"."""
    (tmp_path / "patient.py").write_text(PATIENT)
    path = tmp_path / "dr-seed0"
    command = [sys.executable, "-c", COMPARING, str(tmp_path / "patient.py"), str(path)]
    with subprocess.Popen(command) as first:
        wait_until((path / "config.json").exists)
        first.kill()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        assert second.stdout.readline().startswith("waiting for process ")
        (path / "written").touch()
        assert second.stdout.read() == "done\n", (path.with_suffix(".log")).read_text()
    assert second.returncode == 0
    assert RunDirectory(path).in_use_by() is None


def test_who_waits_for_another_process_can_be_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "_POLL_SECONDS", 0.01)
    path = tmp_path / "dr-seed0"
    said = []
    with RunDirectory(path).lock():

        def progress():
            if said and len(said) < 2:
                said.append("stop")
                os.kill(os.getpid(), signal.SIGINT)

        (outcome,) = run_tasks([task_of(path)], 1, progress, said.append)
    assert outcome.stopped
    assert said[0].startswith(f"waiting for process {os.getpid()} on ")


def test_a_failure_does_not_stop_the_others(tmp_path, prepared, capsys):
    (prepared / "fail-dr-seed1").touch()
    out = tmp_path / "out"
    assert run([*COMMAND, "--out", str(out)]) == FAILED
    captured = capsys.readouterr()
    assert "dr-seed1: `cenie train" in captured.err
    assert "something broke" in captured.err
    assert "1 of 4 runs failed" in captured.err
    assert "dr (1), plr-robust (2)" in captured.out
    (prepared / "fail-dr-seed1").unlink()
    assert run([*COMMAND, "--out", str(out)]) == OK
    assert "dr (2), plr-robust (2)" in capsys.readouterr().out


def test_a_run_that_was_stopped_is_gone_on_with(tmp_path, prepared):
    (prepared / "stop-dr-seed0").touch()
    task = dataclasses.replace(task_of(tmp_path / "dr-seed0"), evaluations=())
    (outcome,) = run_tasks([task], 1, lambda: None)
    assert outcome.stopped
    assert not outcome.error
    (outcome,) = run_tasks([task], 1, lambda: None)
    assert (outcome.stopped, outcome.error) == (False, "")


def test_a_signal_stops_what_runs_and_begins_nothing_more(tmp_path, monkeypatch):
    (tmp_path / "wait.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(sweep, "PROGRAM", (sys.executable, str(tmp_path / "wait.py")))
    monkeypatch.setattr(sweep, "_POLL_SECONDS", 0.01)
    tasks = [task_of(tmp_path / name) for name in ("a", "b", "c")]
    asked = []

    def progress():
        if (tmp_path / "a.log").exists() and not asked:
            asked.append(os.kill(os.getpid(), signal.SIGINT))

    outcomes = list(run_tasks(tasks, 1, progress))
    assert [outcome.stopped for outcome in outcomes] == [True] * 3
    assert not (tmp_path / "c.log").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maze"], "expected DOMAIN METHOD"),
        (["maze", "nonsense"], "method: must be one of"),
        (["maze", "dr", "--seeds", "0"], "seeds: must be a number from 1 on"),
        (["maze", "dr", "--seeds", "3,3"], "different seeds"),
        (["maze", "dr", "--seeds", "many"], "seeds"),
        (["maze", "dr", "--suites", "cenie8,nonsense"], "suite: must be one of"),
        (["maze", "dr", "--jobs", "0"], "jobs: must be at least 1"),
        (["maze", "dr", "--seeds", "1000000000"], "seeds: must be at most 1000"),
        (["maze", "dr", "--seeds", "9" * 5000], "seeds: must be at most 1000"),
        (["maze", "dr", "--seeds", "1," + "9" * 400], "seed"),
        (["maze", "dr", "--seed", "3"], "seed: is given by --seeds"),
        (["maze", "dr --seed 3"], "has a seed of its own"),
        (["maze", "dr 'x"], "cannot be split: No closing quotation"),
        (["maze", "dr \\"], "cannot be split: No escaped character"),
        (["maze", ""], "is empty"),
        (["maze", "--seed=3"], "expected DOMAIN METHOD"),
        (["maze", "dr plr"], "has more than one method"),
        (["maze", "dr --student.ppo.nonsense 3"], "student.ppo.nonsense: unknown setting"),
        (["maze", "dr", "--cluster", "cloud"], "cluster"),
        (["maze", "dr", "--updates", "-1"], "updates"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert run(["compare", *arguments]) == BAD_INPUT
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def tiny_task(path: Path, updates: int) -> RunTask:
    """A run of seconds, of which a part is left whenever it is stopped."""
    config = tiny("plr", updates=updates, run__devices=1, run__checkpoint_every=2, run__evaluate_every=1000)
    from cenie import settings
    from cenie.rundir.files import flat

    data = dict(flat(settings.to_data(config)))
    options = [
        f"--{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in data.items()
        if name not in ("domain", "method", "preset", "from_python") and value is not None
    ]
    begin = ("train", "maze", "plr", "--preset", "quick", "--out", str(path), *options)
    return RunTask(path, begin, (dataclasses.replace(ASKED, episodes=1),), updates)


def wait_until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def files_of(path: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "evaluations.csv", "levels.csv", "summary.json")
    return {name: (path / name).read_bytes() for name in names}


KILLED = """
import pickle, sys
from cenie.command.sweep import perform
perform(pickle.load(open(sys.argv[1], "rb")))
"""


@pytest.mark.slow
def test_runs_of_a_comparison_that_was_killed_end_with_the_same_bytes(tmp_path):
    updates = 400
    sweep.perform(tiny_task(tmp_path / "straight", updates))
    task = tiny_task(tmp_path / "killed", updates)
    (tmp_path / "task").write_bytes(pickle.dumps(task))
    for _ in range(3):
        before = updates_of(task)
        with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "task")]) as comparing:
            wait_until(lambda before=before: before < updates_of(task) < updates)
            comparing.kill()
    sweep.perform(task)
    assert task.log.read_text().count("stopped; go on with") == 3
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "straight")


@pytest.mark.slow
def test_a_job_that_is_preempted_or_killed_ends_with_the_same_bytes(tmp_path):
    """submitit's local executor: a signal as of a preemption queues the job again, `kill -9` fails it."""
    cluster = pytest.importorskip("cenie.command.cluster")
    updates = 400
    sweep.perform(tiny_task(tmp_path / "straight", updates))
    task = tiny_task(tmp_path / "preempted", updates)
    (job,) = cluster.submit([task], tmp_path / "jobs", "local", {"timeout_min": 60})
    wait_until(lambda: 0 < updates_of(task) < updates)
    worker = children_of(int(job.job_id))[0]
    os.kill(worker, signal.SIGUSR2)
    (outcome,) = cluster.outcomes([task], [job], lambda: None, lambda: time.sleep(0.1))
    assert outcome.error == ""
    assert (tmp_path / "preempted.log").read_text().count("stopped; go on with") == 1
    assert files_of(tmp_path / "preempted") == files_of(tmp_path / "straight")

    task = tiny_task(tmp_path / "killed", updates)
    (job,) = cluster.submit([task], tmp_path / "jobs", "local", {"timeout_min": 60})
    wait_until(lambda: 0 < updates_of(task) < updates)
    worker = children_of(int(job.job_id))[0]
    (training,) = children_of(worker)
    os.kill(training, signal.SIGKILL)
    (outcome,) = cluster.outcomes([task], [job], lambda: None, lambda: time.sleep(0.1))
    assert "ended with -9" in outcome.error
    (job,) = cluster.submit([task], tmp_path / "jobs", "local", {"timeout_min": 60})
    (outcome,) = cluster.outcomes([task], [job], lambda: None, lambda: time.sleep(0.1))
    assert outcome.error == ""
    assert files_of(tmp_path / "killed") == files_of(tmp_path / "straight")


def children_of(pid: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return [int(line) for line in found.stdout.split()]
