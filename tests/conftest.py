"""Two host devices for all tests, so that splitting the level axis is exercised without an accelerator.

Compilation is most of the time of a test, so XLA is told not to optimise what runs for milliseconds, and to
leave out its fusion emitters, which take three quarters of the time that is left.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Iterator

import pytest

FLAGS = (
    "--xla_force_host_platform_device_count=2",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests leave nothing in the home of whoever runs them.
os.environ["CENIE_CACHE_DIR"] = "off"


@pytest.fixture(scope="module", autouse=True)
def forget_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled programs and kept runs are of use within a file; all together take gigabytes in the end."""
    yield
    import jax  # it must not be loaded before the flags are set

    for value in vars(request.module).values():
        if hasattr(value, "cache_clear") and getattr(value, "__module__", None) == request.module.__name__:
            value.cache_clear()
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":
        # The allocator keeps what was freed, unless it is told to give it back.
        ctypes.CDLL(None).malloc_trim(0)
