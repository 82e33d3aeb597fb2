"""Reports where they are kept: one line each, what is going on, and no silence of minutes."""

import io
import re
import time
from pathlib import Path

import jax
import pytest
from rich.console import Console

from cenie.experiment.build import build
from cenie.teach.cycle import cycle, init
from cenie.training import progress as progress_module
from cenie.training.progress import Progress
from tests.tiny import tiny

ROW = {"solved": 0.25}


@pytest.fixture(autouse=True)
def always_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_REPORT_EVERY", -1.0)


def piped() -> Console:
    return Console(file=io.StringIO(), width=80)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_report_is_one_line_however_long_it_is() -> None:
    console = piped()
    with Progress(console, 40) as progress:
        progress.evaluated(0, "cenie8-sym", "solved", 0.125)
        progress.advance(10, 163_840, 31_000.0, ROW, "solved")
        progress.note("a note " * 30)
    compiling, evaluated, report, note = lines(console)
    assert compiling == "compiling ... (up to a minute)"
    assert evaluated == "after 0 updates: cenie8-sym solved 0.125"
    assert report == (
        "10/40 updates, 0.16M steps, 31.0k steps/s, training levels solved 0.25, cenie8-sym solved 0.12"
    )
    assert note == "a note " * 30


def test_where_the_suite_goes_by_returns_they_are_shown() -> None:
    console = piped()
    with Progress(console, 40) as progress:
        progress.evaluated(0, "tracks", "score", 0.125)
        progress.advance(10, 163_840, 31_000.0, {"solved": 0.0, "return": -3.5}, "score")
        progress.finished(Path("run"), "tracks", "score", {"oval": 0.25}, {"oval": 0.75})
    _, evaluated, report, title, *_ = lines(console)
    assert evaluated == "after 0 updates: tracks score 0.125"
    assert report.endswith("training return -3.50, tracks score 0.12")
    assert title.strip() == "scores on tracks"


def test_while_the_buffer_fills_the_report_says_so_instead_of_0_updates() -> None:
    console = piped()
    with Progress(console, 40, levels_before_replay=2000) as progress:
        progress.advance(0, 81_920, 31_000.0, {**ROW, "teacher/buffer_size": 320}, "solved")
        progress.advance(3, 819_200, 31_000.0, {**ROW, "teacher/buffer_size": 2000}, "solved")
    _, filling, training = lines(console)
    assert filling.startswith("filling the level buffer: 320 of 2000 levels, 0.08M steps")
    assert training.startswith("3/40 updates, ")


@pytest.mark.parametrize(("chunks", "expected"), [(10, 0), (11, 1), (40, 1)])
def test_a_level_buffer_that_stops_growing_before_replay_is_named_once(chunks: int, expected: int) -> None:
    console = piped()
    with Progress(console, 40, levels_before_replay=500) as progress:
        for _ in range(chunks):
            progress.advance(0, 81_920, 31_000.0, {**ROW, "teacher/buffer_size": 378}, "solved")
    found = [line for line in lines(console) if "does not grow" in line]
    assert len(found) == expected
    assert all("begins with 500 levels, and 378 are stored" in line for line in found)


def test_a_level_buffer_that_grows_slowly_is_not_complained_of() -> None:
    console = piped()
    with Progress(console, 40, levels_before_replay=500) as progress:
        for chunk in range(40):
            row = {**ROW, "teacher/buffer_size": chunk // 5}
            progress.advance(0, 81_920, 31_000.0, row, "solved")
    assert not any("does not grow" in line for line in lines(console))


def test_the_numbers_of_a_report_on_novelty_are_among_the_metrics_of_a_cycle() -> None:
    _, setup = build(tiny("plr-cenie"))
    _, metrics, _ = jax.eval_shape(lambda: cycle(setup, init(setup, 0)))
    shown = progress_module._curriculum(dict.fromkeys(metrics, 1))
    assert shown == ["novelty weight 1.00", "K 1", "1 levels stored"]


def test_with_novelty_the_report_shows_its_weight_the_size_of_the_mixture_and_the_buffer() -> None:
    console = piped()
    before = {**ROW, "teacher/alpha": 0.5, "teacher/buffer_size": 64, "teacher/fitted": False}
    mixture = {"teacher/fit/components": 0}
    fitted = {"teacher/alpha": 0.25, "teacher/buffer_size": 2064, "teacher/fitted": True}
    with Progress(console, 40) as progress:
        progress.advance(10, 163_840, 31_000.0, before | mixture, "solved")
        progress.advance(10, 163_840, 31_000.0, ROW | fitted | {"teacher/fit/components": 9}, "solved")
        progress.advance(10, 163_840, 31_000.0, ROW | fitted, "solved")
    unfitted, of_mixture, of_another_density = (line.split("solved 0.25")[1] for line in lines(console)[1:])
    assert unfitted == ", novelty weight 0.50, 64 levels stored"
    assert of_mixture == ", novelty weight 0.25, K 9, 2064 levels stored"
    assert of_another_density == ", novelty weight 0.25, 2064 levels stored"


@pytest.mark.parametrize(("env_steps", "expected"), [(None, 300.0), (10_000, 300.0), (2_500, 60.0)])
def test_time_left_is_that_of_updates_or_of_environment_steps_whatever_ends_first(
    env_steps: int | None, expected: float
) -> None:
    progress = Progress(piped(), 20, total_env_steps=env_steps)
    progress._began = (60.0, 0, 100)
    assert progress._seconds_left(360.0, updates=10, env_steps=2_100) == pytest.approx(expected)


def test_a_long_compilation_is_mentioned_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_PATIENCE", 0.01)
    console = piped()
    with Progress(console, 40) as progress:
        wait_for(console, "still compiling (for 0 min)")
        progress.advance(1, 100, 10.0, ROW, "solved")
        with progress.evaluation("cenie8"):
            wait_for(console, "still playing cenie8 (for 0 min)")
        wait_for(console, "still training (for 0 min)")


def wait_for(console: Console, line: str) -> None:
    deadline = time.monotonic() + 30
    while line not in lines(console):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_terminal_commands_in_a_note_are_shown_and_not_obeyed() -> None:
    console = piped()
    with Progress(console, 40) as progress:
        progress.note("lock of \x1b]0;owned\x07 [bold]taken over")
    assert lines(console)[1] == r"lock of \x1b]0;owned\x07 [bold]taken over"


ON_NOVELTY = {
    **ROW,
    "teacher/alpha": 0.25,
    "teacher/buffer_size": 2064,
    "teacher/fitted": True,
    "teacher/fit/components": 9,
}


def live_lines(progress: Progress, width: int) -> list[str]:
    """What a terminal of this many columns shows below the lines that stay."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    progress._console = terminal
    terminal.print(progress._lines())
    return [line.rstrip() for line in lines(terminal)]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_bar_its_percentage_and_the_time_left_are_there_on_terminals_of_every_width(width: int) -> None:
    progress = Progress(piped(), 800)
    progress.evaluated(0, "cenie8-sym", "solved", 0.125)
    progress._began = (time.monotonic() - 3600.0, 0, 0)
    progress.advance(200, 12_345_678, 31_000.0, ON_NOVELTY, "solved")
    (line,) = live_lines(progress, width)
    assert len(line) <= width
    bar, after = line.split("  25% ")
    assert re.fullmatch(r"\S ━+╸? +", bar)  # without colours the rest of the bar is empty
    assert len(bar) >= 2 + 8
    assert re.match(r"(3:00:00|2:59:5\d) left", after)
    details = ("200/800 updates", "training levels solved 0.25", "31.0k steps/s", "levels stored")
    assert [detail in line for detail in details] == [width >= least for least in (60, 80, 120, 200)]


def test_at_the_end_no_time_is_left() -> None:
    """Also of a run whose updates all came with one report, from which no speed is known."""
    progress = Progress(piped(), 4)
    progress.advance(4, 2048, 31_000.0, ROW, "solved")
    (line,) = live_lines(progress, 80)
    assert " 100% 0:00:00 left 4/4 updates" in line


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_before_the_first_update_the_line_says_what_goes_on_at_every_width(width: int) -> None:
    progress = Progress(piped(), 800, levels_before_replay=2000)
    (line,) = live_lines(progress, width)
    assert "  0% -:--:-- left" in line
    assert "compil" in line
    progress.advance(0, 81_920, 31_000.0, {**ROW, "teacher/buffer_size": 320}, "solved")
    with progress.evaluation("a-suite-with-a-rather-long-name") as update:
        update(12, 80)
        filling, playing = live_lines(progress, width)
    assert "-:--:-- left" in filling
    assert ("filling" if width < 80 else "filling the level buffer: 320 of 2000 levels") in filling
    assert playing.startswith("playing a-suite-with-a-rather-long-name")
    assert ("12 of 80 episodes" in playing) == (width >= 60)
    assert max(map(len, (filling, playing))) <= width
    assert len(live_lines(progress, width)) == 1
