"""Compiled programs on disk: found again, never in the way."""

import ctypes
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from cenie import Teacher
from cenie.novelty import Coverage
from cenie.novelty import estimator as estimator_module
from cenie.xla import cache as xla_cache
from cenie.xla.cache import cache_directory, give_back_memory, kept_programs, unusable_cache, without_alarm


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """JAX without a cache of its own, which would keep everything; and where ours would be."""
    before = {
        name: getattr(jax.config, name)
        for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    }
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compilation_cache.reset_cache()
    monkeypatch.setenv("CENIE_CACHE_DIR", str(tmp_path / "kept"))
    xla_cache._ready.cache_clear()
    directory = cache_directory(os.environ)
    assert directory is not None
    yield directory
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    xla_cache._ready.cache_clear()


def compute() -> float:
    """Compiles the same program each time, as a new process would."""
    return float(jax.jit(lambda x: (x * 3.0).sum())(np.arange(5.0, dtype=np.float32)))


class Hits:
    """How many programs were found while this was listening."""

    def __enter__(self) -> list[str]:
        self.events: list[str] = []
        jax.monitoring.register_event_listener(self._listen)
        return self.events

    def __exit__(self, *_: object) -> None:
        jax.monitoring.unregister_event_listener(self._listen)

    def _listen(self, event: str, **_: object) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            self.events.append(event)


def test_a_program_is_kept_and_found_again(cache: Path):
    with kept_programs():
        assert compute() == 30.0
    assert [path.name[:4] for path in cache.iterdir()] == ["jit_"]
    assert cache.stat().st_mode & 0o777 == 0o700
    with Hits() as hits, kept_programs():
        assert compute() == 30.0
    assert len(hits) == 1


def test_jax_is_afterwards_as_it_was_before(cache: Path):
    with kept_programs():
        compute()
    kept = list(cache.iterdir())
    assert jax.config.jax_compilation_cache_dir is None
    jax.jit(lambda x: x + 7.0)(np.arange(3.0))
    assert list(cache.iterdir()) == kept


def test_the_cache_of_the_user_is_left_alone(cache: Path, tmp_path: Path):
    theirs = tmp_path / "theirs"
    jax.config.update("jax_compilation_cache_dir", str(theirs))
    with kept_programs():
        compute()
        assert jax.config.jax_compilation_cache_dir == str(theirs)
    assert jax.config.jax_compilation_cache_dir == str(theirs)
    assert len(list(theirs.iterdir())) == 1
    assert not cache.exists()


def test_a_cache_that_the_user_has_switched_off_stays_off(cache: Path):
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        with kept_programs():
            compute()
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert not cache.exists()


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"x" * 99]
)
def test_a_damaged_program_is_compiled_again(cache: Path, damage):
    """Also where warnings are errors; and the next run replaces what JAX itself would never write over."""
    with kept_programs():
        compute()
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Hits() as hits, kept_programs():
            assert compute() == 30.0
    assert hits == []


def test_a_program_that_was_not_written_to_its_end_is_replaced_by_the_next_run(cache: Path):
    with kept_programs():
        compute()
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    xla_cache._ready.cache_clear()  # a new process
    with kept_programs():
        compute()
    with Hits() as hits, kept_programs():
        compute()
    assert len(hits) == 1


def test_the_oldest_programs_go_when_there_are_too_many(cache: Path, monkeypatch: pytest.MonkeyPatch):
    cache.mkdir(parents=True, mode=0o700)
    for age, name in enumerate(("new-cache", "old-cache", "oldest-cache")):
        (cache / name).write_bytes(b"(" * 100)
        os.utime(cache / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(xla_cache, "LARGEST", 250)
    with kept_programs():
        pass
    assert {path.name for path in cache.iterdir()} == {"new-cache", "old-cache"}


def a_file(path: Path):
    path.parent.mkdir(parents=True)
    path.write_text("")


def open_to_all(path: Path):
    path.mkdir(parents=True)
    path.chmod(0o777)


def a_link(path: Path):
    path.parent.mkdir(parents=True)
    (path.parent / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [a_file, open_to_all, a_link])
def test_a_directory_that_cannot_be_trusted_is_not_used(cache: Path, spoil):
    spoil(cache)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with kept_programs():
            assert jax.config.jax_compilation_cache_dir is None
            assert compute() == 30.0


@pytest.mark.parametrize("place", ["file/below", "open/below", "open/below/further", "x" * 300, "x" * 5000])
def test_parents_that_cannot_hold_it_keep_nothing_and_one_sentence_says_so(
    place: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a directory that everybody can write to, anybody could put programs of their own in its place."""
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("CENIE_CACHE_DIR", str(tmp_path / place))
    with kept_programs() as directory:
        assert compute() == 30.0
    assert directory is None
    message = unusable_cache(os.environ)
    assert message is not None
    assert "where compiled programs cannot be kept" in message
    assert not any((tmp_path / "open").iterdir())


def test_parents_that_are_not_there_are_made(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)  # as /tmp
    monkeypatch.setenv("CENIE_CACHE_DIR", str(tmp_path / "open/a/b/c"))
    with kept_programs() as directory:
        assert directory is not None
        assert directory.is_dir()
    assert unusable_cache(os.environ) is None
    monkeypatch.setenv("CENIE_CACHE_DIR", "off")
    assert unusable_cache(os.environ) is None
    monkeypatch.delenv("CENIE_CACHE_DIR")
    assert unusable_cache(os.environ) is None


def test_a_present_directory_that_is_gone_is_no_traceback(monkeypatch: pytest.MonkeyPatch):
    def gone() -> str:
        raise FileNotFoundError(2, "gone")

    monkeypatch.setattr(os, "getcwd", gone)
    assert cache_directory({"CENIE_CACHE_DIR": "programs"}) is None


def test_where_programs_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))

    def parent(**environment: str) -> str:
        directory = cache_directory(environment)
        assert directory is not None
        assert directory.name.startswith("xla-")
        return str(directory.parent)

    assert parent() == parent(XDG_CACHE_HOME="relative") == "/home/me/.cache/cenie"
    assert parent(XDG_CACHE_HOME="/var/me") == "/var/me/cenie"
    assert parent(CENIE_CACHE_DIR="/fast/disk", XDG_CACHE_HOME="/var/me") == "/fast/disk"
    assert parent(CENIE_CACHE_DIR="here") == str(Path("here").absolute())
    assert cache_directory({"CENIE_CACHE_DIR": "off"}) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert parent() == "/home/me/Library/Caches/cenie"


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch):
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    assert cache_directory({}) is None


def test_another_number_of_cores_is_another_machine(monkeypatch: pytest.MonkeyPatch):
    """What is compiled depends on it, and with it the last bits of a run."""
    names = set()
    for cores in (1, 2):
        xla_cache._machine.cache_clear()
        monkeypatch.setattr(xla_cache, "visible_cores", lambda cores=cores: cores)
        names.add(xla_cache._machine())
    xla_cache._machine.cache_clear()
    assert len(names) == 2


def test_a_teacher_keeps_its_programs(cache: Path):
    teacher = Teacher(
        generate=lambda rng: rng.random(3), num_levels=2, settings={"replay.capacity": 7}, gamma=0.123
    )
    teacher.ask()
    one = [[0.0]] * 2
    teacher.tell(reward=one, value=one, terminated=[[True]] * 2, truncated=[[False]] * 2)
    kept = {path.name.split("-")[0] for path in cache.iterdir()}
    assert {"jit_ask", "jit__locate", "jit__score", "jit__store_and_learn"} <= kept
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other library can be asked to")
def test_bug_a_coverage_compiled_anew_in_every_process(cache: Path):
    rng = np.random.default_rng(0)
    estimator = Coverage(components=(2, 3), reg=0.0123).fit(rng.normal(size=(40, 2)))
    estimator.novelty(rng.normal(size=(5, 2)))
    kept = set(cache.iterdir())
    assert {"jit__fit", "jit_log_density"} <= {path.name.split("-")[0] for path in kept}
    compute()
    assert set(cache.iterdir()) == kept  # the user's own programs are not
    jax.clear_caches()
    estimator_module._prepared.clear()  # a new process
    with Hits() as hits:
        estimator.fit(rng.normal(size=(40, 2)))
    assert hits


def test_the_alarm_of_slow_compiling_is_off_inside_and_on_again_afterwards(monkeypatch: pytest.MonkeyPatch):
    """Tried with a program that takes three minutes: XLA would cry "Very slow compile?" after two."""
    levels = []
    monkeypatch.setattr("jaxlib.utils.absl_set_min_log_level", levels.append)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    with without_alarm():
        assert levels == [3]
    for given, after in (("0", 0), ("3", 3), ("much", 1)):
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", given)
        with pytest.raises(KeyError), without_alarm():
            raise KeyError
        assert levels[-2:] == [3, after]
    assert levels[:2] == [3, 1]
    monkeypatch.setattr(estimator_module, "_prepared", set())
    Coverage(components=(2, 3), reg=0.0321).fit(np.random.default_rng(0).normal(size=(40, 2)))
    assert levels[-2:] == [3, 1]
    monkeypatch.delattr("jaxlib.utils.absl_set_min_log_level")
    with without_alarm():
        pass


def test_what_was_freed_goes_back_to_the_system():
    """Blocks below the size that gets pages of its own, under a last one that is not freed."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    size, number = 1 << 16, 2000
    blocks = [library.malloc(size) for _ in range(number)]
    for block in blocks:
        ctypes.memset(block, 1, size)
    for block in blocks[:-1]:
        library.free(block)
    held = resident()
    give_back_memory()
    assert held - resident() > number * size / 2
    library.free(blocks[-1])


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_system_without_such_a_call_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    give_back_memory()


def test_a_program_is_looked_through_once(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Each start would unpack all that was ever kept."""
    looked_at = []
    monkeypatch.setattr(xla_cache, "_is_damaged", lambda path: looked_at.append(path))
    with kept_programs():
        compute()
    for _ in range(2):
        xla_cache._ready.cache_clear()  # a new process
        with kept_programs():
            compute()
    assert looked_at == list(cache.iterdir())
