"""The `cenie` command: signals and streams are looked after before anything that takes time is loaded."""

import gc
import os
import sys

from cenie.system.signals import leave_on_signals
from cenie.system.streams import flush_streams, guard_streams


def main() -> None:
    """Carry out the command line of this process."""
    leave_on_signals()
    guard_streams()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as `show_devices`, which comes after JAX is loaded
    # Tracing allocates many small live objects: the default thresholds cost a tenth of a warm start.
    gc.set_threshold(100_000, 50, 100)
    from cenie.command.cli import run

    code = run(sys.argv[1:])
    flush_streams()
    sys.exit(code)
