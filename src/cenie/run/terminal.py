"""Text on its way to a terminal. Imports no JAX."""


def printable(text: str) -> str:
    """`text` with whatever could steer a terminal written out (`\\x1b`), line breaks excepted.

    Messages quote files, and files may come from anyone: control characters move the cursor or retitle the
    window, marks of writing direction make a text read as another, and halves of surrogate pairs cannot be
    written at all.
    """
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )
