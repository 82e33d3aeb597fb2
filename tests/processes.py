"""One of two processes that share a program (`jax.distributed`), each with one host device:

python -m tests.processes ADDRESS NUMBER split
python -m tests.processes ADDRESS NUMBER train DIRECTORY [resume]
"""

import os
import sys
from pathlib import Path

import tests.conftest  # noqa: F401, the flags of the tests, but for the number of devices

if __name__ == "__main__":
    COUNT = "--xla_force_host_platform_device_count"
    os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace(f"{COUNT}=2", f"{COUNT}=1")

import jax
import numpy as np
from rich.console import Console

from cenie.rundir.files import RunDirectory
from cenie.training.loop import train
from cenie.training.progress import Progress
from cenie.xla import devices, parts
from tests.tiny import tiny


def split() -> None:
    """Rows go out to both processes and come back; prints what this one found."""
    mesh = devices.level_mesh(2)
    rows = devices.shard_rows(mesh, np.arange(5.0))
    assert not rows.is_fully_addressable
    doubled = jax.jit(lambda rows: devices.on_own_rows(mesh, lambda rows: 2 * rows, rows))(rows)
    everywhere = devices.place(mesh, np.arange(2.0))
    stop = devices.in_any_process(jax.process_index() == 1)
    print(*devices.to_host(doubled), *devices.to_host(everywhere), stop, devices.is_writer())


def run(directory: str, resume: bool) -> None:
    parts.PARTS["learn_all"] = {}  # as the process of the tests has it, for the same bits
    config = tiny("plr-robust", run__devices=2, updates=4 if resume else 2)
    with Progress(Console(), config.updates) as progress:
        assert train(config, RunDirectory(Path(directory)), progress, resume=resume)


if __name__ == "__main__":
    address, number, what, *rest = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, int(number))
    if what == "split":
        split()
    else:
        run(rest[0], resume=rest[1:] == ["resume"])
