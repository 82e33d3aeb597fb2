"""Compiled programs are kept on disk, so that only the first run on a machine waits for the compiler.

JAX does the work (its persistent compilation cache); this file says where, and keeps out what could harm.
Nothing here may stop a run: whatever is wrong with the directory, programs are compiled as if it were not
there. Loads JAX only when it is used.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import stat
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

VARIABLE = "CENIE_CACHE_DIR"
"""Names another directory than the usual one; `off` keeps nothing."""

TRACE = "-trace"
"""The ending of the names of traced programs, which are kept beside the compiled ones (`xla/traces.py`)."""

LARGEST = 1 << 30
"""Bytes of programs for one kind of machine; beyond that the oldest go."""


SHORTEST = 0.1
"""Seconds of compiling that are worth a file. JAX's own limit is one second, and a run has a dozen programs
below that."""


@contextlib.contextmanager
def kept_programs() -> Iterator[Path | None]:
    """Inside, what takes JAX a while to compile is kept, and found again by later runs.

    A cache that the user has set up in JAX is used as it is. Afterwards JAX is as it was before. Gives the
    directory, unless there is none or it is the user's.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    config: Any = jax.config
    directory = None
    if not config.jax_compilation_cache_dir and config.jax_enable_compilation_cache:
        directory = cache_directory(os.environ)
    if directory is None or not _ready(directory):
        yield None
        return
    with warnings.catch_warnings():
        # JAX warns of programs that it cannot read or write, and compiles them: nothing that needs a user.
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
        compilation_cache.set_cache_dir(str(directory))
        shortest = config.jax_persistent_cache_min_compile_time_secs
        config.update("jax_persistent_cache_min_compile_time_secs", min(shortest, SHORTEST))
        try:
            yield directory
        finally:
            config.update("jax_persistent_cache_min_compile_time_secs", shortest)
            config.update("jax_compilation_cache_dir", None)
            compilation_cache.reset_cache()


@contextlib.contextmanager
def without_alarm() -> Iterator[None]:
    """Inside, XLA keeps silent unless it ends the process.

    It would cry "Very slow compile?" after two minutes, and no flag stops that. Other errors arrive as
    exceptions. XLA cannot be asked how much it says; afterwards it is as much as its environment tells.
    """
    try:
        from jaxlib.utils import absl_set_min_log_level as say_from
    except ImportError:  # not a promise of JAX
        yield
        return
    given = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
    say_from(_FATAL)
    try:
        yield
    finally:
        say_from(int(given) if given.isdecimal() and int(given) <= _FATAL else _WARNINGS)


_WARNINGS, _FATAL = 1, 3
"""Levels of XLA's log: what JAX sets it to, and the highest."""


def visible_cores() -> int:
    """The cores that the system schedules this process on; XLA counts them so, too."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def give_back_memory() -> None:
    """Return to the system what the compiler has freed, which the C library would keep for the whole run.

    After a large program that is more than the run itself needs. Only glibc has a call for it.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """Where the programs for this machine belong, or None if they are not to be kept."""
    chosen = environment.get(VARIABLE, "")
    if chosen.lower() == "off":
        return None
    if chosen:
        with contextlib.suppress(OSError):  # The present directory may be gone.
            return Path(chosen).absolute() / f"xla-{_machine()}"
        return None
    try:
        home = Path.home()
    except RuntimeError:  # There is no such user, as in some containers.
        return None
    # The convention of free desktops: a relative path counts as none.
    given = environment.get("XDG_CACHE_HOME", "")
    base = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return (Path(given) if os.path.isabs(given) else base) / "cenie" / f"xla-{_machine()}"


def unusable_cache(environment: Mapping[str, str]) -> str | None:
    """Why programs are not kept where the user wants them to be, in a sentence; None if they are."""
    chosen = environment.get(VARIABLE, "")
    directory = cache_directory(environment)
    if not chosen or chosen.lower() == "off" or (directory is not None and _ready(directory)):
        return None
    return (
        f"{VARIABLE} is {chosen}, where compiled programs cannot be kept: it must be a directory that you can"
        " write to and others cannot, below directories that not everybody can write to"
    )


@functools.cache
def _machine() -> str:
    """A short name of what programs are made for: the abilities of the processor, and how many cores."""
    facts = [platform.machine(), str(visible_cores())]
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
        facts += sorted({line for line in lines if line.startswith(wanted)})
    except OSError:  # Not Linux: rather compile again than run what was made for another machine.
        facts += [platform.processor(), platform.node()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


@functools.cache
def _ready(directory: Path) -> bool:
    """Make the directory and tidy it up; False if it cannot be used, or if others could write to it."""
    try:
        if any(map(_is_open_to_all, directory.parents)):
            return False
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
        # What is in there will be run.
        foreign = hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022)
        if foreign or not stat.S_ISDIR(found.st_mode) or not os.access(directory, os.W_OK | os.X_OK):
            return False
        _tidy(directory)
    except OSError:
        return False
    return True


def _is_open_to_all(parent: Path) -> bool:
    """Whether everybody could put another directory in the place of one in here; in /tmp nobody can."""
    try:
        mode = parent.stat().st_mode
    except FileNotFoundError:
        return False
    return bool(mode & stat.S_IWOTH and not mode & stat.S_ISVTX)


def _tidy(directory: Path) -> None:
    """Remove programs that were not written to their end, and the oldest beyond the limit.

    JAX never writes over a program that is there, so that a damaged one would be compiled anew for ever.
    """
    total = 0
    found = [*directory.glob("*-cache"), *directory.glob(f"*{TRACE}*")]
    for path in sorted(found, key=_modified, reverse=True):
        # Another run may be tidying up too.
        with contextlib.suppress(OSError):
            status = path.stat()
            total += status.st_size
            if total > LARGEST:
                path.unlink()
            elif not path.name.endswith(TRACE) and stat.S_IMODE(status.st_mode) != _WHOLE:
                if _is_damaged(path):
                    path.unlink()
                else:
                    path.chmod(_WHOLE)


_WHOLE = 0o600
"""The mode of a program that was looked through: for a gigabyte of them that takes seconds, at each start."""


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _is_damaged(path: Path) -> bool:
    """Whether a program cannot be unpacked. JAX packs with zlib; of any other format nothing is known."""
    unpacker = zlib.decompressobj()
    with path.open("rb") as file:
        block = file.read(1 << 20)
        if block and block[0] != 0x78:
            return False
        try:
            while block:
                unpacker.decompress(block)
                block = file.read(1 << 20)
        except zlib.error:
            return True
    return not unpacker.eof
