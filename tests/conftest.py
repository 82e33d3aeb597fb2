"""Two host devices for all tests, so that splitting the level axis is exercised without an accelerator.

Compilation is most of the time of a test, so XLA is told not to optimise what runs for milliseconds.
"""

import os

os.environ.setdefault(
    "XLA_FLAGS", "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
