"""The facts besides its config on which the exact bits of a run depend: software, devices, cores, compiler
flags."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jaxlib.version

from cenie.xla.cache import visible_cores

_NAMES = {
    "jax": "JAX version",
    "jaxlib": "jaxlib version",
    "python": "Python version",
    "machine": "machine type",
    "processor": "processor",
    "platform": "JAX platform",
    "device_kind": "device kind",
    "device_count": "number of devices",
    "core_count": "number of CPU cores",
    "xla_flags": "XLA_FLAGS",
    "jax_options": "JAX options",
}
_OPTIONS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)


def environment_facts() -> dict[str, Any]:
    """The facts that decide whether a resumed run can repeat the bits of an uninterrupted one."""
    devices = jax.devices()
    return {
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "platform": devices[0].platform,
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "core_count": visible_cores(),
        "xla_flags": " ".join(sorted(os.environ.get("XLA_FLAGS", "").split())),
        "jax_options": {name: getattr(jax.config, name) for name in _OPTIONS},
    }


def differing_facts(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for each environment fact that differs; other entries of the mappings are ignored.

    A fact that the saved mapping does not have cannot be compared and counts as differing.
    """
    lines = []
    for key, name in _NAMES.items():
        before, after = saved.get(key), now.get(key)
        if before != after:
            lines.append(f"{name}: {_show(before)} when saved, {_show(after)} now")
    return lines


def _processor() -> str:
    """The processor's name: the compiler chooses vector widths, and so the order of sums, by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _show(value: Any) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}={setting}" for name, setting in value.items())
    # What was saved may come from anyone, and of any length.
    return str(value)[:200]
