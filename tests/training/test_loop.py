"""Training from the outside: files, exact resume, kills, and what happens when things go wrong."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

from cenie import settings
from cenie.command import cli
from cenie.experiment.build import build
from cenie.experiment.rows import EvaluationRow
from cenie.methods.table import METHODS
from cenie.rundir.checkpoint import CheckpointError, load_newest
from cenie.rundir.documents import load_config
from cenie.rundir.evaluations import read_evaluations
from cenie.rundir.files import RunDirectory, read_json, write_json
from cenie.rundir.levels import read_levels
from cenie.rundir.plays import PLAYS
from cenie.rundir.resume import updates_done
from cenie.rundir.run import load_run
from cenie.rundir.snapshot_arrays import levels_of_snapshot
from cenie.rundir.snapshots import read_snapshot, snapshots_of
from cenie.teach.cycle import init
from cenie.training import loop as training
from cenie.training.progress import Progress
from tests import kept
from tests.tiny import tiny

DETERMINISTIC = ("config.json", "metrics.jsonl", "evaluations.csv", "levels.csv", "summary.json")


def run(config, path: Path, *, resume: bool = False) -> str:
    """Train; returns what was printed."""
    console = Console(file=open(os.devnull, "w"), record=True, width=200)  # noqa: SIM115
    with console.file, Progress(console, config.updates) as progress:
        assert training.train(config, RunDirectory(path), progress, resume=resume)
    return console.export_text()


def contents(path: Path) -> dict[str, bytes]:
    """The bytes that must not depend on interruptions: tables, summary and the arrays of the last state."""
    newest = max((path / "checkpoints").glob("step-*"))
    files = [path / name for name in DETERMINISTIC] + [newest / "arrays.safetensors"]
    files += [*(path / "snapshots").iterdir(), *newest.glob(PLAYS)]
    return {file.name: file.read_bytes() for file in files}


def without_evaluations(path: Path) -> dict[str, bytes]:
    """As `contents`, for a run that was first made shorter: it evaluated once more, at its first end."""
    of_evaluations = ("evaluations.csv", "cycle-")
    return {name: content for name, content in contents(path).items() if not name.startswith(of_evaluations)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    return path, run(tiny("plr-robust"), path)


def test_run_directory_holds_what_the_report_needs(finished):
    path, _ = finished
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["cycle"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["updates"] == 6
    assert rows[-1]["env_steps"] == len(rows) * 4 * 16
    assert load_config(path / "config.json") == tiny("plr-robust")
    summary = read_json(path / "summary.json")
    assert summary["updates"] == 6
    assert set(summary["untrained"]) == set(summary["trained"])
    assert len(summary["trained"]) == 8


def test_a_run_ends_after_so_many_environment_steps_and_can_go_on(finished, tmp_path):
    path, config = tmp_path / "run", tiny("plr-robust", run__env_steps=5 * 4 * 16 - 1)
    run(config, path)
    summary = read_json(path / "summary.json")
    assert (summary["cycles"], summary["env_steps"]) == (5, 5 * 4 * 16)
    assert 0 < summary["updates"] < 6
    assert updates_done(config, RunDirectory(path)) == summary["updates"]
    run(tiny("plr-robust"), path, resume=True)
    assert without_evaluations(path) == without_evaluations(finished[0])


def test_evaluations_are_made_before_during_and_after_training(finished):
    path, _ = finished
    lines = (path / "evaluations.csv").read_text().splitlines()[1:]
    updates = sorted({int(line.split(",")[1]) for line in lines})
    assert updates[0] == 0
    assert updates[-1] == 6
    assert any(4 <= u < 6 for u in updates)


def test_levels_are_recorded_in_every_cycle_and_snapshots_made_at_every_evaluation(finished):
    path, _ = finished
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    levels = read_levels(path / "levels.csv")
    assert levels["cycle"].tolist() == [row["cycle"] for row in rows for _ in range(4)]
    assert levels["level/walls"].reshape(-1, 4).mean(axis=1) == pytest.approx(
        [r["level/walls"] for r in rows]
    )
    evaluated = {*read_evaluations(path / "evaluations.csv").cycle.tolist()}
    files = snapshots_of(path / "snapshots")
    assert files.keys() == evaluated - {0}
    config = tiny("plr-robust")
    domain, setup = build(config)
    loaded = load_newest(path / "checkpoints", init(setup, 0))
    assert loaded is not None
    snapshot = read_snapshot(files[loaded.step])
    buffer, replay = snapshot.buffers[0], loaded.tree.teacher.buffers[0]
    size = int(replay.size)
    stored = levels_of_snapshot(buffer, domain.generator("random")(jax.random.key(0)))
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_array_equal(ours, theirs[:size]), stored, replay.levels
    )
    for name, theirs in (("id", replay.ids), ("parent", replay.parents), ("regret", replay.scores[:, 0])):
        np.testing.assert_array_equal(buffer[name], theirs[:size])
    assert buffer["probability"].sum() == pytest.approx(1, abs=1e-5)
    assert buffer["probability"].max() == pytest.approx(rows[-1]["teacher/largest_probability"])
    assert snapshot.points["values"].shape == (512, 8 + 3)
    # The last chunk of cycles, of which some may not have been run.
    assert set(snapshot.points["cycle"]) <= {loaded.step - 1, loaded.step}


def test_a_snapshot_has_the_newest_play_of_each_stored_level_also_where_records_are_thinned_out(
    finished, tmp_path
):
    path, _ = finished
    levels = read_levels(path / "levels.csv")
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    updates = {row["cycle"]: row["updates"] for row in rows}
    names = [name for name in levels if name in ("return", "solved", "length") or name.startswith("level/")]
    for cycle, file in snapshots_of(path / "snapshots").items():
        (buffer,) = read_snapshot(file).buffers
        for row, number in enumerate(buffer["id"]):
            last = np.flatnonzero((levels["id"] == number) & (levels["cycle"] <= cycle))[-1]
            assert buffer["played/cycle"][row] == levels["cycle"][last]
            assert buffer["played/updates"][row] == updates[levels["cycle"][last]]
            for name in names:
                np.testing.assert_array_equal(buffer[f"played/{name}"][row], np.float32(levels[name][last]))
    run(tiny("plr-robust", run__recorded_cycles=1), tmp_path / "thin")
    files = snapshots_of(tmp_path / "thin" / "snapshots")
    assert len(read_levels(tmp_path / "thin" / "levels.csv")["id"]) < len(levels["id"])
    last = read_snapshot(files[max(files)]).buffers[0]
    for name in ("id", "played/cycle", "played/return"):
        np.testing.assert_array_equal(last[name], buffer[name])


def test_a_run_goes_on_from_a_checkpoint_that_knows_no_plays(tmp_path):
    """One of an earlier version, or with a damaged file beside it: the plays before are not known."""
    config = tiny("plr-robust", updates=3)
    for number, damage in enumerate((lambda file: file.unlink(), lambda file: file.write_bytes(b"PK"))):
        path = tmp_path / str(number)
        run(config, path)
        for file in (path / "checkpoints").glob(f"step-*/{PLAYS}"):
            damage(file)
        run(tiny("plr-robust"), path, resume=True)
        files = snapshots_of(path / "snapshots")
        (buffer,) = read_snapshot(files[max(files)]).buffers
        levels = read_levels(path / "levels.csv")
        rows = [np.flatnonzero(levels["id"] == number)[-1] for number in buffer["id"]]
        last, known = levels["cycle"][rows], np.isfinite(buffer["played/cycle"])
        assert known.sum() > 0
        np.testing.assert_array_equal(buffer["played/cycle"][known], last[known])
        assert last[~known].max(initial=0) < last[known].min()


def test_records_can_be_switched_off_and_change_nothing(tmp_path):
    """Training must not depend on what is written of it."""
    off = {"run.recorded_cycles": 0, "run.recorded_evaluations": 0, "run.recorded_points": 0}
    for name, more in (("with", {}), ("without", off)):
        run(settings.replace(tiny("dr", updates=3), more), tmp_path / name)
    ours, theirs = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("with", "without")
    )
    # The compiler may round a number of another program differently, such as the learning rate.
    assert ours == [pytest.approx(row, rel=1e-5) for row in theirs]
    assert read_snapshot(*snapshots_of(tmp_path / "with" / "snapshots").values()).buffers == ()
    assert not (tmp_path / "without" / "levels.csv").exists()
    assert not (tmp_path / "without" / "snapshots").exists()


def test_all_runs_are_evaluated_on_the_same_episodes(tmp_path, monkeypatch):
    seeds = []

    def watched(*_, seed, **__):
        seeds.append(seed)
        return [EvaluationRow("cenie8", "Labyrinth", "plain", 0, 0.5, True, 1.0, 9)]

    monkeypatch.setattr(training, "evaluate", watched)
    run(tiny("dr", seed=3, updates=0), tmp_path / "a")
    run(tiny("dr", seed=4, updates=0, run__evaluation_seed=7), tmp_path / "b")
    assert seeds == [0, 7]


def test_bug_training_says_nothing_of_levels_that_are_never_scored(tmp_path):
    """Said once before training, where it can be foreseen, and once when it has happened."""
    config = tiny("plr", env__max_steps=250, teacher__replay__min_fill=1.0, updates=12)
    printed = run(config, tmp_path / "run")
    assert printed.count("may end before an episode does (up to 250 steps)") == 1
    assert printed.count("levels played so far completed no episode") == 1


def test_several_checkpoints_can_be_evaluated(finished, capsys):
    path, _ = finished
    assert cli.run(["evaluate", str(path), "--checkpoints", "2", "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    rows = read_evaluations(next(path.glob("evaluation-cenie8-seed0-*.csv")))
    cycles = sorted({*rows.cycle.tolist()})
    assert cycles == sorted(int(p.name.removeprefix("step-")) for p in (path / "checkpoints").iterdir())
    assert len(rows) == 2 * 2 * 8
    mean = rows.solved.mean()
    assert any("mean" in line and f"{mean:.3f}" in line for line in printed.splitlines())
    assert cli.run(["evaluate", str(path), "--checkpoints", "3", "--episodes", "1"]) == 0
    assert "only 2 of 3 checkpoints" in capsys.readouterr().out


def test_printed_table_shows_untrained_beside_trained_and_where_the_results_are(finished):
    path, printed = finished
    assert "untrained" in printed
    assert "Labyrinth" in printed
    assert f"results: {path}" in printed


def test_stopped_and_resumed_run_leaves_the_same_bytes(finished, tmp_path):
    path = tmp_path / "run"
    config = tiny("plr-robust")
    shorter = settings.replace(config, {"updates": 3})
    run(shorter, path)
    run(config, path, resume=True)
    assert without_evaluations(path) == without_evaluations(finished[0])


@pytest.mark.slow
def test_a_resumed_walker_leaves_the_same_bytes(tmp_path):
    config = tiny("accel-cenie", "walker")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    printed = run(config, whole)
    assert all(name in printed for name in ("Hardcore", "PitGap", "walker6"))
    run(settings.replace(config, {"updates": 3}), parts)
    run(config, parts, resume=True)
    assert without_evaluations(parts) == without_evaluations(whole)


@pytest.mark.slow
def test_a_resumed_race_leaves_the_same_bytes_and_is_evaluated_on_circuits(tmp_path, monkeypatch):
    config = tiny("plr-cenie", "racing")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert "Bezier9" in run(config, whole)
    run(settings.replace(config, {"updates": 3}), parts)
    run(config, parts, resume=True)
    assert without_evaluations(parts) == without_evaluations(whole)
    # Cut short: what circuits cost does not depend on how long they are driven.
    monkeypatch.setattr("cenie.experiment.evaluate.LONGEST_EPISODE", 2)
    monkeypatch.setattr("cenie.experiment.evaluate.SEGMENT", 2)
    played = load_run(whole).evaluate("f1", episodes=1, quiet=True)
    assert len(played.levels()) == len(played) == 20
    china = played.where(played.level == "China")
    np.testing.assert_allclose(china.score, (china.returns + 200) / 1000)
    oval = tmp_path / "oval.csv"
    turn = np.linspace(0, 2 * np.pi, 50, endpoint=False)
    oval.write_text("x,y\n" + "".join(f"{200 * np.cos(a)},{150 * np.sin(a)}\n" for a in turn))
    played = load_run(whole).evaluate(str(oval), episodes=2, quiet=True)
    assert played.level.tolist() == ["oval", "oval"]
    assert list(whole.glob("evaluation-oval-*.csv"))


@pytest.mark.slow  # the contract of methods compares the states of chunks and of single cycles
def test_length_of_chunks_does_not_change_results(finished, tmp_path):
    config = settings.replace(
        tiny("plr-robust"), {"run.cycles_per_chunk": 1, "run.checkpoint_every": 1, "run.keep_checkpoints": 1}
    )
    run(config, tmp_path / "run")
    ours, theirs = (p / "metrics.jsonl" for p in (tmp_path / "run", finished[0]))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(finished, tmp_path):
    path = Path(shutil.copytree(finished[0], tmp_path / "run"))
    newest = max((path / "checkpoints").glob("step-*"))
    arrays = newest / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-100])
    printed = run(tiny("plr-robust"), path, resume=True)
    assert newest.name in printed
    assert "resuming after cycle" in printed
    assert contents(path) == contents(finished[0])


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(tmp_path, monkeypatch):
    save, calls = training.checkpoint.save, []

    def failing_once(*arguments, **named):
        calls.append(1)
        if len(calls) == 1:
            raise CheckpointError("cannot write: no space left on device")
        return save(*arguments, **named)

    monkeypatch.setattr(training.checkpoint, "save", failing_once)
    printed = run(tiny("dr"), tmp_path / "run")
    assert "no space left" in printed
    assert read_json(tmp_path / "run" / "summary.json")["failed_checkpoints"] == 1


def test_training_stops_when_the_student_diverges(tmp_path, monkeypatch):
    config = tiny("dr", student__ppo__max_bad_updates=1, student__ppo__learning_rate=1e38)
    console = Console(file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file, Progress(console, 6) as progress, pytest.raises(training.TrainingDiverged):
        training.train(
            settings.replace(config, {"updates": 40}), RunDirectory(tmp_path / "run"), progress, resume=False
        )
    assert read_json(tmp_path / "run" / "diverged.json")["skipped_in_a_row"] >= 1


def _command(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "cenie.command.cli", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=kept.environment(),
    )


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _kill_rounds(tmp_path: Path, method: str, kills: int, updates: int, domain: str = "maze") -> None:
    """Kill a run again and again, resume it each time, and compare with one that was left alone.

    Every kill must hit: most of the time of a process goes by before its first cycle, and a run that has
    ended cannot be killed. So the clock starts when a few new rows are there.
    """
    every = {"run__cycles_per_chunk": 1, "run__checkpoint_every": 1, "run__evaluate_every": 9}
    config = tiny(method, domain, updates=updates, **every)
    for name in ("alone", "killed"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "config.json", settings.to_data(config))
    alone = _command("train", "--resume", tmp_path / "alone")
    printed, _ = alone.communicate()
    assert alone.returncode == 0, printed
    rng = random.Random(0)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    for _ in range(kills):
        enough = max(_lines(metrics), 10) + rng.randint(0, 2)  # the first update comes after a few cycles
        process = _command("train", "--resume", tmp_path / "killed")
        while process.poll() is None and _lines(metrics) <= enough:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        printed, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL, printed
    last = _command("train", "--resume", tmp_path / "killed")
    printed, _ = last.communicate()
    assert last.returncode == 0, printed
    assert "resuming after cycle" in printed
    assert contents(tmp_path / "killed") == contents(tmp_path / "alone")


def test_kill_9_and_resume_ends_with_the_same_bits(tmp_path):
    _kill_rounds(tmp_path, "accel", kills=1, updates=30)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sfl", "alp-gmm", "traced", "minimax", "paired", "poet"])
def test_kill_9_and_resume_of_a_teacher_that_learns_ends_with_the_same_bits(tmp_path, method):
    _kill_rounds(tmp_path, method, kills=1, updates=30)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["accel", "plr-cenie", "accel-cenie", "repaired"])
def test_thirty_kills_and_resumes_end_with_the_same_bits(tmp_path, method):
    _kill_rounds(tmp_path, method, kills=30, updates=150)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["accel-diplr", "accel-poet", "accel-epoet"])
def test_every_novelty_survives_kills(tmp_path, method):
    _kill_rounds(tmp_path, method, kills=3, updates=40)


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_survives_a_kill_on_the_walker(tmp_path, method):
    _kill_rounds(tmp_path, method, kills=1, updates=25, domain="walker")


def test_sigterm_writes_a_checkpoint_and_says_how_to_go_on(tmp_path):
    config = tiny("dr", updates=100_000, run__cycles_per_chunk=1, run__evaluate_every=100_000)
    write_json(tmp_path / "config.json", settings.to_data(config))
    process = _command("train", "--resume", tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert "--resume" in printed
    loaded = load_newest(tmp_path / "checkpoints", _state(config))
    assert loaded is not None
    assert loaded.step == len(metrics.read_text().splitlines())


def _state(config):
    _, setup = build(config)
    return init(setup, config.seed)


def test_a_run_says_which_devices_stay_idle(tmp_path):
    printed = run(tiny("dr", updates=0, student__num_levels=3, student__ppo__minibatches=1), tmp_path / "run")
    assert "using 1 of 2 devices: their number must divide 3" in printed
