"""What is printed may get lost; a run goes on, and nothing from elsewhere commands the terminal."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cenie import settings
from cenie.rundir.files import read_json, write_json
from cenie.system.streams import Expendable, printable
from tests import kept
from tests.tiny import tiny

CENIE = [sys.executable, "-m", "cenie.command.cli"]


class Failing(io.StringIO):
    """A stream of which every write or flush fails."""

    def __init__(self, error: Exception, method: str = "write"):
        super().__init__()
        self.calls = 0
        self._error, self._method = error, method

    def _call(self, method: str) -> None:
        if method == self._method:
            self.calls += 1
            raise self._error

    def write(self, text: str) -> int:
        self._call("write")
        return super().write(text)

    def flush(self) -> None:
        self._call("flush")


@pytest.mark.parametrize("method", ["write", "flush"])
@pytest.mark.parametrize(
    "error", [BrokenPipeError(errno.EPIPE, ""), OSError(errno.ENOSPC, ""), ValueError("closed")]
)
def test_a_stream_that_fails_is_given_up(error: Exception, method: str) -> None:
    stream = Expendable(Failing(error, method))
    for _ in range(3):
        assert stream.write("text") == 4
        stream.flush()
    assert stream.lost is error


def test_a_slow_reader_costs_some_text_and_not_the_stream() -> None:
    stream = Expendable(Failing(BlockingIOError(errno.EAGAIN, "")))
    stream.write("text")
    assert stream.lost is None


def test_what_an_encoding_lacks_is_written_in_another_way() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    stream = Expendable(file)
    stream.write("größe\n")
    assert file.buffer.getvalue() == b"gr\\xf6\\xdfe\n"  # pyright: ignore[reportAttributeAccessIssue]
    assert stream.encoding == "ascii"


def test_text_from_elsewhere_is_shown_on_one_line_without_control_characters() -> None:
    assert printable("größe 3") == "größe 3"
    assert printable("a\x1b[2Jb\nc\u202e") == r"a\x1b[2Jb\nc\u202e"
    assert printable("x" * 600 + "y" * 600) == "x" * 500 + " ... " + "y" * 500


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_run_goes_on_when_its_output_is_full_and_its_errors_go_nowhere(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", settings.to_data(tiny("dr", updates=2)))
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, open(writer, "w") as nobody:
        command = [*CENIE, "train", "--resume", tmp_path]
        done = subprocess.run(command, stdout=full, stderr=nobody, env=kept.environment())
    assert done.returncode == 0
    assert read_json(tmp_path / "summary.json")["updates"] == 2


@pytest.mark.parametrize("arguments", ["methods", "--help", "train --help"])
def test_a_reader_that_goes_away_sees_no_traceback(arguments: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as nobody:
        done = subprocess.run([*CENIE, *arguments.split()], stdout=nobody, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_lost_output_is_mentioned_where_it_can_be_read() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*CENIE, "methods"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stderr.startswith("warning: some of the output could not be written")
    assert done.stderr.count("\n") == 1


def test_closed_streams_are_not_given_to_files_of_the_run() -> None:
    """A file that is opened in the place of a closed standard output would get what is printed."""
    code = (
        "import os, sys; from cenie.system.streams import guard_streams; guard_streams(); "
        "opened = os.open(os.devnull, os.O_RDONLY); print('printed'); sys.exit(opened)"
    )
    command = f'"{sys.executable}" -c "{code}" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command]).returncode == 3
