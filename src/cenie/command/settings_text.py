"""The text of `--help` on settings: choices, bounds, values, and the sources of defaults."""

import dataclasses
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from cenie import settings
from cenie.settings import Description
from cenie.system.streams import printable

_NARROWEST, _WIDEST = 40, 110
"""Columns of a line: longer ones are hard to read, however wide the terminal is."""

_TYPES = {int: "INT", float: "FLOAT", str: "TEXT", bool: "true|false"}


def terminal_width() -> int:
    """The number of columns a text may have: the variable COLUMNS, the width of the terminal, or 80."""
    return max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))


def paragraphs(text: str, width: int, indent: str = "") -> str:
    """A text wrapped to a width. Its paragraphs, between empty lines, stay."""
    return "\n\n".join(_filled(part, width, indent) for part in text.split("\n\n"))


def row(name: str, text: str, width: int) -> str:
    """A name and a text beside it, whose further lines are indented."""
    return textwrap.fill(f"{name}: {text}", width, subsequent_indent=" " * 6, break_on_hyphens=False)


def settings_text(
    described: Iterable[Description],
    width: int,
    set_by: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
) -> str:
    """All settings by their groups, each with its option, what it decides and its values.

    Args:
        described: The settings, as `settings.describe` finds them.
        width: Columns of a line.
        set_by: Of settings whose value is not their own default, what has set it, such as `preset quick`.
        only: Paths of groups or of single settings; all if there are none.

    Returns:
        Lines of at most `width` columns, as far as words allow it.
    """
    described = list(described)
    chosen = {item.path: item.value for item in described if item.kinds}
    left_out = [item.path for item in described if item.is_group and item.value is None]
    sections: dict[tuple[str, Any], list[Description]] = {}
    for item in described:
        if not only or any(f"{item.path}.".startswith(f"{path}.") for path in only):
            sections.setdefault((item.group, item.when), []).append(item)
    texts = []
    for (group, when), items in sections.items():
        entries = [item for item in items if not item.is_group]
        if not entries:
            continue
        is_used = all(chosen.get(path) in kinds for path, kinds in when)
        is_used = is_used and not any(f"{group}.".startswith(f"{path}.") for path in left_out)
        texts.append(_heading(group, when, width, is_used=is_used))
        about = next((item for item in items if item.is_group), None)
        if about is not None and about.help:
            how = " One of these settings on the command line puts it in use." if about.value is None else ""
            texts.append(_filled(about.help + how, width, "  "))
        texts += (_entry(item, width, (set_by or {}).get(item.path, "here")) for item in entries)
    return "\n\n".join(texts)


def _heading(group: str, when: Sequence[tuple[str, Sequence[str]]], width: int, *, is_used: bool) -> str:
    words = group or "general"
    if when:
        path, kinds = when[-1]
        of_kind = f"of kind {_alternatives(kinds)}"
        words += f" {of_kind}" if path == f"{group}.kind" else f", if {path} is {_alternatives(kinds)}"
    line = _filled(f"{words}{'' if is_used else ' (not in use)'}", width)
    return f"{line}\n{'-' * min(width, max(map(len, line.splitlines())))}"


def _alternatives(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _entry(item: Description, width: int, set_by: str) -> str:
    """The option of a setting, and below it what it decides, its kinds and its values."""
    lines = [_option(item, width)]
    if item.help:
        lines.append(_filled(item.help, width, "      "))
    lines += (
        textwrap.fill(printable(f"{kind}: {text}"), width, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for kind, text in item.kinds
        if text
    )
    lines.append(_filled(f"[{values_text(item, set_by)}]", width, "      "))
    return "\n".join(lines)


def _option(item: Description, width: int) -> str:
    group, dot, name = item.path.replace("_", "-").rpartition(".")
    if item.hint is bool:
        return f"  --{group}{dot}[no-]{name}"
    bounds = ", ".join(bounds_of(item))
    line = f"  --{group}{dot}{name} {type_text(item)}{f' ({bounds})' if bounds else ''}"
    if len(line) <= width:
        return line
    spaced = re.sub(r"(?<=\w),(?=\w)", ", ", line.strip())
    return textwrap.fill(
        spaced,
        width,
        initial_indent="  ",
        subsequent_indent=" " * 10,
        break_on_hyphens=False,
        break_long_words=False,
    )


def type_text(item: Description) -> str:
    """The values that may be written for a setting, in words."""
    if item.kinds:
        return f"{{{','.join(kind for kind, _ in item.kinds)}}}"
    return _type_text(item.hint)


def _type_text(hint: Any) -> str:
    if settings.is_union(hint):
        return "|".join(_type_text(option) for option in get_args(hint))
    if hint is type(None):
        return "null"
    if get_origin(hint) is Literal:
        return f"{{{','.join(map(str, get_args(hint)))}}}"
    if get_origin(hint) is tuple:
        items = get_args(hint)
        repeated = items[1:] == (Ellipsis,)
        return ",".join(map(_type_text, (items[0], items[0]) if repeated else items)) + ",..." * repeated
    return _TYPES.get(hint, "VALUE")


def bounds_of(item: Description) -> Iterator[str]:
    """The bounds of a setting in words."""
    low, high = item.minimum, item.maximum
    if low is not None and high is not None:
        yield f"{_number(low)} to {_number(high)}"
        return
    if low is not None:
        yield f"at least {_number(low)}"
    if item.above is not None:
        yield f"above {_number(item.above)}"
    if high is not None:
        yield f"at most {_number(high)}"


def values_text(item: Description, set_by: str) -> str:
    """The present value with what has set it, and the setting's own default with where that comes from.

    A source stands beside the number that it gave, and beside no other.
    """
    if item.default is dataclasses.MISSING:
        return f"{set_by}: {value_text(item.value)}; it has no default"
    source = f" ({item.source})" if item.source else ""
    default = f"default: {value_text(item.default)}{source}"
    same = item.value == item.default
    return default if same else f"{set_by}: {value_text(item.value)}; {default}"


def value_text(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(value_text, value)) or "[]"
    if isinstance(value, int | float):
        return _number(value)
    return printable(str(value)) or '""'


def _number(number: int | float) -> str:
    """The shortest text that is read as this number."""
    short = f"{number:g}"
    return short if float(short) == number and isinstance(number, float) else str(number)


def _filled(text: str, width: int, indent: str = "") -> str:
    line = printable(" ".join(text.split()), longest=10_000)
    return textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
