"""Run every benchmark in a process of its own: `python -m benchmarks`, or name some of them."""

import subprocess
import sys

ALL = (
    "maze_stepping",
    "walker_stepping",
    "racing_stepping",
    "ppo_update",
    "pixels_update",
    "buffer_insert",
    "coverage",
    "em_schedule",
    "cycle_profile",
    "novelty_cost",
    "start",
    "report_scale",
)

for name in sys.argv[1:] or ALL:
    print(f"== {name}", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
