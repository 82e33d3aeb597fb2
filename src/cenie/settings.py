"""Typed settings: frozen dataclasses of plain values, read strictly from JSON-like data.

Imports no JAX, so that a wrong setting is reported before anything heavy is loaded. `read` never stops
at the first mistake: it returns every problem with the path of its field and what is allowed there.
"""

import contextlib
import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_UNREADABLE: Any = object()
"""Stands for a value that could not be read, so that other settings can still be checked."""

LARGEST_INT = 2**31 - 1
SMALLEST_FLOAT, LARGEST_FLOAT = 1.1754943508222875e-38, 3.4028234663852886e38
"""Bounds of 32-bit floats, with which JAX computes: beyond them a number would silently become another."""

_MAX_UNKNOWN_NAMED, _MAX_LIST_LENGTH = 20, 1000
"""The most unknown settings that are named one by one, and the largest length of a list: a file may have
millions."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a setting: where, and what is allowed."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True)
class Where:
    """A value in a preset that counts only where another setting is given: for methods that edit, say.

    With `equals`, only where that setting has this value, or one of these in a tuple; with `unless`, only
    where it has another. `otherwise` may count where this one does not.
    """

    path: str
    value: Any
    equals: Any = None
    unless: Any = None
    otherwise: "Where | None" = None


@dataclass(frozen=True)
class Description:
    """A setting, or a group of settings, and what may be said of it to somebody who wants to change it.

    Where a group is one of several records, the setting that chooses between them stands for it: its path
    ends in `.kind`, and `kinds` has their names, each with what the record says of itself.

    `default` is the setting's own, to which `source` belongs (`dataclasses.MISSING` if it must be given), and
    `value` the present one. `when` has the paths of those settings `kind` on which it depends whether there
    is such a setting, each with the kinds that have it.
    """

    path: str
    hint: Any
    help: str
    source: str
    default: Any
    value: Any
    minimum: int | float | None = None
    above: int | float | None = None
    maximum: int | float | None = None
    kinds: tuple[tuple[str, str], ...] = ()
    when: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_group: bool = False

    @property
    def group(self) -> str:
        """The path of the group that it is in, or is, or chooses; empty for a setting at the top."""
        return self.path if self.is_group else self.path.rpartition(".")[0]

    @property
    def may_be_null(self) -> bool:
        """Whether it may be left out."""
        return type(None) in typing.get_args(self.hint)


class SettingsError(ValueError):
    """All problems of a configuration at once.

    Args:
        problems: The problems, each with the path of a setting and a sentence.
    """

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def setting(
    default: Any = dataclasses.MISSING,
    *,
    minimum: int | float | None = None,
    maximum: int | float | None = None,
    above: int | float | None = None,
    factory: Callable[[], Any] | None = None,
    help: str = "",
    source: str = "",
) -> Any:
    """A dataclass field with bounds, and with what `cenie train DOMAIN METHOD --help` says of it.

    Args:
        default: Its default; without one, and without a factory, the setting must be given.
        minimum: The smallest value. Numbers without bounds of their own must still fit in 32 bits.
        maximum: The largest value.
        above: What the value must be greater than.
        factory: Makes the default, for groups of settings.
        help: What the setting decides, in one or a few sentences.
        source: Where the default comes from, such as `paper` or `ours`.
    """
    metadata = {"minimum": minimum, "maximum": maximum, "above": above, "help": help, "source": source}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def read(record: Any, data: Any, path: str = "") -> Any:
    """Build the frozen dataclass `record`, or one of a union of them, from plain data.

    Unknown keys, missing values, wrong types, values out of bounds and cross-field rules (a method
    `check(self) -> Iterator[Problem]` of the dataclass, paths relative to it) are all reported together, in
    one `SettingsError`.
    """
    problems: list[Problem] = []
    value = _read(record, data, path, problems)
    if problems:
        raise SettingsError(problems)
    return value


def to_data(value: Any) -> Any:
    """Plain JSON-like data of a settings dataclass; the inverse of `read`."""
    if dataclasses.is_dataclass(value):
        return {field.name: to_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    return value


def is_readable(value: Any) -> bool:
    """False for settings with a part that could not be read: a `check` sees such ones too."""
    if dataclasses.is_dataclass(value):
        return all(is_readable(getattr(value, field.name)) for field in dataclasses.fields(value))
    return value is not _UNREADABLE


def describe(value: Any) -> list[Description]:
    """All settings of a dataclass of settings, with their present values.

    The settings of a group come before the groups in it. Where a group is one of several records, those of
    all of them are described, first those of the chosen one. What several records share with the same text
    and default appears once.
    """
    return _describe(type(value), value, "")


def _describe(record: type, value: Any, path: str) -> list[Description]:
    """The settings of a record at this path; without a value, as they are by default."""
    described: list[Description] = []
    for field in dataclasses.fields(record):
        if field.name != "kind" or not _is_tagged(record):
            described += _describe_field(record, field, value, path)
    return sorted(described, key=lambda item: item.is_group or item.group != path)


def _describe_field(record: type, field: dataclasses.Field[Any], value: Any, path: str) -> list[Description]:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    records = _record_types(record, field.name)
    this = Description(
        path=_join(path, field.name),
        hint=_hints(record)[field.name],
        help=field.metadata.get("help", ""),
        source=field.metadata.get("source", ""),
        default=default,
        value=default if value is None else getattr(value, field.name),
        minimum=field.metadata.get("minimum"),
        above=field.metadata.get("above"),
        maximum=field.metadata.get("maximum"),
    )
    if not records:
        return [this]
    if all(map(_is_tagged, records)):
        return _describe_kinds(this, records)
    (only,) = records
    group = dataclasses.replace(this, help=this.help or summary(only), is_group=True)
    inside = this.value if isinstance(this.value, only) else None
    return [group, *_describe(only, inside, this.path)]


def _describe_kinds(this: Description, records: list[type]) -> list[Description]:
    """The setting that chooses between records, and the settings of all of them."""
    tag = _join(this.path, "kind")
    by_kind = {_kinds(record)[0]: record for record in records}
    chosen = getattr(this.value, "kind", None)
    having: dict[Description, list[str]] = {}
    values: dict[Description, Any] = {}
    for kind in sorted(by_kind, key=lambda kind: kind != chosen):
        inside = this.value if kind == chosen else None
        for item in _describe(by_kind[kind], inside, this.path):
            same = dataclasses.replace(item, value=None)
            having.setdefault(same, []).append(kind)
            values.setdefault(same, item.value)
    items = [
        dataclasses.replace(
            item, value=values[item], when=((tag, tuple(k for k in by_kind if k in kinds)), *item.when)
        )
        for item, kinds in having.items()
    ]
    choice = dataclasses.replace(
        this,
        path=tag,
        default=getattr(this.default, "kind", this.default),
        value=chosen,
        kinds=tuple((kind, summary(record)) for kind, record in by_kind.items()),
    )
    return [choice, *sorted(items, key=lambda item: item.is_group or item.group != this.path)]


def summary(record: type) -> str:
    """The first paragraph of what a record says of itself, on one line."""
    text = record.__doc__ or ""
    written = "" if text.startswith(f"{record.__name__}(") else text  # a dataclass without a text gets one
    return " ".join(written.split("\n\n")[0].split())


def _is_tagged(record: type) -> bool:
    """Whether its field `kind` tells the record apart from others."""
    return len(_kinds(record)) == 1


def replace(value: Any, overrides: Mapping[str, Any]) -> Any:
    """`value` with dotted-path overrides, re-read strictly (e.g. `{"student.ppo.clip": 0.1}`).

    Another `kind` of record begins with the defaults of that kind; other settings of it may follow in the
    same call.
    """
    problems: list[Problem] = []
    data = to_data(value)
    for path in sorted(overrides, key=_kinds_first):
        _assign(type(value), data, path, overrides[path], problems)
    result = _read(type(value), data, "", problems)
    if problems:
        raise SettingsError(problems)
    return result


def value_at(data: Any, path: str, absent: Any = None) -> Any:
    """The value at a dotted path of plain data; `absent` if there is no such setting."""
    for name in path.split("."):
        if not isinstance(data, dict) or name not in data:
            return absent
        data = data[name]
    return data


def _assign(record: Any, data: dict[str, Any], path: str, new: Any, problems: list[Problem]) -> None:
    *parents, last = path.split(".")
    node: Any = data
    for depth, name in enumerate(parents):
        options = _record_types(record, name)
        group = node.get(name)
        sets_kind = last == "kind" and depth == len(parents) - 1
        kind = new if sets_kind else group.get("kind") if isinstance(group, dict) else None
        record = options[0] if len(options) == 1 else _record_of_kind(options, kind)
        # A group that was left out, or that becomes another of several records, begins with its defaults.
        changes_kind = sets_kind and len(options) > 1 and isinstance(group, dict) and group.get("kind") != new
        if changes_kind or (name in node and group is None):
            node[name] = _defaults(record)
        node = node.get(name)
        if not isinstance(node, dict):
            problems.append(Problem(path, f"'{'.'.join(parents[: depth + 1])}' is not a group of settings"))
            return
    node[last] = new


@functools.cache
def _hints(record: type) -> dict[str, Any]:
    """The types of the fields of a record, which Python would work out anew each time, name by name."""
    return typing.get_type_hints(record)


def _record_types(record: Any, name: str) -> list[type]:
    """The records that a setting of a record may be."""
    hint = _hints(record).get(name) if dataclasses.is_dataclass(record) else None
    options = typing.get_args(hint) if is_union(hint) else (hint,)
    return [typing.cast(type, option) for option in options if dataclasses.is_dataclass(option)]


def is_union(hint: Any) -> bool:
    """Whether a type is one of several, such as `int | None`."""
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _record_of_kind(records: list[type], kind: Any) -> type | None:
    return next((record for record in records if _kinds(record) == (kind,)), None)


def _defaults(record: type | None) -> dict[str, Any]:
    """The settings of a record by default; none if it is not known or some have no default."""
    required = record is None or any(
        field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        for field in dataclasses.fields(record)
    )
    return {} if record is None or required else to_data(record())


def _kinds_first(path: str) -> tuple[int, bool]:
    """An order in which groups come before their parts, and the kind of a group before its other settings."""
    return path.count("."), path.rpartition(".")[2] != "kind"


def _read(annotation: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    if dataclasses.is_dataclass(annotation):
        return _read_dataclass(typing.cast(type, annotation), data, path, problems)
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return _read_choice(typing.get_args(annotation), data, path, problems)
    if origin is tuple:
        return _read_tuple(typing.get_args(annotation), data, path, problems)
    if is_union(annotation):
        return _read_union(annotation, data, path, problems)
    return _read_scalar(annotation, data, path, problems)


def _read_dataclass(record: type, data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, Mapping):
        problems.append(Problem(path or "config", f"expected a group of settings, got {show(data)}"))
        return None
    hints = _hints(record)
    fields = {field.name: field for field in dataclasses.fields(record)}
    unknown = [name for name in data if name not in fields]
    for name in unknown[:_MAX_UNKNOWN_NAMED]:
        close = difflib.get_close_matches(str(name), fields, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(fields)}"
        of_kind = f" of kind {_kinds(record)[0]}" if _is_tagged(record) else ""
        problems.append(Problem(_join(path, str(name)), f"unknown setting{of_kind}{hint}"))
    if len(unknown) > _MAX_UNKNOWN_NAMED:
        more = len(unknown) - _MAX_UNKNOWN_NAMED
        problems.append(Problem(path or "config", f"has {more} more unknown settings"))
    values = {}
    for name, field in fields.items():
        field_path = _join(path, name)
        if name in data:
            values[name] = _read_field(hints[name], field.metadata, data[name], field_path, problems)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(Problem(field_path, "missing, and it has no default"))
            values[name] = _UNREADABLE
    value = _build(record, values)
    _cross_check(value, path, problems)
    return value


def _build(record: type, values: dict[str, Any]) -> Any:
    """Make the dataclass; unreadable settings are set without its constructor, which may check types."""
    if all(value is not _UNREADABLE for value in values.values()):
        return record(**values)
    value = object.__new__(record)
    for field in dataclasses.fields(record):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        object.__setattr__(value, field.name, values.get(field.name, default))
    return value


def _read_field(
    annotation: Any, metadata: Mapping[str, Any], data: Any, path: str, problems: list[Problem]
) -> Any:
    before = len(problems)
    value = _read(annotation, data, path, problems)
    if len(problems) == before:
        problems.extend(_out_of_bounds(metadata, value, path))
    is_group = dataclasses.is_dataclass(value)
    return value if is_group or len(problems) == before else _UNREADABLE


def _cross_check(value: Any, path: str, problems: list[Problem]) -> None:
    """Add what the dataclass's own `check` finds, as far as it gets without the unreadable settings."""
    known = {problem.path for problem in problems}
    check: Callable[[], Iterator[Problem]] = getattr(value, "check", lambda: iter(()))
    # A check that touches an unreadable setting fails; what it has found before that still counts.
    with contextlib.suppress(TypeError, AttributeError) if problems else contextlib.nullcontext():
        for problem in check():
            found = Problem(_join(path, problem.path), problem.message)
            if found.path not in known:
                problems.append(found)


def _out_of_bounds(metadata: Mapping[str, Any], value: Any, path: str) -> Iterator[Problem]:
    numbers = value if isinstance(value, tuple) else (value,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        minimum, maximum, above = (metadata.get(name) for name in ("minimum", "maximum", "above"))
        if minimum is not None and number < minimum:
            yield Problem(path, f"must be at least {minimum}, got {show(number)}")
        elif above is not None and number <= above:
            yield Problem(path, f"must be greater than {above}, got {show(number)}")
        elif maximum is not None and number > maximum:
            yield Problem(path, f"must be at most {maximum}, got {show(number)}")
        elif isinstance(number, int) and abs(number) > LARGEST_INT:
            yield Problem(path, f"must be at most {LARGEST_INT} in size, got {show(number)}")
        elif isinstance(number, float) and number and not SMALLEST_FLOAT <= abs(number) <= LARGEST_FLOAT:
            yield Problem(path, f"must be 0, or between 1.2e-38 and 3.4e+38 in size, got {show(number)}")


def _read_choice(choices: tuple[Any, ...], data: Any, path: str, problems: list[Problem]) -> Any:
    for choice in choices:
        if type(data) is type(choice) and data == choice:
            return choice
    problems.append(Problem(path, f"must be one of {', '.join(map(str, choices))}, got {show(data)}"))
    return None


def _read_tuple(annotations: tuple[Any, ...], data: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(data, list | tuple):
        problems.append(Problem(path, f"expected a list, got {show(data)}"))
        return None
    if len(data) > _MAX_LIST_LENGTH:
        problems.append(Problem(path, f"expected at most {_MAX_LIST_LENGTH} values, got {len(data)}"))
        return None
    if len(annotations) == 2 and annotations[1] is Ellipsis:
        annotations = (annotations[0],) * len(data)
    if len(annotations) != len(data):
        problems.append(Problem(path, f"expected {len(annotations)} values, got {len(data)}"))
        return None
    return tuple(
        _read(annotation, item, f"{path}[{index}]", problems)
        for index, (annotation, item) in enumerate(zip(annotations, data))
    )


def _read_union(annotation: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    """An optional value, or one of several records that are told apart by their field `kind`."""
    options = typing.get_args(annotation)
    if data is None and type(None) in options:
        return None
    alternatives = [option for option in options if option is not type(None)]
    if len(alternatives) == 1:
        return _read(alternatives[0], data, path, problems)
    records = {_kinds(record)[0]: record for record in alternatives}
    known = ", ".join(records)
    if not isinstance(data, Mapping):
        problems.append(Problem(path, f"expected a group with a kind ({known}), got {show(data)}"))
        return None
    chosen = data.get("kind")
    if not isinstance(chosen, str) or chosen not in records:
        problems.append(Problem(_join(path, "kind"), f"must be one of {known}, got {show(chosen)}"))
        return None
    return _read_dataclass(records[chosen], data, path, problems)


def _kinds(record: type) -> tuple[str, ...]:
    """The values that `kind` may have in this record: one, if it is one of a union."""
    return typing.get_args(_hints(record).get("kind"))


def _read_scalar(annotation: Any, data: Any, path: str, problems: list[Problem]) -> Any:
    # bool is a subclass of int: an explicit check keeps `true` from being read as 1.
    if annotation is float and type(data) in (int, float):
        try:
            number = float(data)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
        problems.append(Problem(path, f"must be a finite number, got {show(data)}"))
        return None
    if type(data) is annotation:
        return data
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    problems.append(Problem(path, f"expected {names.get(annotation, annotation)}, got {show(data)}"))
    return None


def show(data: Any) -> str:
    """A value as it is quoted in a message: on one line, shortened, without control characters."""
    try:
        text = repr(data)
    except (RecursionError, ValueError):  # nested too deeply, or a whole number of too many digits
        return f"a {type(data).__name__} that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
