"""The devices that a run is given."""

import os

import pytest

from cenie.xla import flags
from cenie.xla.flags import core_count, cpu_quotas, show_devices, visible_cores

FLAG = "--xla_force_host_platform_device_count"


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
