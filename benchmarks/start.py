"""How long a run takes to begin, with and without compiled programs from an earlier one, and what it needs.

    python -m benchmarks.start [--method plr-cenie] [--preset quick]

First the command as a user calls it, in a process of its own: seconds from its start until the rows of the
first cycles are there, those of the first update (methods that learn from replayed levels fill their buffer
first) and those of the untrained student's evaluation, the peak of memory by then and what is still held.
Then part by part, in one process.
Both cold, with an empty directory of programs, and warm.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cenie.xla.cache import VARIABLE

COMMAND = "import sys; from cenie.command.entry import main; sys.argv[0] = 'cenie'; main()"
PATIENCE = 600.0
"""Seconds."""


def measure_command(method: str, preset: str, directory: Path, programs: Path) -> dict[str, str]:
    """When each kind of row appears, and what the process has used when it has made its first update."""
    command = [sys.executable, "-c", COMMAND, "train", "maze", method, "--preset", preset]
    command += ["--out", str(directory)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {VARIABLE: str(programs)})
    found: dict[str, str] = {}
    try:
        for name, is_there in {
            "first cycles": lambda: _lines(directory / "metrics.jsonl"),
            "first update": lambda: _updates(directory / "metrics.jsonl"),
            "evaluation": lambda: _lines(directory / "evaluations.csv")[1:],
        }.items():
            _wait(is_there, process, began + PATIENCE)
            found[name] = f"{time.monotonic() - began:.1f} s"
        status = Path(f"/proc/{process.pid}/status").read_text()
        for name, field in {"peak": "VmHWM:", "memory held": "VmRSS:"}.items():
            found[name] = f"{int(status.split(field)[1].split()[0]) / 1e6:.2f} GB"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _updates(path: Path) -> bool:
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return bool(lines) and json.loads(lines[-1])["updates"] > 0


def _wait(is_there: Callable[[], Any], process: subprocess.Popen[bytes], deadline: float) -> None:
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the run ended, or took too long, before its first update")
        time.sleep(0.02)


class Clock:
    """Prints what passed since the last call: seconds, CPU seconds of all threads, and the peak so far."""

    def __init__(self) -> None:
        self._last = time.monotonic(), time.process_time()

    def __call__(self, name: str) -> None:
        now = time.monotonic(), time.process_time()
        seconds, busy = (after - before for after, before in zip(now, self._last))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"  {name:<28} {seconds:>6.1f} s {busy:>6.1f} CPU s, peak {peak:.2f} GB", flush=True)
        self._last = time.monotonic(), time.process_time()


def measure_parts(method: str, preset: str) -> None:
    """The parts one after another, though a run does some of them at the same time."""
    clock = Clock()
    from cenie.experiment.devices import prepare_devices
    from cenie.experiment.presets import preset as read_preset

    config = read_preset("maze", method, preset)
    prepare_devices(config)
    clock("settings")
    import jax

    from cenie.experiment.build import build, place, program_settings
    from cenie.experiment.evaluate import evaluate
    from cenie.teach.cycle import init
    from cenie.xla.cache import kept_programs
    from cenie.xla.parts import CompiledCycles

    clock("imports")
    with kept_programs() as programs:
        domain, setup = build(config)
        clock("domain and devices")
        state = jax.block_until_ready(place(setup, init(setup, config.seed)))
        clock("first state")
        suite = domain.suites[config.run.suite]()
        for name in ("evaluation", "evaluation again"):
            evaluate(
                domain,
                state.student.network,
                suite,
                episodes=config.run.final_episodes,
                seed=config.run.evaluation_seed,
                mesh=setup.mesh,
            )
            clock(name)
        advance = CompiledCycles(setup, 1, settings=program_settings(config, None), directory=programs)
        advance.programs(state)
        clock("trace and compile a cycle")
        for name in ("first cycle", "second cycle"):
            state, *_ = jax.block_until_ready(advance(state, config.updates))
            clock(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="plr-cenie")
    parser.add_argument("--preset", default="quick")
    parser.add_argument(
        "--parts", action="store_true", help="only the parts, with the programs that are there"
    )
    options = parser.parse_args()
    if options.parts:
        measure_parts(options.method, options.preset)
        return
    again = [sys.executable, "-m", "benchmarks.start", "--parts", *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as scratch:
        for programs in ("of-the-command", "of-the-parts"):
            (Path(scratch) / programs).mkdir()
        for when in ("cold", "warm"):
            found = measure_command(
                options.method, options.preset, Path(scratch, when), Path(scratch, "of-the-command")
            )
            print(f"{when}: {', '.join(f'{name} {value}' for name, value in found.items())}", flush=True)
            environment = os.environ | {VARIABLE: str(Path(scratch, "of-the-parts"))}
            subprocess.run(again, env=environment, check=True)


if __name__ == "__main__":
    main()
