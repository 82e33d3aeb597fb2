"""The examples run, and do what they say."""

import importlib
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cenie
from cenie.command import cli
from cenie.envs.maze.level import make_level
from cenie.methods.table import METHODS
from tests.envs.maze.oracle import fewest_actions, random_level_values
from tests.examples import EXAMPLES, load


def test_a_numpy_student_learns_cart_poles_from_our_teacher():
    before, after = load("own_loop_gymnasium").main("plr-robust", tasks=60, seed=0)
    assert after > 1.5 * before


@pytest.mark.slow
def test_cart_poles_unlike_those_of_training_are_novel():
    novelty = load("novelty_gymnasium").main(rollouts=3)
    assert novelty["as in training"] < min(novelty["gravity 60"], novelty["motor 1"])


def test_cenie_trains_on_cart_poles_of_gymnax(tmp_path):
    overrides = {
        "updates": 20,
        "student.num_levels": 16,
        "student.num_steps": 64,
        "teacher.replay.capacity": 32,
        "teacher.novelty.coverage.components": (2, 3),
        "teacher.novelty.coverage.window": 8,
        "run.devices": 1,
    }
    before, after = load("train_gymnax").main(str(tmp_path / "run"), "plr-cenie", overrides)
    assert after > 1.5 * before


def test_a_run_has_a_coverage_model_of_its_own(tmp_path):
    distilled = load("distilled_novelty")
    overrides = {
        "updates": 4,
        "env.size": 5,
        "env.max_steps": 20,
        "student.num_levels": 8,
        "student.num_steps": 32,
        "student.network.kind": "mlp",
        "student.ppo.minibatches": 2,
        "teacher.replay.capacity": 16,
        "run.suite": "cenie8",
        "run.final_episodes": 1,
    }
    coverage = distilled.Distillation(window=8, steps=50, size=16)
    row = distilled.main(str(tmp_path / "run"), overrides, coverage)
    assert row["teacher/failed_fits"] == 0
    assert 0 < row["teacher/fit/after"] < row["teacher/fit/before"]


HILLS = {
    "updates": 2,
    "env.max_steps": 16,
    "student.num_levels": 4,
    "student.num_steps": 32,
    "student.network.hidden_sizes": (8,),
    "student.ppo.epochs": 1,
    "teacher.replay.capacity": 12,
    "teacher.novelty.coverage.components": (2, 3),
    "teacher.novelty.coverage.window": 6,
    "run.devices": 1,
    "run.cycles_per_chunk": 2,
    "run.checkpoint_every": 1,
}


def test_a_domain_outside_of_the_package_is_trained_from_python_and_by_command(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    hills = importlib.import_module("hills")
    assert hills.check() == []
    hills.main(str(tmp_path / "python"), HILLS)
    assert "levels stored" in capsys.readouterr().out
    out = str(tmp_path / "command")
    options = [f"--{name}={json.dumps(value)}" for name, value in HILLS.items()]
    assert cli.run(["train", "hills:domain", "plr-cenie", "--out", out, *options]) == cli.OK
    files = [(tmp_path / which / "metrics.jsonl").read_bytes() for which in ("python", "command")]
    assert files[0] == files[1]
    assert cli.run(["evaluate", out, "--domain", "hills:domain", "--episodes", "1"]) == cli.OK
    run = cenie.load_run(out, domain="hills:domain")
    assert run.summary["measure"] == "score"
    (episodes,) = run.later_evaluations.values()
    np.testing.assert_allclose(episodes.score, episodes.returns)


def test_a_design_of_hills_is_a_level_and_levels_are_points(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    hills = importlib.import_module("hills")
    domain = hills.domain(hills.HillsConfig(posts=3))
    design, key = domain.design("random"), jax.random.key(0)
    _, state = design.environment.reset(key, design.task)
    for action in (-1.0, 0.0, 1.0):
        state = design.environment.step(key, design.task, state, jnp.array([action])).state
    level = design.finished_level(state)
    np.testing.assert_allclose(level.heights, [0.0, 0.25, 0.5])
    box = domain.parameters
    assert (box.decode(box.encode(level)).heights == level.heights).all()
    slopes = domain.environment.prepare(level).slopes
    np.testing.assert_allclose(slopes[4:-4], 0.5, atol=1e-5)


def test_what_novelty_ranks_is_told_by_the_last_play_before_the_snapshot(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = load("does_novelty_help")
    played = {
        "cycle": [1, 1, 1, 5, 5, 5],
        "id": [0, 1, 2, 0, 1, 2],
        "length": [10, 20, 30, 30, 20, 10],
        "level/walls": [3, 2, 1] * 2,
        "level/path": [4, 5, 6] * 2,
        "level/solvable": [1, 1, 0] * 2,
    }
    columns = {
        "id": [0, 1, 2],
        "novelty": [0.0, 1.0, 2.0],
        "regret": [2.0, 1.0, 0.0],
        "last_played": [1, 2, 3],
    }
    snapshot = SimpleNamespace(
        cycle=3, updates=2, buffers=[{name: np.array(values) for name, values in columns.items()}]
    )
    monkeypatch.setattr(example.cenie, "read_snapshot", lambda _: snapshot)
    run = SimpleNamespace(
        snapshots={3: None}, played_levels={name: np.array(values) for name, values in played.items()}
    )
    (row,) = example.what_novelty_ranks(run)
    assert row["episode length"] == pytest.approx(1)
    assert row["regret"] == pytest.approx(-1)
    assert row["path"] == pytest.approx(1)
    assert row["unsolvable among the novel"] == 1


@pytest.mark.slow
def test_the_question_whether_novelty_helps_is_answered_with_its_controls(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = load("does_novelty_help")
    small = {
        "student.num_levels": 8,
        "student.num_steps": 32,
        "student.network.memory_size": 16,
        "teacher.replay.capacity": 24,
        "env.max_steps": 30,
        "run.evaluate_every": 2,
        "run.final_episodes": 1,
    }
    novel = {"teacher.novelty.coverage.components": (2, 3), "teacher.novelty.coverage.window": 8}
    example.SUITES = {"cenie8": 1}
    for name, more in {"plr-robust": {}, "plr-cenie": novel, "shuffled": novel, "age": novel}.items():
        settings = example.settings_of(3, 6) | small | more
        example.train_one(example.ARMS[name], tmp_path / f"{name}-seed3", settings, example.SUITES)
    scores = tmp_path / "scores.csv"
    scores.write_text("arm,seed,cenie8,million steps played\nplr-cenie,4,0.25,1.5\n")
    example.report(tmp_path, scores)
    assert [line.split(",")[:2] for line in scores.read_text().splitlines()[1:]] == [
        ["age", "3"],
        ["plr-cenie", "3"],
        ["plr-cenie", "4"],
        ["plr-robust", "3"],
        ["shuffled", "3"],
    ]
    printed = capsys.readouterr().out
    assert "| minus plr-robust, seed by seed | seeds | cenie8 |" in printed
    assert "| plr-cenie | 2 |" in printed
    assert sum(line.startswith("| age-seed3 |") for line in printed.splitlines()) == 2


def test_all_methods_can_be_compared_at_equal_environment_steps(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example, steps = load("compare_all_methods"), 300 * 64 * 256
    for method in METHODS:
        chosen = example.settings("maze", method, 1, steps)
        config = cenie.preset("maze", method, chosen.pop("preset"), chosen)
        assert config.run.env_steps == steps
        assert not config.is_over(config.updates - 1, steps - 1)
        assert config.is_over(0, steps)
    # It called a module that had moved.
    example.run(tmp_path / "methods", ["methods"])
    assert "plr-cenie" in (tmp_path / "methods.log").read_text()
    done = tmp_path / "dr-seed0"
    done.mkdir()
    (done / "summary.json").write_text(json.dumps({"updates": 300, "env_steps": steps}))
    (done / "timing.jsonl").write_text('{"seconds": 60.0}\n{"seconds": 30.0}\n')
    rows = ["cycle,level,score", "1,Maze,0.0", "1,Other,1.0", "2,Maze,1.0", "2,Other,1.0"]
    (done / f"evaluation-{example.SUITE}-seed0-cycle2.csv").write_text("\n".join(rows))
    scores = example.scores_of({("dr", 0): done, ("plr", 0): tmp_path / "plr-seed0"})
    example.print_table(scores)
    printed = capsys.readouterr().out
    assert "| `dr` | 0.750 | 0.750 | 300 | 4.92 | 1.5 |" in printed
    assert "plr" not in printed
    kept = tmp_path / "scores.csv"
    example.with_kept(scores, kept)
    later = example.with_kept({("dr", 1): scores["dr", 0] | {"score": 0.25}}, kept)
    example.print_table(later)
    assert "| 0.750, 0.250 | 300 |" in capsys.readouterr().out


def test_the_flat_plr_cenie_does_what_the_library_does():
    """The same decisions, stored levels and scores, and the same weights but for rounding."""
    from cenie.experiment.build import build, place
    from cenie.teach.cycle import init
    from cenie.xla.parts import CompiledCycles
    from tests.tiny import tiny

    settings = {
        "teacher__score": "pvl",
        "teacher__alpha__value": 0.5,
        "teacher__replay__victim": "lowest-priority",
        "teacher__replay__schedule": "fixed",
        "run__devices": 1,
        "seed": 3,
    }
    config = tiny("plr-cenie", **settings)
    flat = load("plr_cenie_flat").PlrCenie(config)
    _, setup = build(config)
    run, state = CompiledCycles(setup, 1), place(setup, init(setup, 3))
    kinds = []
    for _ in range(30):
        state, _, metrics, _ = run(state, updates=1000)
        kinds.append("replay" if int(metrics["teacher/kind"][0]) else "new")
        assert flat.cycle() == kinds[-1]
        buffer = state.teacher.buffer
        size = int(buffer.size)
        stored = flat.buffer.levels
        assert [each.number for each in stored] == buffer.ids[:size].tolist()
        assert [flat.buffer.clock - each.age_mark for each in stored] == buffer.staleness[:size].tolist()
        scores = [(each.regret, each.novelty) for each in stored]
        np.testing.assert_allclose(scores, buffer.scores[:size], rtol=2e-3, atol=2e-4)
    assert {"new", "replay"} == set(kinds)
    assert size == buffer.capacity
    for ours, theirs in zip(jax.tree.leaves(flat.student.network), jax.tree.leaves(state.student.network)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_the_explorer_of_mazes_needs_no_less_than_the_shortest_way_and_finds_what_can_be_found(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = load("explore_hard_mazes")
    straight = make_level(np.zeros((9, 9), bool), (4, 0), (0, 0), time_limit=4)
    assert example.explore(straight)
    assert not example.explore(make_level(np.zeros((9, 9), bool), (4, 0), (0, 0), time_limit=3))
    rng, solved = np.random.default_rng(0), []
    for density in np.linspace(0.0, 0.6, 60):
        walls, goal, start = random_level_values(rng, 9, 9, density)
        fewest = fewest_actions(make_level(walls, goal, start))
        # Without a limit it sees all that can be reached, and finds the goal just where there is a way.
        assert example.explore(make_level(walls, goal, start, time_limit=2000)) == (fewest is not None)
        if fewest is not None:
            solved.append(example.explore(make_level(walls, goal, start, time_limit=fewest)))
            assert (
                not example.explore(make_level(walls, goal, start, time_limit=max(fewest - 1, 1)))
                or fewest == 1
            )
    assert 0 < sum(solved) < len(solved)
