"""Settings: plain data goes in strictly and comes out the same, and every mistake is named with its field."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cenie.settings import Problem, SettingsError, describe, read, replace, setting, to_data

# Random dataclasses -> JSON -> the same


finite = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**31) + 1, 2**31 - 1),
    float: finite,
    bool: st.booleans(),
    str: st.text(st.characters(exclude_categories=["Cs"])),
}


def choices() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    options = st.lists(st.text("abc", min_size=1) | st.integers(0, 9), min_size=1, max_size=3, unique=True)
    return options.map(lambda values: (Literal[tuple(values)], st.sampled_from(values)))


def tuples(inner: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    kind, values = inner
    return st.sampled_from(
        [
            (tuple[kind, ...], st.lists(values, max_size=3).map(tuple)),
            (tuple[kind, bool], st.tuples(values, st.booleans())),
            (tuple[()], st.just(())),
        ]
    )


def optional(inner: tuple[Any, st.SearchStrategy[Any]]) -> tuple[Any, st.SearchStrategy[Any]]:
    kind, values = inner
    return kind | None, st.none() | values


def dataclass_of(kinds: list[tuple[Any, st.SearchStrategy[Any]]]) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = [(f"field_{index}", kind) for index, (kind, _) in enumerate(kinds)]
    made = dataclasses.make_dataclass("Made", fields, frozen=True)
    return made, st.tuples(*(values for _, values in kinds)).map(lambda values: made(*values))


kinds: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]] = st.recursive(
    st.sampled_from(list(SCALARS.items())) | choices(),
    lambda inner: inner.flatmap(tuples) | inner.map(optional) | st.lists(inner, max_size=4).map(dataclass_of),
    max_leaves=6,
)


@st.composite
def dataclasses_with_values(draw: st.DrawFn) -> tuple[type, Any]:
    kind, values = dataclass_of(draw(st.lists(kinds, max_size=5)))
    return kind, draw(values)


@hypothesis_settings(max_examples=200, deadline=None)
@given(dataclasses_with_values())
def test_any_settings_survive_json(example: tuple[type, Any]) -> None:
    kind, value = example
    again = read(kind, json.loads(json.dumps(to_data(value), allow_nan=False)))
    assert again == value
    assert repr(again) == repr(value)  # 1 == 1.0 == True, but they are different settings
    assert replace(value, {}) == value


# Mistakes, each with the field it is in and the message


@dataclass(frozen=True)
class Inner:
    rate: float = setting(0.5, minimum=0.0, maximum=1.0)
    step: float = setting(0.1, above=0.0)
    widths: tuple[int, ...] = setting((32, 32), minimum=1)
    span: tuple[int, int] = (6, 15)

    def check(self) -> Iterator[Problem]:
        if self.span[0] > self.span[1]:
            yield Problem("span", f"must rise, got {self.span[0]} > {self.span[1]}")


@dataclass(frozen=True)
class Outer:
    name: str
    count: int = setting(4, minimum=1, maximum=100)
    fast: bool = False
    kind: Literal["rank", "proportional"] = "rank"
    version: Literal[1, 2] = 1
    limit: float | None = None
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    maybe: Inner | None = None

    def check(self) -> Iterator[Problem]:
        if self.count % self.version:
            yield Problem("count", f"must be divisible by version ({self.version})")


KNOWN = "known: name, count, fast, kind, version, limit, inner, many, maybe"
BAD: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "not a group": (3, [("config", "expected a group of settings, got 3")]),
    "a list for the whole": ([], [("config", "expected a group of settings, got []")]),
    "nothing for the whole": (None, [("config", "expected a group of settings, got None")]),
    "missing without default": ({}, [("name", "missing, and it has no default")]),
    "unknown with a close name": ({"coutn": 3}, [("coutn", "unknown setting; did you mean 'count'?")]),
    "unknown without a close name": ({"xyzzy": 3}, [("xyzzy", f"unknown setting; {KNOWN}")]),
    "unknown in a group": (
        {"inner": {"rat": 0.1}},
        [("inner.rat", "unknown setting; did you mean 'rate'?")],
    ),
    "unknown that is no text": ({7: 3}, [("7", f"unknown setting; {KNOWN}")]),
    "unknown that is empty": (
        {"inner": {"": 1}},
        [("inner.", "unknown setting; known: rate, step, widths, span")],
    ),
    "text for a whole number": ({"count": "4"}, [("count", "expected a whole number, got '4'")]),
    "fraction for a whole number": ({"count": 4.5}, [("count", "expected a whole number, got 4.5")]),
    "whole float for a whole number": ({"count": 4.0}, [("count", "expected a whole number, got 4.0")]),
    "truth for a whole number": ({"count": True}, [("count", "expected a whole number, got True")]),
    "null for a whole number": ({"count": None}, [("count", "expected a whole number, got None")]),
    "list for a whole number": ({"count": [4]}, [("count", "expected a whole number, got [4]")]),
    "too small": ({"count": 0}, [("count", "must be at least 1, got 0")]),
    "negative": ({"count": -3}, [("count", "must be at least 1, got -3")]),
    "too large": ({"count": 101}, [("count", "must be at most 100, got 101")]),
    "huge": ({"count": 10**30}, [("count", f"must be at most 100, got {10**30}")]),
    "number for a truth": ({"fast": 1}, [("fast", "expected true or false, got 1")]),
    "text for a truth": ({"fast": "true"}, [("fast", "expected true or false, got 'true'")]),
    "number for a text": ({"name": 3}, [("name", "expected a text, got 3")]),
    "text for a number": ({"limit": "0.5"}, [("limit", "expected a number, got '0.5'")]),
    "truth for a number": ({"limit": False}, [("limit", "expected a number, got False")]),
    "not a number": ({"limit": float("nan")}, [("limit", "must be a finite number, got nan")]),
    "infinite": ({"inner": {"rate": float("inf")}}, [("inner.rate", "must be a finite number, got inf")]),
    "whole number beyond floats": (
        {"limit": 10**400},
        [("limit", "must be a finite number, got " + "1" + "0" * 56 + "...")],
    ),
    "number that single precision takes for infinite": (
        {"limit": -1e39},
        [("limit", "must be 0, or between 1.2e-38 and 3.4e+38 in size, got -1e+39")],
    ),
    "number that single precision takes for 0": (
        {"inner": {"step": 1e-50}},
        [("inner.step", "must be 0, or between 1.2e-38 and 3.4e+38 in size, got 1e-50")],
    ),
    "whole number beyond 32 bits": (
        {"inner": {"span": [6, 10**12]}},
        [("inner.span", f"must be at most {2**31 - 1} in size, got {10**12}")],
    ),
    "a list without end": (
        {"inner": {"widths": ["x"] * 100_000}},
        [("inner.widths", "expected at most 1000 values, got 100000")],
    ),
    "below a closed bound": ({"inner": {"rate": -0.01}}, [("inner.rate", "must be at least 0.0, got -0.01")]),
    "above a closed bound": ({"inner": {"rate": 1.01}}, [("inner.rate", "must be at most 1.0, got 1.01")]),
    "at an open bound": ({"inner": {"step": 0}}, [("inner.step", "must be greater than 0.0, got 0.0")]),
    "not among the choices": (
        {"kind": "random"},
        [("kind", "must be one of rank, proportional, got 'random'")],
    ),
    "choice in other letters": (
        {"kind": "Rank"},
        [("kind", "must be one of rank, proportional, got 'Rank'")],
    ),
    "truth for a choice of 1": ({"version": True}, [("version", "must be one of 1, 2, got True")]),
    "text for a choice of 1": ({"version": "1"}, [("version", "must be one of 1, 2, got '1'")]),
    "number for a list": ({"inner": {"widths": 32}}, [("inner.widths", "expected a list, got 32")]),
    "text for a list": ({"inner": {"widths": "32"}}, [("inner.widths", "expected a list, got '32'")]),
    "wrong type in a list": (
        {"inner": {"widths": [32, "x", 1, None]}},
        [
            ("inner.widths[1]", "expected a whole number, got 'x'"),
            ("inner.widths[3]", "expected a whole number, got None"),
        ],
    ),
    "out of bounds in a list": (
        {"inner": {"widths": [32, 0]}},
        [("inner.widths", "must be at least 1, got 0")],
    ),
    "too few values": ({"inner": {"span": [6]}}, [("inner.span", "expected 2 values, got 1")]),
    "too many values": ({"inner": {"span": [6, 7, 8]}}, [("inner.span", "expected 2 values, got 3")]),
    "number for a group": ({"inner": 5}, [("inner", "expected a group of settings, got 5")]),
    "null for a group": ({"inner": None}, [("inner", "expected a group of settings, got None")]),
    "mistake in a list of groups": (
        {"many": [{}, {"rate": 2}]},
        [("many[1].rate", "must be at most 1.0, got 2.0")],
    ),
    "mistake in an optional group": (
        {"maybe": {"rate": "x"}},
        [("maybe.rate", "expected a number, got 'x'")],
    ),
    "rule across fields": ({"count": 3, "version": 2}, [("count", "must be divisible by version (2)")]),
    "rule across fields beside another mistake": (
        {"count": 3, "version": 2, "fast": "x", "inner": {"span": [9, 6], "rate": 2}},
        [
            ("fast", "expected true or false, got 'x'"),
            ("inner.rate", "must be at most 1.0, got 2.0"),
            ("inner.span", "must rise, got 9 > 6"),
            ("count", "must be divisible by version (2)"),
        ],
    ),
    "rule that needs an unreadable value": (
        {"count": 3, "version": "two"},
        [("version", "must be one of 1, 2, got 'two'")],
    ),
    "rule across fields of a group": ({"inner": {"span": [9, 6]}}, [("inner.span", "must rise, got 9 > 6")]),
    "rule in a list of groups": ({"many": [{"span": [2, 1]}]}, [("many[0].span", "must rise, got 2 > 1")]),
    "long values are shortened": (
        {"fast": "x" * 100},
        [("fast", "expected true or false, got '" + "x" * 56 + "...")],
    ),
    "all mistakes at once": (
        {"nmae": "x", "count": 0, "fast": "no", "inner": {"rate": 7, "stp": 1, "span": [1, 2]}, "kind": None},
        [
            ("nmae", "unknown setting; did you mean 'name'?"),
            ("name", "missing, and it has no default"),
            ("count", "must be at least 1, got 0"),
            ("fast", "expected true or false, got 'no'"),
            ("kind", "must be one of rank, proportional, got None"),
            ("inner.stp", "unknown setting; did you mean 'step'?"),
            ("inner.rate", "must be at most 1.0, got 7.0"),
        ],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_named_with_its_field(case: str) -> None:
    data, expected = BAD[case]
    if (
        isinstance(data, dict)
        and "name" not in data
        and case
        not in (
            "missing without default",
            "all mistakes at once",
        )
    ):
        data = {"name": "run"} | data
    with pytest.raises(SettingsError) as caught:
        read(Outer, data)
    assert sorted((problem.path, problem.message) for problem in caught.value.problems) == sorted(expected)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]


def test_of_many_unknown_settings_some_are_named_and_the_rest_counted() -> None:
    with pytest.raises(SettingsError) as caught:
        read(Inner, {f"x{number}": 1 for number in range(100_000)})
    assert len(caught.value.problems) == 21
    assert str(caught.value.problems[-1]) == "config: has 99980 more unknown settings"


def test_a_value_nested_too_deeply_to_be_shown_is_still_refused_by_its_type() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SettingsError, match=r"^rate: expected a number, got a list that cannot be shown$"):
        read(Inner, {"rate": deep})


def test_a_path_of_origin_leads_every_problem() -> None:
    with pytest.raises(SettingsError, match=r"^student\.rate: must be at most 1\.0, got 2\.0$"):
        read(Inner, {"rate": 2}, path="student")


def test_defaults_and_whole_numbers_for_numbers() -> None:
    value = read(Outer, {"name": "run", "limit": 3, "inner": {"rate": 1}, "maybe": None})
    assert value == Outer("run", limit=3.0, inner=Inner(rate=1.0))
    assert type(value.limit) is float
    assert type(value.inner.rate) is float


def test_bounds_are_inclusive_and_none_is_not_bounded() -> None:
    for count in (1, 100):
        assert read(Outer, {"name": "", "count": count}).count == count
    assert read(Inner, {"rate": 0.0, "step": 1e-37}).step == 1e-37


@dataclass(frozen=True)
class Broken:
    count: int = 1

    def check(self) -> Iterator[Problem]:
        raise TypeError("a mistake in the rule itself")
        yield


def test_a_mistake_in_a_rule_itself_is_not_swallowed() -> None:
    with pytest.raises(TypeError, match="a mistake in the rule itself"):
        read(Broken, {})


def test_reading_does_not_change_the_data() -> None:
    data = {"name": "run", "inner": {"widths": [1, 2]}}
    copy = json.loads(json.dumps(data))
    read(Outer, data)
    assert data == copy


# Overrides


def test_overrides_reach_into_groups_and_leave_the_original() -> None:
    before = Outer("run")
    after = replace(before, {"inner.rate": 0.25, "count": 8, "inner.widths": [1, 2, 3]})
    assert after == Outer("run", count=8, inner=Inner(rate=0.25, widths=(1, 2, 3)))
    assert before == Outer("run")


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("inner.rat", 1, "inner.rat: unknown setting; did you mean 'rate'?"),
        ("iner.rate", 1, "iner.rate: 'iner' is not a group of settings"),
        ("count.x", 1, "count.x: 'count' is not a group of settings"),
        ("inner.rate.x", 1, "inner.rate.x: 'inner.rate' is not a group of settings"),
        ("inner.rate", 2, "inner.rate: must be at most 1.0, got 2.0"),
        ("count", "8", "count: expected a whole number, got '8'"),
        ("inner", 8, "inner: expected a group of settings, got 8"),
    ],
)
def test_a_wrong_override_is_named(path: str, value: Any, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        replace(Outer("run"), {path: value})
    assert str(caught.value) == line


def test_all_wrong_overrides_are_named_together() -> None:
    with pytest.raises(SettingsError) as caught:
        replace(Outer("run"), {"x.y": 1, "count": 0, "inner.rate": "a"})
    assert [problem.path for problem in caught.value.problems] == ["x.y", "count", "inner.rate"]


# One of several records


@dataclass(frozen=True)
class Circle:
    kind: Literal["circle"] = "circle"
    radius: float = setting(1.0, above=0.0)


@dataclass(frozen=True)
class Square:
    kind: Literal["square"] = "square"
    side: int = setting(2, minimum=1)
    rounded: Circle | None = None


@dataclass(frozen=True)
class Drawing:
    shape: Circle | Square = field(default_factory=Circle)
    hole: Circle | Square | None = None
    frame: Inner | None = None


@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(),
        Drawing(shape=Square(side=7, rounded=Circle(radius=0.5))),
        Drawing(shape=Circle(radius=3.0), hole=Square()),
    ],
)
def test_records_told_apart_by_their_kind_survive_json(drawing: Drawing) -> None:
    assert read(Drawing, json.loads(json.dumps(to_data(drawing)))) == drawing


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"shape": {"kind": "blob"}}, "shape.kind: must be one of circle, square, got 'blob'"),
        ({"shape": {"kind": ["circle"]}}, "shape.kind: must be one of circle, square, got ['circle']"),
        ({"shape": {"radius": 1.0}}, "shape.kind: must be one of circle, square, got None"),
        ({"shape": "circle"}, "shape: expected a group with a kind (circle, square), got 'circle'"),
        ({"shape": None}, "shape: expected a group with a kind (circle, square), got None"),
        (
            {"shape": {"kind": "square", "radius": 1.0}},
            "shape.radius: unknown setting of kind square; known:",
        ),
        ({"hole": {"kind": "circle", "radius": 0}}, "hole.radius: must be greater than 0"),
    ],
)
def test_what_is_wrong_with_one_of_several_records_is_named(data: Any, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(Drawing, data)
    assert line in str(caught.value)


def test_another_kind_begins_with_its_own_defaults() -> None:
    start = Drawing(shape=Circle(radius=5.0))
    assert replace(start, {"shape.kind": "square"}) == Drawing(shape=Square())
    assert replace(start, {"shape.kind": "circle"}) == start
    both = {"shape.side": 9, "shape.kind": "square"}
    assert (
        replace(start, both) == replace(start, dict(reversed(both.items()))) == Drawing(shape=Square(side=9))
    )


def test_a_kind_that_is_an_ordinary_choice_changes_nothing_else() -> None:
    start = Outer(name="run", count=9)
    assert replace(start, {"kind": "proportional"}) == dataclasses.replace(start, kind="proportional")


def test_a_group_that_was_left_out_can_be_put_in_by_its_settings() -> None:
    assert replace(Drawing(), {"frame.rate": 0.5}).frame == Inner(rate=0.5)
    assert replace(Drawing(), {"hole.kind": "square", "hole.rounded.radius": 4.0}).hole == Square(
        rounded=Circle(radius=4.0)
    )
    with pytest.raises(SettingsError, match=r"hole\.kind: must be one of circle, square"):
        replace(Drawing(), {"hole.radius": 4.0})


@dataclass(frozen=True)
class Framed:
    kind: Literal["framed"] = "framed"
    inside: Circle | Square = field(default_factory=Square)


@dataclass(frozen=True)
class Page:
    content: Circle | Framed = field(default_factory=Circle)


def test_one_of_several_records_inside_another_begins_with_the_defaults_of_that_one() -> None:
    framed = {"content.kind": "framed"}
    assert replace(Page(), {**framed, "content.inside.side": 5}) == Page(Framed(inside=Square(side=5)))
    circle = {**framed, "content.inside.kind": "circle", "content.inside.radius": 2.0}
    assert replace(Page(), circle) == Page(Framed(inside=Circle(radius=2.0)))
    start = Page(Framed(inside=Circle(radius=2.0)))
    assert replace(start, {"content.inside.kind": "square"}) == Page(Framed())


# What is said of settings


def test_settings_of_all_kinds_are_described_those_of_the_chosen_kind_first() -> None:
    described = describe(Page(Framed(inside=Circle(radius=9.0))))
    assert [(item.path, item.default, item.value, item.when) for item in described] == [
        ("content.kind", "circle", "framed", ()),
        ("content.radius", 1.0, 1.0, (("content.kind", ("circle",)),)),
        ("content.inside.kind", "square", "circle", (("content.kind", ("framed",)),)),
        *(
            (f"content.inside.{name}", default, value, (("content.kind", ("framed",)), when))
            for name, default, value, when in (
                ("radius", 1.0, 9.0, ("content.inside.kind", ("circle",))),
                ("side", 2, 2, ("content.inside.kind", ("square",))),
                ("rounded.kind", None, None, ("content.inside.kind", ("square",))),
            )
        ),
        (
            "content.inside.rounded.radius",
            1.0,
            1.0,
            (
                ("content.kind", ("framed",)),
                ("content.inside.kind", ("square",)),
                ("content.inside.rounded.kind", ("circle",)),
            ),
        ),
    ]
    kinds = {item.path: [kind for kind, _ in item.kinds] for item in described if item.kinds}
    assert kinds["content.kind"] == ["circle", "framed"]
    assert kinds["content.inside.rounded.kind"] == ["circle"]


def test_what_kinds_share_is_described_once() -> None:
    described = describe(Shelf(Deep(height=3)))
    assert [(item.path, item.value, item.when) for item in described] == [
        ("board.kind", "deep", ()),
        ("board.height", 3, (("board.kind", ("deep", "flat")),)),
        ("board.depth", 5, (("board.kind", ("deep",)),)),
        ("board.depth", 1, (("board.kind", ("flat",)),)),
    ]


@dataclass(frozen=True)
class Deep:
    kind: Literal["deep"] = "deep"
    height: int = setting(1, minimum=1, help="How high.", source="ours")
    depth: int = setting(5, help="How deep.", source="ours")


@dataclass(frozen=True)
class LowBoard:
    kind: Literal["flat"] = "flat"
    height: int = setting(1, minimum=1, help="How high.", source="ours")
    depth: int = setting(1, help="How deep.", source="ours")


@dataclass(frozen=True)
class Shelf:
    board: Deep | LowBoard = field(default_factory=LowBoard)


def test_groups_are_described_before_their_settings_and_after_those_beside_them() -> None:
    paths = [item.path for item in describe(Outer("run"))]
    assert paths[:8] == ["name", "count", "fast", "kind", "version", "limit", "many", "inner"]
    assert paths[8:12] == ["inner.rate", "inner.step", "inner.widths", "inner.span"]
    rate = describe(Outer("run", inner=Inner(rate=0.25)))[8]
    assert (rate.default, rate.value, rate.minimum, rate.maximum) == (0.5, 0.25, 0.0, 1.0)
    maybe = next(item for item in describe(Outer("run")) if item.path == "maybe")
    assert (maybe.is_group, maybe.value, maybe.may_be_null) == (True, None, True)
