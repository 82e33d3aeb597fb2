"""A command of `cenie` that another process has started, and that ends with it.

Its input is a pipe that the other process holds open. The system closes it with that process, even after
`kill -9`: a training then writes a checkpoint and stops, so that nothing goes on unseen and keeps its lock.
"""

import sys

from cenie.command import entry
from cenie.system.signals import end_with, leave_on_signals

if __name__ == "__main__":
    leave_on_signals()
    end_with(sys.stdin.fileno())
    entry.main()
