"""Domains of one's own are drawn and filmed like ours, by every command that is told their name."""

import base64
import csv
import io
import json
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from cenie.command.cli import run as command
from cenie.command.options import own_domains
from cenie.envs import loading
from cenie.report.page.serve import Watched
from cenie.report.page.write import open_studio
from cenie.settings import SettingsError
from tests.pages import write_files

PAINTED = """
import dataclasses
import numpy as np
import cenie
import corridor

def picture(level, place=None):
    pixels = np.zeros((8, 80, 3), np.uint8)
    pixels[:, 8 * int(level) : 8 * int(level) + 8] = (0, 200, 0)
    if place is not None:
        pixels[2:6, 8 * int(place) + 2 : 8 * int(place) + 6] = (250, 50, 50)
    return pixels

def film(level, states):
    return np.stack([picture(level, place) for place in np.asarray(states.place)])

def of_file(name, content):
    # Called like a suite that there is.
    return cenie.Suite("ends", [cenie.SuiteEntry("third", "", lambda rng: np.int32(content))])

domain = dataclasses.replace(
    corridor.domain, name="painted", render=cenie.Renderer(picture, film), suite_of_file=of_file
)
"""
NAME = "painted:domain"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of the module, and a run of its domain with a level buffer and a report."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.syspath_prepend(str(home))
        write_files("guides/own-environment.md", home)
        (home / "painted.py").write_text(PAINTED)
        loading.load.cache_clear()
        for name in ("corridor", "painted"):
            patch.delitem(sys.modules, name, raising=False)
        options = ["--run.devices", "1", "--run.evaluate_every", "2", "--report"]
        assert command(["train", NAME, "plr-robust", "--out", "run", *options]) == 0
        yield home
        loading.load.cache_clear()


def data_of(page):
    packed = page.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def is_whole(made):
    """Whether a curriculum of the page has pictures of its levels and films of both kinds."""
    films = [*made["films"].values(), *(level["film"] for level in made["heldOut"])]
    return bool(made["pictures"]) and bool(made["films"]) and len(made["heldOut"]) == 2 and all(films)


def test_a_report_at_the_end_of_training_has_pictures_and_films(trained):
    """The page had `"pictures":{}`, though the domain was on the command line and `render` set."""
    (made,) = data_of(trained / "run" / "report" / "index.html")["curricula"]
    assert is_whole(made), made["noFilms"]


def test_a_report_has_pictures_and_films_if_it_is_told_the_domain(trained):
    words = ["report", "run", "--no-pdf", "--out"]
    assert command([*words, "told", "--domain", NAME]) == 0
    (made,) = data_of(trained / "told" / "index.html")["curricula"]
    assert is_whole(made), made["noFilms"]
    assert command([*words, "untold"]) == 0
    (made,) = data_of(trained / "untold" / "index.html")["curricula"]
    assert made["pictures"] == {}
    assert f"add --domain {NAME}" in made["noFilms"]


def test_a_watched_page_has_them_too(trained):
    watched = Watched([trained / "run"])
    watched.refresh(open_studio(domains=own_domains(NAME)))
    assert watched.published.problem == ""
    (made,) = watched.published.data["curricula"]
    assert is_whole(made), made["noFilms"]


@pytest.mark.parametrize(
    "words", [["play", "run", "left"], ["gallery", "run"], ["gallery", "run", "--suite", "ends"]]
)
def test_a_student_is_filmed_and_levels_are_drawn(trained, capsys, words):
    assert command([*words, "--out", "made.png"]) == 2
    assert f"add --domain {NAME}" in capsys.readouterr().err
    assert command([*words, "--out", "made.png", "--domain", NAME]) == 0
    colours = np.asarray(Image.open(trained / "made.png").convert("RGB")).reshape(-1, 3)
    assert (0, 200, 0) in set(map(tuple, colours.tolist()))


@pytest.mark.parametrize("given", ["nowhere:domain", "painted:nothing", "labyrinth", "", ","])
@pytest.mark.parametrize("name", ["report", "watch"])
def test_a_domain_that_cannot_be_had_is_refused(trained, capsys, name, given):
    assert command([name, "run", f"--domain={given}"]) == 2
    assert "domain" in capsys.readouterr().err


def test_several_domains_are_named_with_commas(trained):
    assert list(own_domains(f"{NAME},corridor:domain")) == [NAME, "corridor:domain"]
    with pytest.raises(SettingsError):
        own_domains(f"{NAME},nowhere:x")


def test_a_suite_in_a_file_is_never_written_as_a_suite_of_the_domain(trained):
    """A file that is called `ends.txt`, and a domain that calls its suite `ends`."""
    (trained / "ends.txt").write_text("3")
    before = set((trained / "run").glob("*.csv"))
    assert command(["evaluate", "run", "--domain", NAME, "--suite", "ends.txt"]) == 0
    (file,) = set((trained / "run").glob("*.csv")) - before
    assert file.name.startswith("evaluation-file-ends.txt-")
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    (suite,) = {row["suite"] for row in rows}
    assert suite.startswith("file:ends.txt@")
    assert command(["report", "run", "--no-pdf", "--no-pictures", "--out", "with-file"]) == 0
    data = data_of(trained / "with-file" / "index.html")
    assert [each["name"] for each in data["suites"]] == ["ends", suite]
    assert f"### {suite}: levels" in (trained / "with-file" / "report.md").read_text()
    file.unlink()
