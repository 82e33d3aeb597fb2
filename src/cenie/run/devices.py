"""What XLA is told of the machine. Nothing here loads JAX, which reads the flags when it is loaded."""

import os

from cenie.run.config import Config


def core_count() -> int:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prepare_devices(config: Config) -> None:
    """Show every core to JAX as a device of its own, so that both cores of a laptop share the levels.

    Must run before JAX is imported. A flag that the user has set already is kept.
    """
    # XLA cries "Very slow compile?" after two minutes, and no flag of its own stops that; `Progress` says
    # what goes on instead. Messages of fatal errors still appear, and other errors arrive as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flag = "--xla_force_host_platform_device_count"
    given = os.environ.get("XLA_FLAGS", "")
    if flag not in given:
        count = config.devices_of(max(core_count(), config.run.devices))
        os.environ["XLA_FLAGS"] = f"{given} {flag}={count}".strip()
