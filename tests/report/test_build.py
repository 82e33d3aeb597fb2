"""A report has every figure and table that the runs allow, and a sentence in the place of every other."""

import csv
from concurrent.futures import Future

import numpy as np
import pytest
from matplotlib.figure import Figure

from cenie.experiment.rows import EvaluationRow
from cenie.report import paper_numbers, tables
from cenie.report.build import write_report
from cenie.report.curriculum_items import curriculum_items
from cenie.report.measure import stats
from cenie.report.measure.composition import compositions, low_regret_levels
from cenie.report.measure.coverage import cells_of, measure_coverage, nearest_distance
from cenie.report.measure.curves import evaluation_curves, mean_curve
from cenie.report.measure.scores import measured_domains, suite_scores
from cenie.report.page.data import page_data
from cenie.report.runs import group_runs, open_runs
from cenie.report.writer import Options, ReportWriter
from cenie.rundir.evaluations import Evaluation, write_evaluations
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import open_run
from cenie.system.durable import WriteError
from tests.report.synthetic import evaluate_later, write_run

QUICK = Options(pdf=False, points=120)


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    for seed in (0, 1, 2):
        for method, skill in {"dr": 0.3, "plr-robust": 0.5, "plr-cenie": 0.9}.items():
            path = write_run(out / f"{method}-{seed}", method, seed=seed, skill=skill)
            evaluate_later(path, "perfect-large", skill)
    write_run(out / "plr-robust-late", "plr-robust", seed=9, skill=0.0, finished=False)
    return out


@pytest.fixture(scope="module")
def report(runs):
    """The report on all of them, with levels drawn and a small t-SNE."""
    return write_report([runs], runs / "report", QUICK)


def titles(report, *, made: bool):
    return [item.title for domain in report.domains for item in domain.items if bool(item.files) == made]


def test_a_report_has_all_figures_and_tables(report):
    assert titles(report, made=False) == []
    assert titles(report, made=True) == [
        "cenie8: levels",
        "cenie8: table",
        "cenie8: aggregates",
        "cenie8: performance profiles",
        "cenie8: probability of improvement",
        "perfect-large: levels",
        "perfect-large: table",
        "perfect-large: aggregates",
        "perfect-large: performance profiles",
        "perfect-large: probability of improvement",
        "cenie8: learning curves over updates",
        "cenie8: learning curves over environment steps",
        "Total regret in the level buffer",
        "Difficulty of the replayed levels: shortest path",
        "Difficulty of the replayed levels: walls",
        "State-action coverage",
        "Levels of low regret: of high and of low novelty",
    ]
    for file in report.files:
        assert file.stat().st_size > 0
    for domain in report.domains:
        for item in domain.items:
            assert all((report.out / name).exists() for name in item.files)


def test_the_text_names_every_figure_and_what_to_mind(report):
    text = (report.out / "report.md").read_text()
    for file in report.files:
        if file.suffix == ".png":
            assert f"(figures/{file.name})" in text
    assert "plr-robust-late is not finished" in text
    assert "Paper (solved rate on PerfectMazeLarge, after 30,000 updates, another budget than here)" in text
    assert "PLR-CENIE close to 50 %" in text
    assert "Caution: these points hold the memory of a recurrent network" in text


def test_tables_hold_the_numbers_behind_the_figures(report):
    aggregates = read_csv(report.out / "tables/maze-cenie8-aggregates.csv")
    iqm = {row["group"]: row for row in aggregates if row["statistic"] == "IQM"}
    values = [float(iqm[label]["value"]) for label in ("dr", "plr-robust", "plr-cenie")]
    assert values == sorted(values)
    for row in aggregates:
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"])
        assert row["runs"] == "3"  # the one that is not finished does not count
    scores = read_csv(report.out / "tables/maze-cenie8-scores.csv")
    own = [float(row["score"]) for row in scores if row["group"] == "dr"]
    levels = read_csv(report.out / "tables/maze-cenie8-levels.csv")
    means = [float(row["score_mean"]) for row in levels if row["group"] == "dr"]
    assert np.mean(own) == pytest.approx(np.mean(means))
    pairs = read_csv(report.out / "tables/maze-cenie8-improvement.csv")
    assert len(pairs) == 6
    better = next(row for row in pairs if (row["group"], row["better_than"]) == ("plr-cenie", "dr"))
    assert float(better["low"]) > 0.5
    assert len(read_csv(report.out / "tables/runs.csv")) == 10


def test_the_same_runs_give_the_same_bytes(runs, report, tmp_path):
    again = write_report([runs], tmp_path, Options(coverage=False, pictures=False, pdf=False))
    for name in ("figures/maze-cenie8-levels.png", "tables/maze-cenie8-aggregates.csv"):
        assert (again.out / name).read_bytes() == (report.out / name).read_bytes()
    missing = [item for item in again.domains[0].items if not item.files]
    assert {item.caption for item in missing} == {"Left out, as asked for."}


def test_a_score_that_is_nan_is_nan_everywhere_and_said(tmp_path):
    """The inter-quartile mean left it out and was a number, and tables had an empty cell."""
    for seed in (0, 1):
        write_run(tmp_path / f"run-{seed}", "dr", seed=seed, points=0)
    table = tmp_path / "run-1/evaluations.csv"
    lines = table.read_text().splitlines(keepends=True)
    place = lines[0].split(",").index("score")
    last = [number for number, line in enumerate(lines) if line.startswith("80,") and ",Maze," in line]
    cells = lines[last[0]].split(",")
    cells[place] = "nan"
    lines[last[0]] = ",".join(cells)
    table.write_text("".join(lines))
    made = write_report([tmp_path], tmp_path / "report", Options(pdf=False, pictures=False, coverage=False))
    said = "dr, seed 1: the score on Maze of cenie8 is NaN, and so is every statistic that counts it"
    assert said in made.domains[0].notes
    items = {item.title: item for item in made.domains[0].items}
    for name in ("levels", "table", "aggregates", "performance profiles"):
        assert said in items[f"cenie8: {name}"].caption
    rows = read_csv(made.out / "tables/maze-cenie8-aggregates.csv")
    assert {row[column] for row in rows for column in ("value", "low", "high")} == {"nan"}
    (aggregate,) = (line for line in items["cenie8: aggregates"].text.splitlines() if line.startswith("| DR"))
    assert aggregate.count("NaN") == 5
    data = page_data(group_runs(open_runs([tmp_path / "run-0", tmp_path / "run-1"]).runs))
    assert said in data["notes"]
    (entry,) = data["suites"][0]["groups"]
    assert entry["overall"]["IQM"] == [None, None, None]
    assert [level["unknown"] for level in entry["levels"]] == [0, 0, 1]


def test_cvar_of_a_large_suite_is_over_its_single_levels(tmp_path):
    """Over ten bands of a hundred levels it was the score of the worst band."""
    for seed, rate in enumerate((0.2, 0.6)):
        path = write_run(tmp_path / f"run-{seed}", "dr", seed=seed, points=0)
        # Half of the levels are solved at the rate of the run and the others always, in both bands.
        rng = np.random.default_rng(seed)
        rows = [
            EvaluationRow("large", f"band {number % 2}", str(number), episode, 0.0, solved, float(solved), 9)
            for number in range(400)
            for episode in range(10)
            for solved in [bool(number % 4 > 1 or rng.random() < rate)]
        ]
        write_evaluations(path / "evaluation-large-seed0-cycle80.csv", [Evaluation(80, 40, 1024, rows)])
    made = write_report([tmp_path], tmp_path / "report", Options(pdf=False, pictures=False, coverage=False))
    rows = read_csv(made.out / "tables/maze-large-aggregates.csv")
    values = {row["statistic"]: row for row in rows}
    assert float(values["mean"]["value"]) == pytest.approx(0.7, abs=0.03)
    # The worst tenth is found by other episodes, so that it is no worse than levels of these rates are.
    assert float(values["CVaR 10%"]["value"]) == pytest.approx(0.4, abs=0.06)
    assert float(values["CVaR 10%"]["low"]) < 0.4 < float(values["CVaR 10%"]["high"])
    (item,) = (each for each in made.domains[0].items if each.title == "large: aggregates")
    assert "single levels of a run, found by other episodes" in item.caption
    rows = read_csv(made.out / "tables/maze-cenie8-aggregates.csv")
    assert len({row["value"] for row in rows if row["statistic"].startswith("CVaR")}) == 1


def test_captions_say_what_an_interval_covers(report, runs, tmp_path):
    text = (report.out / "report.md").read_text()
    assert stats.COVERS in text
    assert "Mind: 3 runs are few" in text
    options = Options(pdf=False, pictures=False, coverage=False, stratified=True)
    stratified = write_report([runs], tmp_path, options)
    assert stats.COVERS_STRATIFIED in (stratified.out / "report.md").read_text()
    wide, narrow = (
        next(
            row
            for row in read_csv(made.out / "tables/maze-cenie8-aggregates.csv")
            if row["statistic"] == "mean"
        )
        for made in (report, stratified)
    )
    assert wide["value"] == narrow["value"]
    assert float(wide["high"]) > float(narrow["high"])


def test_names_are_no_formulas_in_tables():
    """Of a spreadsheet, of LaTeX, or of Markdown."""
    rows = [{"=1+1": -1.5, "group": "=cmd|' /C calc'!A0"}, {"=1+1": 2.0, "group": "@SUM(A1)"}]
    text = tables.csv_bytes(rows).decode()
    assert text == "'=1+1,group\n-1.5,'=cmd|' /C calc'!A0\n2.0,'@SUM(A1)\n"
    cells = (tables.Cell(1.0, np.nan, False),)
    name = "a\\input{x}$_^#%&~{}|\nb"
    table = tables.ComparisonTable("t\n\\end{x}", (), ((name, cells),), 0, {})
    latex = tables.comparison_latex(table)
    assert r"a\textbackslash{}input\{x\}\$\_\textasciicircum{}\#\%\&\textasciitilde{}\{\}|" in latex
    assert latex.splitlines()[0].startswith("% t ")
    assert tables.comparison_markdown(table).splitlines()[-1].endswith(r"~{}\| b | 1 |")


def test_what_a_run_has_not_logged_becomes_a_sentence(tmp_path):
    write_run(tmp_path / "run", "dr", evaluations=1, cycles=4, points=0, finished=False)
    (tmp_path / "run/levels.csv").unlink()
    (tmp_path / "run/evaluations.csv").unlink()
    made = write_report([tmp_path / "run"], tmp_path / "report", QUICK)
    assert titles(made, made=True) == []
    captions = [item.caption for item in made.domains[0].items]
    assert captions == [
        "No run has played held-out levels yet.",
        "No run was evaluated while it trained.",
        "No run has logged it: it takes a method with a level buffer.",
        "No run has recorded replayed levels: it takes a method with a level buffer.",
        "Coverage compares methods, and there is one only.",
        "No run has stored levels with both regret and novelty; methods with a novelty do.",
    ]


def curriculum(directory, options=QUICK):
    """The items of the curriculum of the runs in a directory, by their titles."""
    groups = group_runs(open_runs([directory]).runs)
    writer = ReportWriter(directory / "report", options, lambda line: None)
    coverage = Future()
    coverage.set_result(measure_coverage(groups, most=options.points))
    found = curriculum_items(writer, groups, groups[0].domain, limit=2**20, coverage=coverage)
    return {item.title: item for item in found}


def test_damaged_records_leave_the_rest_of_the_report(tmp_path):
    path = write_run(tmp_path / "run")
    (path / "levels.csv").write_text("cycle,student,index,kind\n1,2\n")
    for file in (path / "snapshots").iterdir():
        file.write_bytes(b"nothing")
    items = curriculum(tmp_path)
    assert items["Total regret in the level buffer"].files
    assert not items["Difficulty of the replayed levels"].files
    assert not items["Levels of low regret: of high and of low novelty"].files


def test_a_damaged_snapshot_costs_its_own_stage_only(tmp_path):
    """To label the stages of each method, its snapshots were read once more, and damage ended the report."""
    for method in ("plr-robust", "plr-cenie"):
        write_run(tmp_path / method, method, "walker")
    damaged = sorted((tmp_path / "plr-cenie/snapshots").iterdir())[-1]
    damaged.write_bytes(b"nothing")
    curriculum(tmp_path, Options(pdf=False, pictures=False, points=80))
    rows = read_csv(tmp_path / "report/tables/walker-coverage.csv")
    known = {
        group: [bool(row["updates"]) for row in rows if row["group"] == group]
        for group in ("plr-robust", "plr-cenie")
    }
    assert all(known["plr-robust"])
    assert known["plr-cenie"] == [True] * (len(known["plr-robust"]) - 1) + [False]


def test_a_report_on_nothing_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"no run to report on\n.*no such directory"):
        write_report([tmp_path / "none"], tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_a_directory_that_cannot_be_made_is_said(tmp_path):
    write_run(tmp_path / "run")
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="cannot create"):
        write_report([tmp_path / "run"], tmp_path / "file/report")


def test_the_fonts_of_a_pdf_are_those_that_conferences_accept(tmp_path):
    """The setting was made where figures are drawn, and was over when they were saved."""
    figure = Figure()
    figure.text(0.5, 0.5, "Regret")
    png, pdf = ReportWriter(tmp_path, Options(), lambda line: None).figure("text", figure)
    content = (tmp_path / pdf).read_bytes()
    assert b"/Type3" not in content
    assert b"/CIDFontType2" in content
    assert (tmp_path / png).read_bytes().startswith(b"\x89PNG")


def test_walkers_have_classes_of_difficulty_and_the_papers_coverage(tmp_path):
    for method in ("plr-robust", "plr-cenie"):
        for seed in (0, 1):
            write_run(tmp_path / f"{method}-{seed}", method, "walker", seed=seed)
    items = curriculum(tmp_path, Options(pdf=False, pictures=False, points=80))
    rows = read_csv(tmp_path / "report/tables/walker-replayed-difficulty.csv")
    assert {row["class"] for row in rows} >= {"Easy", "Extremely Challenging"}
    coverage = read_csv(tmp_path / "report/tables/walker-coverage.csv")
    assert {row["paper_another_budget"] for row in coverage} == {"43.4 %", "55.3 %"}
    item = items["State-action coverage"]
    assert "| PLR-CENIE | " in item.text
    assert "another budget than here" in item.caption
    assert "Caution" not in item.caption


def test_f1_tracks_stand_beside_those_of_the_paper(tmp_path):
    for method, skill in {"dr": 0.2, "plr-cenie": 0.8}.items():
        for seed in (0, 1):
            path = write_run(tmp_path / f"{method}-{seed}", method, "walker", seed=seed, points=0)
            evaluate_later(path, "f1", skill + 0.01 * seed)
    table = tables.comparison(suite_scores(group_runs(open_runs([tmp_path]).runs), "f1"))
    rows = {row["level"]: row for row in tables.comparison_rows(table)}
    assert rows["Australia"]["paper (another budget): plr-cenie"] == 745.0
    assert rows["Mean"]["paper (another budget): plr-cenie standard error"] == 32.0
    assert (rows["USA"]["plr-cenie bold"], rows["USA"]["dr bold"]) == (1, 0)
    assert 600 < rows["USA"]["plr-cenie"] < 700
    assert r"\textbf{" in tables.comparison_latex(table)
    first, *_, last = tables.comparison_markdown(table).splitlines()
    assert "| DR | PLR-CENIE | *paper: DR* |" in first
    assert last.endswith("553 ± 32 | 465 ± 42 |")


def test_the_papers_table_has_its_own_means():
    """What it prints as the mean over tracks is, but for rounding, the mean of what it prints.

    PLR-CENIE's is not quite: its tracks have a mean of 555, and 553 is printed.
    """
    printed = paper_numbers.f1_returns()
    assert len(printed) == 21
    for method, (mean, _) in printed["Mean"].items():
        tracks = [row[method][0] for track, row in printed.items() if track != "Mean"]
        assert np.mean(tracks) == pytest.approx(mean, abs=2.0 if method == "plr-cenie" else 1.0)


def test_bold_reaches_the_best_mean_with_its_own_error():
    """As in the paper: 451 +- 39 is bold beside 485 +- 27, and 440 +- 31 is not beside 500 +- 41."""
    spread = np.array([-1.0, 0.0, 1.0]) * np.sqrt(3)
    values = [451 + 39 * spread, 485 + 27 * spread, 440 + 31 * spread, np.array([300.0])]
    cells = tables.bold_cells([stats.mean_over_runs(each) for each in values])
    assert [cell.error for cell in cells[:3]] == pytest.approx([39, 27, 31])
    assert [cell.bold for cell in cells] == [True, True, False, False]


def test_page_and_tables_have_the_same_numbers_computed_once(runs, report, monkeypatch):
    groups = group_runs(open_runs([runs]).runs)
    measured = measured_domains(groups)
    for each in (group for suite in measured["maze"] for group in suite.groups):
        each.aggregates(stratified=False)
    monkeypatch.setattr(stats, "aggregate", None)
    data = page_data(groups, measured=measured)
    (shown,) = (each for each in data["suites"] if each["name"] == "cenie8")
    aggregates = read_csv(report.out / "tables/maze-cenie8-aggregates.csv")
    levels = read_csv(report.out / "tables/maze-cenie8-levels.csv")
    for group in shown["groups"]:
        label = data["groups"][group["group"]]["label"]
        for name, found in group["overall"].items():
            (row,) = (row for row in aggregates if (row["group"], row["statistic"]) == (label, name))
            assert found == pytest.approx([float(row[end]) for end in ("value", "low", "high")], rel=1e-3)
        rows = [row for row in levels if row["group"] == label]
        ends = [[level[end] for end in ("low", "median", "high")] for level in group["levels"]]
        quartiles = [[float(row[f"score_{name}"]) for name in ("q1", "median", "q3")] for row in rows]
        np.testing.assert_allclose(ends, quartiles, rtol=1e-3)


def test_runs_that_have_learned_nothing_yet_are_on_the_page_and_in_no_table(tmp_path):
    write_run(tmp_path / "run", finished=False, updates=4, cycles=8, evaluations=1)
    table = tmp_path / "run/evaluations.csv"
    lines = table.read_text().splitlines(True)
    table.write_text("".join(line for line in lines if line.startswith(("cycle", "0,"))))
    groups = group_runs(open_runs([tmp_path]).runs)
    assert suite_scores(groups, "cenie8") is None
    (suite,) = page_data(groups)["suites"]
    assert suite["groups"][0]["overall"]["mean"][0] == 0.0


def test_a_single_run_is_bold_only_if_it_is_the_best():
    cells = tables.bold_cells([stats.mean_over_runs(np.array([score])) for score in (0.5, 0.4)])
    assert [cell.bold for cell in cells] == [True, False]


def test_curves_are_read_between_their_points_and_end_with_the_shortest():
    lines = [np.array([[0.0, 10.0], [0.0, 1.0]]), np.array([[0.0, 4.0, 8.0], [0.0, 0.0, 0.8]])]
    curve = mean_curve("a", lines)
    assert (curve.x[0], curve.x[-1]) == (0.0, 8.0)
    assert curve.mean[-1] == pytest.approx(0.8)
    assert curve.error[-1] == pytest.approx(0.0, abs=1e-12)
    assert mean_curve("a", []) is None
    single = mean_curve("a", lines[1:])
    np.testing.assert_array_equal(single.x, [0.0, 4.0, 8.0])
    assert np.isnan(single.error).all()


def test_scores_are_those_of_finished_runs_unless_there_are_none(runs, tmp_path):
    groups = group_runs(open_runs([runs]).runs)
    found = suite_scores(groups, "cenie8")
    assert [len(each.runs) for each in found.groups] == [3, 3, 3]
    assert found.measure == "solved rate"
    write_run(tmp_path / "run", finished=False)
    (early,) = suite_scores(group_runs(open_runs([tmp_path]).runs), "cenie8").groups
    assert len(early.runs) == 1
    assert suite_scores(groups, "unknown") is None
    curve = evaluation_curves(groups[0], "cenie8", over="env_steps", level="Maze")
    assert curve.runs == 3
    assert curve.x[-1] == 80 * 1024


def test_compositions_count_replayed_levels_of_all_runs(runs):
    groups = group_runs(open_runs([runs]).runs)
    path, walls = compositions(groups, limit=2**20)
    assert {each.group.label for each in path} == {"plr-robust", "plr-cenie"}
    for each in (*path, *walls):
        np.testing.assert_allclose(each.parts.sum(axis=1), 1.0)
    (cenie,) = (each for each in path if each.group.label == "plr-cenie")
    assert cenie.levels == 3 * 40 * 4  # every second cycle of 80 is a replay
    assert cenie.scale.names[-1] == "unsolvable"
    assert 0.3 < cenie.parts[:, -1].mean() < 0.7  # half of them, at random


def test_levels_of_low_regret_are_sorted_by_novelty(runs):
    chosen = low_regret_levels(open_run(runs / "plr-cenie-0"), 3)
    assert [each.updates for each in chosen] == [10, 30, 40]
    for each in chosen:
        regret, novelty = each.buffer["regret"], each.buffer["novelty"]
        low = np.argsort(regret)[:10]
        assert {*each.novel, *each.familiar} <= set(low)
        assert novelty[each.novel].min() > novelty[each.familiar].max()
    assert low_regret_levels(open_run(runs / "plr-robust-0"), 3) == []


def test_cells_and_distances():
    corners = np.array([[0.0, 0.0], [0.0, 9.0], [9.0, 0.0], [9.0, 9.0], [8.9, 9.0]])
    assert len(set(cells_of(corners, 10))) == 4
    assert nearest_distance(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]])) == pytest.approx((5 + 1 + 1) / 3)
    assert np.isnan(nearest_distance(np.zeros((1, 2))))
