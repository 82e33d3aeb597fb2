"""Run directories are read fast and without JAX, and a damaged one is left out with a reason."""

import json
import subprocess
import sys

import numpy as np
import pytest

from cenie.report.measure.comparable import comparability
from cenie.report.runs import group_runs, open_runs
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.levels import read_levels
from cenie.rundir.metrics import read_curves
from cenie.rundir.run import open_run
from tests.report.synthetic import LEVELS, evaluate_later, write_run


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Two methods with two seeds each, and one of them with another setting."""
    out = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        write_run(out / f"dr-{seed}", "dr", seed=seed, skill=0.4)
        write_run(out / f"cenie-{seed}", seed=seed, skill=0.8)
        write_run(out / f"other-{seed}", seed=seed, skill=0.6, overrides={"teacher.alpha.value": 0.5})
    return out


def test_reading_loads_no_jax(directory):
    code = (
        "import sys; from cenie.command.cli import run; from pathlib import Path; "
        "from cenie.report.build import write_report; from cenie.report.writer import Options; "
        "run(['report', '--help']); run(['cite', sys.argv[1]]); run(['report', 'nowhere']); "
        "options = Options(coverage=False, pictures=False, pdf=False); "
        "write_report([sys.argv[1]], Path(sys.argv[1], 'made'), options); "
        "print('loaded' if 'jax' in sys.modules else 'not loaded')"
    )
    command = [sys.executable, "-c", code, str(directory / "cenie-0")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "not loaded"
    assert "there is no such directory" in result.stderr


def test_runs_are_grouped_by_domain_method_and_what_differs(directory):
    opened = open_runs([directory])
    assert opened.skipped == ()
    groups = group_runs(opened.runs)
    assert [(group.label, [run.seed for run in group.runs]) for group in groups] == [
        ("dr", [0, 1]),
        ("plr-cenie", [0, 1]),
        ("plr-cenie, alpha.value=0.5", [0, 1]),
    ]
    (few,) = comparability(groups)
    assert few.startswith("2 runs are few")
    assert few.endswith("(dr, plr-cenie, plr-cenie, alpha.value=0.5)")


def test_final_episodes_are_those_of_the_last_checkpoint_or_of_evaluate(directory, tmp_path):
    run = open_run(directory / "cenie-0")
    final = run.final_episodes("cenie8")
    assert set(final.updates) == {40}
    assert list(final.level_means()) == list(LEVELS["cenie8"])
    path = write_run(tmp_path / "run", skill=0.9)
    evaluate_later(path, "cenie8", 0.0)
    evaluate_later(path, "perfect-large", 1.0)
    run = open_run(path)
    assert run.suites == ["cenie8", "perfect-large"]
    assert set(run.final_episodes("cenie8").level_means().values()) == {0.0}
    assert run.final_episodes("perfect-large").level_means() == {"PerfectMazeLarge": 1.0}
    assert len(run.final_episodes("unknown")) == 0


def break_config(path):
    (path / "config.json").write_text("{")


def break_summary(path):
    (path / "summary.json").write_text('"?"')


def break_evaluations(path):
    (path / "evaluations.csv").write_text(
        "cycle,updates,env_steps,suite,level,variant,episode,return,solved,length\n"
    )


def remove_everything(path):
    for file in path.iterdir():
        if file.is_file() and file.name != "config.json":
            file.unlink()


def remove_config(path):
    (path / "config.json").unlink()


def strange_config(path):
    (path / "config.json").write_text('{"domain": "maze", "method": 3}')


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (break_config, "not valid JSON"),
        (break_summary, "no summary of a run"),
        (break_evaluations, "format 1"),
        (remove_everything, "nothing has been written yet"),
        (remove_config, "no config.json"),
        (strange_config, "does not say the method"),
    ],
)
def test_a_damaged_directory_is_left_out_with_the_reason(tmp_path, damage, reason):
    good, bad = write_run(tmp_path / "good"), write_run(tmp_path / "bad", seed=1)
    damage(bad)
    opened = open_runs([good, bad, tmp_path / "missing"])
    assert [run.path for run in opened.runs] == [good]
    first, second = opened.skipped
    assert first.startswith(f"{bad} is left out: ")
    assert reason in first
    assert "there is no such directory" in second


def test_torn_and_foreign_lines_are_passed_over(tmp_path):
    path = write_run(tmp_path / "run")
    before = open_run(path)
    for name, line in {
        "evaluations.csv": "80,40,81920,cenie8,Maze,original,x,0.5,1,nonsense,7\n80,40,81",
        "metrics.jsonl": '{"cycle": 81, "upd',
        "levels.csv": "81,0,0,repl",
    }.items():
        with (path / name).open("a") as file:
            file.write(line)
    after = open_run(path)
    assert len(after.evaluations) == len(before.evaluations)
    assert after.metrics["cycle"][-1] == before.metrics["cycle"][-1] == 80
    assert len(after.sample_of_played_levels()["cycle"]) == len(before.sample_of_played_levels()["cycle"])


def test_curves_of_long_runs_are_means_at_equally_spaced_places(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"cycle": n, "updates": n // 2, "env_steps": 9 * n, "even": n % 2, "late": n if n > 400 else None}
        for n in range(1, 9001)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    curves = read_curves(path, ("even", "late", "never"), places=50)
    assert len(curves["cycle"]) == 50
    assert curves["cycle"][0] < 20
    assert 8800 < curves["cycle"][-1] <= 9000
    np.testing.assert_allclose(np.diff(curves["cycle"]), 180, atol=12)
    np.testing.assert_allclose(curves["even"], 0.5, atol=0.04)
    np.testing.assert_allclose(curves["updates"], curves["cycle"] / 2 - 0.25, atol=0.3)
    assert np.isnan(curves["late"][0])
    np.testing.assert_allclose(curves["late"][5:], curves["cycle"][5:])
    assert np.isnan(curves["never"]).all()


def test_curves_of_short_runs_have_every_row(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"cycle": n, "value": n}) + "\n" for n in range(1, 101)))
    np.testing.assert_array_equal(read_curves(path, ("value",))["value"], np.arange(1, 101))
    curves = read_curves(path, ("value",), places=50)
    np.testing.assert_allclose(curves["value"], np.arange(50) * 2 + 1.5)
    assert read_curves(tmp_path / "nothing", ("value",))["value"].shape == (0,)


def test_of_long_records_a_sample_of_all_times_is_read(tmp_path):
    path = write_run(tmp_path / "run", cycles=2000, levels=4) / "levels.csv"
    every = read_levels(path)
    sample = read_levels(path, limit=100_000)
    assert len(every["cycle"]) == 8000
    assert 500 < len(sample["cycle"]) < 2000
    assert sample["cycle"].min() < 40
    assert sample["cycle"].max() > 1950
    known = set(zip(every["cycle"], every["index"], every["level/walls"]))
    assert set(zip(sample["cycle"], sample["index"], sample["level/walls"])) <= known


def test_a_damaged_table_is_said_when_it_is_read(tmp_path):
    path = write_run(tmp_path / "run")
    (path / "levels.csv").write_text("nonsense\n1,2\n")
    with pytest.raises(RunDirectoryError, match="does not name the columns"):
        open_run(path).sample_of_played_levels()
    *_, last = open_run(path).snapshots.values()
    last.write_bytes(b"PK")
    assert open_run(path).snapshot().cycle == 60
    with pytest.raises(RunDirectoryError, match="not a snapshot"):
        open_run(path).snapshot(80)
    assert open_run(path).snapshot(81) is None


def test_what_cannot_be_compared_is_named(tmp_path):
    write_run(tmp_path / "a", "dr", updates=40)
    write_run(tmp_path / "b", "plr", updates=80, overrides={"student.ppo.learning_rate": 0.5})
    write_run(tmp_path / "c", "accel", finished=False, seed=3)
    odd = write_run(tmp_path / "d", "accel", seed=4)
    summary = json.loads((odd / "summary.json").read_text())
    (odd / "summary.json").write_text(json.dumps(summary | {"version": "0.2", "bit_exact": False}))
    evaluate_later(odd, "perfect-large", 0.5)
    notes = "\n".join(comparability(group_runs(open_runs([tmp_path]).runs)))
    assert "the budgets (updates) differ: 40 (dr, accel); 80 (plr)" in notes
    assert "the versions of cenie differ: 0.1.0 (dr, plr); 0.2 (accel)" in notes
    assert "the suites played differ: cenie8 (dr, plr); cenie8, perfect-large (accel)" in notes
    assert "the values of student.ppo.learning_rate differ" in notes
    assert f"{tmp_path / 'c'} is not finished" in notes
    assert "the seeds differ: dr: 0; plr: 0; accel: 3, 4" in notes
    assert f"{odd} is marked as not bit exact: no reason given" in notes
    assert "decay_updates" not in notes


def test_bug_runs_of_one_budget_of_environment_steps_were_said_to_differ(tmp_path):
    """They end after 413, 416 and 417 updates, and each had played its last checkpoints."""
    for seed, updates in enumerate((413, 416, 417)):
        overrides = {"run.env_steps": 9_000_000, "updates": 1000}
        write_run(tmp_path / str(seed), "dr", seed=seed, updates=updates, overrides=overrides)
    assert "checkpoints played" not in "\n".join(comparability(group_runs(open_runs([tmp_path]).runs)))
    other = write_run(tmp_path / "3", "plr", seed=3, updates=1000, overrides={"run.env_steps": 20_000_000})
    notes = "\n".join(comparability(group_runs(open_runs([tmp_path]).runs)))
    assert "the budgets (environment steps) differ: 9000000 (dr); 20000000 (plr)" in notes
    assert "checkpoints played" not in notes
    summary = json.loads((other / "summary.json").read_text())
    (other / "summary.json").write_text(json.dumps(summary | {"updates": 2000}))
    notes = "\n".join(comparability(group_runs(open_runs([tmp_path]).runs)))
    assert "checkpoints played on cenie8 differ: 1 up to the end (dr); 1 up to update 1000 (plr)" in notes


def test_runs_of_two_budgets_of_environment_steps_are_no_repetitions(tmp_path):
    """They were one group, with each seed twice."""
    for seed in range(2):
        for budget in (9_000_000, 20_000_000):
            overrides = {"run.env_steps": budget, "run.checkpoint_every": 10 + seed}
            write_run(tmp_path / f"{seed}-{budget}", "dr", seed=seed, overrides=overrides)
    groups = group_runs(open_runs([tmp_path]).runs)
    assert [group.label for group in groups] == ["dr, env_steps=9000000", "dr, env_steps=20000000"]
    assert [[run.seed for run in group.runs] for group in groups] == [[0, 1], [0, 1]]


def test_a_seed_that_is_there_twice_is_named(tmp_path):
    write_run(tmp_path / "a", "dr")
    write_run(tmp_path / "b", "dr")
    assert comparability(group_runs(open_runs([tmp_path]).runs))[0] == (
        "dr has a seed more than once: its runs are not independent"
    )


def test_fewer_than_five_runs_are_warned_of(tmp_path):
    """Intervals of medians and inter-quartile means of so few runs are too narrow, and nothing said so."""
    for seed in range(5):
        write_run(tmp_path / f"dr-{seed}", "dr", seed=seed, points=0)
        assert (comparability(group_runs(open_runs([tmp_path]).runs)) == []) == (seed in (0, 4))
