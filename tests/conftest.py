"""Two host devices for all tests, so that splitting the level axis is exercised without an accelerator."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
