"""A flow chart in Mermaid's words as a picture, so that the site needs no script for it.

It reads what docs/design.md uses: nodes `name["<b>title</b><br/>text"]` and arrows `a --> b`.
"""

import html
import re
from collections.abc import Iterable

WIDTH, HEIGHT, ACROSS, DOWN = 236, 46, 14, 44
_NODE = re.compile(r"^\s*(\w+)\(?\[\"?(.+?)\"?\]\)?$", re.MULTILINE)
_ARROW = re.compile(r"^\s*(\w+) --> (\w+)$", re.MULTILINE)


def drawn(chart: str) -> str:
    """The chart as an SVG in the colours of the page. What is imported by others stands further down."""
    arrows, back = _without_a_cycle(_ARROW.findall(chart))
    labels = dict(_NODE.findall(chart))
    names = list(dict.fromkeys([*labels, *(name for arrow in arrows for name in arrow)]))
    rows = _rows(names, arrows)
    widest = max(map(len, rows))
    places = {}
    for depth, row in enumerate(rows):
        left = (widest - len(row)) * (WIDTH + ACROSS) / 2
        for index, name in enumerate(row):
            places[name] = (left + index * (WIDTH + ACROSS), depth * (HEIGHT + DOWN))
    width = widest * (WIDTH + ACROSS) - ACROSS
    height = len(rows) * (HEIGHT + DOWN) - DOWN
    parts = [_arrow(places[start], places[end]) for start, end in _direct(arrows)]
    parts += [_arrow(places[start], places[end], "arrow back") for start, end in back]
    parts += [_box(places[name], labels.get(name, name)) for name in names]
    title = "The rooms of the library and what each imports; the same as a list is in the table above."
    attributes = f'class="rooms" role="img" aria-label="{title}" viewBox="-4 -4 {width + 8} {height + 8}"'
    tip = '<path d="M0 0L8 4L0 8z"/>'
    size = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    marker = f'<defs><marker id="tip" {size}>{tip}</marker></defs>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes}>{marker}{"".join(parts)}</svg>'


def _reach(name: str, arrows: list[tuple[str, str]]) -> set[str]:
    """All that can be reached from a name in one step or more."""
    found, ahead = set(), [name]
    while ahead:
        start = ahead.pop()
        new = {end for before, end in arrows if before == start} - found
        found |= new
        ahead += new
    return found


def _without_a_cycle(arrows: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The arrows without the first one that closes all cycles, and that one."""
    if not any(start in _reach(start, arrows) for start, _ in arrows):
        return arrows, []
    for arrow in arrows:
        rest = [other for other in arrows if other != arrow]
        if not any(start in _reach(start, rest) for start, _ in rest):
            return rest, [arrow]
    raise ValueError("no single arrow closes all cycles")


def _rows(names: list[str], arrows: list[tuple[str, str]]) -> list[list[str]]:
    """The names in rows: each stands above all that it imports."""
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for start, end in arrows:
            depth[start] = max(depth[start], depth[end] + 1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in names:
        rows[max(depth.values()) - depth[name]].append(name)
    return rows


def _direct(arrows: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """The arrows that no path of others replaces."""
    return [
        (start, end)
        for start, end in arrows
        if not any(end in _reach(other, arrows) for first, other in arrows if first == start and other != end)
    ]


def _arrow(start: tuple[float, float], end: tuple[float, float], kind: str = "arrow") -> str:
    x1, y1, x2, y2 = start[0] + WIDTH / 2, start[1] + HEIGHT, end[0] + WIDTH / 2, end[1]
    bend = (y2 - y1) / 2
    line = f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"
    return f'<path class="{kind}" marker-end="url(#tip)" d="{line}"/>'


def _box(place: tuple[float, float], label: str) -> str:
    x, y = place
    title, _, text = label.partition("<br/>")
    title = re.sub("<[^>]+>", "", title)
    lines = [
        f'<text x="{x + WIDTH / 2}" y="{y + (20 if text else 28)}" class="title">{html.escape(title)}</text>'
    ]
    if text:
        lines.append(f'<text x="{x + WIDTH / 2}" y="{y + 36}">{html.escape(text)}</text>')
    return f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{"".join(lines)}'
