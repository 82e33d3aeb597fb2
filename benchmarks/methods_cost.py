"""What an update of every method costs beside one of `dr`: CPU time of all threads, at a preset of the maze.

    python -m benchmarks.methods_cost [--methods dr accel sfl] [--updates 8] [--preset quick]

All methods run in one process, one after the other; `dr` runs first and last, and the difference of the two
says how far to trust the rest. What is compiled is compiled before. Replay begins after a few batches, at its
full rate, so that a short run is like a long one, and SFL has shorter phases of the same proportions. Seconds
are CPU time, which depends least on what else the machine does: of all cycles, over the updates among them.
"""

import argparse
import time
from typing import Any

from cenie.experiment.build import build, place
from cenie.experiment.presets import preset
from cenie.methods.plr import ReplayTeacher
from cenie.methods.sfl import SflTeacher
from cenie.methods.table import METHODS
from cenie.settings import SettingsError
from cenie.teach.cycle import init
from cenie.xla.parts import CompiledCycles

MANY = 10**6


def changes(method: str, batch: int) -> dict[str, Any]:
    """Settings with which a short run is like a long one."""
    settings = METHODS[method].settings
    if isinstance(settings, ReplayTeacher):
        return {"teacher.replay.min_fill": 0.1, "teacher.replay.schedule": "fixed"}
    if isinstance(settings, SflTeacher):
        # 4 batches of 4 plays for 12 updates: the proportions of `quick`.
        return {
            "teacher.plays": 4,
            "teacher.scouted": batch,
            "teacher.kept": batch // 4,
            "teacher.updates": 12,
        }
    return {}


def measure(method: str, name: str, updates: int) -> tuple[float, float, float]:
    """CPU seconds and rollouts of an update, and CPU seconds of compiling."""
    plain = preset("maze", method, name)
    try:
        config = preset("maze", method, name, changes(method, plain.student.num_levels))
    except SettingsError:
        config = plain
    _, setup = build(config)
    state = place(setup, init(setup, 0))
    run = CompiledCycles(setup, 1)
    began = time.process_time()
    run.programs(state)
    compiling = time.process_time() - began
    # The untrained student plays the longest episodes; and replay begins when there is something to replay.
    while int(state.counters.updates) < 2:
        state, *_ = run(state, updates=MANY)
    first = state.counters
    cycles_before, updates_before = int(first.cycles), int(first.updates)
    began = time.process_time()
    while int(state.counters.updates) < updates_before + updates:
        state, *_ = run(state, updates=MANY)
    seconds = time.process_time() - began
    done = int(state.counters.updates) - updates_before
    return seconds / done, (int(state.counters.cycles) - cycles_before) / done, compiling


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--preset", default="quick")
    arguments = parser.parse_args()
    print("| method | CPU s per update | beside `dr` | rollouts per update | CPU s of compiling |")
    print("|---|---|---|---|---|")
    unit = None
    for method in ["dr", *(name for name in arguments.methods if name != "dr"), "dr"]:
        seconds, rollouts, compiling = measure(method, arguments.preset, arguments.updates)
        unit = seconds if unit is None else unit
        row = f"{seconds:.2f} | {seconds / unit:.2f} | {rollouts:.2f} | {compiling:.0f}"
        print(f"| `{method}` | {row} |", flush=True)


if __name__ == "__main__":
    main()
