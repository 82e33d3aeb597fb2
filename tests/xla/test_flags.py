"""The devices that a run is given."""

import os

import pytest

from cenie.experiment.devices import prepare_devices, unused_devices
from cenie.experiment.presets import preset
from cenie.xla import flags
from cenie.xla.flags import core_count, cpu_quotas, show_devices, visible_cores
from tests.tiny import tiny

FLAG = "--xla_force_host_platform_device_count"


@pytest.mark.parametrize(
    ("cores", "wanted", "given"),
    [(1, 0, 1), (2, 0, 2), (2, 1, 1), (1, 2, 2), (3, 0, 2)],  # three do not share two levels evenly
)
def test_every_core_is_a_device_as_far_as_the_levels_can_be_shared(cores, wanted, given, monkeypatch):
    monkeypatch.setattr(flags, "core_count", lambda: cores)
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


@pytest.mark.parametrize(
    ("version", "is_set"),
    [("0.7.2", False), ("0.8.0", True), ("0.10.2", True), ("0.11.0", False), ("x", False)],
)
def test_xla_gets_no_flag_that_it_may_not_know(version, is_set, monkeypatch):
    """It would end the process, with a message about flags that no user has set."""
    monkeypatch.setattr(flags.metadata, "version", lambda _: version)
    monkeypatch.setenv("XLA_FLAGS", "")
    show_devices(1, "--xla_cpu_use_fusion_emitters=false")
    assert ("fusion_emitters" in os.environ["XLA_FLAGS"]) == is_set


def test_cores_are_counted_where_the_system_tells_no_affinity(monkeypatch):
    """As on macOS, where `cenie train` would have ended in a traceback."""
    monkeypatch.delattr(os, "sched_getaffinity")
    assert visible_cores() == os.cpu_count()


@pytest.mark.parametrize(("given", "level"), [(None, "3"), ("0", "0")])
def test_xla_does_not_cry_of_slow_compiles_unless_asked_to(given, level, monkeypatch):
    """It has no flag for that alone; fatal errors are still written at level 3."""
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=4")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
    prepare_devices(tiny("dr"))
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == level


def control_group(root, membership, files):
    """A file system in which this process is in a control group with these limits."""
    for name, text in {"proc/self/cgroup": membership, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def version_1(group, quota, period):
    folder = f"sys/fs/cgroup/cpu{group}"
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


IN_BOX = "4:memory:/box\n3:cpu,cpuacct:/box\n"
QUOTAS = {
    "version 2": ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, [1.5]),
    "version 2, no limit": ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, []),
    "version 2, the group above has less": (
        "0::/a/b\n",
        {"sys/fs/cgroup/a/b/cpu.max": "800000 100000", "sys/fs/cgroup/a/cpu.max": "50000 100000"},
        [8.0, 0.5],
    ),
    "version 1": (IN_BOX, version_1("/box", "300000\n", "100000\n"), [3.0]),
    "version 1, named by the host": (IN_BOX, version_1("", "300000", "200000"), [1.5]),
    "version 1, no limit": (IN_BOX, version_1("/box", "-1", "100000"), []),
    "nonsense": ("what\n\n0::/\n", {"sys/fs/cgroup/cpu.max": "100000 0"}, []),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_limits_of_cpu_time_are_found(case, tmp_path):
    membership, files, expected = QUOTAS[case]
    assert list(cpu_quotas(control_group(tmp_path, membership, files))) == expected


def test_a_system_without_control_groups_has_no_limits(tmp_path):
    assert list(cpu_quotas(tmp_path)) == []


@pytest.mark.parametrize(("quotas", "cores"), [([], 8), ([1.5], 2), ([4.0, 0.2], 1), ([64.0], 8)])
def test_a_container_uses_the_cores_it_is_given(quotas, cores, monkeypatch):
    monkeypatch.setattr(flags, "visible_cores", lambda: 8)
    monkeypatch.setattr(flags, "cpu_quotas", lambda: iter(quotas))
    assert core_count() == cores


SIX = {"student__num_levels": 12, "student__ppo__minibatches": 2}


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
    monkeypatch.setattr(flags, "core_count", lambda: cores)
    lines = list(unused_devices(tiny("dr", **settings), found, are_cores=are_cores))
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected))
