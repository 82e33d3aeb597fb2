import json

import numpy as np
import pytest

from cenie.report.log_rows import LogRows

NAMES = ("cycle", "return", "absent", "solved")
USUAL = {"cycle": 1, "x/y": 0.5, "return": -1.25e-07, "solved": None}


def line(row) -> bytes:
    return json.dumps(row).encode() + b"\n"


def test_lines_that_look_alike_are_read_to_the_last_digit():
    values = [0.1 + 0.2, -0.0, 1e300, 5e-324, 12345678901234567890, 7]
    content = b"".join(line(USUAL | {"cycle": at, "return": value}) for at, value in enumerate(values))
    read = np.array(LogRows(NAMES, line(USUAL)).read(content))
    np.testing.assert_array_equal(read[:, 1], np.array(values, float))
    np.testing.assert_array_equal(read[:, 0], np.arange(len(values)))
    assert np.isnan(read[:, 2:]).all()


@pytest.mark.parametrize(
    "other",
    [
        {"return": 2.5, "cycle": 7},
        USUAL | {"cycle": 7, "return": 2.5, "more": 3},
        USUAL | {"cycle": 7, "return": 2.5, "x/y": {"nested": [1, 2]}},
        USUAL | {"cycle": 7, "return": 2.5, "solved": "1.0"},
        {"cycle": 7, "x/y": True, "return": 2.5, "solved": float("nan")},
    ],
)
def test_a_line_that_looks_different_is_read_too(other):
    rows = LogRows(NAMES, line(USUAL)).read(line(USUAL) + line(other) + line(USUAL))
    np.testing.assert_array_equal(rows[1], [7, 2.5, np.nan, np.nan])
    np.testing.assert_array_equal([row[0] for row in rows], [1, 7, 1])


@pytest.mark.parametrize(
    "damaged", [b'{"cycle": 1, "x/y": 0', b'{"cycle": 01, "x/y": 0.5}', b"[1]", b"", b"\xff"]
)
def test_damaged_and_torn_lines_are_passed_over(damaged):
    content = line(USUAL) + damaged + b"\n" + line(USUAL | {"cycle": 2}) + line(USUAL | {"cycle": 3})
    log = LogRows(NAMES, line(USUAL))
    assert [row[0] for row in log.read(content + b'{"cycle": 4')] == [1, 2, 3]
    assert [row[0] for row in log.read(content, 2)] == [1, 2]


def test_truth_is_a_number_and_a_log_may_begin_with_anything():
    row = {"cycle": True, "return": False, "solved": 1}
    for first in (line(row), b"", b"damaged\n", line({str(number): 0 for number in range(1000)})):
        np.testing.assert_array_equal(LogRows(NAMES, first).read(line(row)), [(1, 0, np.nan, 1)])
