"""The machine's devices, and the flags of XLA. XLA reads the flags when a backend starts."""

import contextlib
import math
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from cenie.xla.cache import visible_cores

_COUNT_FLAG = "--xla_force_host_platform_device_count"

NEWER_KERNELS = "xla_cpu_use_fusion_emitters"
"""XLA's newer way to write kernels. It takes half as long again and twice the memory to compile, or more.
Learning is faster with it by a tenth in mazes and by a third for walkers; telling the teacher and fitting
mixtures are not. For playing it depends on the domain, which sets the flag for the whole process
(`Domain.xla_flags`)."""

_VERSIONS = {NEWER_KERNELS: ((0, 8), (0, 10))}
"""The first and the last jaxlib known to have an option. XLA ends the process at a flag it does not know."""


def core_count() -> int:
    """The cores' worth of time that this process may use: a container may see many cores and be given few."""
    return min([visible_cores(), *(max(1, math.ceil(quota)) for quota in cpu_quotas())])


def cpu_quotas(root: Path = Path("/")) -> Iterator[float]:
    """The limits of CPU time, in cores, of this process's control group and of those above it (Linux)."""
    mounts = root / "sys/fs/cgroup"
    for line in _words(root / "proc/self/cgroup", separator="\n"):
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if not controllers:  # version 2 has one tree for all controllers
            for group in _groups(mounts, path):
                yield from _quota(_words(group / "cpu.max"))
        elif "cpu" in controllers.split(","):
            for group in _groups(mounts / "cpu", path):
                yield from _quota([*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")])


def show_devices(count: int, *flags: str) -> None:
    """Make JAX see `count` devices on the host, and XLA these flags.

    Must run before JAX starts a backend. A flag that the user has set already is kept, and one that this
    version of XLA may not know is left out.
    """
    # XLA cries "Very slow compile?" after two minutes, and no flag of its own stops that; `Progress` says
    # what goes on instead. Messages of fatal errors still appear, and other errors arrive as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    given = os.environ.get("XLA_FLAGS", "")
    names = {flag.split("=")[0] for flag in given.split()}
    wanted = (f"{_COUNT_FLAG}={count}", *flags)
    added = [flag for flag in wanted if (name := flag.split("=")[0]) not in names and is_known(name)]
    os.environ["XLA_FLAGS"] = " ".join([*given.split(), *added])


def is_known(option: str) -> bool:
    """Whether the installed XLA has this option, or flag, as far as anybody can tell."""
    name = option.lstrip("-")
    if name not in _VERSIONS:
        return True
    first, last = _VERSIONS[name]
    try:
        major, minor = metadata.version("jaxlib").split(".")[:2]
        return first <= (int(major), int(minor)) <= last
    except (metadata.PackageNotFoundError, ValueError):  # installed in some way of its own
        return False


def _groups(mount: Path, path: str) -> list[Path]:
    """A group's directory and those above it; in a container the path may be the host's, and not be there."""
    inside = mount / path.lstrip("/")
    return [inside, *(above for above in inside.parents if above.is_relative_to(mount))]


def _quota(words: list[str]) -> Iterator[float]:
    """Yield the cores that a quota in microseconds per period allows; "max" and -1 mean no limit."""
    with contextlib.suppress(ValueError):
        quota, period = (int(word) for word in words)
        if quota > 0 and period > 0:
            yield quota / period


def _words(path: Path, separator: str | None = None) -> list[str]:
    try:
        return path.read_text().split(separator)
    except (OSError, ValueError):  # not there, or not text
        return []
