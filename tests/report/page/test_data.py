"""What the page is told: curricula, results, commands, and what was left out. No browser, no student."""

import base64
import json
import shlex

import numpy as np
import pytest

from cenie.command.configs import typed
from cenie.command.options import parse
from cenie.experiment.presets import preset
from cenie.report.measure.curves import _apart, evenly
from cenie.report.measure.scores import measured_domains
from cenie.report.page import curriculum as page_curriculum
from cenie.report.page import data as page_module
from cenie.report.page.charts import suite_results, training_data
from cenie.report.page.curriculum import curriculum_data, read_curriculum
from cenie.report.page.data import Limits, page_data
from cenie.report.page.numbers import one, short
from cenie.report.page.pictures import Budget, data_uri, notable
from cenie.report.page.write import open_studio, page_html
from cenie.report.runs import group_runs, open_runs
from cenie.rundir.again import train_command
from cenie.rundir.archives import archive_bytes
from cenie.rundir.run import open_run
from cenie.settings import to_data
from tests.report.page.made import LEVELS, MOMENTS, PaintedStudio, a_film, make_run


def test_numbers_are_short_and_always_json():
    assert short([0.123456, np.nan, -np.inf, 2.0, 1e-9]) == [0.1235, None, None, 2, 1e-9]
    assert short(np.array([True, False])) == [1, 0]
    assert one(123456.0) == 123500
    assert evenly(5, 10) == [0, 1, 2, 3, 4]
    assert evenly(1000, 3) == [0, 500, 999] or evenly(1000, 3)[::2] == [0, 999]


def test_the_same_levels_are_shown_at_all_moments_and_the_likeliest_always(tmp_path):
    run = open_run(make_run(tmp_path / "run", stored=200))
    curriculum = read_curriculum(run, 60)
    assert [frame.cycle for frame in curriculum.frames] == list(MOMENTS)
    assert [len(frame.rows) for frame in curriculum.frames] == [60, 60, 60]
    first, last = (set(curriculum.frames[place].ids.tolist()) for place in (0, -1))
    assert (
        len(first & last) > 20
    )  # 18 are shown because they stand out, and the others are drawn by their ids
    for frame in curriculum.frames:
        likeliest = np.argsort(-frame.columns["probability"])[:12]
        assert set(likeliest.tolist()) <= set(frame.rows.tolist())


def test_a_stored_level_knows_how_its_last_play_before_the_moment_went(tmp_path):
    run = open_run(make_run(tmp_path / "run"))
    curriculum = read_curriculum(run, 100)
    played = run.sample_of_played_levels()
    for frame in curriculum.frames:
        rows = (played["cycle"] == frame.cycle - 1) & (played["id"] == 3)
        assert frame.columns["return"][3] == pytest.approx(played["return"][rows][0])


def with_plays(path, **columns):
    """The last snapshot of a run, written anew with the newest plays of its levels."""
    file = max((path / "snapshots").iterdir())
    arrays = dict(np.load(file))
    added = {
        f"buffer/played/{name.replace('__', '/')}": np.asarray(values) for name, values in columns.items()
    }
    file.write_bytes(archive_bytes(arrays | added))
    return file


def test_the_newest_plays_are_those_of_the_snapshot_however_long_the_records_are(tmp_path):
    """They were looked for in a sample of `levels.csv`: of 800 dots 209 had a wrong return, and 184 none."""
    path = make_run(tmp_path / "run", stored=30)
    returns = np.linspace(0, 1, 30)
    with_plays(path, cycle=np.full(30, 28.0), updates=np.arange(30.0), **{"return": returns})
    run = open_run(path)
    frame = read_curriculum(run, 30).frames[-1]
    np.testing.assert_allclose(frame.columns["return"], returns)
    np.testing.assert_allclose(frame.columns["played at"], np.arange(30))
    data = curriculum_data(read_curriculum(run, 30))
    assert {"name": "played at", "title": "last played (number of updates)"} in data["columns"]


def test_the_newest_play_is_not_looked_for_in_a_part_of_the_records(tmp_path, monkeypatch):
    path = make_run(tmp_path / "run")
    monkeypatch.setattr(page_curriculum, "MOST_BYTES", 100)
    made = read_curriculum(open_run(path), 30)
    assert all("return" not in frame.columns for frame in made.frames)
    assert "is not known: its snapshots do not say it" in made.problems[0]


def test_the_newest_play_is_not_looked_for_where_not_every_cycle_is_recorded(tmp_path):
    path = make_run(tmp_path / "run", **{"run.recorded_cycles": 20})
    known = ["return" in frame.columns for frame in read_curriculum(open_run(path), 30).frames]
    assert known == [True, True, False]


@pytest.mark.parametrize("number", [0, 170])
def test_a_maze_that_cannot_be_solved_has_no_path(tmp_path, number):
    path = make_run(tmp_path / "run", stored=30)
    solvable = np.arange(30) % 2 > 0
    columns = {
        "level__path": np.where(solvable, 7.0 + np.arange(30), number),
        "level__solvable": 1.0 * solvable,
    }
    with_plays(path, cycle=np.full(30, 28.0), updates=np.arange(30.0), **columns)
    data = curriculum_data(read_curriculum(open_run(path), 30))
    paths = data["fixed"]["level/path"]
    assert [paths[data["ids"].index(number)] for number in range(4)] == [None, 8, None, 10]


def test_regret_is_drawn_against_novelty_where_there_is_any(tmp_path):
    axes = []
    for method in ("plr-cenie", "plr-robust"):
        data = curriculum_data(read_curriculum(open_run(make_run(tmp_path / method, method)), 100))
        axes.append((data["x"], data["y"], data["colour"]))
    assert axes == [("novelty", "regret", "generation"), ("return", "regret", "generation")]


def test_scores_with_names_of_their_own_are_in_the_menus(tmp_path):
    """The page knew `regret` and `novelty` only: others could be chosen, but stood for nothing."""
    path = make_run(tmp_path / "run", "plr-robust", stored=200)
    for file in (path / "snapshots").iterdir():
        arrays = dict(np.load(file))
        mine = arrays.pop("buffer/regret")
        np.savez(file, **{**arrays, "buffer/mine": mine, "buffer/other": mine[::-1]})
    curriculum = read_curriculum(open_run(path), 60)
    data = curriculum_data(curriculum)
    assert (data["x"], data["y"]) == ("other", "mine")
    assert {"mine", "other"} <= {column["name"] for column in data["columns"]}
    for frame in curriculum.frames:
        extremes = np.argsort(frame.columns["mine"], kind="stable")[[0, 1, 2, -3, -2, -1]]
        assert set(extremes.tolist()) <= set(frame.rows.tolist())
    last = curriculum.frames[-1]
    most = last.ids[np.argmax(last.columns["mine"][last.rows])]
    assert most in notable(curriculum, 5)


def test_a_method_without_a_buffer_shows_what_was_played(tmp_path):
    run = open_run(make_run(tmp_path / "run", "dr", stored=0))
    curriculum = read_curriculum(run, 100)
    data = curriculum_data(curriculum)
    assert not data["hasBuffer"]
    assert data["y"] == "return"
    assert sum(frame["total"] for frame in data["frames"]) == len(run.sample_of_played_levels()["cycle"])
    assert notable(curriculum, 5) == []


def test_damaged_records_are_named_and_passed_over(tmp_path):
    path = make_run(tmp_path / "run")
    (path / "snapshots" / "cycle-00000020.npz").write_bytes(b"torn")
    (path / "levels.csv").write_text("nonsense")
    data = page_data(group_runs([open_run(path)]))
    assert [frame["cycle"] for frame in data["curricula"][0]["frames"]] == [10, 30]
    assert sum("cycle-00000020" in line for line in data["skipped"]) == 1
    assert any("levels.csv" in line for line in data["skipped"])


def test_nonsense_in_one_run_does_not_cost_the_others(tmp_path, monkeypatch):
    paths = [make_run(tmp_path / method, method) for method in ("plr-cenie", "plr-robust")]
    file = paths[0] / "snapshots" / "cycle-00000030.npz"
    arrays = dict(np.load(file))
    np.savez(file, **{**arrays, "buffer/id": arrays["buffer/id"][:, None]})
    (paths[1] / "metrics.jsonl").write_text(
        '{"cycle": null}\n{"cycle": 1, "updates": "x", "solved": []}\n[]\n'
    )
    groups = group_runs(open_runs(paths).runs)
    data = page_data(groups, studio=PaintedStudio())
    found = {data["runs"][each["run"]]["name"]: each["frames"] for each in data["curricula"]}
    assert {name: len(frames) for name, frames in found.items()} == {"plr-robust": 3, "plr-cenie": 2}
    assert any("cycle-00000030" in line and "plr-cenie" in line for line in data["skipped"])

    def failing(run, most):
        if run.method == "plr-cenie":
            raise TypeError("what nobody thought of")
        return read_curriculum(run, most)

    monkeypatch.setattr(page_module, "read_curriculum", failing)
    data = page_data(groups, studio=PaintedStudio())
    assert [data["runs"][each["run"]]["name"] for each in data["curricula"]] == ["plr-robust"]
    assert any("the curriculum of" in line and "plr-cenie" in line for line in data["skipped"])


def test_what_was_logged_is_averaged_over_the_runs_that_got_so_far(tmp_path):
    paths = [make_run(tmp_path / f"run{seed}", seed=seed) for seed in range(2)]
    for path, last, value in zip(paths, (100, 50), (0.25, 0.75)):
        rows = [
            {"cycle": at, "updates": at, "env_steps": at, "solved": value, "level/walls": at}
            for at in range(last + 1)
        ]
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = {each["name"]: each for each in training_data(group_runs(open_runs(paths).runs))}
    assert set(made) == {"solved", "level/walls"}
    (curve,) = made["solved"]["groups"]
    assert curve["updates"][0] == 0
    assert (curve["mean"][1], curve["low"][1], curve["high"][1]) == (0.5, 0.25, 0.75)
    assert curve["mean"][-1] == 0.25


def test_curves_and_levels_of_several_runs_have_intervals(tmp_path):
    paths = [make_run(tmp_path / f"run{seed}", seed=seed) for seed in range(4)]
    (group,) = group_runs(open_runs(paths).runs)
    (suite,) = suite_results([group], measured_domains([group]))
    (entry,) = suite["groups"]
    assert suite["levels"] == list(LEVELS)
    assert entry["curve"]["updates"] == [0, 5, 10, 15]
    assert entry["curve"]["runs"] == [4, 4, 4, 4]
    for value, low, high in entry["curve"]["IQM"][1:]:
        assert low <= value <= high
    finals = [run.final_episodes("cenie8").level_means()["Labyrinth"] for run in group.runs]
    assert entry["levels"][0]["median"] == pytest.approx(np.median(finals), rel=1e-3)
    assert len(entry["levels"][0]["runs"]) == 4


def test_evaluations_at_nearly_the_same_time_are_one_point():
    assert _apart(np.array([0.0, 100, 101, 103, 200, 399, 400])).tolist() == [0, 103, 200, 400]


def test_runs_that_stopped_early_count_as_far_as_they_got(tmp_path):
    paths = [make_run(tmp_path / f"run{seed}", seed=seed) for seed in range(2)]
    table = paths[1] / "evaluations.csv"
    table.write_text(
        "".join(line for line in table.read_text().splitlines(True) if not line.startswith("30,"))
    )
    groups = group_runs(open_runs(paths).runs)
    (suite,) = suite_results(groups, measured_domains(groups))
    assert suite["groups"][0]["curve"]["runs"] == [2, 2, 2, 1]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"student.ppo.clip": 0.1, "teacher.replay.capacity": 64},
        {"env.edit_operations": ["wall", "goal"], "env.replacement": False, "run.suite": "plr7"},
    ],
)
def test_the_command_of_a_run_makes_its_config_again(given):
    config = preset("maze", "plr-robust", "quick", {"updates": 33, "seed": 5, **given})
    program, verb, domain, method, *rest = shlex.split(train_command(to_data(config)))
    assert (program, verb) == ("cenie", "train")
    _, options = parse(rest)
    name = options.pop("preset")
    assert preset(domain, method, name, typed(domain, method, options)) == config


def test_runs_that_no_command_makes_have_none(tmp_path):
    data = to_data(preset("maze", "dr", "quick"))
    assert train_command({**data, "from_python": ["score mine"]}) is None
    assert train_command({**data, "domain": "mine:domain"}) is None
    assert train_command({**data, "method": "unknown"}) is None


def test_budgets_bound_what_is_drawn(tmp_path):
    paths = [make_run(tmp_path / method, method) for method in ("plr-cenie", "plr-robust", "accel")]
    groups = group_runs(open_runs(paths).runs)
    limits = Limits(curricula=2, pictures=20, films=4, filmed=1, levels=10)
    data = page_data(groups, studio=PaintedStudio(), limits=limits)
    assert [len(each["pictures"]) for each in data["curricula"]] == [10, 10]
    filmed = [data["runs"][each["run"]]["name"] for each in data["curricula"] if each["films"]]
    assert filmed == ["plr-cenie"]
    assert all(len(frame["levels"]) <= 20 for each in data["curricula"] for frame in each["frames"])
    assert any("more than 2 groups" in line for line in data["leftOut"])
    budget = Budget(10)
    assert [budget.take(size) for size in (6, 6, 4)] == [True, False, True]
    assert budget.refused == 1


def test_a_page_is_no_larger_than_its_pictures_and_the_packed_library(tmp_path):
    """That of six walker runs had 9.6 MB, half of them the plotting library as text."""
    paths = [make_run(tmp_path / f"{seed}", "plr-cenie", seed=seed, stored=800) for seed in range(6)]
    data = page_data(group_runs(open_runs(paths).runs))
    bare = len(page_html(data))
    assert bare < 3_500_000
    limits = Limits()
    spent = limits.picture_bytes + limits.film_bytes
    # What pictures are made of: bytes that cannot be made fewer, as base64.
    noise = base64.b64encode(np.random.default_rng(0).bytes(3 * spent // 4)).decode()
    full = len(page_html({**data, "pictures": noise}))
    assert bare + spent <= full < bare + 1.03 * spent
    assert full < 9_000_000


def test_of_many_groups_those_with_most_to_see_are_shown(tmp_path):
    paths = [
        make_run(tmp_path / method, method, stored=30 * (method != "dr"))
        for method in ("dr", "plr", "plr-cenie")
    ]
    data = page_data(group_runs(open_runs(paths).runs), limits=Limits(curricula=2))
    assert [data["runs"][each["run"]]["name"] for each in data["curricula"]] == ["plr", "plr-cenie"]
    assert any(line.endswith("not of dr") for line in data["leftOut"])


def test_a_run_that_cannot_be_drawn_says_why_and_is_shown(tmp_path):
    class Broken(PaintedStudio):
        def level_pictures(self, run, curriculum, most):
            raise ValueError("no such level")

    (made,) = page_data(group_runs([open_run(make_run(tmp_path / "run"))]), studio=Broken())["curricula"]
    assert made["noFilms"] == "no pictures or episodes: no such level"
    assert len(made["frames"]) == 3


def test_the_data_is_json_without_nan(tmp_path):
    data = page_data(group_runs([open_run(make_run(tmp_path / "run"))]), studio=PaintedStudio())
    assert json.loads(json.dumps(data, allow_nan=False))["format"] == 1


def test_drawings_are_exact_and_photographs_small():
    few = np.zeros((64, 64, 3), np.uint8)
    few[8:16, 8:16] = (10, 200, 30)
    many = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    assert _opened(data_uri(few)).tolist() == few.tolist()
    assert len(data_uri(many)) < many.size
    strip = a_film(frames=7)
    assert strip["showsLevel"]
    assert (strip["count"], strip["steps"][-1], strip["length"]) == (7, 6, 6)
    pixels = _opened(strip["source"])
    at = 5
    top, left = (at // strip["columns"]) * 40, (at % strip["columns"]) * 40
    assert pixels[top, left + 40 * at // 7].tolist() == [240, 80, 60]


def _opened(uri):
    import base64
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB"))


def test_stored_levels_are_drawn_within_the_budget(tmp_path):
    """By the domain itself, from what the snapshots hold; there is no checkpoint, and so no episode."""
    run = open_run(make_run(tmp_path / "run", "plr-robust"))
    data = page_data(group_runs([run]), studio=open_studio())
    (made,) = data["curricula"]
    assert len(made["pictures"]) == 30
    assert "no checkpoint yet" in made["noFilms"]
    picture = _opened(made["pictures"][7])
    walls = np.load(tmp_path / "run/snapshots/cycle-00000030.npz")["buffer/levels/wall_map"][7]
    # Tiles of 16 pixels within a border of one tile; walls are grey, and grey is brighter than the floor.
    assert (
        picture[24 : 24 + 13 * 16 : 16, 24 : 24 + 13 * 16 : 16].min(axis=2) > 100
    ).tolist() == walls.tolist()
    few = page_data(
        group_runs([run]), studio=open_studio(Limits(picture_bytes=2000)), limits=Limits(picture_bytes=2000)
    )
    assert 1 <= len(few["curricula"][0]["pictures"]) < 10
    assert any("have pictures" in line for line in few["leftOut"])
