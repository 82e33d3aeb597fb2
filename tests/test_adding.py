"""The page about additions tells the truth: a copy of the library with its code trains."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import blocks, write_files

ROOT = Path(__file__).parents[1]
SMALL = [
    *("--updates", "2", "--student.num-levels", "4", "--student.num-steps", "16"),
    *("--student.network.kind", "mlp", "--student.network.hidden-sizes", "8,"),
    *("--student.ppo.epochs", "1", "--student.ppo.minibatches", "2"),
    *("--run.final-episodes", "1", "--run.episodes", "1", "--run.devices", "1", "--run.recorded-points", "0"),
]


def patched(text: str, patch: str) -> str:
    """The text with the lines of a patch; its pieces are separated by @@, and must be found once each."""
    for piece in patch.split("@@\n"):
        lines = piece.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a copy of the library to which all additions of the page were made."""
    root = tmp_path_factory.mktemp("library")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for language, text in blocks("adding.md"):
        named = re.match(r" ?# (src/\S+\.py)\n", text)
        assert named, text
        path, body = root / named[1], text[named.end() :]
        path.write_text(patched(path.read_text(), body) if language == "diff" else body)
    return root


def cenie(library: Path, *arguments: str) -> str:
    """What a command of the changed library prints, or complains about."""
    environment = os.environ | {"PYTHONPATH": f"{library / 'src'}:{library}"}
    done = subprocess.run(
        [sys.executable, "-m", "cenie.command.cli", *arguments],
        cwd=library,
        env=environment,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_additions_are_in_the_lists_and_in_help(library: Path) -> None:
    listed = cenie(library, "methods")
    assert re.search(r"^plr-spread +PLR-perp by the spread of returns$", listed, re.MULTILINE)
    described = cenie(library, "train", "maze", "plr-spread", "teacher", "--help")
    assert "generalised-learnability, uniform, spread" in " ".join(described.split())
    assert "The share of simple levels." in cenie(library, "train", "maze", "mixed", "teacher", "--help")
    refused = cenie(library, "train", "maze", "mixed", "--teacher.share", "2")
    assert "teacher.share: must be at most 1.0, got 2" in refused


def test_an_added_score_and_method_train_on_an_added_domain(library: Path) -> None:
    """The domain is that of the page about environments of one's own: one file, anywhere."""
    module, *_ = write_files("guides/own-environment.md", library)
    name = f"{module.stem}:domain"
    refused = cenie(library, "train", name, "mixed")
    assert "method: must be another one: this domain has no simple levels" in refused
    replay = ["--teacher.replay.capacity", "8", "--teacher.replay.schedule", "fixed"]
    said = cenie(library, "train", name, "plr-spread", *SMALL, *replay, "--out", "a")
    assert json.loads((library / "a/summary.json").read_text())["updates"] == 2, said
    assert json.loads((library / "a/config.json").read_text())["teacher"]["score"] == "spread"


def test_an_added_family_trains(library: Path) -> None:
    said = cenie(library, "train", "maze", "mixed", *SMALL, "--env.size", "5", "--out", "b")
    assert json.loads((library / "b/summary.json").read_text())["updates"] == 2, said


def test_an_added_coverage_model_trains(library: Path) -> None:
    replay = ["--teacher.replay.capacity", "8", "--teacher.replay.schedule", "fixed", "--env.size", "5"]
    ball = ["--teacher.novelty.coverage.kind", "ball", "--teacher.novelty.coverage.window", "8"]
    said = cenie(library, "train", "maze", "plr-cenie", *SMALL, *replay, *ball, "--out", "c")
    assert json.loads((library / "c/summary.json").read_text())["updates"] == 2, said
    rows = (library / "c/metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["teacher/fit/variance"] > 0.0


def test_an_added_network_trains(library: Path) -> None:
    """Its settings are in the help, checked, and written down."""
    assert "The size of the first weights." in cenie(library, "train", "maze", "dr", "student", "--help")
    linear = ["--student.network.kind", "linear", "--student.network.gain"]
    small = [*SMALL[:6], *SMALL[10:], "--env.size", "5"]
    refused = cenie(library, "train", "maze", "dr", *small, *linear, "0")
    assert "student.network.gain: must be greater than 0.0, got 0.0" in refused
    said = cenie(library, "train", "maze", "dr", *small, *linear, "0.5", "--out", "d")
    assert json.loads((library / "d/summary.json").read_text())["updates"] == 2, said
    network = json.loads((library / "d/config.json").read_text())["student"]["network"]
    assert network == {"kind": "linear", "gain": 0.5}


def test_a_patch_that_fits_nowhere_or_twice_is_refused() -> None:
    assert patched("a\nb\n", " a\n+c\n b\n") == "a\nc\nb\n"
    for text in ("b\n", "a\na\n"):
        with pytest.raises(AssertionError):
            patched(text, " a\n+c\n")
