"""Stopping on request: before training at once, and then the first signal asks and the second one insists."""

import os
import signal
import threading
from types import FrameType

INSISTED = 130
"""Exit code after the second signal: what shells report for a process ended by Ctrl-C."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"


def leave_on_signals() -> None:
    """Until training looks after signals itself (`GracefulStop`), end quietly: there is nothing to save.

    The exit code is 128 plus the number of the signal, as shells report it: 130 for SIGINT, 143 for
    SIGTERM. An exception would not do, because imports turn it into errors of their own.
    """
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as it is for jobs in the background
            signal.signal(number, lambda number, frame: _leave(128 + number))


def end_with(descriptor: int) -> None:
    """Ask for a stop, as the first signal does, when the other end of a pipe is closed.

    That end is held by the process that started this one, so this one is asked to stop when it dies. Before
    training there is nothing to save, and this process ends at once.
    """

    def watch() -> None:
        while os.read(descriptor, 64):
            pass
        _abandoned.set()
        if not GracefulStop.entered:
            _leave(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="end-with", daemon=True).start()


_abandoned = threading.Event()
"""Whether the process that this one should end with is gone."""


def _leave(code: int) -> None:
    """End the process at once; a live line on the terminal has hidden the cursor."""
    if os.isatty(1):
        os.write(1, _SHOW_CURSOR)
    os._exit(code)


class GracefulStop:
    """While entered, SIGINT and SIGTERM set `requested` instead of interrupting; a second one exits at once.

    Python runs its own signal handlers only between bytecodes, so not while XLA compiles or computes, and
    it merges signals that arrive meanwhile. The byte which the C handler writes to the wake-up pipe is
    immediate; a thread counts those bytes. Must be entered on the main thread. Leaving at once loses
    nothing: files on disk are valid at every moment.
    """

    entered = False
    """Whether this process looks after signals in this way now."""

    def __init__(self) -> None:
        self._requested = threading.Event()

    @property
    def requested(self) -> bool:
        """True after the first signal: finish the chunk, write a checkpoint, and leave."""
        return self._requested.is_set() or _abandoned.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for a request; returns whether there was one."""
        return self._requested.wait(timeout)

    def __enter__(self) -> "GracefulStop":
        GracefulStop.entered = True
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._previous_handlers = {number: signal.signal(number, _ignore) for number in _SIGNALS}
        self._previous_wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._count, name="graceful-stop", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        GracefulStop.entered = False
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)

    def _count(self) -> None:
        while received := os.read(self._reader, 64):
            for number in received:
                if number not in _SIGNALS:
                    continue
                if self._requested.is_set():
                    _leave(INSISTED)
                self._requested.set()


def _ignore(number: int, frame: FrameType | None) -> None:
    """Present so that the C handler is installed; the thread does the work."""
