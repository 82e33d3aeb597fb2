"""How many devices a run takes, and which of them stay idle."""

import os

import pytest

from cenie.experiment import devices
from cenie.experiment.devices import prepare_devices, unused_devices
from cenie.experiment.presets import preset
from tests.tiny import tiny

FLAG = "--xla_force_host_platform_device_count"
SIX = {"student__num_levels": 12, "student__ppo__minibatches": 2}


@pytest.mark.parametrize(
    ("cores", "wanted", "given"),
    [(1, 0, 1), (2, 0, 2), (2, 1, 1), (1, 2, 2), (3, 0, 2)],  # three do not share two levels evenly
)
def test_every_core_is_a_device_as_far_as_the_levels_can_be_shared(cores, wanted, given, monkeypatch):
    monkeypatch.setattr(devices, "core_count", lambda: cores)
    monkeypatch.setenv("XLA_FLAGS", "--other=1")
    prepare_devices(tiny("dr", run__devices=wanted))
    assert os.environ["XLA_FLAGS"].split()[:2] == ["--other=1", f"{FLAG}={given}"]


def test_a_number_of_devices_set_by_the_user_is_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=4")
    prepare_devices(tiny("dr"))
    assert os.environ["XLA_FLAGS"].split()[0] == f"{FLAG}=4"
    assert os.environ["XLA_FLAGS"].count(FLAG) == 1


def test_what_a_domain_asks_of_xla_is_passed_on_unless_the_user_says_otherwise(monkeypatch):
    walker = preset("walker", "dr", "quick", {"run.devices": 1})
    first, second = walker.entry.xla_flags
    monkeypatch.setenv("XLA_FLAGS", "")
    prepare_devices(walker)
    assert os.environ["XLA_FLAGS"].split() == [f"{FLAG}=1", first, second]
    prepare_devices(walker)  # a second time changes nothing
    assert os.environ["XLA_FLAGS"].split() == [f"{FLAG}=1", first, second]
    own = f"{first.split('=')[0]}=another"
    monkeypatch.setenv("XLA_FLAGS", own)
    prepare_devices(walker)
    assert os.environ["XLA_FLAGS"].split() == [own, f"{FLAG}=1", second]


@pytest.mark.parametrize(("given", "level"), [(None, "3"), ("0", "0")])
def test_xla_does_not_cry_of_slow_compiles_unless_asked_to(given, level, monkeypatch):
    """It has no flag for that alone; fatal errors are still written at level 3."""
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=4")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
    prepare_devices(tiny("dr"))
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == level


@pytest.mark.parametrize(
    ("settings", "found", "are_cores", "cores", "expected"),
    [
        (SIX, 8, False, 2, ["using 6 of 8 devices: their number must divide 6 (student.num_levels / "]),
        (SIX, 6, True, 8, ["using 6 of 8 devices: their number must divide 6 (student.num_levels / "]),
        (SIX, 6, False, 8, []),  # as many accelerators as can be used; the cores are not meant to be
        (SIX, 1, True, 8, []),  # the user shows JAX one device, or prepared nothing: XLA has its own threads
        (SIX, 3, True, 3, []),
        ({**SIX, "run__devices": 2}, 8, False, 8, []),  # as told
        ({**SIX, "run__devices": 3}, 2, False, 8, ["using 2 of the 3 devices of run.devices: there are no"]),
    ],
)
def test_devices_that_stay_idle_are_named(settings, found, are_cores, cores, expected, monkeypatch):
    monkeypatch.setattr(devices, "core_count", lambda: cores)
    lines = list(unused_devices(tiny("dr", **settings), found, are_cores=are_cores))
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected))
