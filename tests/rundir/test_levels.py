"""Records of a run: what is written comes back, is bounded, is cut on resume, and damage is named."""

import dataclasses
import io
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenie.experiment.build import build
from cenie.replay.play import EDIT, NEW, REPLAY
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.levels import KINDS, LevelTable, is_recorded, read_levels
from cenie.rundir.snapshot_arrays import levels_of_snapshot, snapshot_arrays
from cenie.rundir.snapshots import Snapshots, cut_snapshots, read_snapshot, snapshots_of
from cenie.rundir.tables import cut_after
from cenie.system.durable import WriteError
from cenie.teach.cycle import init
from tests.tiny import tiny


def columns(cycles: int, students: int = 2, levels: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(cycles)
    shape = cycles, students, levels
    return {
        "level/open": rng.random(shape) < 0.5,
        "level/area": rng.integers(0, 2**31 - 1, shape, np.int32),
        "length": np.full(shape, np.nan, np.float32),
        "id": rng.integers(-1, 99, shape, np.int32),
        "kind": rng.integers(0, 3, shape, np.int32),
        "regret": rng.standard_normal(shape).astype(np.float32) * np.float32(1e-20),
    }


def test_the_numbers_of_kinds_are_those_of_the_teacher() -> None:
    assert (KINDS[NEW], KINDS[REPLAY], KINDS[EDIT]) == ("new", "replay", "edit")


def test_levels_come_back_with_every_bit(tmp_path: Path) -> None:
    path, given = tmp_path / "levels.csv", columns(4)
    table = LevelTable(path)
    table.write([7, 9], {name: values[:2] for name, values in given.items()})
    table.write([10, 12], {name: values[2:] for name, values in given.items()})
    header = path.read_text().splitlines()[0]
    assert header == "cycle,student,index,kind,id,regret,length,level/area,level/open"
    found = read_levels(path)
    assert table.rows == table.found() == 4 * 2 * 3
    assert found["cycle"].tolist() == np.repeat([7, 9, 10, 12], 6).tolist()
    assert found["student"].tolist() == [0, 0, 0, 1, 1, 1] * 4
    assert found["index"].tolist() == [0, 1, 2] * 8
    assert found["kind"].tolist() == [KINDS[kind] for kind in given["kind"].ravel()]
    for name in given.keys() - {"kind"}:
        np.testing.assert_array_equal(found[name].astype(given[name].dtype), given[name].ravel(), name)
    # By NumPy alone.
    rows = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8", deletechars="")
    np.testing.assert_array_equal(rows["level/area"], found["level/area"])


def test_a_table_is_not_continued_with_other_columns(tmp_path: Path) -> None:
    table = LevelTable(tmp_path / "levels.csv")
    table.write([1], columns(1))
    other = {name: values for name, values in columns(1).items() if name != "level/open"}
    with pytest.raises(RunDirectoryError, match="has other columns than this run"):
        table.write([2], other)


def test_cut_levels_have_the_bytes_of_before_wherever_a_kill_tore_them(tmp_path: Path) -> None:
    path = tmp_path / "levels.csv"
    LevelTable(path).write([1], columns(1))
    before = path.read_bytes()
    LevelTable(path).write([2, 10], columns(2))
    whole = path.read_bytes()
    for end in range(len(before), len(whole) + 1):
        path.write_bytes(whole[:end])
        cut_after(path, 1)
        assert path.read_bytes() == before
    for end in range(1, before.index(b"\n")):
        path.write_bytes(before[:end])
        cut_after(path, 1)
        LevelTable(path).write([1], columns(1))
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace("cycle,", "circle,", 1), "does not name the columns"),
        (lambda text: text.replace("nan", "none", 1), "none"),
        (lambda text: text.replace(",nan", "", 1), "columns"),
        (lambda text: "", "does not name the columns"),
    ],
)
def test_damaged_levels_are_refused_with_the_reason(tmp_path: Path, damage, reason: str) -> None:
    path = tmp_path / "levels.csv"
    LevelTable(path).write([1, 2], columns(2))
    path.write_text(damage(path.read_text()))
    with pytest.raises(RunDirectoryError, match=rf"levels.csv is damaged: .*{reason}"):
        read_levels(path)


def test_a_line_that_is_being_written_is_left_out_and_no_rows_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "levels.csv"
    assert read_levels(path) == {}
    LevelTable(path).write([1], columns(1))
    content = path.read_bytes()
    path.write_bytes(content + b"2,0,0,repl")
    assert len(read_levels(path)["cycle"]) == 6
    path.write_bytes(content[: content.index(b"\n") + 1])
    assert read_levels(path)["level/area"].shape == (0,)


# How much is recorded


@given(st.sampled_from([1, 2, 7, 60, 100]), st.integers(1, 2000))
def test_records_are_bounded_and_the_first_are_complete(full: int, count: int) -> None:
    kept = [number for number in range(1, count + 1) if is_recorded(number, full)]
    assert kept[:full] == list(range(1, min(full, count) + 1))
    doublings = max(0.0, np.log2(count / full))
    # Groups that the end of a stretch cuts may lose or add one record each.
    assert len(kept) <= full * (1 + np.ceil(doublings) / 2) + np.ceil(doublings) + 1
    assert len(kept) >= min(count, full * (1 + np.floor(doublings) / 2) - np.ceil(doublings) - 1)


def test_thinning_keeps_odd_and_even_cycles_alike() -> None:
    late = [number for number in range(1000, 2000) if is_recorded(number, 1000)]
    assert len(late) == pytest.approx(500, abs=2)
    assert 200 < sum(number % 2 for number in late) < 300
    assert not any(is_recorded(number, 0) for number in range(9))


# Snapshots


def arrays(cycle: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(cycle)
    return {
        "cycle": np.asarray(cycle),
        "updates": np.asarray(cycle // 2),
        "points/values": rng.random((4, 3), np.float32),
        "buffer/levels/wall_map": rng.random((2, 5, 5)) < 0.5,
        "buffer/id": np.arange(2, dtype=np.int32),
        "buffer1/id": np.arange(0, dtype=np.int32),
    }


def test_a_snapshot_comes_back_also_by_numpy_alone(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    for cycle in (10, 9):
        snapshots.write(cycle, arrays(cycle))
    assert snapshots.rows == snapshots.found() == 2
    files = snapshots_of(tmp_path / "snapshots")
    assert list(files) == [9, 10]
    found, wanted = read_snapshot(files[9]), arrays(9)
    assert (found.cycle, found.updates, len(found.buffers)) == (9, 4, 2)
    np.testing.assert_array_equal(found.points["values"], wanted["points/values"], strict=True)
    walls = wanted["buffer/levels/wall_map"]
    np.testing.assert_array_equal(found.buffers[0]["levels/wall_map"], walls, strict=True)
    assert found.buffers[1]["id"].shape == (0,)
    with np.load(files[9]) as plain:
        assert plain.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(plain[name], array, strict=True)


def test_the_same_snapshot_has_the_same_bytes_and_late_ones_are_cut(tmp_path: Path) -> None:
    directory = tmp_path / "snapshots"
    cut_snapshots(directory, 3)
    snapshots = Snapshots(directory)
    for cycle in (3, 5, 8):
        snapshots.write(cycle, arrays(cycle))
    before = snapshots_of(directory)[5].read_bytes()
    (directory / "tmp-cycle-00000009.npz-123").write_bytes(b"half")
    (directory / "notes.txt").write_text("of the user")
    cut_snapshots(directory, 3)
    assert sorted(path.name for path in directory.iterdir()) == ["cycle-00000003.npz", "notes.txt"]
    again = Snapshots(directory)
    again.write(5, arrays(5))
    assert again.rows == 2
    assert snapshots_of(directory)[5].read_bytes() == before


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("cycle.npy", content)
    return file.getvalue()


def forged(header: str) -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return zipped(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


def objects() -> bytes:
    file = io.BytesIO()
    np.savez(file, cycle=np.asarray([{"a": 1}], object))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK nonsense",
        zipped(b""),
        zipped(b"nonsense"),
        forged("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"),
        forged("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"),
        forged("{'descr': '|V4', 'fortran_order': False, 'shape': (0,), }"),
        forged("__import__('os')"),
        objects(),
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cycle-00000001.npz"
    path.write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"cycle-00000001.npz is not a snapshot that can be read: ."):
        read_snapshot(path)


def test_every_flipped_or_missing_part_of_a_snapshot_is_noticed(tmp_path: Path) -> None:
    snapshots = Snapshots(tmp_path / "snapshots")
    snapshots.write(9, arrays(9))
    path = snapshots_of(tmp_path / "snapshots")[9]
    content = path.read_bytes()
    wanted = arrays(9)
    noticed = 0
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            found = read_snapshot(path)
        except RunDirectoryError:
            noticed += 1
            continue
        # Bytes that mean nothing, such as dates, or names of arrays: the numbers themselves are right.
        for name, array in found.buffers[0].items() if found.buffers else ():
            if f"buffer/{name}" in wanted:
                np.testing.assert_array_equal(array, wanted[f"buffer/{name}"])
    assert noticed > len(content) / 3 / 2
    path.write_bytes(content[:-30])
    with pytest.raises(RunDirectoryError, match="not a snapshot"):
        read_snapshot(path)
    path.write_bytes(content)
    path.rename(path.with_name("cycle-00000010.npz"))
    with pytest.raises(RunDirectoryError, match="it is of cycle 9"):
        read_snapshot(path.with_name("cycle-00000010.npz"))


def test_links_and_files_in_the_place_of_the_directory_are_refused(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "snapshots", tmp_path / "elsewhere"
    Snapshots(elsewhere).write(5, arrays(5))
    directory.symlink_to(elsewhere)
    (elsewhere / "tmp-cycle-00000009.npz-1").write_text("was removed through the link")
    with pytest.raises(RunDirectoryError, match=r"cannot read .*snapshots"):
        cut_snapshots(directory, 0)
    assert list(snapshots_of(elsewhere)) == [5]
    assert (elsewhere / "tmp-cycle-00000009.npz-1").exists()
    directory.unlink()
    snapshots = Snapshots(directory)
    directory.write_text("a file")
    with pytest.raises(WriteError, match=r"cannot create .*snapshots"):
        snapshots.write(1, arrays(1))
    with pytest.raises(RunDirectoryError, match=r"cannot read .*snapshots"):
        Snapshots(directory)


def test_python_objects_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds Python objects"):
        Snapshots(tmp_path / "snapshots").write(1, {"a": np.asarray([{}], object)})


def test_a_snapshot_of_a_level_that_is_one_array_and_of_strange_numbers(tmp_path: Path) -> None:
    """bfloat16 is not a type of NumPy: it would come back as raw bytes."""
    _, setup = build(tiny("plr"))
    state = init(setup, 0).teacher
    assert state.buffer is not None
    level = jax.numpy.arange(12, dtype=jax.numpy.bfloat16)
    buffer = dataclasses.replace(state.buffer, levels=level, size=jax.numpy.asarray(5))
    changed = dataclasses.replace(state, buffers=(buffer,))
    found = snapshot_arrays(setup, changed, None)
    Snapshots(tmp_path).write(1, found | {"cycle": np.asarray(1), "updates": np.asarray(1)})
    (kept,) = read_snapshot(tmp_path / "cycle-00000001.npz").buffers
    np.testing.assert_array_equal(levels_of_snapshot(kept, level[0]), np.arange(5))
