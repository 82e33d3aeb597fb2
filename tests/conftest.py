"""Two host devices for all tests, so that splitting the level axis is exercised without an accelerator.

Compilation is most of the time of a test, so XLA is told not to optimise what runs for milliseconds, and to
leave out its fusion emitters, which take three quarters of the time that is left.
"""

import os

FLAGS = (
    "--xla_force_host_platform_device_count=2",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
)
os.environ.setdefault("XLA_FLAGS", " ".join(FLAGS))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests leave nothing in the home of whoever runs them.
os.environ["CENIE_CACHE_DIR"] = "off"
