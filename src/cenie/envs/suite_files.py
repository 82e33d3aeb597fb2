"""The name of a suite that was read from a file. Loads no JAX."""

import hashlib

PREFIX = "file:"
"""No suite of a domain has a name that begins so (`Domain` refuses it)."""


def file_suite_name(path: str, content: str) -> str:
    """The name of the suite in a file, such as `file:oval.csv@1f0c2a9b`.

    It is no name of a built-in suite, says that it is a file, and tells files of equal names and different
    contents apart.
    """
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    title = "".join(letter if letter.isprintable() else "_" for letter in name)
    return f"{PREFIX}{title}@{hashlib.sha256(content.encode(errors='surrogatepass')).hexdigest()[:8]}"


def is_file_suite(name: str) -> bool:
    """Whether a suite of this name was read from a file."""
    return name.startswith(PREFIX)
