"""Some turns of phrase put the subject of an English sentence last. Our texts do without them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "cenie").rglob("*"))
    if path.suffix in (".md", ".py", ".js", ".html")
)
BANNED = ("so many", "of which", "lest", "whoever")
_BREAK = r"[\s#\"]+"
"""Lines break within a phrase: in comments, and between the parts of a text."""
_PHRASES = re.compile(rf"\b({'|'.join(phrase.replace(' ', _BREAK) for phrase in BANNED)})\b", re.IGNORECASE)


def offenders(text: str) -> list[tuple[int, str]]:
    """The banned phrases of a text, each with the number of its line."""
    return [(text.count("\n", 0, found.start()) + 1, found[0]) for found in _PHRASES.finditer(text)]


def test_texts_do_without_banned_phrases() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {' '.join(phrase.split())}"
        for path in TEXTS
        for line, phrase in offenders(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_banned_phrases_are_found_across_lines_and_not_inside_of_words() -> None:
    text = 'Lest we forget.\n# It has so\n# many.\n"a level of "\n"which"\nThe largest, least and coldest.'
    assert [line for line, _ in offenders(text)] == [1, 2, 4]


def test_docstrings_begin_with_their_subject() -> None:
    late = re.compile(r'"""(What|How|Of|Whom?)\b')
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        if path.suffix == ".py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if late.search(line)
    ]
    assert found == []
