"""Two host devices for all tests, so that splitting the level axis is exercised without an accelerator.

Compilation is most of the time of a test, so XLA is told not to optimise what runs for milliseconds, and to
leave out its fusion emitters, which take three quarters of the time that is left. Nor does it share a program
out over threads: the other core has tests of its own, and a fifth of the compiler's time is saved.
"""

import gc
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import checks

FLAGS = (
    "--xla_force_host_platform_device_count=2",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
FLAGS_OF_ALL = os.environ["XLA_FLAGS"]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests leave nothing in the home of whoever runs them.
os.environ["CENIE_CACHE_DIR"] = "off"
checks.install()
# What a shell starts in the background ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tracing makes much that is small and no garbage.
gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish() -> None:
    """Looking through all that was imported for garbage, again and again, took an eighth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def restore_flags() -> Iterator[None]:
    """A command that a test calls adds flags for its domain, which JAX would no longer read, to the facts of
    all later runs."""
    yield
    os.environ["XLA_FLAGS"] = FLAGS_OF_ALL


@pytest.fixture(scope="session", autouse=True)
def learn_without_fusion_emitters() -> None:
    """Learning asks for them, whatever the flags say. What tests start as processes of their own has them."""
    from cenie.xla import parts as compiled  # not above: types are checked in what is imported from now on

    compiled.PARTS["learn_all"] = {}


@pytest.fixture(scope="session", autouse=True)
def keep_traced_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What one test has traced is served to all later ones: see `tests/kept.py`."""
    from cenie.training import loop
    from tests import kept

    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    kept.directory = base / "traced"
    kept.directory.mkdir(exist_ok=True)
    loop.kept_programs = kept.kept_programs


MEMORY, GROWTH = 2_000_000_000, 400_000_000
"""Bytes that a process of tests may have before it forgets its programs, and by how many it must have grown
since it last did."""


@pytest.fixture(scope="module", autouse=True)
def forget_the_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kept runs of a file are of use within the file."""
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear") and getattr(value, "__module__", None) == request.module.__name__:
            value.cache_clear()
    stay_below(MEMORY)


@pytest.fixture(autouse=True)
def stay_small() -> Iterator[None]:
    """A program takes a megabyte or two, and some files have hundreds; those needed again are on disk."""
    yield
    stay_below(MEMORY)


_after_forgetting = 0


def stay_below(memory: int) -> None:
    """Forget all programs where that is due.

    It takes a second, and so do the small programs that all files share, which must be traced again. What is
    left may still be more than `memory`: then it must not be done after every test.
    """
    global _after_forgetting
    if resident_bytes() > max(memory, _after_forgetting + GROWTH):
        forget_programs()
        _after_forgetting = resident_bytes()


def resident_bytes() -> int:
    """The memory of this process; the most that it ever had where the system does not say."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def forget_programs() -> None:
    import jax  # it must not be loaded before the flags are set

    from cenie.xla.cache import give_back_memory

    jax.clear_caches()
    gc.collect()
    give_back_memory()
