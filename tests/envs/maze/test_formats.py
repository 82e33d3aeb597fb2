"""Levels as text and JSON: round trips, and a reason for everything malformed."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenie.envs.maze.formats import from_json, from_text, to_json, to_text
from cenie.envs.maze.level import make_level
from tests.envs.maze.oracle import random_level_values

GOOD = {
    "walls": ["010", "000"],
    "goal": [2, 1],
    "start": [0, 0],
    "direction": 1,
    "time_limit": 250,
    "occluded": False,
}


def equal(one, other):
    return all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other))
    )


@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(2, 20), st.integers(0, 3), st.booleans())
@settings(max_examples=200, deadline=None)
def test_text_and_json_give_the_same_level_back(seed, height, width, direction, occluded):
    values = random_level_values(np.random.default_rng(seed), height, width, 0.4)
    level = make_level(*values, direction=direction, time_limit=1 + seed % 5000, occluded=occluded)
    assert equal(from_text(to_text(level)), level)
    assert equal(from_json(json.loads(json.dumps(to_json(level)))), level)


def test_text_without_header_and_with_blank_edges():
    level = from_text("\n  #.G\n  ..^\n\n", time_limit=9)
    assert level.wall_map.tolist() == [[True, False, False], [False, False, False]]
    assert (level.goal.tolist(), level.start.tolist()) == ([2, 0], [2, 1])
    assert (int(level.direction), int(level.time_limit), bool(level.occluded)) == (3, 9, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "rows"),
        ("G.>\n..", "equally long"),
        ("G.G\n.>.", "exactly one goal"),
        ("...\n.>.", "exactly one goal"),
        ("G..\n...", "exactly one start"),
        ("G>.\n.v.", "exactly one start"),
        ("Gx>", "'x'"),
        ("G.>" + "." * 200, "1 to 128 tiles"),
        ("\n".join(["G>"] + [".."] * 200), "1 to 128 rows"),
        ("time_limit: -5\nG.>", "header"),
        ("time_limit: 1e9\nG.>", "header"),
        ("time_limit: 99999999\nG.>", "time_limit"),
        ("time_limit: 0\nG.>", "time limit"),
        ("occluded: yes\nG.>", "header"),
        ("occluded: true\noccluded: true\nG.>", "twice"),
        ("colour: red\nG.>", "header"),
        ("G.>" * 200_000, "at most 100000 characters"),
    ],
)
def test_malformed_text_is_refused_with_a_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        from_text(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"goal": [1, 0]}, "goal .* on a wall"),
        ({"start": [1, 0]}, "start .* on a wall"),
        ({"goal": [0, 0]}, "same tile"),
        ({"goal": [3, 0]}, "outside"),
        ({"goal": [[2, 1], [0, 1]]}, "whole number"),
        ({"goal": [2]}, r"\[x, y\]"),
        ({"goal": [2, 1, 0]}, r"\[x, y\]"),
        ({"goal": ["2", "1"]}, "whole number, got a text"),
        ({"start": [0.0, 0]}, "whole number"),
        ({"start": [-1, 0]}, "must lie in"),
        ({"start": [10**30, 0]}, "must lie in"),
        ({"direction": "east"}, "whole number, got a text"),
        ({"direction": True}, "whole number, got true or false"),
        ({"direction": 4}, "must lie in"),
        ({"time_limit": 0}, "time limit"),
        ({"time_limit": 10**9}, "must lie in"),
        ({"time_limit": float("nan")}, "whole number"),
        ({"time_limit": None}, "whole number, got null"),
        ({"occluded": 1}, "true or false"),
        ({"walls": "010000"}, "list of rows"),
        ({"walls": []}, "rows"),
        ({"walls": ["010", "00"]}, "equally long"),
        ({"walls": ["010", 0]}, "text"),
        ({"walls": ["010", "0x0"]}, "'x'"),
        ({"walls": [[0, 1, 0], [0, 0, 0]]}, "row 0 must be a text"),
        ({"walls": ["0" * 129] * 2}, "1 to 128 tiles"),
        ({"walls": ["00"] * 129}, "1 to 128 rows"),
        ({"size": [1_000_000_000, 1_000_000_000]}, "unknown size"),
    ],
)
def test_malformed_json_is_refused_with_a_reason(change, reason):
    with pytest.raises(ValueError, match=reason):
        from_json({**GOOD, **change})


@pytest.mark.parametrize("field", list(GOOD))
def test_every_json_field_is_required(field):
    with pytest.raises(ValueError, match=f"missing {field}"):
        from_json({name: value for name, value in GOOD.items() if name != field})


@pytest.mark.parametrize("data", [None, 3, "G.>", [GOOD], []])
def test_json_that_is_not_an_object_is_refused(data):
    with pytest.raises(ValueError, match="a level is an object"):
        from_json(data)
