"""Two host devices for all tests, so that splitting the level axis is exercised without an accelerator.

Compilation is most of the time of a test, so XLA is told not to optimise what runs for milliseconds, and to
leave out its fusion emitters, which take three quarters of the time that is left.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FLAGS = (
    "--xla_force_host_platform_device_count=2",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
FLAGS_OF_ALL = os.environ["XLA_FLAGS"]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests leave nothing in the home of whoever runs them.
os.environ["CENIE_CACHE_DIR"] = "off"
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


MEMORY = 1_200_000_000
"""Bytes that a process of tests may have grown to before it forgets its programs in the middle of a file."""


@pytest.fixture(scope="module", autouse=True)
def forget_the_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled programs and kept runs are of use within a file; all together take gigabytes in the end."""
    yield
    for value in vars(request.module).values():
        if hasattr(value, "cache_clear") and getattr(value, "__module__", None) == request.module.__name__:
            value.cache_clear()
    forget_programs()


@pytest.fixture(autouse=True)
def stay_small() -> Iterator[None]:
    """A program takes a megabyte or two, and some files have hundreds; those needed again are on disk."""
    yield
    if resident_bytes() > MEMORY:
        forget_programs()


def resident_bytes() -> int:
    """The memory of this process; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def forget_programs() -> None:
    import jax  # it must not be loaded before the flags are set

    from cenie.xla.cache import give_back_memory

    jax.clear_caches()
    gc.collect()
    give_back_memory()
