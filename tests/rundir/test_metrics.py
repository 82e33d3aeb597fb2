"""Tables grow by whole batches, and a resumed run leaves the bytes of an uninterrupted one."""

import errno
import json
import os
import resource
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cenie.experiment.rows import EvaluationRow
from cenie.rundir.evaluations import (
    EVALUATION_COLUMNS,
    Episodes,
    Evaluation,
    EvaluationTable,
    check_format,
    episodes_of,
    read_evaluations,
)
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.metrics import JsonLines, column_names, last_row, read_curves, read_metrics
from cenie.rundir.tables import cut_after
from cenie.system.durable import WriteError


def metrics_row(cycle: int) -> dict[str, object]:
    return {"cycle": cycle, "loss": cycle / 3, "name": "größe"}


def episode(number: int, level: str = "maze, 'large'") -> EvaluationRow:
    return EvaluationRow("test", level, "plain", number, number / 7, number % 2 == 0, number / 3, 10 + number)


def write_metrics(path: Path, cycles: range) -> None:
    table = JsonLines(path)
    for cycle in cycles:
        table.write([metrics_row(cycle)])


def write_evaluations_of(path: Path, cycles: range) -> None:
    table = EvaluationTable(path)
    for cycle in cycles:
        table.write(cycle, cycle // 2, cycle * 100, [episode(number) for number in range(3)])


WRITERS = {"metrics.jsonl": write_metrics, "evaluations.csv": write_evaluations_of}


def test_rows_are_strict_json_with_null_for_what_json_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    nested = {"list": [1.5, float("nan")], "array": np.asarray([1.0, np.inf])}
    JsonLines(path).write(
        [
            {"cycle": 1, "nan": float("nan"), "inf": -np.inf, "count": np.int32(3), "flag": np.bool_(True)},
            {
                "cycle": np.int64(2),
                "jax": jnp.float32(0.5),
                "nested": nested,
                "text": "a\nb",
                "none": None,
            },
        ]
    )
    JsonLines(path).write([])
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines())
    assert first == {"cycle": 1, "nan": None, "inf": None, "count": 3, "flag": True}
    expected = {"list": [1.5, None], "array": [1.0, None]}
    assert second == {"cycle": 2, "jax": 0.5, "nested": expected, "text": "a\nb", "none": None}


@pytest.mark.parametrize("row", [{}, {"cycle": 1.0}, {"cycle": True}, {"cycle": None}])
def test_a_row_needs_a_cycle_and_a_bad_batch_leaves_no_row(tmp_path: Path, row: dict) -> None:
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(ValueError, match="needs a whole number 'cycle'"):
        JsonLines(path).write([metrics_row(1), row])
    assert not path.exists()


def test_evaluations_have_the_documented_columns(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    EvaluationTable(path).write(5, 2, 640, [episode(1)])
    header, row = path.read_text().splitlines()
    assert header == "cycle,updates,env_steps,suite,level,variant,episode,return,solved,score,length"
    assert header == ",".join(EVALUATION_COLUMNS)
    assert row == "5,2,640,test,\"maze, 'large'\",plain,1,0.14285714285714285,0,0.3333333333333333,11"


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), max_size=8)
episodes = st.builds(
    EvaluationRow,
    names,
    names,
    names,
    st.integers(0, 99),
    st.floats(allow_nan=False),
    st.booleans(),
    st.floats(allow_nan=False),
    st.integers(1, 9999),
)


@given(st.lists(episodes, max_size=4))
def test_evaluations_come_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[EvaluationRow]
) -> None:
    path = tmp_path_factory.mktemp("table") / "evaluations.csv"
    EvaluationTable(path).write(3, 2, 1, rows)
    EvaluationTable(path).write(4, 2, 1, rows)
    assert as_rows(read_evaluations(path)) == [(3, row) for row in rows] + [(4, row) for row in rows]
    assert as_rows(episodes_of([Evaluation(3, 2, 1, rows)])) == [(3, row) for row in rows]
    assert cut_after(path, 3) == len(rows)
    assert as_rows(read_evaluations(path)) == [(3, row) for row in rows]


def as_rows(found: Episodes) -> list[tuple[int, EvaluationRow]]:
    """The episodes as they were written, with their cycles."""
    names = ("cycle", "suite", "level", "variant", "episode", "returns", "solved", "score", "length")
    columns = zip(*(getattr(found, name).tolist() for name in names), strict=True)
    return [
        (cycle, EvaluationRow(suite, level, variant, episode, total, bool(solved), score, length))
        for cycle, suite, level, variant, episode, total, solved, score, length in columns
    ]


def test_a_name_with_a_line_break_is_refused(tmp_path: Path) -> None:
    table = EvaluationTable(tmp_path / "evaluations.csv")
    with pytest.raises(ValueError, match="must not contain line breaks"):
        table.write(1, 1, 1, [episode(0), episode(1, level="a\nb")])
    assert len(read_evaluations(tmp_path / "evaluations.csv")) == 0


# Resuming


def test_a_table_of_format_1_is_refused_by_its_number_and_ours_is_not(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    check_format(path)
    path.write_bytes(b"")
    check_format(path)
    write_evaluations_of(path, range(1, 3))
    check_format(path)
    path.write_text("cycle,updates,env_steps,suite,level,variant,episode,return,solved,length\n")
    with pytest.raises(RunDirectoryError, match=r"has format 1, .* goes on with format 2"):
        check_format(path)


@pytest.mark.parametrize("name", sorted(WRITERS))
@pytest.mark.parametrize("checkpoint", [7, 9])
def test_a_resumed_table_has_the_bytes_of_an_uninterrupted_one(
    tmp_path: Path, name: str, checkpoint: int
) -> None:
    write, path = WRITERS[name], tmp_path / name
    write(path, range(8, 13))
    whole = path.read_bytes()
    path.unlink()
    write(path, range(8, checkpoint + 1))
    at_checkpoint = path.read_bytes() if path.exists() else b""
    write(path, range(checkpoint + 1, 13))
    assert path.read_bytes() == whole
    # A kill may leave any number of bytes after those which the checkpoint counts on,
    # so also a torn `1` of cycle 10, which must not be taken for cycle 1.
    for end in range(len(at_checkpoint), len(whole) + 1):
        path.write_bytes(whole[:end])
        cut_after(path, checkpoint)
        write(path, range(checkpoint + 1, 13))
        assert path.read_bytes() == whole


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_cutting_counts_what_goes_and_touches_nothing_if_nothing_goes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert cut_after(path, 3) == 0
    assert not path.exists()
    WRITERS[name](path, range(1, 5))
    inode = path.stat().st_ino
    assert cut_after(path, 4) == 0
    assert path.stat().st_ino == inode
    rows_per_cycle = 3 if name.endswith("csv") else 1
    with path.open("ab") as file:
        file.write(b'5,torn "line')
    assert cut_after(path, 3) == rows_per_cycle + 1
    assert cut_after(path, -1) == 3 * rows_per_cycle
    assert path.read_bytes() == (
        b"" if rows_per_cycle == 1 else ",".join(EVALUATION_COLUMNS).encode() + b"\n"
    )


@pytest.mark.parametrize(
    "line", [b"garbage\n", b"[1]\n", b"{}\n", b'{"cycle": null}\n', b"\xff\n", b"[" * 100_000 + b"\n", b"\n"]
)
@pytest.mark.parametrize("name", sorted(WRITERS))
def test_unreadable_lines_are_dropped(tmp_path: Path, name: str, line: bytes) -> None:
    path = tmp_path / name
    WRITERS[name](path, range(1, 3))
    good = path.read_bytes()
    path.write_bytes(good + line)
    assert cut_after(path, 9) == 1
    assert path.read_bytes() == good


@pytest.mark.parametrize(
    "cycle", ["Infinity", "1e999", "-Infinity", "NaN", "1.5", "1.0", "-1", "true", '"1"', "1" + 5000 * "0"]
)
def test_a_cycle_that_is_no_whole_number_is_no_row(tmp_path: Path, cycle: str) -> None:
    """An infinite one ended the resume with an OverflowError."""
    path = tmp_path / "metrics.jsonl"
    write_metrics(path, range(1, 3))
    good = path.read_bytes()
    path.write_bytes(good + f'{{"cycle": {cycle}}}\n'.encode())
    assert cut_after(path, 9) == 1
    assert path.read_bytes() == good


@pytest.mark.parametrize("cycle", [b"1_0", b" 1", b"-1", b"inf", b"+1", b"\xd9\xa1"])
def test_a_cycle_of_a_csv_table_is_digits_only(tmp_path: Path, cycle: bytes) -> None:
    path = tmp_path / "evaluations.csv"
    write_evaluations_of(path, range(1, 3))
    good = path.read_bytes()
    path.write_bytes(good + cycle + b",1,1,s,l,v,0,0.5,1,3\n")
    assert cut_after(path, 99) == 1
    assert path.read_bytes() == good


def test_a_line_too_long_for_a_row_is_dropped_whole(tmp_path: Path) -> None:
    """Its end could look like a row of its own."""
    path = tmp_path / "metrics.jsonl"
    write_metrics(path, range(1, 3))
    good = path.read_bytes()
    path.write_bytes(good + b" " * 2**21 + b'{"cycle": 1}\n' + good)
    assert cut_after(path, 9) == 1
    assert path.read_bytes() == good + good


def test_rows_are_counted_from_the_file_on(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    write_evaluations_of(path, range(1, 3))
    table = EvaluationTable(path)
    table.write(3, 1, 300, [episode(0)])
    assert table.rows == table.found() == 7
    path.unlink()
    assert (table.rows, table.found()) == (7, 0)
    table.write(4, 1, 400, [episode(0)])
    assert path.read_text().startswith("cycle,updates")
    assert read_evaluations(path).cycle.tolist() == [4]


def test_rows_that_are_damaged_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.csv"
    write_evaluations_of(path, range(1, 3))
    damaged = [b"\xff\n", b"1,2\n", b"1,1,1,s,l,v,0,high,1,3\n", b"1,1,1,s,l,v,0,0.5,yes,3\n", b'"' * 200_000]
    path.write_bytes(path.read_bytes() + b"".join(damaged))
    assert len(read_evaluations(path)) == 6


# Disks that refuse


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_batch_that_does_not_fit_on_the_disk_leaves_no_part_of_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, range(1, 5))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(WriteError, match=rf"{name}: File too large \(EFBIG\)"):
            WRITERS[name](path, range(5, 6))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    WRITERS[name](path, range(5, 6))
    assert len(path.read_bytes()) > len(before)


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_refused_sync_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    lines, table = JsonLines(tmp_path / "metrics.jsonl"), EvaluationTable(tmp_path / "evaluations.csv")
    lines.sync()
    table.sync()

    def refuse(*args: object, **options: object) -> int:
        raise OSError(errno.EDQUOT, "refused")

    monkeypatch.setattr(os, call, refuse)
    for file in (lines, table):
        with pytest.raises(WriteError, match=r"Disk quota exceeded \(EDQUOT\)"):
            file.sync()


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "metrics.jsonl").symlink_to(victim)
    with pytest.raises(WriteError, match="symbolic links"):
        JsonLines(tmp_path / "metrics.jsonl").write([metrics_row(1)])
    assert victim.read_text() == "precious"


# Curves


NAMES = ("return", "absent", "solved")
USUAL = {"cycle": 1, "x/y": 0.5, "return": -1.25e-07, "solved": None}


def curve_of(path: Path, *rows: object) -> dict[str, np.ndarray]:
    path.write_bytes(b"".join(row if isinstance(row, bytes) else line(row) for row in rows))
    return read_curves(path, NAMES)


def line(row: object) -> bytes:
    return json.dumps(row).encode() + b"\n"


def test_numbers_of_curves_are_read_to_the_last_digit(tmp_path: Path) -> None:
    values = [0.1 + 0.2, -0.0, 1e300, 5e-324, 12345678901234567890, 7]
    rows = [USUAL | {"cycle": at, "return": value} for at, value in enumerate(values)]
    read = curve_of(tmp_path / "metrics.jsonl", *rows)
    np.testing.assert_array_equal(read["return"], np.array(values, float))
    np.testing.assert_array_equal(read["cycle"], np.arange(len(values)))
    assert np.isnan([read["absent"], read["solved"], read["updates"]]).all()
    assert read_metrics(tmp_path / "metrics.jsonl").keys() == USUAL.keys()


@pytest.mark.parametrize(
    "other",
    [
        {"return": 2.5, "cycle": 7},
        USUAL | {"cycle": 7, "return": 2.5, "more": 3},
        USUAL | {"cycle": 7, "return": 2.5, "x/y": {"nested": [1, 2]}},
        USUAL | {"cycle": 7, "return": 2.5, "solved": "1.0", "absent": 10**400},
        {"cycle": 7, "x/y": True, "return": 2.5, "solved": float("nan")},
    ],
)
def test_a_row_of_other_columns_is_read_too(tmp_path: Path, other: dict) -> None:
    read = curve_of(tmp_path / "metrics.jsonl", USUAL, other, USUAL)
    np.testing.assert_array_equal([read[name][1] for name in ("cycle", *NAMES)], [7, 2.5, np.nan, np.nan])
    np.testing.assert_array_equal(read["cycle"], [1, 7, 1])


@pytest.mark.parametrize(
    "damaged", [b'{"cycle": 1, "x/y": 0', b'{"cycle": 01, "x/y": 0.5}', b"[1]", b"", b"\xff", b"[" * 10**5]
)
def test_damaged_and_torn_lines_are_passed_over(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    read = curve_of(path, USUAL, damaged + b"\n", USUAL | {"cycle": 2, "updates": 1}, b'{"cycle": 4')
    np.testing.assert_array_equal(read["cycle"], [1, 2])
    np.testing.assert_array_equal(read_metrics(path)["cycle"], [1, 2])
    assert last_row(path)["updates"] == 1


def test_truth_is_a_number_and_a_file_may_begin_with_anything(tmp_path: Path) -> None:
    path, row = tmp_path / "metrics.jsonl", {"cycle": 1, "return": False, "solved": True}
    for first in (b"", b"damaged\n", b"\n"):
        read = curve_of(path, first, row)
        np.testing.assert_array_equal([read[name][0] for name in NAMES], [0, np.nan, 1])
    assert column_names(path) == []
    assert (column_names(tmp_path / "none"), last_row(tmp_path / "none")) == ([], {})
