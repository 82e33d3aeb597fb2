"""`cenie play` and `cenie gallery`: films and pictures of levels from everywhere, and clear refusals."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import cenie
from cenie.command.cli import run as command
from cenie.envs.domains import DOMAINS
from cenie.report.films import PLAYED_AGAIN, shrunk
from cenie.report.level_files import read_drawing
from cenie.settings import SettingsError
from tests.backends import STARTED
from tests.report.page.made import make_run
from tests.tiny import tiny

MAZE = ">....\n.#.#.\n.....\n.###.\n....G\n"
"""As large as the levels that the student is trained on: what plays one plays the other."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with a student that has learned nothing much, and a level buffer."""
    path = tmp_path_factory.mktemp("trained") / "run"
    cenie.train(tiny("plr-robust", updates=2, run__devices=1, run__evaluate_every=2), path, quiet=True)
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(path):
    return Image.open(io.BytesIO(path.read_bytes()))


def test_a_student_is_filmed_on_levels_from_everywhere(trained, here, capsys):
    stored = np.load(max((trained / "snapshots").iterdir()))["buffer/id"]
    (here / "mine.txt").write_text(MAZE)
    domain = cenie.load_run(trained).domain
    (here / "mine.json").write_text(json.dumps(domain.to_json(domain.from_text(MAZE))))
    cases = {
        (): 240,
        ("Labyrinth:turned90",): 240,
        (str(stored[-1]),): 112,
        ("mine.txt",): 112,
        ("mine.json",): 112,
    }
    for words, side in cases.items():
        assert command(["play", str(trained), *words, "--out", "film.gif", "--longest", "40"]) == 0
        printed = capsys.readouterr().out
        assert "solved in" in printed
        assert "film.gif" in printed
        # Only episodes on levels of suites are counted anywhere.
        assert (PLAYED_AGAIN in printed) == (side == 240)
        film = opened(here / "film.gif")
        assert film.n_frames > 1
        # The whole maze with its border, in tiles of 16 pixels, on a sheet with a margin.
        assert film.size == (side + 16, side + 16)
    assert command(["play", str(trained), "mine.txt", "--out", "end.png"]) == 0
    assert opened(here / "end.png").size == (128, 128)


def test_what_a_student_does_on_a_suite_is_drawn_and_filmed(trained, here, capsys):
    assert command(["gallery", str(trained), "--suite", "plr7", "--count", "2", "--longest", "9"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("solved in") == 2
    assert printed.count(PLAYED_AGAIN) == 1
    assert opened(here / "run-plr7.png").size[0] > 400
    assert command(["gallery", str(trained), "--count", "3", "--longest", "9", "--out", "all.gif"]) == 0
    assert opened(here / "all.gif").n_frames > 1


def test_stored_levels_are_drawn_by_what_they_have_most_of(here, capsys):
    make_run(here / "run")
    assert command(["gallery", "run", "--by", "novelty", "--count", "4", "--columns", "2"]) == 0
    assert "the 4 stored levels of the highest novelty:\n  row 1: level" in capsys.readouterr().out
    assert opened(here / "run-novelty.png").size == (2 * 240 + 3 * 8, 2 * 240 + 3 * 8)
    assert command(["gallery", "run", "3", "5", "--out", "two.png", "--columns", "1"]) == 0
    assert opened(here / "two.png").size == (256, 2 * 248 + 8)
    assert command(["gallery", "run", "--by", "beauty"]) == 2
    assert "must be one of" in capsys.readouterr().err
    assert command(["gallery", "run", "77"]) == 2
    assert "no level 77 in the 3 snapshots" in capsys.readouterr().err


def test_a_gallery_says_which_levels_it_draws_and_how_many_of_a_suite(here, capsys):
    """16 of the 20 circuits were drawn, without a word and without names."""
    assert command(["gallery", "racing", "--suite", "f1"]) == 0
    first, *rows, file = capsys.readouterr().out.splitlines()
    assert first == "all 20 levels of f1:"
    names = [name for row in rows for name in row.split(": ")[1].split(", ")]
    assert len(set(names)) == len(names) == 20
    assert {"Monaco", "Singapore"} <= set(names)
    assert file == "racing-f1.png"
    assert command(["gallery", "maze", "--suite", "plr7", "--count", "3", "--columns", "2"]) == 0
    first, *rows, _ = capsys.readouterr().out.splitlines()
    assert first == "3 of the 7 levels of plr7:"
    assert [row.split(":")[0] for row in rows] == ["  row 1", "  row 2"]
    assert command(["gallery", "maze", "Labyrinth", "--seed", "3"]) == 0
    assert capsys.readouterr().out.startswith("the levels that were named:\n  row 1: Labyrinth\n")
    assert command(["gallery", "maze", "--generator", "empty", "--count", "2", "--seed", "3"]) == 0
    assert capsys.readouterr().out.startswith("2 levels of the generator empty, seed 3:\n  row 1: empty 0")


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_domain_is_drawn(domain, here):
    """Through `Domain.render` only, so that a new domain needs nothing here."""
    assert command(["gallery", domain, "--count", "2", "--seed", "4", "--out", "one.png"]) == 0
    pixels = np.asarray(opened(here / "one.png").convert("RGB"))
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 3


REFUSALS = [
    (["play"], 2, "expected RUN|STUDENT [LEVEL]"),
    (["play", "nowhere"], 2, "config.json"),
    (["play", "run", "--suite", "x"], 2, "suite: must be one of"),
    (["play", "run", "a/level.json"], 2, "No such file"),
    (["play", "run", "torn.json"], 2, "is not valid JSON"),
    (["play", "run", "twice.json"], 2, "names a field twice"),
    (["play", "run", "empty.txt"], 2, "is empty"),
    (["play", "run", "binary.txt"], 2, "is not UTF-8"),
    (["play", "run", "directory.txt"], 2, "cannot be read"),
    (["play", "run", "--out", "film.mp4"], 2, "ends in .png or .gif"),
    (["play", "run", "--out", "none/film.gif"], 2, "there is no directory"),
    (["play", "run", "--fps", "0"], 2, "fps"),
    (["play", "run"], 3, "no checkpoint yet"),
    (["gallery"], 2, "expected DOMAIN or RUN"),
    (["gallery", "mase"], 2, "run directory or one of maze"),
    (["gallery", "maze", "--suite", "x", "--generator", "y"], 2, "generator: must be one of"),
    (["gallery", "maze", "--suite", "cenie8", "--generator", "empty"], 2, "contradicts --suite"),
    (["gallery", "maze", "--by", "regret"], 2, "a domain has none"),
    (["gallery", "maze", "--out", "a.gif"], 2, "a film needs a student"),
    (["gallery", "maze", "12"], 2, "a domain has none"),
    (["gallery", "maze", "--count", "0"], 2, "count"),
    (["gallery", "run", "--generator", "empty"], 2, "cenie gallery maze"),
    (["gallery", "run", "--suite", "cenie8"], 3, "no checkpoint yet"),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What became of each of these commands, all in one process that has started no backend of JAX."""
    here = tmp_path_factory.mktemp("refusals")
    make_run(here / "run")
    (here / "torn.json").write_text('{"walls": [')
    (here / "twice.json").write_text('{"walls": [], "walls": []}')
    (here / "empty.txt").write_text(" \n")
    (here / "binary.txt").write_bytes(b"\xff\xfe")
    (here / "directory.txt").mkdir()
    code = (
        "import contextlib, io, json, sys\n"
        "from cenie.command.cli import run\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as err:\n"
        "        code = run(arguments)\n"
        f"    print(json.dumps([code, {STARTED}, err.getvalue()]))"
    )
    arguments = json.dumps([case[0] for case in REFUSALS])
    call = [sys.executable, "-c", code, arguments]
    done = subprocess.run(call, cwd=here, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(REFUSALS)), ids=[" ".join(case[0]) for case in REFUSALS])
def test_what_cannot_be_done_is_said_before_a_backend_is_started(answers, number):
    _, code, reason = REFUSALS[number]
    found, started, message = answers[number]
    assert (found, started) == (code, False)
    assert reason in message


def test_levels_that_are_none_of_the_domain_are_refused(here, capsys):
    make_run(here / "run")
    for name, content, reason in (
        ("a.txt", ">..\n..\n", "equally long"),
        ("b.json", '{"walls": 3}', "missing goal"),
        ("c.json", "[1]", "a level is an object"),
    ):
        (here / name).write_text(content)
        assert command(["gallery", "maze", name]) == 2
        assert reason in capsys.readouterr().err
    assert command(["gallery", "maze", "Nowhere"]) == 2
    assert "none of SixteenRooms" in capsys.readouterr().err
    (here / "w.txt").write_text(MAZE)
    assert command(["gallery", "walker", "w.txt"]) == 2
    assert "not read from text" in capsys.readouterr().err


def test_constants_that_json_does_not_have_are_refused(here):
    (here / "a.json").write_text('{"x": NaN}')
    with pytest.raises(SettingsError, match="NaN is not a number"):
        read_drawing(here / "a.json")


def test_pictures_shrink_by_whole_steps():
    picture = np.repeat(np.arange(6, dtype=np.uint8), 4)[None, :, None].repeat(24, 0).repeat(3, 2)
    assert shrunk(picture, 24) is not None
    assert shrunk(picture, 6).shape == (6, 6, 3)
    assert shrunk(picture, 6)[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert shrunk(picture[None], 12).shape == (1, 12, 12, 3)
