"""What a file says must not steer the terminal it is shown on."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from cenie.run.terminal import printable


def test_escape_sequences_are_written_out() -> None:
    assert printable("\x1b[31mred\x1b[0m\r\x07") == "\\x1b[31mred\\x1b[0m\\r\\x07"
    assert printable("\x9b2J \u202egnp.exe \ud800") == "\\x9b2J \\u202egnp.exe \\ud800"


def test_ordinary_text_stays_as_it_is() -> None:
    text = "error: größer als 0, 迷路 – 3 × 4\nnext line"
    assert printable(text) == text


@given(st.text(st.characters()))
def test_nothing_is_left_that_a_terminal_obeys_or_cannot_show(text: str) -> None:
    shown = printable(text)
    assert not [letter for letter in shown if unicodedata.category(letter)[0] == "C" and letter != "\n"]
    shown.encode()
    assert printable(shown) == shown
