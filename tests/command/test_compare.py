"""Sweeps: what is refused, what is left to do, what a failure and a stop leave, and that jobs come again."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cenie.command import sweep
from cenie.command.answers import BAD_INPUT, FAILED, OK, REFUSED
from cenie.command.cli import run
from cenie.command.sweep import Task, next_command, run_tasks, updates_of
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
        shutil.copytree(prepared / out.name, out, ignore=shutil.ignore_patterns("summary.json"))
        if (prepared / f"stop-{out.name}").exists():
            sys.exit(0)
    shutil.copy(prepared / out.name / "summary.json", out)
else:
    out = Path(words[0])
    suite = words[words.index("--suite") + 1]
    shutil.copy(prepared / f"evaluation-{suite}-seed0-cycle80.csv", out)
print("did", command)
"""
"""A program in the place of `cenie` that copies what a run would leave."""


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """What the runs of `cenie compare maze dr plr-robust --seeds 2` would leave, and the fake program."""
    place = tmp_path / "prepared"
    overrides = {"run.devices": 1, "run.keep_checkpoints": 5, "run.checkpoint_every": 2}
    for method in ("dr", "plr-robust"):
        for seed in (0, 1):
            write_run(place / f"{method}-seed{seed}", method, seed=seed, overrides=overrides, points=0)
    evaluate_later(place, "cenie8", 0.5)
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
    evaluate_later(path, "cenie8", 0.5)
    steps = json.loads((path / "summary.json").read_text())["env_steps"]
    enough = dataclasses.replace(task_of(path), updates=1000, env_steps=steps)
    assert next_command(enough) is None
    more = dataclasses.replace(enough, env_steps=steps + 1, longer=("--run.env_steps=7",))
    assert next_command(more) == ["train", "--resume", str(path), "--run.env_steps=7"]
    assert updates_of(more) == 40


def task_of(path: Path, place: Path | None = None) -> Task:
    return Task(path, ("train", "maze", "dr", "--out", str(path)), ("cenie8",), ("--episodes", "3"), 40)


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
    assert next_command(task) == ["evaluate", str(path), "--suite", "cenie8", "--episodes", "3"]
    evaluate_later(path, "cenie8", 0.5)
    assert next_command(task) is None


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
    task = task_of(tmp_path / "dr-seed0")
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


def tiny_task(path: Path, updates: int) -> Task:
    """A run of seconds, of which a part is left whenever it is stopped."""
    config = tiny("plr", updates=updates, run__devices=1, run__checkpoint_every=2, run__evaluate_every=1000)
    from cenie import settings
    from cenie.run.directory import flat

    data = dict(flat(settings.to_data(config)))
    options = [
        f"--{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in data.items()
        if name not in ("domain", "method", "preset", "from_python") and value is not None
    ]
    begin = ("train", "maze", "plr", "--preset", "quick", "--out", str(path), *options)
    return Task(path, begin, ("cenie8",), ("--episodes", "1"), updates)


def wait_until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def files_of(path: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "evaluations.csv", "levels.csv", "summary.json")
    return {name: (path / name).read_bytes() for name in names}


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
