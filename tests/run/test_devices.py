"""The devices that a run is given."""

import os

import pytest

from cenie.run import devices
from cenie.run.devices import core_count, prepare_devices
from tests.tiny import tiny

FLAG = "--xla_force_host_platform_device_count"


@pytest.mark.parametrize(
    ("cores", "wanted", "given"),
    [(1, 0, 1), (2, 0, 2), (2, 1, 1), (1, 2, 2), (3, 0, 2)],  # three do not share two levels evenly
)
def test_every_core_is_a_device_as_far_as_the_levels_can_be_shared(cores, wanted, given, monkeypatch):
    monkeypatch.setattr(devices, "core_count", lambda: cores)
    monkeypatch.setenv("XLA_FLAGS", "--other=1")
    prepare_devices(tiny("dr", run__devices=wanted))
    assert os.environ["XLA_FLAGS"].split() == ["--other=1", f"{FLAG}={given}"]


def test_a_number_of_devices_set_by_the_user_is_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=4")
    prepare_devices(tiny("dr"))
    assert os.environ["XLA_FLAGS"] == f"{FLAG}=4"


def test_cores_are_counted_where_the_system_tells_no_affinity(monkeypatch):
    """As on macOS, where `cenie train` would have ended in a traceback."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert core_count() == os.cpu_count()


@pytest.mark.parametrize(("given", "level"), [(None, "3"), ("0", "0")])
def test_xla_does_not_cry_of_slow_compiles_unless_asked_to(given, level, monkeypatch):
    """It has no flag for that alone; fatal errors are still written at level 3."""
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=4")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
    prepare_devices(tiny("dr"))
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == level
