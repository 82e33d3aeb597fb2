"""The first signal asks, the second one insists, and the earlier handlers come back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cenie.system.signals import GracefulStop, leave_on_signals

STOPPABLE = """
import hashlib, sys, threading
from cenie.system.signals import GracefulStop
with GracefulStop() as stop:
    watcher = threading.Thread(target=lambda: print(stop.wait(60), flush=True), daemon=True)
    watcher.start()
    print("ready", flush=True)
    {work}
    print("finished", stop.requested, flush=True)
"""
# One call into C that takes minutes without returning to Python, as a compilation may.
STUCK = 'hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_asks(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with GracefulStop() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.wait(10.0)
        assert stop.requested
    assert signal.getsignal(number) is before


def test_other_signals_do_not_ask() -> None:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        with GracefulStop() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not stop.wait(0.1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_it_can_be_used_again_and_leaves_no_descriptor_open() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with GracefulStop() as stop:
            assert not stop.requested
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with pytest.raises(KeyError), GracefulStop():
        raise KeyError("errors pass")
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_exits_at_once_even_inside_a_long_call(second: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPABLE.format(work=STUCK)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "True\n"
        assert process.poll() is None
        process.send_signal(second)
        assert process.wait(10) == 130


def test_after_one_signal_the_work_is_finished_first() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPABLE.format(work="watcher.join()")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "True\nfinished True\n"
        assert process.wait(10) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_jax_is_loading_ends_quietly(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "jax.py").write_text('import time\nprint("loading", flush=True)\ntime.sleep(600)\n')
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-m", "cenie.command.cli", "train", "maze", "dr", "--out", tmp_path / "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == code


def test_a_signal_that_is_ignored_from_the_start_stays_ignored() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        leave_on_signals()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
