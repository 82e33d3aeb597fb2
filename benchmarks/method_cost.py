"""What a gradient update costs with each method, beside domain randomisation.

    python -m benchmarks.method_cost [--domain maze] [--methods dr plr-robust diplr ...] [--updates 12]

The `quick` preset of the domain on one device. Replay begins at a tenth of the buffer and has its final share
from then on, so that a short run is like a long one. A method's figure is the CPU time of all threads for so
many updates after its first one, with all cycles that belong to them, divided by their number; methods run
one after another in one process. Of Enhanced POET's, what happens every hundred updates is not in it.
"""

import argparse
import json
import time
from typing import Any

import jax

from cenie.run.build import build, place
from cenie.run.presets import preset
from cenie.teach.cycle import TrainState, cycle, init
from cenie.teach.methods import METHODS

REPLAYS_AT_ONCE = {"teacher.replay.min_fill": 0.1, "teacher.replay.schedule": "fixed"}


def cost(domain: str, method: str, updates: int) -> dict[str, float]:
    """CPU seconds, environment steps and cycles of an update."""
    settings: dict[str, Any] = {"run.devices": 1, "run.recorded_points": 0}
    settings |= {} if method == "dr" else REPLAYS_AT_ONCE
    _, setup = build(preset(domain, method, "quick", settings))

    def trained(state: TrainState, updates: int) -> TrainState:
        while int(state.counters.updates) < updates:
            state = cycle(setup, state)[0]
        return jax.block_until_ready(state)

    first = trained(place(setup, init(setup, 0)), 1)
    begin = time.process_time()
    last = trained(first, 1 + updates)
    seconds = time.process_time() - begin
    rollouts = int(last.counters.rollouts) - int(first.counters.rollouts)
    return {"CPU s": seconds / updates, "rollouts": rollouts / updates}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--domain", default="maze")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--updates", type=int, default=12)
    options = parser.parse_args()
    plain = cost(options.domain, "dr", options.updates)["CPU s"]
    for name in options.methods:
        found = cost(options.domain, name, options.updates)
        found["times dr"] = found["CPU s"] / plain
        print(json.dumps({name: {key: round(value, 3) for key, value in found.items()}}), flush=True)
