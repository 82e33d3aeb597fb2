"""One writer per run directory, atomic small files, and configs that are compared by content."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenie.rundir.files import (
    RunDirectory,
    RunDirectoryError,
    differing_settings,
    free_name,
    read_json,
    write_json,
)
from cenie.system.durable import WriteError

HOLDER = """
import sys, time
from pathlib import Path
from cenie.rundir.files import RunDirectory
with RunDirectory(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that holds the lock of `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_and_told_who_holds_the_lock(tmp_path: Path, holder) -> None:
    expected = f"is in use by process {holder.pid} on {socket.gethostname()}; wait for it"
    with pytest.raises(RunDirectoryError, match=expected), RunDirectory(tmp_path).lock():
        pytest.fail("two writers")
    assert json.loads((tmp_path / "lock").read_text())["pid"] == holder.pid


def test_the_lock_of_a_killed_process_is_taken_over_with_a_note(tmp_path: Path, holder) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with RunDirectory(tmp_path).lock() as note:
        assert note is not None
        assert f"process {holder.pid} on {socket.gethostname()} ended without releasing" in note
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_a_released_lock_leaves_no_note(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "new" / "run")
    for _ in range(2):
        with directory.lock() as note:
            assert note is None
    with pytest.raises(KeyError), directory.lock():
        raise KeyError("a failing run releases its lock as well")
    with directory.lock() as note:
        assert note is None


def test_the_same_process_cannot_lock_twice(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    with directory.lock():
        with pytest.raises(RunDirectoryError, match=f"process {os.getpid()}"), directory.lock():
            pytest.fail("two writers")
        assert json.loads(directory.lock_file.read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{}", b"[" * 500, b'{"pid": "x", "host": 1}', b"null"])
def test_a_lock_file_with_strange_content_is_taken_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lock").write_bytes(content)
    (tmp_path / "config.json").touch()
    with RunDirectory(tmp_path).lock() as note:
        assert note is not None
        assert "an unknown process ended without releasing" in note


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "config.json").touch()
    (tmp_path / "lock").symlink_to(victim)
    with pytest.raises(RunDirectoryError, match="symbolic links"), RunDirectory(tmp_path).lock():
        pytest.fail("locked through a link")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_no_file_is_refused(tmp_path: Path, make) -> None:
    """A pipe gave a traceback, or waited for its other end."""
    make(tmp_path / "lock")
    reason = "cannot write .*lock: (not a regular file|Is a directory)"
    with pytest.raises(RunDirectoryError, match=reason), RunDirectory(tmp_path).lock():
        pytest.fail("locked")


def test_a_lock_that_cannot_be_emptied_at_the_end_does_not_hide_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.EROFS, "refused")

    with RunDirectory(tmp_path).lock():
        monkeypatch.setattr(os, "ftruncate", refuse)


def test_taking_the_lock_sweeps_unfinished_files_only(tmp_path: Path) -> None:
    """Of names that begin like these, only those that a writer gives."""
    mine = ["tmp-backup-2025", "tmp-notes.txt", "tmp-notes.txt-1", "tmp-summary.json"]
    for name in ("tmp-summary.json-1", "tmp-config.json-77", "tmp-metrics.jsonl-8", "config.json", *mine):
        (tmp_path / name).write_text("{}")
    with RunDirectory(tmp_path).lock():
        assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "lock", *mine]


def test_a_path_with_a_zero_byte_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="embedded null byte"):
        read_json(tmp_path / "a\0b")


# A directory that is free, a run's own, or somebody's


def test_a_run_may_begin_where_nothing_is_or_only_a_beginning_of_its_own(tmp_path: Path) -> None:
    RunDirectory(tmp_path / "new").check_free()
    assert not (tmp_path / "new").exists()
    RunDirectory(tmp_path).check_free()
    for content in ("", '{"pid": 1, "host": "somewhere"}'):
        (tmp_path / "lock").write_text(content)
        (tmp_path / "tmp-config.json-77").write_text("{")
        RunDirectory(tmp_path).check_free()
        with RunDirectory(tmp_path).lock():
            assert [path.name for path in tmp_path.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "summary.json", "tmp-summary.json-1", "checkpoints/step-00000001/a", "x"]
)
def test_what_no_run_has_made_is_named_and_stays(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("precious")
    reason = f"holds {name.split('/')[0]}, and no run: a new run needs a directory of its own"
    with pytest.raises(RunDirectoryError, match=reason), RunDirectory(tmp_path).lock():
        pytest.fail("locked")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "precious"


@pytest.mark.parametrize("content", ["precious", "{}", "\n" * 300 + "precious"])
def test_a_lock_that_no_run_has_made_stays(tmp_path: Path, content: str) -> None:
    (tmp_path / "lock").write_text(content)
    with pytest.raises(RunDirectoryError, match="holds lock, and no run"), RunDirectory(tmp_path).lock():
        pytest.fail("locked")
    assert (tmp_path / "lock").read_text() == content


def test_many_files_are_counted(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(RunDirectoryError, match=r"holds 0.txt, 1.txt, 2.txt and 4 more, and no run"):
        RunDirectory(tmp_path).check_free()


def test_who_uses_a_directory_is_known_without_taking_the_lock(tmp_path: Path, holder) -> None:
    directory = RunDirectory(tmp_path)
    assert directory.in_use_by() == f"process {holder.pid} on {socket.gethostname()}"
    holder.kill()
    holder.wait()
    assert directory.in_use_by() is None
    assert RunDirectory(tmp_path / "nowhere").in_use_by() is None
    with directory.lock():
        assert directory.in_use_by() == f"process {os.getpid()} on {socket.gethostname()}"
    assert directory.in_use_by() is None


def test_a_directory_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunDirectoryError, match=r"cannot create .*file"):
            RunDirectory(path).create()


def test_a_read_only_directory_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system call is replaced, because the superuser may write everywhere."""

    def refuse(*args: object, **options: object) -> int:
        raise OSError(errno.EROFS, "refused")

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(WriteError, match=r"lock: Read-only file system \(EROFS\)"),
        RunDirectory(tmp_path).lock(),
    ):
        pytest.fail("locked")
    with pytest.raises(WriteError, match=r"config.json: Read-only file system \(EROFS\)"):
        write_json(tmp_path / "config.json", {})


def test_the_files_of_a_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    files = (
        run.config,
        run.metrics,
        run.timing,
        run.evaluations,
        run.levels,
        run.snapshots,
        run.summary,
        run.checkpoints,
        run.lock_file,
    )
    assert {path.parent for path in files} == {tmp_path}
    assert [path.name for path in files] == [
        "config.json",
        "metrics.jsonl",
        "timing.jsonl",
        "evaluations.csv",
        "levels.csv",
        "snapshots",
        "summary.json",
        "checkpoints",
        "lock",
    ]


# Small files


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain.filter(lambda data: "\\ud" not in json.dumps(data)))
def test_plain_data_comes_back_the_same(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    path = tmp_path_factory.mktemp("json") / "data.json"
    write_json(path, data)
    assert read_json(path) == data
    assert [file.name for file in path.parent.iterdir()] == ["data.json"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_are_refused_and_the_old_file_stays(
    tmp_path: Path, number: float
) -> None:
    path = tmp_path / "data.json"
    write_json(path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": number})
    assert read_json(path) == 1


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_refused_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "data.json"
    write_json(path, "old")

    def refuse(*args: object, **options: object) -> int:
        raise OSError(errno.ENOSPC, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(WriteError, match=r"data.json: No space left on device \(ENOSPC\)"):
            write_json(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["data.json"]
    assert read_json(path) == "old"


def test_one_call_to_write_may_write_only_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: original(descriptor, content[:3]))
    write_json(tmp_path / "data.json", list(range(50)))
    assert read_json(tmp_path / "data.json") == list(range(50))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b"-Infinity", "-Infinity is not a number in JSON"),
        (b"\xff\xfe\x00", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (bytes(17 * 2**20), "File too large"),
    ],
)
def test_files_that_are_not_json_are_explained(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"config\.json") as caught:
        read_json(path)
    assert reason in str(caught.value)


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"cannot read .*config.json: No such file"):
        read_json(tmp_path / "config.json")


def test_free_names_count_up_and_see_broken_links(tmp_path: Path) -> None:
    base = tmp_path / "maze-dr"
    assert free_name(base) == base
    base.mkdir()
    (tmp_path / "maze-dr-2").symlink_to(tmp_path / "nowhere")
    assert free_name(base) == tmp_path / "maze-dr-3"


# Configs


CONFIG = {"seed": 1, "student": {"ppo": {"clip": 0.2, "epochs": 4}, "width": 32}, "run": {"sinks": []}}


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (CONFIG | {"seed": 2}, "seed: 1 in the saved run, 2 now"),
        (CONFIG | {"seed": 1.0}, "seed: 1 in the saved run, 1.0 now"),
        (CONFIG | {"seed": True}, "seed: 1 in the saved run, true now"),
        (CONFIG | {"new": None}, "new: not set in the saved run, null now"),
        (CONFIG | {"run": {"sinks": ["wandb"]}}, 'run.sinks: [] in the saved run, ["wandb"] now'),
        (CONFIG | {"run": {}}, "run.sinks: [] in the saved run, not set now"),
    ],
)
def test_each_difference_is_named(changed: dict, line: str) -> None:
    assert line in differing_settings(CONFIG, changed)


def test_ignored_settings_and_groups_do_not_count() -> None:
    changed = {"seed": 1, "student": {"ppo": {"clip": 0.3}, "width": 32}, "run": {"sinks": [], "extra": 1}}
    ignore = ("student.ppo", "run")
    assert differing_settings(CONFIG, changed, iter(ignore)) == []
    assert len(differing_settings(CONFIG, changed, ["student.pp", "run"])) == 2


@given(plain)
def test_what_was_written_and_read_differs_in_nothing(saved: object) -> None:
    assert differing_settings(saved, json.loads(json.dumps(saved))) == []


def test_the_order_of_keys_inside_lists_does_not_count() -> None:
    saved, now = [{"a": 1, "b": 2}], [{"b": 2, "a": 1}]
    assert differing_settings(saved, now) == []


def test_only_the_named_settings_are_compared() -> None:
    changed = {"seed": 2, "student": {"ppo": {"clip": 0.3, "epochs": 4}, "width": 32}, "run": {"sinks": []}}
    assert differing_settings(CONFIG, changed, only=["student.ppo"]) == [
        "student.ppo.clip: 0.2 in the saved run, 0.3 now"
    ]
    assert differing_settings(CONFIG, changed, only=["run", "student.width"]) == []


def test_half_a_surrogate_pair_is_written_as_its_escape(tmp_path: Path) -> None:
    """UTF-8 cannot hold it, and a config.json can name it."""
    write_json(tmp_path / "data.json", {"preset": "\ud800"})
    assert read_json(tmp_path / "data.json") == {"preset": "\ud800"}
