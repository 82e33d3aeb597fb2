"""Text for people, and streams for it that cannot stop a run. Imports nothing heavy."""

import contextlib
import errno
import os
import sys
from typing import Any, TextIO, cast


class Expendable:
    """A text stream whose output may get lost: after the first error nothing more is written.

    The reader of a pipe may go away and a disk may be full; the files of a run are its record, not what it
    prints. `lost` is the error, if there was one.
    """

    def __init__(self, stream: Any):
        self.lost: OSError | ValueError | None = None
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            plain = text.encode(self._stream.encoding, "backslashreplace").decode(self._stream.encoding)
            self.write(plain)
        except BlockingIOError:  # the reader is too slow at the moment
            pass
        except (OSError, ValueError) as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BlockingIOError:
            pass
        except (OSError, ValueError) as error:
            self._give_up(error)

    def _give_up(self, error: OSError | ValueError) -> None:
        self.lost = self.lost or error
        # What is left in the stream's own buffer must go somewhere, or Python complains when it ends.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_streams() -> None:
    """Make standard output and standard error expendable; a stream that is closed becomes a silent one."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest free number belongs to the closed stream. No file of ours may get it: a print would
            # go into that file.
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(opened, "w" if descriptor else "r", encoding="utf-8"))  # noqa: SIM115
    sys.stdout, sys.stderr = (cast(TextIO, Expendable(stream)) for stream in (sys.stdout, sys.stderr))


def flush_streams() -> None:
    """Write what is still waiting; tells on standard error if some of standard output got lost."""
    sys.stdout.flush()
    lost = getattr(sys.stdout, "lost", None)
    if lost is not None and getattr(lost, "errno", None) != errno.EPIPE:  # who closes a pipe knows it
        sys.stderr.write(f"warning: some of the output could not be written: {lost}\n")
    sys.stderr.flush()


def printable(text: str, longest: int = 1000) -> str:
    """Text from elsewhere as one line, without the control characters that would command a terminal."""
    shown = text if text.isprintable() else "".join(map(_visible, text))
    half = longest // 2
    return shown if len(shown) <= longest else f"{shown[:half]} ... {shown[-half:]}"


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
